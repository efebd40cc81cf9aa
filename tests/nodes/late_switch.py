"""What `tc netem` does in a kernel that has none: an Ethernet switch of this process between network interfaces, which brings each
frame 2 ms late and loses one in a hundred, once for each way.
"""
import array
import fcntl
import heapq
import random
import selectors
import socket
import struct
import threading
import time

DELAY_S, LOSS = 0.002, 0.01
ETH_P_ALL, PACKET_OUTGOING = 3, 4
SIOCETHTOOL = 0x8946
# ETHTOOL_S...: checksums and frames that the card would finish; nobody finishes them here.
OFFLOADS = {"TXCSUM": 0x17, "TSO": 0x1f, "GSO": 0x24}


def set_offloads_off(interface):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in OFFLOADS.values():
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sP16x", interface.encode(), value.buffer_info()[0])
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)


class LateSwitch:
    """Between these interfaces, from now on; a thread each for what comes and what goes."""

    def __init__(self, interfaces, seed=1):
        self.random = random.Random(seed)
        self.carried = self.lost = 0
        self.places = {}  # of addresses, by their last frame
        self.due = []  # (time, number, port, frame)
        self.news = threading.Condition()
        self.ends = False
        self.selector = selectors.DefaultSelector()
        self.ports = []
        for interface in interfaces:
            port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            port.bind((interface, ETH_P_ALL))
            self.ports.append(port)
            self.selector.register(port, selectors.EVENT_READ)
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.take, self.bring)]
        for thread in self.threads:
            thread.start()

    def take(self):
        while not self.ends:
            for key, _ in self.selector.select(0.1):
                try:
                    frame, (_, _, kind, *_) = key.fileobj.recvfrom(1 << 16)
                except OSError:  # an interface that is down
                    continue
                if kind == PACKET_OUTGOING:
                    continue
                target, source = frame[:6], frame[6:12]
                self.places[source] = key.fileobj
                known = self.places.get(target)
                for port in [known] if known else self.ports:
                    if port is not key.fileobj:
                        self.put(port, frame)

    def put(self, port, frame):
        with self.news:
            if self.random.random() < LOSS:
                self.lost += 1
                return
            self.carried += 1
            heapq.heappush(self.due, (time.monotonic() + DELAY_S, self.carried, port, frame))
            self.news.notify()

    def bring(self):
        while True:
            with self.news:
                while not self.ends and (not self.due or self.due[0][0] > time.monotonic()):
                    self.news.wait(max(0.0, self.due[0][0] - time.monotonic()) if self.due else None)
                if self.ends:
                    return
                _, _, port, frame = heapq.heappop(self.due)
            try:
                port.send(frame)
            except OSError:  # whoever is switched off gets nothing
                pass

    def close(self):
        with self.news:
            self.ends = True
            self.news.notify()
        for thread in self.threads:
            thread.join()
        self.selector.close()
        for port in self.ports:
            port.close()
