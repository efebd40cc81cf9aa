"""`fourfold serve --kv-events`: libzmq (pyzmq) is the subscriber, and vLLM's structs (vllm 0.33.0, vllm/distributed/kv_events.py,
declared here again, since the package asks for torch) read what comes.
"""
import contextlib
import signal
import subprocess
import time
from typing import Any, Optional, Union

import msgspec
import zmq
from served import ROOT, Server, ask, check, free_port

OWN_SERVERS = True
MODEL = ROOT / "models/storyteller"
BLOCK = 64
END = (-1).to_bytes(8, "big", signed=True)


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: Optional[int] = None


def events_of(array_like):
    """vLLM's events: maps, as 0.33 has them, or arrays, as it had them before."""
    class Event(msgspec.Struct, array_like=array_like, omit_defaults=True, gc=False, tag=True):
        pass

    class BlockStored(Event):
        block_hashes: list[Union[bytes, int]]
        parent_block_hash: Union[bytes, int, None]
        token_ids: list[int]
        block_size: int
        lora_id: Optional[int]
        medium: Optional[str]
        lora_name: Optional[str]
        extra_keys: Optional[list[Optional[tuple[Any, ...]]]] = None
        group_idx: Optional[int] = None
        kv_cache_spec_kind: Optional[str] = None
        kv_cache_spec_sliding_window: Optional[int] = None
        locality: Optional[str] = None
        ownership: Optional[str] = None
        session_id: Optional[str] = None
        lookahead_token_ids: Optional[list[list[int]]] = None

    class BlockRemoved(Event):
        block_hashes: list[Union[bytes, int]]
        medium: Optional[str]
        group_idx: Optional[int] = None
        locality: Optional[str] = None
        ownership: Optional[str] = None

    class AllBlocksCleared(Event):
        pass

    class KVEventBatch(EventBatch):
        events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]

    return msgspec.msgpack.Decoder(type=KVEventBatch)


DECODERS = {"map": events_of(False), "array": events_of(True)}


class Router:
    """What a router keeps of one worker: its blocks by hash, each with what it stands on and its tokens."""

    def __init__(self, form="map"):
        self.decoder, self.blocks, self.next, self.removed = DECODERS[form], {}, 0, 0

    def take(self, number, payload):
        check(number == self.next, f"batch {number} came where {self.next} was expected")
        self.next += 1
        batch = self.decoder.decode(payload)
        check(abs(batch.ts - time.time()) < 600 and batch.data_parallel_rank == 0, f"time and rank: {batch.ts}")
        for event in batch.events:
            self.take_event(event)

    def take_event(self, event):
        kind = type(event).__name__
        if kind == "AllBlocksCleared":
            self.blocks.clear()
            return
        if kind == "BlockRemoved":
            check(event.medium == "GPU", "the medium")
            self.removed += len(event.block_hashes)
            for block in event.block_hashes:
                del self.blocks[block]
            return
        check((event.block_size, event.lora_id, event.medium) == (BLOCK, None, "GPU"), f"fields: {event}")
        check(len(event.token_ids) == BLOCK * len(event.block_hashes), "tokens of whole blocks")
        parent = event.parent_block_hash
        check(parent is None or parent in self.blocks, "a block stands on one that is not there")
        for i, block in enumerate(event.block_hashes):
            check(isinstance(block, int), "hashes are numbers")
            self.blocks[block] = (parent, event.token_ids[BLOCK * i:BLOCK * (i + 1)])
            parent = block

    def matched(self, ids):
        """Tokens of a prompt's beginning that the worker has. Blocks that differ in what is behind them are several."""
        count, above = 0, {None}
        while len(piece := ids[count:count + BLOCK]) == BLOCK:
            above = {block for block, (parent, held) in self.blocks.items() if parent in above and held == piece}
            if not above:
                break
            count += BLOCK
        return count


