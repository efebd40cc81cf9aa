"""Ranks as processes in network namespaces, on a wire that delays and loses packets: slow_wire_test.py FOURFOLD.
"""
import os
import signal
import socket
import subprocess
import time
import unittest

from late_switch import DELAY_S, LateSwitch, set_offloads_off
from processes import NOTICED_S, RANKS, Group, SimulatedGroup, wait_until


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


def must(*words):
    done = run(*words)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"


class Machines:
    """Network namespaces, each with one interface, and this one. Each way a packet is 2 ms late, and one in a hundred is lost: by
    netem where the kernel has it, elsewhere by a switch of this process in place of the kernel's bridge."""
    made_before = 0

    def __init__(self, count):
        Machines.made_before += 1
        number = os.getpid() * 4 + Machines.made_before
        self.names = [f"fourfold-{number}-{each}" for each in range(count)]
        self.net = f"10.231.{number % 250}"
        self.ends = [f"ff{number}x{each}" for each in range(count + 1)]  # of cables, on this side; the last one's other end, too
        self.bridge, self.own, self.cable = f"ffb{number}", f"ffo{number}", f"ffc{number}"
        self.made, self.switch = [], None
        try:
            self.build()
        except (AssertionError, OSError) as error:
            self.close()
            raise unittest.SkipTest(f"no network namespaces here: {error}") from None

    def address(self, index):
        return f"{self.net}.{index + 1}"

    def build(self):
        for index, name in enumerate(self.names):
            must("ip", "netns", "add", name)
            self.made.append(name)
            self.lay(self.ends[index])
            must("ip", "link", "set", self.cable, "netns", name, "name", "eth0")
            must("ip", "-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            must("ip", "-n", name, "link", "set", "eth0", "up")
            must("ip", "-n", name, "link", "set", "lo", "up")
        delay = ["root", "netem", "delay", "2ms", "loss", "1%"]
        netem = [run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *delay) for name in self.names]
        if any(each.returncode for each in netem):
            print(f"no netem in this kernel ({netem[0].stderr.strip()}): a switch of the test delays and loses packets", flush=True)
            self.lay(self.ends[-1])
            must("ip", "link", "set", self.cable, "name", self.own)
            self.switch = LateSwitch(self.ends)
        else:
            must("ip", "link", "add", self.bridge, "type", "bridge")
            for end in self.ends[:-1]:
                must("ip", "link", "set", end, "master", self.bridge)
        here = self.own if self.switch else self.bridge
        must("ip", "addr", "add", f"{self.net}.254/24", "dev", here)
        must("ip", "link", "set", here, "up")

    def lay(self, end):
        """A cable; packets leave its other end as they would leave a network card."""
        must("ip", "link", "add", end, "type", "veth", "peer", "name", self.cable)
        set_offloads_off(self.cable)
        must("ip", "link", "set", end, "up")

    def round_trip(self, port):
        """Seconds until the first of them has answered, the best of ten."""
        def one():
            begin = time.monotonic()
            socket.create_connection((self.address(0), port), timeout=20).close()
            return time.monotonic() - begin
        return min(one() for _ in range(10))

    def retransmitted(self):
        """Segments of TCP that the machines had to send again."""
        count = 0
        for name in self.names:
            lines = run("ip", "netns", "exec", name, "cat", "/proc/net/snmp").stdout.splitlines()
            names, values = (line.split() for line in lines if line.startswith("Tcp:"))
            count += int(values[names.index("RetransSegs")])
        return count

    def close(self):
        if self.switch:
            self.switch.close()
        for name in self.made:
            run("ip", "netns", "del", name)
        for link in (self.bridge, self.ends[-1], self.cable):
            run("ip", "link", "del", link)


class SlowWire(Group):
    """Four processes on CPUs, each in a network namespace of its own."""

    @classmethod
    def setUpClass(cls):
        cls.machines = Machines(RANKS)
        cls.addClassCleanup(cls.machines.close)
        super().setUpClass()

    def test_four_machines_on_a_slow_wire(self):
        wire, names = self.machines, self.machines.names
        address = f"{wire.address(0)}:4450"
        ranks = {number: self.rank(address, number, names[number]) for number in (1, 2, 3)}
        server = self.by_hand(address, wire.address(0), names[0])
        server.wait()
        self.expect_same(server)
        self.assertGreaterEqual(wire.round_trip(server.port), DELAY_S)
        self.assertGreater(wire.retransmitted(), 0, "the wire lost nothing")
        # A machine that is switched off: its packets end, and nothing else happens.
        begin = time.monotonic()
        must("ip", "-n", names[2], "link", "set", "eth0", "down")
        self.expect_lost(server, begin, 2)
        must("ip", "-n", names[2], "link", "set", "eth0", "up")
        server.wait()
        self.expect_same(server)
        begin = time.monotonic()
        ranks[1].send(signal.SIGKILL)
        self.expect_lost(server, begin, 1)
        self.rank(address, 1, names[1])
        server.wait()
        self.expect_same(server)
        self.assertEqual(server.end(), 0)


class SlowSimulated(SimulatedGroup):
    """Two machines with a simulated GPU each."""

    def setUp(self):
        super().setUp()
        self.machines = Machines(2)
        self.addCleanup(self.machines.close)

    def test_two_machines_on_a_slow_wire(self):
        alone = self.alone()
        alone.wait()
        wanted = self.answer(alone)
        self.assertEqual(alone.end(), 0)
        wire, names = self.machines, self.machines.names
        address = f"{wire.address(0)}:4450"
        server = self.server("--nodes", "by-hand", "--rank-listen", address, "--token-file", str(self.token),
                             host=wire.address(0), inside=names[0])
        self.rank(address, inside=names[1])
        server.wait()
        self.assertEqual(self.answer(server), wanted)
        begin = time.monotonic()
        must("ip", "-n", names[1], "link", "set", "eth0", "down")
        wait_until(lambda: not server.is_ready(), 20, "/ready turns false")
        self.assertLess(time.monotonic() - begin, NOTICED_S)
        must("ip", "-n", names[1], "link", "set", "eth0", "up")
        server.wait()
        self.assertEqual(self.answer(server), wanted)
        self.assertEqual(server.end(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
