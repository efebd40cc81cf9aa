"""Ranks as processes on a wire that delays and loses packets: slow_wire_test.py FOURFOLD.
"""
import os
import signal
import subprocess
import time
import unittest

from processes import RANKS, Group


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