class Subscriber(Router):
    """A SUB socket, and a DEALER for replays."""

    def __init__(self, context, port, replay_port, topic="", form="map"):
        super().__init__(form)
        self.sub, self.dealer, self.topic = context.socket(zmq.SUB), context.socket(zmq.DEALER), topic
        self.sub.subscribe(topic)
        self.sub.connect(f"tcp://127.0.0.1:{port}")
        self.dealer.connect(f"tcp://127.0.0.1:{replay_port}")

    def replay(self, first=0):
        """(number, payload) of all batches from the first one on that are kept."""
        self.dealer.send_multipart([b"", first.to_bytes(8, "big")])
        while True:
            check(self.dealer.poll(20_000), "no replay came")
            empty, topic, number, payload = self.dealer.recv_multipart()
            check(empty == b"", "a delimiter comes first")
            if number == END:
                check((topic, payload) == (b"", b""), "the end is empty")
                return
            check(topic == self.topic.encode(), f"the topic is {topic}")
            yield int.from_bytes(number, "big"), payload

    def drain(self):
        """All that there is: what went by before the subscription is asked for."""
        for number, payload in self.replay(self.next):
            self.take(number, payload)
        while self.sub.poll(300):
            topic, number, payload = self.sub.recv_multipart()
            check(topic == self.topic.encode(), f"the topic is {topic}")
            if int.from_bytes(number, "big") >= self.next:
                self.take(int.from_bytes(number, "big"), payload)


@contextlib.contextmanager
def worker(program, *options, topic="", form="map"):
    """A server with events, and a subscriber of them."""
    port, replay = free_port(), free_port()
    command = ["--kv-events", f"tcp://*:{port}", "--kv-events-replay-endpoint", f"tcp://*:{replay}", *options]
    with zmq.Context() as context, Server(program, MODEL, command) as server:
        subscriber = Subscriber(context, port, replay, topic, form)
        try:
            yield server, subscriber
        finally:
            subscriber.sub.close(0)
            subscriber.dealer.close(0)


def tokens(first, count):
    return [300 + (first + 7 * i) % 7000 for i in range(count)]


