"""What tests of several workers behind something share: stories to ask for, a client that leaves, and load that goes on while
a worker is killed and comes back.
"""
import concurrent.futures
import contextlib
import http.client
import json
import signal
import subprocess
import tempfile
import threading
import time

from served import ROOT, WEATHER_SAYS, ask, check, free_port, stop, wait_for

STORYTELLER = ROOT / "models/storyteller"


def until(holds, seconds=120):
    for _ in range(int(seconds / 0.1)):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


def three_turns(talk, stream, model):
    """Questions, calls of a tool, results and answers of the weather's script, through whatever stands in between."""
    for _ in range(3):
        talk.user("The weather?")
        _, _, calls = talk.ask(stream, model=model)
        check([call[1:] for call in calls] == [("weather", {"city": "Paris", "days": 3})], f"calls: {calls}")
        talk.result(calls[0][0], "sunny")
        text, _, _ = talk.ask(stream, model=model)
        check(text == WEATHER_SAYS, text)


def story(seed, model="storyteller", **more):
    return {"model": model, "messages": [{"role": "user", "content": f"Tell me a story about fox number {seed}."}],
            "temperature": 0, **more}


def metric(url, name, label=""):
    """The sum of a metric over its lines with the label."""
    return sum(float(line.split()[-1]) for line in ask(url + "/metrics").splitlines() if line.startswith(name) and label in line)


class Worker:
    """A server of Storyteller that can be killed and started again at the same address."""

    def __init__(self, program, *options):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [program, "serve", STORYTELLER, "--port", str(self.port), *options]

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        wait_for(self.url + "/ready", self.process)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        self.start()
        return self

    def __exit__(self, *_):
        stop(self.process)
        self.log.close()


def leave_early(url, workers, model="storyteller"):
    """A client leaves in the middle of a long answer: the worker that writes it ends it."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = story(1, model, stream=True, max_tokens=3500, ignore_eos=True)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    check(answer.status == 200 and answer.readline().startswith(b"data: "), "it has begun")
    with contextlib.closing(connection):
        check(sum(metric(each, "vllm:num_requests_running") for each in workers) == 1, "one runs")
        answer.close()
    aborted = 'finished_reason="abort"'
    until(lambda: sum(metric(each, "vllm:request_success_total", aborted) for each in workers) == 1, 30)


def lose_nothing(url, worker, model="storyteller"):
    """Under load the worker is killed, and comes back. Whoever stands at `url` retries what was not yet answered, so no
    request may fail."""
    results, done = [], threading.Event()

    def client(seed):
        while not done.is_set():
            try:
                answer = ask(url + "/v1/chat/completions", story(seed, model, max_tokens=24))
                results.append(answer["choices"][0]["finish_reason"] in ("stop", "length"))
            except (AssertionError, OSError) as error:
                results.append(str(error)[:300])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(client, seed) for seed in range(4)]
        try:
            until(lambda: len(results) >= 12)
            check(metric(worker.url, "vllm:request_success_total") > 0, "the worker has answered something")
            worker.kill()
            before = len(results)
            until(lambda: len(results) >= before + 12)
            worker.start()
            until(lambda: metric(worker.url, "vllm:request_success_total") > 0, 180)  # it gets requests again
        finally:
            done.set()
        for each in clients:
            each.result(120)
    lost = [result for result in results if result is not True]
    check(not lost, f"{len(lost)} of {len(results)} requests were lost: {lost[:3]}")
    return f"{len(results)} requests"
