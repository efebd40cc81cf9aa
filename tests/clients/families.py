"""The families' own chat templates behind `fourfold serve`, through the official packages: a scripted model with each of
them thinks, calls a tool in its family's format, and speaks.

A scripted model knows where it is by four tokens, so what it can do depends on the template: most end a prompt with fewer
of their own, and are asked the very question the script was made with; only Kimi's are told results. gpt-oss's template writes no
thoughts into answers, and DeepSeek-R1's and Mistral's do not write a script's conversations: family_models.py has all of these.
"""
import json

import anthropic
import openai

from served import PLAIN_SAYS, WEATHER, WEATHER_SAYS, WEATHER_SCHEMA, Served, check

OWN_SERVERS = True
THINK = ["<think>", "</think>"]
GLM = {"special": ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"],
       "plain": [*THINK, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
       "ends": ["<|observation|>", "<|user|>"], "thought": "The weather is wanted."}
MINIMAX = {"special": ["]~!b[", "]~b]", "[e~["], "plain": [*THINK, "<minimax:tool_call>", "</minimax:tool_call>"],
           "ends": ["[e~["], "thought": "The weather is wanted."}
HARMONY = {"special": ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>"],
           "plain": [], "ends": ["<|call|>", "<|end|>"]}
DEEPSEEK = {"special": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
            "plain": [*THINK, "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
                      "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "<｜tool▁output▁begin｜>",
                      "<｜tool▁output▁end｜>"],
            "ends": ["<｜end▁of▁sentence｜>"], "thought": "The weather is wanted."}
KIMI = {"special": ["<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|im_end|>"],
        "plain": [*THINK, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                  "<|tool_call_end|>", "<|tool_call_argument_begin|>"],
        "ends": ["<|im_end|>"], "thought": "The weather is wanted."}
MISTRAL = {"special": ["<s>", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[MODEL_SETTINGS]",
                       "[/MODEL_SETTINGS]", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[THINK]", "[/THINK]"],
           "plain": [], "ends": ["</s>"]}

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


def glm_4_5(program):
    """GLM-4.5's template: chat, stream, thoughts, tool calls, responses, messages"""
    serve(program, "glm-4.5", GLM, "GLM's tags")


def glm_4_7(program):
    """GLM-4.7-Flash's template: the same"""
    serve(program, "glm-4.7-flash", GLM, "GLM's tags on one line")


def minimax(program):
    """MiniMax-M2's template: the same"""
    serve(program, "minimax-m2", MINIMAX, "MiniMax's tags")


def gpt_oss(program):
    """gpt-oss's template: the same in channels, without thoughts"""
    serve(program, "gpt-oss", HARMONY, "messages of gpt-oss's channels (Harmony)")


def deepseek(program):
    """DeepSeek-V3.1's template: the same, but always calls, since it shows no tools"""
    serve(program, "deepseek-v3.1", DEEPSEEK, "DeepSeek's tokens", speaks=False)


def kimi(program):
    """Kimi-K2's template: the same as for GLM, and results of tools"""
    serve(program, "kimi-k2", KIMI, "Kimi's tokens", answers=True)


ROWS = [glm_4_5, glm_4_7, minimax, gpt_oss, deepseek, kimi]