def complete(server, ids, **more):
    return ask(server.url + "/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, **more})


def cached(answer):
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def stored(program):
    """kv events: blocks of prompts are told with their tokens, in a chain, and a router's count is the server's"""
    with worker(program) as (server, subscriber):
        first, other = tokens(0, 300), tokens(5000, 200)
        complete(server, first)
        subscriber.drain()
        check(subscriber.matched(first) == 256, f"{subscriber.matched(first)} tokens of 300 are known")
        check(subscriber.matched(other) == 0, "nothing of a prompt that was not asked")
        known = set(subscriber.blocks)
        complete(server, first[:256] + other)
        subscriber.drain()
        check(known < set(subscriber.blocks), "what was known stays, and more is known")
        check(subscriber.matched(first[:256] + other) == 448, "a prompt with a known beginning")
        # What the events say is what the server does: its answer skips what was known.
        check(cached(complete(server, first)) == 256, "cached tokens")
        check(server.metric("fourfold_kv_events_total") == subscriber.next, "the server's count of batches")
        check(server.metric("fourfold_kv_events_dropped_total") == 0, "nothing is dropped")
        check(server.metric("fourfold_kv_events_subscribers") == 1, "one subscriber")
        check(server.metric("fourfold_kv_events_replays_total") > 0, "replays are counted")
        info = [line for line in ask(server.url + "/metrics").splitlines() if line.startswith("vllm:cache_config_info")]
        check(len(info) == 1 and 'block_size="64"' in info[0] and 'num_gpu_blocks="' in info[0], f"{info}")


def arrays(program):
    """kv events: as arrays, as vLLM wrote them before, under a topic"""
    topic = "kv@127.0.0.1:8000@storyteller"
    with worker(program, "--kv-events-format", "array", "--kv-events-topic", topic, topic=topic, form="array") as (server, subscriber):
        complete(server, tokens(0, 130))
        subscriber.drain()
        check(subscriber.matched(tokens(0, 130)) == 128, "two blocks")


def evicted(program):
    """kv events: blocks that make room are told as removed; a router knows at any time what the server has"""
    with worker(program, "--kv-tokens", "1024", "--max-context", "1024") as (server, subscriber):
        for turn in range(6):
            complete(server, tokens(1000 * turn, 400))
            subscriber.drain()
            check(len(subscriber.blocks) <= 16, f"{len(subscriber.blocks)} blocks in 16 pages")
        check(subscriber.removed > 0, "nothing was removed")
        check(subscriber.matched(tokens(0, 400)) == 0, "the oldest is gone")
        check(subscriber.matched(tokens(5000, 400)) == 384, "the newest is there")
        pages = [line for line in ask(server.url + "/metrics").splitlines() if line.startswith('fourfold_pages{state="cached"')]
        check(float(pages[0].split()[-1]) == len(subscriber.blocks), f"{pages}, and the router knows {len(subscriber.blocks)}")


def replayed(program):
    """kv events: a subscriber that comes late, and one that fell behind, get the rest by a replay"""
    with worker(program, "--kv-events-buffer-steps", "3") as (server, subscriber):
        for turn in range(5):
            complete(server, tokens(100 * turn, 70))
        numbers = [number for number, _ in subscriber.replay(0)]
        check(numbers == [3, 4, 5], f"the last three of six are kept: {numbers}")  # the first says that nothing is there
        check([number for number, _ in subscriber.replay(5)] == [5], "from a number on")
        check(list(subscriber.replay(6)) == [], "nothing that is still to come")


def restarted(program):
    """kv events: a worker that is killed and started again begins at 0 with AllBlocksCleared; libzmq connects again"""
    port, replay = free_port(), free_port()
    command = ["--kv-events", f"tcp://*:{port}", "--kv-events-replay-endpoint", f"tcp://*:{replay}"]
    with zmq.Context() as context:
        subscriber = Subscriber(context, port, replay)
        with Server(program, MODEL, command) as server:
            complete(server, tokens(0, 130))
            subscriber.drain()
            check(len(subscriber.blocks) == 2, "two blocks")
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        with Server(program, MODEL, command) as server:
            for turn in range(1, 40):  # until libzmq has connected again
                complete(server, tokens(100 * turn, 70))
                if subscriber.sub.poll(300):
                    break
            _, number, _ = subscriber.sub.recv_multipart()
            check(int.from_bytes(number, "big") == turn, "numbers begin again")
            subscriber.next = 0
            subscriber.drain()
            check(len(subscriber.blocks) == turn, f"{len(subscriber.blocks)} blocks of {turn} prompts: the old ones are gone")
        subscriber.sub.close(0)
        subscriber.dealer.close(0)


def connected(program):
    """kv events: the worker connects to a subscriber that listens (tcp://HOST:PORT), also to one that comes later"""
    port = free_port()
    with zmq.Context() as context, Server(program, MODEL, ["--kv-events", f"tcp://127.0.0.1:{port}"]) as server:
        complete(server, tokens(0, 70))  # nobody is there yet
        sub = context.socket(zmq.SUB)
        sub.subscribe("")
        sub.bind(f"tcp://127.0.0.1:{port}")
        try:
            for turn in range(1, 40):
                complete(server, tokens(100 * turn, 70))
                if sub.poll(300):
                    break
            else:
                raise AssertionError("it never connected")
            _, number, payload = sub.recv_multipart()
            check(int.from_bytes(number, "big") > 0 and DECODERS["map"].decode(payload).events, "a batch")
        finally:
            sub.close(0)


def refused(program):
    """kv events: bad options are refused with their names, before a model is loaded"""
    for options, words in [(["--kv-events", "5557"], "--kv-events 5557"),
                           (["--kv-events", "ipc:///tmp/x"], "tcp://HOST:PORT"),
                           (["--kv-events-replay-endpoint", "tcp://*:5558"], "needs --kv-events"),
                           (["--kv-events", "tcp://*:0", "--prefix-cache-mb", "0"], "--prefix-cache-mb 0"),
                           (["--kv-events", "tcp://*:0", "--kv-events-format", "json"], "map or array")]:
        done = subprocess.run([program, "serve", MODEL, "--port", "0", *options], capture_output=True, text=True, timeout=60)
        check(done.returncode != 0 and words in done.stderr, f"{options}: {done.stderr}")


ROWS = [stored, arrays, evicted, replayed, restarted, connected, refused]
