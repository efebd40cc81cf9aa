"""Ranks as processes: four of them serve with the tokens of one process, one is killed and comes back, one falls silent, the
wire is slow and loses packets: nodes_test.py FOURFOLD FAKE_NCCL. The second is a library that stands in for NCCL.
"""
import contextlib
import json
import os
import pathlib
import queue
import random
import shutil
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
FAKE_NCCL = pathlib.Path(sys.argv.pop(1)).resolve()
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


class SlowRelay:
    """Bytes to an address and back, each way 2 ms late; one piece in a hundred 200 ms, as after a packet that was lost."""

    def __init__(self, to):
        self.to = to
        self.random = random.Random(1)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listening.accept()[0]
                try:
                    far = socket.create_connection(self.to)
                except OSError:
                    near.close()
                    continue
                for one, other in ((near, far), (far, near)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    pieces = queue.Queue()
                    threading.Thread(target=self.read, args=(one, pieces), daemon=True).start()
                    threading.Thread(target=self.write, args=(other, pieces), daemon=True).start()

    def read(self, source, pieces):
        due = 0.0
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                late = 0.2 if self.random.random() < 0.01 else 0.002
                due = max(due, time.monotonic() + late)  # in order, as TCP brings it
                pieces.put((due, piece))
        pieces.put((0.0, b""))

    def write(self, target, pieces):
        with contextlib.suppress(OSError):
            while True:
                due, piece = pieces.get()
                if not piece:
                    break
                time.sleep(max(0.0, due - time.monotonic()))
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listening.close()


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


class Nodes(Group):
    def test_started_here_and_one_that_is_killed_is_started_again(self):
        server = self.start(Server(self.folder, self.model, ["--nodes", "localhost"]))
        server.wait()
        self.expect_same(server)
        children = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True,
                                  text=True).stdout.split()
        self.assertEqual(len(children), RANKS - 1)
        os.kill(int(children[0]), signal.SIGKILL)
        wait_until(lambda: "was lost" in server.text() or "is gone" in server.text(), NOTICED_S, "the log says so")
        server.wait()
        self.expect_same(server)
        self.assertEqual(server.end(), 0)
        for child in children[1:]:
            self.assertFalse(pathlib.Path(f"/proc/{child}").exists(), "a rank is left behind")

    def test_by_ssh(self):
        """ssh as a script: the command it is given runs here."""
        tools = self.folder / "tools"
        tools.mkdir()
        script = tools / "ssh"
        script.write_text('#!/bin/sh\necho "$@" >> "$0.log"\nfor last; do :; done\n'
                          'SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22" exec sh -c "$last"\n')
        script.chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{tools}:{before}"
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        server = self.start(Server(self.folder, self.model, [
            "--nodes", "spark-1,spark-2", "--rank-program", str(PROGRAM), "--rank-listen", f"0.0.0.0:{free_port()}"]))
        server.wait()
        self.expect_same(server)
        self.assertEqual(server.end(), 0)
        calls = (tools / "ssh.log").read_text()
        self.assertEqual([calls.count("spark-1"), calls.count("spark-2")], [2, 1])
        self.assertNotIn("--token-file /", calls)

    def test_asked_to_end_while_ranks_are_waited_for(self):
        """What was started ends, too: an ssh that hangs, and its child."""
        tools = self.folder / "hanging"
        tools.mkdir()
        script = tools / "ssh"
        script.write_text('#!/bin/sh\nsleep 1000 &\necho $$ $! >> "$0.pids"\nwait\n')
        script.chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{tools}:{before}"
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        for number in (signal.SIGTERM, signal.SIGINT):
            pids = tools / "ssh.pids"
            pids.unlink(missing_ok=True)
            server = self.start(Server(self.folder, self.model, [
                "--nodes", "spark-1", "--rank-program", str(PROGRAM), "--rank-listen", f"0.0.0.0:{free_port()}"]))
            wait_until(lambda: pids.exists() and len(pids.read_text().split()) >= 2 * (RANKS - 1), 60, "ranks are started")
            self.assertEqual(server.end(number, 60), 0, server.text())
            self.assertIn("ended before the model was loaded", server.text())
            for pid in pids.read_text().split():
                wait_until(lambda pid=pid: not is_alive(pid), 30, f"{pid} ends")

    def test_by_hand_killed_silent_and_back(self):
        address = f"127.0.0.1:{free_port()}"
        ranks = {number: self.rank(address, number) for number in (1, 2, 3)}
        server = self.by_hand(address)
        server.wait()
        self.expect_same(server)

        # Killed while it answers: the stream ends with an error.
        streamed = []

        def stream():
            body = {"prompt": "x", "max_tokens": 1900, "model": "default", "stream": True, "temperature": 0,
                    "ignore_eos": True}
            request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(request, timeout=60) as answer:
                    for line in answer:
                        streamed.append(line.decode())
        thread = threading.Thread(target=stream)
        thread.start()
        wait_until(lambda: len(streamed) > 20, 60, "tokens come")
        ranks[2].send(signal.SIGKILL)
        begin = time.monotonic()
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertLess(time.monotonic() - begin, NOTICED_S)
        self.assertTrue(any("rank 2 of 4" in line for line in streamed[-4:]), streamed[-4:])
        self.expect_lost(server, begin, 2)
        self.rank(address)
        server.wait()
        self.expect_same(server)

        # Silent, with nothing to do: no connection is closed, nothing is said.
        ranks[3].send(signal.SIGSTOP)
        self.expect_lost(server, time.monotonic(), 3)
        # It goes on by itself, with what it had loaded.
        ranks[3].send(signal.SIGCONT)
        server.wait()
        self.expect_same(server)
        self.assertIn("the leader is lost", ranks[3].text())

        # Strangers, while it works.
        for _ in range(50):
            with socket.create_connection(tuple(address.split(":"))) as scanner:
                scanner.send(b"\x16\x03\x01 GET / HTTP/1.1\r\n\r\n")
        other = self.folder / "other"
        other.write_text("another token, of the same length\n")
        other.chmod(0o600)
        refused = self.start(Process(self.folder, "refused", join_words(address, other)))
        self.assertNotEqual(refused.process.wait(20), 0)
        self.assertIn("the token is not the leader's", refused.text())
        self.expect_same(server)
        self.assertEqual(server.end(), 0)
        for process in self.processes:
            if process not in (server, refused, ranks[2]):
                self.assertEqual(process.process.wait(20), 0, process.text())

    def test_a_slow_wire_that_stalls(self):
        port = free_port()
        relay = SlowRelay(("127.0.0.1", port))
        self.addCleanup(relay.close)
        ranks = [self.rank(relay.address, number) for number in (1, 2, 3)]
        server = self.by_hand(f"127.0.0.1:{port}")
        server.wait()
        self.expect_same(server)
        begin = time.monotonic()
        ranks[0].send(signal.SIGKILL)
        self.expect_lost(server, begin, 1)
        self.rank(relay.address)
        server.wait()
        self.expect_same(server)

    def test_another_model_is_refused(self):
        address = f"127.0.0.1:{free_port()}"
        other = str(self.folder / "other-model")
        subprocess.run([PROGRAM, "make-model", other, "--shape", "tiny", "--seed", "5"], check=True, capture_output=True)
        self.by_hand(address)
        rank = self.start(Process(self.folder, "wrong", [*join_words(address, self.token), other]))
        self.assertNotEqual(rank.process.wait(60), 0)
        self.assertRegex(rank.text(), "its model is not the leader's: its (weights|tensors) differ")

    def test_one_byte_of_the_weights_that_differs_is_refused(self):
        """Between the pages that are looked at first: only the checksum of every tensor shows it."""
        other = self.folder / "broken-copy"
        shutil.copytree(self.model, other)
        file = other / "model.safetensors"
        data = bytearray(file.read_bytes())
        pages, page_bytes = 64, 4096
        step = (len(data) - page_bytes) // (pages - 1)
        at = step * 40 + page_bytes + (step - page_bytes) // 2
        header_bytes = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:header_bytes])
        tensor = next(name for name, what in header.items() if name != "__metadata__"
                      and what["data_offsets"][0] <= at - header_bytes < what["data_offsets"][1])
        data[at] ^= 1
        file.write_bytes(data)
        address = f"127.0.0.1:{free_port()}"
        server = self.by_hand(address)
        rank = self.start(Process(self.folder, "broken", [*join_words(address, self.token, 2), str(other)]))
        self.assertNotEqual(rank.process.wait(120), 0)
        why = f"its weights are not the leader's: {tensor} in model.safetensors differs"
        self.assertIn(why, rank.text())
        self.assertIn(f"was refused: {why}", server.text())
        self.assertRegex(rank.text(), r"checksums of all weights: \d+ MB read in \d+ ms")
        self.assertEqual(server.ask("/ready")[0], 0, "it does not serve")
        # The place is free for one with the right weights.
        for number in (1, 2, 3):
            self.rank(address, number)
        server.wait()
        self.expect_same(server)

    def test_words_that_do_not_go_together(self):
        for words, says in ((["--tp", "4", "--nodes", "a,b,c,d"], "names 4 hosts for 3 ranks"),
                            (["--tp", "4", "--nodes", "by-hand"], "needs --token-file"),
                            (["--nodes", "a", "--tp", "1"], "there is no rank to be elsewhere"),
                            (["--tp", "4", "--nodes=-oProxyCommand=x"], "begins with '-'"),
                            (["--token-file", "x"], "there is no --nodes")):
            done = subprocess.run([PROGRAM, "serve", self.model, "--port", "0", *words], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(says, done.stderr, words)


class Simulated(unittest.TestCase):
    """Two processes with a simulated GPU each: what their kernels exchange goes over TCP, and the answers are those of two
    ranks in one process, to the last bit. On GPUs the same code runs."""
    OPTIONS = ["--backend", "sim", "--tp", "2", "--max-context", "128", "--kv-tokens", "256", "--step-rows", "64"]
    SAYS = "goes over TCP"
    LONG = {"prompt": "one two", "max_tokens": 100, "model": "default", "stream": True, "ignore_eos": True}

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

    def rank(self, address, *more):
        words = ["rank", "--join", address, "--token-file", str(self.token), *more]
        return self.start(Process(self.folder, f"rank-{time.monotonic_ns()}", words))

    def server(self, *words):
        return self.start(Server(self.folder, self.model, words, ranks=self.OPTIONS))

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

    def test_the_answers_of_one_process_and_one_that_is_killed(self):
        alone = self.alone()
        alone.wait()
        wanted = self.answer(alone)
        self.assertNotEqual(wanted[0], wanted[1], "the answers prove nothing")
        self.assertEqual(alone.end(), 0)

        address = f"127.0.0.1:{free_port()}"
        server = self.server("--nodes", "by-hand", "--rank-listen", address, "--token-file", str(self.token))
        refused = self.rank(address, "--threads", "1")
        self.assertNotEqual(refused.process.wait(60), 0)
        self.assertIn("the cpu backend alone has threads to choose", refused.text())
        rank = self.rank(address)
        server.wait()
        self.assertIn(self.SAYS, server.text())
        self.assertEqual(self.answer(server), wanted)

        # Killed in the middle of steps: kernels wait for it, and do not for long.
        streamed = []

        def stream():
            request = urllib.request.Request(server.url + "/v1/completions", json.dumps(self.LONG).encode(),
                                             {"Content-Type": "application/json"})
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=300) as answer:
                streamed.extend(line.decode() for line in answer)
        thread = threading.Thread(target=stream)
        thread.start()
        wait_until(server.is_running, 120, "it answers")
        time.sleep(1)
        rank.send(signal.SIGKILL)
        begin = time.monotonic()
        thread.join(60)
        self.assertFalse(thread.is_alive())
        # A simulated kernel takes a second that a real one does not, and ends before anybody hears of the loss.
        self.assertLess(time.monotonic() - begin, 2 * NOTICED_S)
        self.assertTrue(any("rank 1 of 2 was lost" in line for line in streamed[-4:]), streamed[-4:])
        status, said = server.ask("/ready")
        self.assertEqual((status, said["error"]["code"]), (503, "rank_lost"), said)

        # Another takes its place; then that one loses its connection alone, and goes on with what it has.
        second = self.rank(address)
        server.wait()
        self.assertEqual(self.answer(server), wanted)
        second.send(signal.SIGSTOP)
        wait_until(lambda: not server.is_ready(), NOTICED_S, "its silence is noticed")
        second.send(signal.SIGCONT)
        server.wait()
        self.assertEqual(self.answer(server), wanted)
        self.assertIn("the leader is lost", second.text())
        self.assertEqual(server.end(), 0)
        self.assertEqual(second.process.wait(20), 0, second.text())


