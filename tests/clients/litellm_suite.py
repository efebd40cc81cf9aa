"""LiteLLM: the package with its vLLM, OpenAI and Anthropic providers, and the proxy in front of the server.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False")

from fixture_test import Chat, Messages  # noqa: E402
from fleet import Worker, leave_early, lose_nothing, three_turns  # noqa: E402
from served import (PLAIN_SAYS, WEATHER, WEATHER_SAYS, WEATHER_SCHEMA, Served, check, free_port, stop,  # noqa: E402
                    wait_for)

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER_SCHEMA}}]


def library_turns(**where):
    import litellm
    messages = []
    for turn in range(3):
        messages.append({"role": "user", "content": "The weather?"})
        for stream in (turn == 2,) * 2:
            answer = litellm.completion(messages=messages, tools=TOOLS, stream=stream, max_tokens=500, **where)
            if stream:
                answer = litellm.stream_chunk_builder(list(answer), messages=messages)
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or []:
                check((call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris", "days": 3}),
                      f"the call is {call}")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
        check(messages[-1].get("content") == WEATHER_SAYS, f"the answer is {messages[-1]}")
    check(sum(message["role"] == "tool" for message in messages) == 3, "a call in each turn")
    plain = litellm.completion(messages=[{"role": "user", "content": "Hello"}], max_tokens=100, **where)
    check(plain.choices[0].message.content == PLAIN_SAYS, "plain")


def hosted_vllm(url):
    """LiteLLM (litellm, hosted_vllm/): three turns with a tool call, the last streamed"""
    library_turns(model="hosted_vllm/scripted", api_base=url + "/v1", api_key="unused")


def openai_compatible(url):
    """LiteLLM (litellm, openai/): three turns with a tool call, the last streamed"""
    library_turns(model="openai/scripted", api_base=url + "/v1", api_key="unused")


def anthropic(url):
    """LiteLLM (litellm, anthropic/): three turns with a tool call, the last streamed"""
    library_turns(model="anthropic/scripted", api_base=url, api_key="unused")


@contextlib.contextmanager
def proxied(deployments, **settings):
    """The proxy's address; a deployment is (name, model, url of its server)."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.yaml"
        config.write_text(json.dumps({"router_settings": settings, "model_list": [
            {"model_name": name, "litellm_params": {"model": model, "api_base": url + "/v1", "api_key": "unused"}}
            for name, model, url in deployments]}))
        with open(pathlib.Path(folder) / "log", "w+") as log:
            process = subprocess.Popen([pathlib.Path(sys.executable).parent / "litellm", "--config", config, "--host",
                                        "127.0.0.1", "--port", str(port)], cwd=folder, stdout=log, stderr=log,
                                       env={**os.environ, "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"})
            try:
                wait_for(f"http://127.0.0.1:{port}/health/liveliness", process)
                yield f"http://127.0.0.1:{port}"
            finally:
                stop(process)


def proxy(url):
    """LiteLLM proxy (litellm[proxy]): three turns with a tool call, whole and streamed, as chat completions and as messages"""
    with proxied([("local", "hosted_vllm/scripted", url)]) as proxy_url:
        for kind in (Chat, Messages):
            for stream in (False, True):
                three_turns(kind(proxy_url, True), stream, "local")


def fleet(program):
    """LiteLLM proxy (litellm[proxy]): two workers; a client that leaves ends its answer; one killed and restarted under load, no request lost"""
    with Worker(program) as one, Worker(program) as two:
        deployments = [("storyteller", "hosted_vllm/storyteller", each.url) for each in (one, two)]
        with proxied(deployments, num_retries=5, allowed_fails=0, cooldown_time=2, routing_strategy="simple-shuffle") as url:
            leave_early(url, [one.url, two.url])
            return lose_nothing(url, two)


ROWS = [hosted_vllm, openai_compatible, anthropic, proxy]


def run_suite(program, run_row):
    with Served(program, WEATHER) as served:
        results = [run_row(row, served.url) for row in ROWS]
    return [*results, run_row(fleet, program)]
