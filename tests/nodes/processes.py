"""Servers and ranks as processes, for the tests beside this one: the program is their first argument.
"""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
RANKS = 4
# So many requests at once, with tokens drawn as well as taken.
PROMPTS = ["one", "two words", "a prompt that is a good deal longer than the others are"]
NOTICED_S = 5.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(truth, seconds, what):
    begin = time.monotonic()
    while not truth():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - begin


def is_alive(pid):
    """One that nobody has asked about its end is a zombie, and dead."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Process:
    """A program with its output in a file; inside a network namespace where one is named."""

    def __init__(self, folder, name, words, inside=None):
        self.log = pathlib.Path(folder) / f"{name}.log"
        prefix = ["ip", "netns", "exec", inside] if inside else []
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen([*prefix, str(PROGRAM), *words], stdout=out, stderr=out,
                                            stdin=subprocess.DEVNULL)

    def text(self):
        return self.log.read_text(errors="replace")

    def send(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGTERM, seconds=30):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"it did not end: {self.text()[-2000:]}") from None


ON_CPU = ["--tp", str(RANKS), "--threads", str(RANKS), "--max-context", "2048", "--kv-tokens", "8192"]


class Server(Process):
    def __init__(self, folder, model, words, host="127.0.0.1", inside=None, ranks=ON_CPU):
        self.port = free_port()
        self.url = f"http://{host}:{self.port}"
        super().__init__(folder, f"serve-{self.port}", [
            "serve", model, "--host", host, "--port", str(self.port), "--no-auth", *ranks, *words], inside)

    def ask(self, path, body=None, timeout=120):
        """Status and JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except OSError:
            return 0, None

    def is_running(self):
        status, said = self.ask("/status.json", timeout=5)
        return status == 200 and said["sequences"]["running"] > 0

    def is_ready(self):
        return self.ask("/ready", timeout=5)[0] == 200

    def wait(self, seconds=120):
        def there():
            if self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}: {self.text()[-2000:]}")
            return self.is_ready()
        wait_until(there, seconds, f"/ready of {self.text()[-2000:]}")

    def answers(self):
        """What the model says to all prompts at once: tokens, and their log-probabilities to the last bit."""
        out = [None] * (2 * len(PROMPTS))

        def one(index):
            drawn = {"temperature": 1.0, "seed": 7} if index % 2 else {"temperature": 0}
            status, answer = self.ask("/v1/completions", {"prompt": PROMPTS[index // 2], "max_tokens": 24, "logprobs": 2,
                                                          "model": "default", **drawn})
            assert status == 200, (status, answer, self.text()[-2000:])
            choice = answer["choices"][0]
            out[index] = (choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"])
        threads = [threading.Thread(target=one, args=(index,)) for index in range(len(out))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert None not in out, out
        return out


def join_words(address, token, rank=None):
    which = ["--rank", str(rank)] if rank else []
    return ["rank", "--join", address, "--token-file", str(token), "--threads", "1", *which]


class Group(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scope = contextlib.ExitStack()
        cls.folder = pathlib.Path(cls.scope.enter_context(tempfile.TemporaryDirectory()))
        cls.model = str(cls.folder / "model")
        os.environ["XDG_CACHE_HOME"] = str(cls.folder / "cache")  # where checksums are kept
        subprocess.run([PROGRAM, "make-model", cls.model, "--shape", "tiny"], check=True, capture_output=True)
        cls.token = cls.folder / "token"
        cls.token.write_text("0123456789abcdef0123456789abcdef\n")
        cls.token.chmod(0o600)
        alone = Server(cls.folder, cls.model, [])
        alone.wait()
        cls.wanted = alone.answers()
        assert len({text for text, _, _ in cls.wanted}) > 1, "the answers prove nothing"
        alone.end()

    @classmethod
    def tearDownClass(cls):
        cls.scope.close()

    def setUp(self):
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()

    def start(self, process):
        self.processes.append(process)
        return process

    def rank(self, address, number=None, inside=None):
        return self.start(Process(self.folder, f"rank-{len(self.processes)}",
                                  join_words(address, self.token, number), inside))

    def by_hand(self, address, host="127.0.0.1", inside=None):
        return self.start(Server(self.folder, self.model,
                                 ["--nodes", "by-hand", "--rank-listen", address, "--token-file", str(self.token)],
                                 host, inside))

    def expect_lost(self, server, begin, rank):
        """/ready says so in time, and who asks is told."""
        wait_until(lambda: not server.is_ready(), 20, "/ready turns false")
        self.assertLess(time.monotonic() - begin, NOTICED_S)
        status, said = server.ask("/ready")
        self.assertEqual((status, said["error"]["code"]), (503, "rank_lost"), said)
        self.assertIn(f"rank {rank} of {RANKS} was lost", said["error"]["message"])
        self.assertEqual(server.ask("/health")[0], 200)
        status, said = server.ask("/v1/completions", {"prompt": "x", "max_tokens": 2, "model": "default"})
        self.assertEqual(status, 503, said)

    def expect_same(self, server):
        self.assertEqual(server.answers(), self.wanted)


class SimulatedGroup(unittest.TestCase):
    """A model for processes with a simulated GPU each."""
    OPTIONS = ["--backend", "sim", "--tp", "2", "--max-context", "128", "--kv-tokens", "256", "--step-rows", "64"]

    def setUp(self):
        self.scope = contextlib.ExitStack()
        self.addCleanup(self.scope.close)
        self.folder = pathlib.Path(self.scope.enter_context(tempfile.TemporaryDirectory()))
        self.model = str(self.folder / "model")
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
        subprocess.run([PROGRAM, "make-model", self.model, "--shape", "tiny"], check=True, capture_output=True)
        self.token = self.folder / "token"
        self.token.write_text("0123456789abcdef0123456789abcdef\n")
        self.token.chmod(0o600)

    def start(self, process):
        def end():
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()
        self.scope.callback(end)
        return process

    def rank(self, address, *more, inside=None):
        words = ["rank", "--join", address, "--token-file", str(self.token), *more]
        return self.start(Process(self.folder, f"rank-{time.monotonic_ns()}", words, inside))

    def server(self, *words, host="127.0.0.1", inside=None):
        return self.start(Server(self.folder, self.model, words, host, inside, self.OPTIONS))

    def alone(self):
        return self.server()

    def answer(self, server):
        """Tokens taken and drawn, and their log-probabilities to the last bit."""
        out = []
        for drawn in ({"temperature": 0}, {"temperature": 1.0, "seed": 7}):
            status, answer = server.ask("/v1/completions", {"prompt": "one two", "max_tokens": 4, "logprobs": 1,
                                                            "model": "default", **drawn}, timeout=300)
            self.assertEqual(status, 200, (answer, server.text()[-2000:]))
            logprobs = answer["choices"][0]["logprobs"]
            out.append((logprobs["tokens"], logprobs["token_logprobs"]))
        return out
