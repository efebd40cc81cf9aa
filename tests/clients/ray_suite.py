"""Ray Serve with examples/python/ray_serve.py: two replicas, each with a `fourfold serve` of its own.
"""
import contextlib
import os
import pathlib
import shlex
import signal
import sys

from fixture_test import Chat
from fleet import STORYTELLER, leave_early, lose_nothing, metric, until
from served import PLAIN_SAYS, ROOT, WEATHER, WEATHER_SAYS, Served, ask, check, free_port

EXAMPLES = str(ROOT / "examples/python")


@contextlib.contextmanager
def cluster():
    """Ray and its Serve on this machine; the address of what will be deployed. A machine that has other work may need longer for
    Ray's parts than Ray waits: then once more."""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_agent_register_timeout_ms="180000",
                      RAY_worker_register_timeout_seconds="180", RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S="50")
    import ray
    from ray import serve
    port = free_port()
    sys.path.insert(0, EXAMPLES)
    for attempt in range(4):
        try:
            ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000,
                     runtime_env={"env_vars": {"PYTHONPATH": EXAMPLES}})
            break
        except Exception as error:
            if attempt == 3 or "timed out during startup" not in str(error):
                raise
            ray.shutdown()
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


@contextlib.contextmanager
def deployed(program, model, *options):
    from ray import serve
    os.environ.update(FOURFOLD_PROGRAM=str(program), FOURFOLD_MODEL=str(model), FOURFOLD_OPTIONS=shlex.join(options))
    sys.modules.pop("ray_serve", None)  # its application reads the environment
    import ray_serve
    serve.run(ray_serve.app)
    try:
        yield
    finally:
        serve.delete("default")


def servers(program):
    """Processes of this test's servers: {pid: address}."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().decode(errors="replace").split("\0")
            if words[0] == str(program) and words[1] == "serve" and words[-2] == f"test-{os.getpid()}":
                found[int(entry.parent.name)] = f"http://127.0.0.1:{words[words.index('--port') + 1]}"
    return found


class Replica:
    """As fleet.Worker: a server that is killed; its replica starts it again."""

    def __init__(self, program):
        self.program = program
        self.pid, self.url = sorted(servers(program).items())[0]

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def start(self):
        until(lambda: self.url in servers(self.program).values())
        until(lambda: metric_or_none(self.url))


def metric_or_none(url):
    try:
        return metric(url, "vllm:num_requests_waiting") >= 0
    except (AssertionError, OSError):
        return None


def talks(at):
    """Ray Serve (ray): two replicas; chat, stream and tool calls pass"""
    program, url = at
    with Served(program, WEATHER) as served, deployed(program, served.work / "scripted"):
        check(ask(url + "/v1/models")["data"][0]["id"] == "scripted", "the model")
        for stream in (False, True):
            talk = Chat(url, True)
            for _ in range(3):
                talk.user("The weather?")
                _, _, calls = talk.ask(stream, model="scripted")
                check([call[1:] for call in calls] == [("weather", {"city": "Paris", "days": 3})], f"calls: {calls}")
                talk.result(calls[0][0], "sunny")
                check(talk.ask(stream, model="scripted")[0] == WEATHER_SAYS, "words")
        plain = Chat(url, False)
        plain.user("Hello")
        check(plain.ask(True, model="scripted")[0] == PLAIN_SAYS, "streams")


def fleet(at):
    """Ray Serve (ray): a client that leaves ends its answer; a server killed under load is started again, no request lost"""
    program, url = at
    mark = f"test-{os.getpid()}"
    with deployed(program, STORYTELLER, "--served-model-name", mark):
        until(lambda: len(servers(program)) == 2)
        leave_early(url, list(servers(program).values()), mark)
        said = lose_nothing(url, Replica(program), mark)
    until(lambda: not servers(program), 60)  # replicas that go take their servers with them
    return said


def run_suite(program, run_row):
    with cluster() as url:
        return [run_row(row, (program, url)) for row in (talks, fleet)]
