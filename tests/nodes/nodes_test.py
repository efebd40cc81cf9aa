"""Ranks as processes: four of them serve with the tokens of one process, one is killed and comes back, one falls silent, the
wire is slow: nodes_test.py FOURFOLD.
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
import threading
import time
import unittest
import urllib.request

from processes import NOTICED_S, PROGRAM, RANKS, Group, Process, Server, free_port, is_alive, join_words, wait_until


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


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
