"""The families' own chat templates behind `fourfold serve`, through the official packages: a scripted model with each of
them thinks, calls a tool in its family's format, and speaks.

A scripted model knows where it is by four tokens, so what it can do depends on the template: most end a prompt with fewer
of their own, and are asked the very question the script was made with; only Kimi's are told results. GLM-4.6's repeats
itself too much (tests/server/call_formats_test.cpp has it).
"""
import json
import pathlib
import subprocess
import tempfile

import anthropic
import openai

from served import GOLDEN, PLAIN_SAYS, WEATHER, WEATHER_SAYS, WEATHER_SCHEMA, Served, Server, check

OWN_SERVERS = True
THINK = ["<think>", "</think>"]
GLM = {"special": ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
       "plain": [*THINK, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
       "ends": ["<|observation|>", "<|user|>"]}
MINIMAX = {"special": ["]~!b[", "]~b]", "[e~["], "plain": [*THINK, "<minimax:tool_call>", "</minimax:tool_call>"],
           "ends": ["[e~["], "thought": "The weather is wanted."}
HARMONY = {"special": ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"],
           "plain": [], "ends": ["<|call|>", "<|end|>"]}
DEEPSEEK = {"special": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
            "plain": [*THINK, "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                      "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁output▁begin｜>",
                      "<｜tool▁output▁end｜>"],
            "ends": ["<｜end▁of▁sentence｜>"]}
KIMI = {"special": ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
        "plain": [*THINK, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                  "<|tool_call_end|>", "<|tool_call_argument_begin|>"],
        "ends": ["<|im_end|>"]}

ARGUMENTS = {"city": "Paris", "days": 3}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER_SCHEMA}}
QUESTION = {"role": "user", "content": "A question."}  # text/answer_script.cpp's


def with_openai(url, thought, answers, speaks):
    """A call; words behind its result; words where there are no tools."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="unused", max_retries=0, timeout=300)
    chat = client.chat.completions
    message = chat.create(model="default", messages=[QUESTION], tools=[TOOL]).choices[0].message
    call = message.tool_calls[0]
    check(call.function.name == "weather" and json.loads(call.function.arguments) == ARGUMENTS, message)
    check((getattr(message, "reasoning_content", None) or "").strip() == thought, message)
    name, arguments = "", ""
    for piece in chat.create(model="default", messages=[QUESTION], tools=[TOOL], stream=True):
        for delta in piece.choices[0].delta.tool_calls or []:
            name += delta.function.name or ""
            arguments += delta.function.arguments or ""
    check(name == "weather" and json.loads(arguments) == ARGUMENTS, f"{name} {arguments}")
    if answers:
        result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        said = chat.create(model="default", messages=[QUESTION, message, result], tools=[TOOL]).choices[0].message
        check(said.content == WEATHER_SAYS and not said.tool_calls, said)
    if speaks:
        said = chat.create(model="default", messages=[QUESTION]).choices[0].message
        check(said.content == PLAIN_SAYS, said)
    response = client.responses.create(model="default", input=QUESTION["content"], tools=[{"type": "function", **TOOL["function"]}])
    calls = [item for item in response.output if item.type == "function_call"]
    check(len(calls) == 1 and json.loads(calls[0].arguments) == ARGUMENTS, response.output)


def with_anthropic(url, thought):
    client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0, timeout=300)
    tool = {"name": "weather", "description": "The weather.", "input_schema": WEATHER_SCHEMA}
    message = client.messages.create(model="default", max_tokens=200, messages=[QUESTION], tools=[tool],
                                     thinking={"type": "enabled", "budget_tokens": 100})
    uses = [block for block in message.content if block.type == "tool_use"]
    check(len(uses) == 1 and uses[0].input == ARGUMENTS and message.stop_reason == "tool_use", message)
    thoughts = "".join(block.thinking for block in message.content if block.type == "thinking")
    check(thoughts.strip() == thought, message)


def serve(program, template, family, format_words, answers=False, speaks=True):
    thought = family.get("thought", "")
    script = {"with_tools": WEATHER["with_tools"] if answers else WEATHER["with_tools"][:1],
              "without_tools": WEATHER["without_tools"] if speaks else [], "ends": family["ends"], "thought": thought}
    with Served(program, script, template, family=family) as served:
        check(f"calls are read as {format_words}" in served.said(), served.said())
        with_openai(served.url, thought, answers, speaks)
        with_anthropic(served.url, thought)


def glm(program):
    """GLM-4.7's template: chat, stream, tool calls, responses, messages"""
    serve(program, "glm-4.7", GLM, "GLM's tags on one line")


def minimax(program):
    """MiniMax-M2's template: the same, with thoughts"""
    serve(program, "minimax-m2", MINIMAX, "MiniMax's tags")


def gpt_oss(program):
    """gpt-oss's template: the same as for GLM, in channels"""
    serve(program, "gpt-oss", HARMONY, "messages of gpt-oss's channels (Harmony)")


def gpt_oss_itself(program):
    """a gpt-oss of random numbers with its template: chat, stream, effort, a call that is asked for"""
    with tempfile.TemporaryDirectory(prefix="fourfold-clients-") as folder:
        model = pathlib.Path(folder) / "model"
        subprocess.run([program, "make-model", model, "--shape", "tiny-gpt-oss", "--format", "mxfp4", "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        file = json.loads((model / "tokenizer.json").read_bytes())
        unused = [token for token in file["added_tokens"] if "vision" in token["content"] or "_pad" in token["content"]
                  or "audio" in token["content"]]
        for token, content in zip(unused, HARMONY["special"], strict=False):
            token.update(content=content, special=True)
        check(len(unused) >= len(HARMONY["special"]), unused)
        (model / "tokenizer.json").write_text(json.dumps(file))
        (model / "chat_template.jinja").write_bytes((GOLDEN / "families/gpt-oss.jinja").read_bytes())
        with Server(program, model) as server:
            check("calls are read as messages of gpt-oss's channels (Harmony)" in server.said(), server.said())
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=300)
            for effort in ("low", "high"):
                said = client.chat.completions.create(model="default", messages=[QUESTION], max_tokens=20, reasoning_effort=effort)
                check(said.usage.completion_tokens > 0, said)
            pieces = list(client.chat.completions.create(model="default", messages=[QUESTION], max_tokens=20, stream=True))
            check(pieces[-1].choices[0].finish_reason in ("stop", "length"), pieces[-1])
            city = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                    "additionalProperties": False}
            tool = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": city}}
            message = client.chat.completions.create(model="default", messages=[QUESTION], tools=[tool], tool_choice="required",
                                                     max_tokens=200).choices[0].message
            check(json.loads(message.tool_calls[0].function.arguments)["city"] in ("Paris", "Rome"), message)


def deepseek(program):
    """DeepSeek-V3.1's template: the same, but always calls, since it shows no tools"""
    serve(program, "deepseek-v3.1", DEEPSEEK, "DeepSeek's tokens", speaks=False)


def kimi(program):
    """Kimi-K2's template: the same as for GLM, and results"""
    serve(program, "kimi-k2", KIMI, "Kimi's tokens", answers=True)


ROWS = [glm, minimax, gpt_oss, gpt_oss_itself, deepseek, kimi]
