"""NVIDIA Dynamo (ai-dynamo) with workers of python/fourfold-dynamo: its frontend and its KV router in front of two of them,
discovery by files, requests over TCP, events over ZMQ, no GPU.
"""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

from fleet import STORYTELLER, story, until
from served import ROOT, ask, check, free_port, stop, wait_for

OWN_SERVERS = True


def low_port():
    """A free port that Dynamo takes for its own: it reads 16 bits with a sign."""
    while (port := free_port() % 12_000 + 20_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Fleet:
    """`with Fleet(program) as fleet`: a frontend at fleet.url with two workers."""

    def __init__(self, program, *options):
        self.program, self.options = pathlib.Path(program), options

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="fourfold-dynamo-", ignore_cleanup_errors=True)
        place = pathlib.Path(self.folder.name)
        self.log = open(place / "log", "w+")
        self.environment = {**os.environ, "DYN_FILE_KV": str(place / "discovery"), "DYN_DISCOVERY_BACKEND": "file",
                            "DYN_REQUEST_PLANE": "tcp", "DYN_EVENT_PLANE": "zmq", "DYN_LOG": "info", "HF_HUB_OFFLINE": "1",
                            "FOURFOLD_ENGINE_LIBRARY": str(self.program.parent / "libfourfold_engine.so"),
                            "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'python/fourfold-dynamo'}"}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.system = {}  # each worker's own port
        self.processes = [self.run("-m", "dynamo.frontend", "--http-port", str(self.port), *self.options)]
        try:
            self.workers = [self.worker() for _ in range(2)]
            until(self.has_model)
            until(lambda: all(self.metric(port, "fourfold_pages_max") for port in self.system.values()))
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def run(self, *words, **more):
        return subprocess.Popen([sys.executable, *words], stdout=self.log, stderr=self.log, env={**self.environment, **more})

    def worker(self):
        port = low_port()
        process = self.run("-m", "fourfold_dynamo", str(STORYTELLER), DYN_SYSTEM_PORT=str(port))
        self.processes.append(process)
        self.system[process] = port
        return process

    def has_model(self):
        check(all(process.poll() is None for process in self.processes), "a process has ended")
        with contextlib.suppress(OSError, AssertionError):
            return [each["id"] for each in ask(self.url + "/v1/models")["data"]] == ["storyteller"]
        return False

    def metric(self, port, name):
        with contextlib.suppress(OSError, AssertionError):
            return sum(float(line.split()[-1]) for line in ask(f"http://127.0.0.1:{port}/metrics").splitlines()
                       if line.startswith(name + "{"))
        return 0

    def __exit__(self, kind, *_):
        for process in reversed(self.processes):
            stop(process)
        self.log.flush()
        if kind is not None:
            print(pathlib.Path(self.log.name).read_text()[-6000:])
        self.log.close()
        self.folder.cleanup()


def answers(program):
    """Dynamo (ai-dynamo): chat whole and streamed, completions, stop strings and refusals through its frontend; two workers"""
    with Fleet(program) as fleet:
        whole = ask(fleet.url + "/v1/chat/completions", story(1, max_tokens=40))
        choice = whole["choices"][0]
        check(choice["message"]["content"] and choice["finish_reason"] in ("stop", "length"), f"{whole}")
        check(whole["usage"]["completion_tokens"] <= 40 and whole["usage"]["prompt_tokens"] > 5, f"{whole['usage']}")
        pieces = list(streamed(fleet, story(1, max_tokens=40)))
        check("".join(pieces) == choice["message"]["content"] and len(pieces) > 3, f"the same in pieces: {pieces}")
        text = ask(fleet.url + "/v1/completions", {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 30,
                                                   "temperature": 0})["choices"][0]["text"]
        word = text.split()[3]
        cut = ask(fleet.url + "/v1/completions", {"model": "storyteller", "prompt": "Once upon a time", "max_tokens": 30,
                                                  "temperature": 0, "stop": [word]})["choices"][0]
        check(cut["finish_reason"] == "stop" and cut["text"] == text[:text.index(word)], f"{cut} of {text}")
        try:
            ask(fleet.url + "/v1/chat/completions", story(1, max_tokens=4, logprobs=True))
            raise RuntimeError("log-probabilities were not refused")
        except AssertionError as error:
            check("log-probabilities are not handed to Dynamo" in str(error), f"{error}")
        for _ in range(8):
            ask(fleet.url + "/v1/chat/completions", story(2, max_tokens=4))
        shares = [fleet.metric(port, "fourfold_prompt_tokens_total") for port in fleet.system.values()]
        check(min(shares) > 0, f"both have worked: {shares}")


