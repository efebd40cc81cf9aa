"""Routers in front of two `fourfold serve`: each registers both, and clients behind it chat, stream, call a tool, leave in
the middle of an answer, keep their talks where they are cached, and lose nothing when a worker is killed and comes back.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

from fixture_test import Chat
from fleet import Worker, leave_early, lose_nothing, three_turns, until
from served import PLAIN_SAYS, WEATHER, Served, Server, ask, check, free_port, stop, wait_for

OWN_SERVERS = True
BIN = pathlib.Path(sys.executable).parent
# bin/smg is not asked: sglang-router installs one as well, and which of the two is there depends on the order.
ROUTERS = {"sglang-router": ["sglang-router", "launch"], "vllm-router": ["vllm-router"],
           "smg": ["python", "-m", "smg", "launch"]}


@contextlib.contextmanager
def routed(name, urls, *options):
    """The router's address, when it has all workers."""
    port = free_port()
    router = f"http://127.0.0.1:{port}"
    first, *words = ROUTERS[name]
    with tempfile.NamedTemporaryFile("w+") as log:
        process = subprocess.Popen(
            [BIN / first, *words, "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
             *options, "--worker-urls", *urls], stdout=log, stderr=log)
        try:
            wait_for(router + "/v1/models", process)  # 503 until a worker is registered
            until(lambda: len(workers(router)) == len(urls), 60)
            yield router
        except BaseException:
            print(pathlib.Path(log.name).read_text()[-3000:])
            raise
        finally:
            stop(process)


def workers(router):
    answer = ask(router + "/workers")
    return answer.get("workers", answer.get("urls", [])) if isinstance(answer, dict) else answer


def talks(name, program):
    with Served(program, WEATHER) as one, Server(program, one.work / "scripted") as two, \
            routed(name, [one.url, two.url], "--policy", "round_robin") as router:
        registered = ask(router + "/v1/models")["data"]
        check({model["id"] for model in registered} == {"scripted"}, f"models are {registered}")
        for stream in (False, True):
            three_turns(Chat(router, True), stream, "scripted")
        plain = Chat(router, False)
        plain.user("Hello")
        check(plain.ask(True, model="scripted")[0] == PLAIN_SAYS, "streams")
        completion = ask(router + "/v1/completions", {"model": "scripted", "prompt": "Hello", "max_tokens": 4})
        check("text" in completion["choices"][0], "completions")
        shares = [server.metric("vllm:prompt_tokens_total") for server in (one, two)]
        check(min(shares) > 0, f"both have worked: {shares}")


def cancels(name, program):
    with Worker(program) as one, Worker(program) as two, routed(name, [one.url, two.url]) as router:
        leave_early(router, [one.url, two.url])


def caches(name, program):
    """Talks stay where they began: of every later turn the worker has the beginning."""
    with Worker(program) as one, Worker(program) as two, \
            routed(name, [one.url, two.url], "--policy", "cache_aware", "--cache-threshold", "0.3") as router:
        known = asked = 0
        for talk in range(6):
            words = f"number {talk} " * 40  # other beginnings of some 160 tokens
            messages = []
            for turn in range(3):
                messages.append({"role": "user", "content": f"{words} and turn {turn}" if turn == 0 else "Go on."})
                answer = ask(router + "/v1/chat/completions", {"model": "storyteller", "messages": messages,
                                                               "temperature": 0, "max_tokens": 40})
                messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
                usage = answer["usage"]
                if turn > 0:
                    asked += 1
                    known += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) >= 64
        check(known >= asked - 1, f"{known} of {asked} later turns found their beginning")
        return f"{known} of {asked} later turns found their beginning"


def survives(name, program, *options):
    with Worker(program) as one, Worker(program) as two, \
            routed(name, [one.url, two.url], "--policy", "round_robin", *options) as router:
        return lose_nothing(router, two)


def row(name, run, what, *options):
    def one(program):
        return run(name, program, *options)
    one.__doc__ = f"{name}: {what}"
    return one


# Health is asked often, so that a worker that is back is seen within the test. By default there are five retries, and with
# four clients taking turns all of one request's may fall on the worker that is gone.
HEALTH = ["--health-check-interval-secs", "2", "--health-failure-threshold", "1", "--health-success-threshold", "1",
          "--cb-timeout-duration-secs", "2", "--retry-max-retries", "20"]
# Each is asked the same, beside servers of its own: ./dev test has one of them, --long all.
ASKED = list(ROUTERS) if os.environ.get("FOURFOLD_LONG") == "1" else list(ROUTERS)[:1]
ROWS = [row(name, run, what, *options) for name in ASKED for run, what, options in (
    (talks, "two workers; chat, stream, tool calls and completions pass", []),
    (cancels, "a client that leaves ends its answer at the worker", []),
    (caches, "cache-aware routing keeps talks where they are cached", []),
    (survives, "a worker killed and restarted under load, no request lost", HEALTH))]
