"""Ranks as processes with a simulated GPU each: simulated_test.py FOURFOLD FAKE_NCCL. The second is a library that stands in for
NCCL.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

from processes import NOTICED_S, PROGRAM, Server, SimulatedGroup, free_port, wait_until

FAKE_NCCL = pathlib.Path(sys.argv.pop(1)).resolve()


class Simulated(SimulatedGroup):
    """Two processes with a simulated GPU each: what their kernels exchange goes over TCP, and the answers are those of two
    ranks in one process, to the last bit. On GPUs the same code runs."""
    SAYS = "goes over TCP"
    LONG = {"prompt": "one two", "max_tokens": 100, "model": "default", "stream": True, "ignore_eos": True}

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
        if "FOURFOLD_LONG" not in os.environ:
            self.skipTest("FOURFOLD_LONG=1 runs it; the next has its answers, and the last a rank that is killed")
        super().test_the_answers_of_one_process_and_one_that_is_killed()
        # The first group, the one behind the kill and the one behind the silence.
        self.assert_gathered(groups=3)
        self.assertGreaterEqual(self.calls.read_text().splitlines().count("abort by 0"), 2)

    def assert_gathered(self, groups):
        """An id for each group, made by rank 0, and both at its meeting."""
        calls = self.calls.read_text().splitlines()
        self.assertEqual(calls.count("id"), groups)
        self.assertEqual([calls.count(f"init {rank} of 2") for rank in (0, 1)], [groups, groups])
        self.assertTrue(any(line.startswith("gather ") and line.endswith(" of type 7 by 1") for line in calls))

    def test_the_answers_of_one_process(self):
        alone = self.alone()
        alone.wait()
        wanted = self.answer(alone)
        self.assertEqual(alone.end(), 0)
        address = f"127.0.0.1:{free_port()}"
        server = self.server("--nodes", "by-hand", "--rank-listen", address, "--token-file", str(self.token))
        rank = self.rank(address)
        server.wait()
        self.assertIn(self.SAYS, server.text())
        self.assertEqual(self.answer(server), wanted)
        self.assertEqual(server.end(), 0)
        self.assertEqual(rank.process.wait(20), 0, rank.text())
        self.assert_gathered(groups=1)

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


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