def streamed(fleet, body, leave_after=None):
    connection = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        check(answer.status == 200, f"{answer.status} {answer.read()[:300] if answer.status != 200 else ''}")
        count = 0
        while line := answer.readline():
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    if choice["delta"].get("content"):
                        yield choice["delta"]["content"]
                count += 1
                if count == leave_after:
                    answer.close()
                    return


def cancels(program):
    """Dynamo (ai-dynamo): a client that leaves ends its answer at the worker"""
    with Fleet(program) as fleet:
        running = lambda: sum(fleet.metric(port, "fourfold_sequences_running")  # noqa: E731
                              for port in fleet.system.values())
        list(streamed(fleet, story(1, max_tokens=3500, ignore_eos=True), leave_after=3))
        until(lambda: running() == 0, 30)
        made = sum(fleet.metric(port, "fourfold_answer_tokens_total") for port in fleet.system.values())
        check(made < 3000, f"{made} tokens were made for nobody")
        return f"{made:.0f} of 3500 tokens"


def routes(program):
    """Dynamo (ai-dynamo): its KV router, by our events, sends prompts where their beginnings are cached"""
    with Fleet(program, "--router-mode", "kv", "--kv-cache-block-size", "64") as fleet:
        beginnings = [f"number {talk} " * 60 for talk in range(6)]

        def turn(text):
            return ask(fleet.url + "/v1/completions", {"model": "storyteller", "prompt": text, "max_tokens": 1,
                                                       "temperature": 0})

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(turn, beginnings))
        shares = [fleet.metric(port, "fourfold_prompt_tokens_total") for port in fleet.system.values()]
        check(min(shares) > 0, f"both have worked: {shares}")
        time.sleep(2)  # events are on their way
        cached = lambda: sum(fleet.metric(port, "fourfold_cached_tokens_total")  # noqa: E731
                             for port in fleet.system.values())
        hits = 0
        for round_ in range(2):
            for beginning in beginnings:
                before = cached()
                turn(beginning + f"and then {round_}")
                hits += cached() - before >= 128
        check(hits >= 11, f"{hits} of 12 prompts came to where their beginning is")  # by chance, some nine
        return f"{hits} of 12 prompts came to where their beginning is"


def survives(program):
    """Dynamo (ai-dynamo): a worker killed and restarted under load; its frontend moves what was not answered, no request lost"""
    with Fleet(program, "--migration-limit", "3") as fleet:
        results, done = [], []

        def client(seed):
            while not done:
                try:
                    answer = ask(fleet.url + "/v1/chat/completions", story(seed, max_tokens=24))
                    results.append(answer["choices"][0]["finish_reason"] in ("stop", "length"))
                except (AssertionError, OSError) as error:
                    results.append(str(error)[:300])

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(client, seed) for seed in range(4)]
            try:
                until(lambda: len(results) >= 12)
                victim = fleet.workers[0]
                check(fleet.metric(fleet.system[victim], "fourfold_prompt_tokens_total") > 0, "it has worked")
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                before = len(results)
                until(lambda: len(results) >= before + 12)
                port = fleet.system[fleet.worker()]
                until(lambda: fleet.metric(port, "fourfold_prompt_tokens_total") > 0, 180)
            finally:
                done.append(True)
            for each in clients:
                each.result(120)
        lost = [result for result in results if result is not True]
        check(not lost, f"{len(lost)} of {len(results)} requests were lost: {lost[:3]}")
        return f"{len(results)} requests"


ROWS = [answers, cancels, routes, survives]