class GatheredByNccl(Simulated):
    """The same with NCCL, which a library of the tests stands in for."""
    OPTIONS = [*Simulated.OPTIONS, "--collective", "nccl"]
    SAYS = "is gathered by NCCL 2.27.3"

    def setUp(self):
        super().setUp()
        self.calls = self.folder / "calls"
        for name, value in (("FOURFOLD_NCCL", FAKE_NCCL), ("FAKE_NCCL_LOG", self.calls)):
            os.environ[name] = str(value)
            self.addCleanup(os.environ.pop, name, None)

    def alone(self):
        """--collective is a word for --nodes."""
        return self.start(Server(self.folder, self.model, [], ranks=Simulated.OPTIONS))

    def test_the_answers_of_one_process_and_one_that_is_killed(self):
        super().test_the_answers_of_one_process_and_one_that_is_killed()
        calls = self.calls.read_text().splitlines()
        # The first group, the one behind the kill and the one behind the silence: an id each, made by rank 0.
        self.assertEqual(calls.count("id"), 3)
        self.assertEqual([calls.count(f"init {rank} of 2") for rank in (0, 1)], [3, 3])
        self.assertTrue(any(line.startswith("gather ") and line.endswith(" of type 7 by 1") for line in calls))
        self.assertGreaterEqual(calls.count("abort by 0"), 2)

    def test_a_rank_that_dies_while_the_group_is_made(self):
        """It never comes to NCCL's meeting, and is killed there: the leader waits no longer, and serves with another."""
        address = f"127.0.0.1:{free_port()}"
        server = self.server("--nodes", "by-hand", "--rank-listen", address, "--token-file", str(self.token))
        os.environ["FAKE_NCCL_NEVER_JOINS"] = "1"
        try:
            first = self.rank(address)
        finally:
            os.environ.pop("FAKE_NCCL_NEVER_JOINS")
        server.wait()
        answers = []
        body = {"prompt": "one two", "max_tokens": 4, "model": "default"}
        thread = threading.Thread(target=lambda: answers.append(server.ask("/v1/completions", body, timeout=300)))
        thread.start()
        wait_until(lambda: self.calls.exists() and "init 1 of 2" in self.calls.read_text(), 60, "it comes to the meeting")
        time.sleep(0.5)
        begin = time.monotonic()
        first.send(signal.SIGKILL)
        thread.join(60)
        self.assertLess(time.monotonic() - begin, 2 * NOTICED_S)
        self.assertEqual(answers[0][0], 503, answers)
        self.assertIn("rank 1 of 2 was lost", answers[0][1]["error"]["message"])
        self.rank(address)
        server.wait()
        self.assertEqual(len(self.answer(server)), 2)
        self.assertEqual(server.end(), 0)

    def test_an_error_of_nccls_that_no_lost_rank_explains(self):
        """The request fails with NCCL's words; both processes live, and serve the next with another group. Whoever meets it first."""
        fails = self.folder / "fails"
        self.addCleanup(os.environ.pop, "FAKE_NCCL_FAILS", None)
        for met_by in (0, 1):
            self.calls.unlink(missing_ok=True)
            started = []
            address = f"127.0.0.1:{free_port()}"
            for number in (0, 1):
                os.environ.pop("FAKE_NCCL_FAILS", None)
                if number == met_by:
                    os.environ["FAKE_NCCL_FAILS"] = str(fails)
                started.append(self.rank(address) if number else self.server(
                    "--nodes", "by-hand", "--rank-listen", address, "--token-file", str(self.token)))
            server, rank = started
            server.wait()
            wanted = self.answer(server)
            fails.write_text("")
            status, said = server.ask("/v1/completions", {"prompt": "one two", "max_tokens": 4, "model": "default"}, timeout=300)
            self.assertEqual(status, 503, said)
            self.assertFalse(fails.exists(), "it was met")
            self.assertIn(f"NCCL, gathering the ranks' parts: unhandled system error (2) (rank {met_by}); all ranks are there",
                          said["error"]["message"])
            server.wait()
            self.assertEqual(self.answer(server), wanted)
            self.assertEqual([self.calls.read_text().count(f"init {number} of 2") for number in (0, 1)], [2, 2])
            self.assertNotIn("is gone", server.text())
            self.assertNotIn("the leader is lost", rank.text())
            self.assertEqual(server.end(), 0)
            self.assertEqual(rank.process.wait(20), 0, rank.text())

    def test_what_cannot_be(self):
        def refused(words, **more):
            done = subprocess.run([PROGRAM, "serve", self.model, "--port", "0", *words], capture_output=True, text=True,
                                  timeout=60, check=False, env={**os.environ, **more})
            self.assertNotEqual(done.returncode, 0, words)
            return done.stderr
        nodes = ["--tp", "2", "--nodes", "localhost", "--collective", "nccl"]
        simulated = [*nodes, "--backend", "sim", "--max-context", "128", "--kv-tokens", "256"]
        self.assertIn("NCCL cannot be opened: /not/here.so", refused(simulated, FOURFOLD_NCCL="/not/here.so"))
        self.assertIn("calls itself NCCL 2708", refused(simulated, FAKE_NCCL_VERSION="2708"))
        self.assertIn("the cuda backend alone has it", refused(nodes))
        self.assertIn("auto, tcp and nccl are possible", refused([*nodes[:-1], "ib"]))
        self.assertIn("there is no --nodes", refused(["--collective", "nccl"]))
        os.environ.pop("FOURFOLD_NCCL")
        self.assertIn("NCCL has no simulated GPUs", refused(simulated))

    def test_another_version_is_refused(self):
        address = f"127.0.0.1:{free_port()}"
        self.server("--nodes", "by-hand", "--rank-listen", address, "--token-file", str(self.token))
        os.environ["FAKE_NCCL_VERSION"] = "22900"
        self.addCleanup(os.environ.pop, "FAKE_NCCL_VERSION", None)
        rank = self.rank(address)
        self.assertNotEqual(rank.process.wait(60), 0)
        self.assertIn("the leader has nccl 2.27.3, this machine nccl 2.29.0", rank.text())


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class SlowWire(Group):
    """Each process in a network namespace of its own, with 2 ms of delay and one packet in a hundred lost each way where the
    kernel has netem; elsewhere without them, and it says so."""
    NAMES = [f"fourfold-{os.getpid()}-{number}" for number in range(RANKS)]
    BRIDGE = f"ffb{os.getpid()}"

    @classmethod
    def setUpClass(cls):
        cls.made, cls.plain = [], ""
        try:
            cls.build()
        except (AssertionError, OSError) as error:
            cls.remove()
            raise unittest.SkipTest(f"no network namespaces here: {error}") from None
        if cls.plain:
            print(f"SKIPPED: delay and loss, the kernel has no netem ({cls.plain}); namespaces alone", flush=True)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.remove()

    @classmethod
    def must(cls, *words):
        done = run(*words)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"

    @classmethod
    def build(cls):
        cls.must("ip", "link", "add", cls.BRIDGE, "type", "bridge")
        cls.must("ip", "addr", "add", "10.231.7.254/24", "dev", cls.BRIDGE)
        cls.must("ip", "link", "set", cls.BRIDGE, "up")
        for number, name in enumerate(cls.NAMES):
            outside = f"ff{os.getpid()}x{number}"
            cls.must("ip", "netns", "add", name)
            cls.made.append(name)
            cls.must("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            cls.must("ip", "link", "set", outside, "master", cls.BRIDGE, "up")
            cls.must("ip", "-n", name, "addr", "add", f"10.231.7.{number + 1}/24", "dev", "eth0")
            cls.must("ip", "-n", name, "link", "set", "eth0", "up")
            cls.must("ip", "-n", name, "link", "set", "lo", "up")
            netem = run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "2ms", "loss", "1%")
            if netem.returncode != 0:
                cls.plain = netem.stderr.strip()

    @classmethod
    def remove(cls):
        for name in cls.made:
            run("ip", "netns", "del", name)
        run("ip", "link", "del", cls.BRIDGE)

    def test_four_machines_on_a_slow_wire(self):
        address = "10.231.7.1:4450"
        ranks = {number: self.rank(address, number, self.NAMES[number]) for number in (1, 2, 3)}
        server = self.by_hand(address, "10.231.7.1", self.NAMES[0])
        server.wait()
        self.expect_same(server)
        # A machine that is switched off: its packets end, and nothing else happens.
        begin = time.monotonic()
        self.must("ip", "-n", self.NAMES[2], "link", "set", "eth0", "down")
        self.expect_lost(server, begin, 2)
        self.must("ip", "-n", self.NAMES[2], "link", "set", "eth0", "up")
        server.wait()
        self.expect_same(server)
        begin = time.monotonic()
        ranks[1].send(signal.SIGKILL)
        self.expect_lost(server, begin, 1)
        self.rank(address, 1, self.NAMES[1])
        server.wait()
        self.expect_same(server)
        self.assertEqual(server.end(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
