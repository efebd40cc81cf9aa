"""Routers in front of `fourfold serve`: each registers the server, and a client behind it chats, streams and
calls a tool.
"""
import pathlib
import subprocess
import sys
import tempfile

from fixture_test import Chat
from served import PLAIN_SAYS, WEATHER_SAYS, ask, check, free_port, stop, wait_for

BIN = pathlib.Path(sys.executable).parent


def through(url, *command, listed="scripted"):
    """Three turns with a tool call through the router, whole and streamed; then a request without tools."""
    port = free_port()
    router = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [BIN / command[0], *command[1:], "--host", "127.0.0.1", "--port", str(port), "--prometheus-port",
             str(free_port()), "--worker-urls", url], stdout=log, stderr=log)
        try:
            wait_for(router + "/v1/models", process)  # 503 until the server is registered
            registered = ask(router + "/v1/models")["data"]
            check([model["id"] for model in registered] == [listed], f"models are {registered}")
            for stream in (False, True):
                talk = Chat(router, True)
                for turn in range(3):
                    talk.user("The weather?")
                    _, _, calls = talk.ask(stream, model="scripted")
                    check([call[1:] for call in calls] == [("weather", {"city": "Paris", "days": 3})], f"calls: {calls}")
                    talk.result(calls[0][0], "sunny")
                    text, _, _ = talk.ask(stream, model="scripted")
                    check(text == WEATHER_SAYS, text)
            plain = Chat(router, False)
            plain.user("Hello")
            check(plain.ask(True, model="scripted")[0] == PLAIN_SAYS, "streams")
            completion = ask(router + "/v1/completions", {"model": "scripted", "prompt": "Hello", "max_tokens": 4})
            check("text" in completion["choices"][0], "completions")
        except BaseException:
            log.seek(0)
            print(log.read()[-3000:])
            raise
        finally:
            stop(process)


def sglang_router(url):
    """sglang-router: registers the server; chat, stream, tool calls and completions pass"""
    # It asks SGLang's own routes for the name, and does without; requests go through under the served name.
    through(url, "sglang-router", "launch", listed="unknown")


def vllm_router(url):
    """vllm-router: registers the server; chat, stream, tool calls and completions pass"""
    through(url, "vllm-router")


def smg(url):
    """smg: registers the server; chat, stream, tool calls and completions pass"""
    # Not bin/smg: sglang-router installs one as well, and which of the two is there depends on the order.
    through(url, "python", "-m", "smg", "launch")


ROWS = [sglang_router, vllm_router, smg]
