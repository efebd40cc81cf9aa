#!/usr/bin/env python3
"""Writes tests/golden/text/families/expected.json: conversations through the families' own chat templates.

    pip install jinja2==3.1.6
    python3 tools/text/make_golden_families.py

Running it twice gives the same file.
"""

import json
import pathlib
import warnings

import jinja_oracle

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/text/families"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Its name, Zürich or 東京"},
                "days": {"type": "integer", "default": 3},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "options": {"type": "object", "properties": {"wind": {"type": "boolean"}}, "required": ["wind"]},
                "either": {"oneOf": [{"type": "string"}, {"type": "number", "description": "a number"}]},
                "union": {"type": ["string", "null"]},
            },
            "required": ["city"],
        },
    },
}
NOW = {
    "type": "function",
    "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
}


def call(name, number=0, **arguments):
    return {"id": f"functions.{name}:{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are terse. <b>&amp;</b>"}
USER = {"role": "user", "content": "How is the weather in Zürich? 😀"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [call("get_weather", city="Zürich", days=2, tags=["a", "b"], options={"wind": True})],
}
THOUGHT_CALL = {**CALL, "reasoning_content": "I need the weather.\nLet me ask.", "thinking": "I need the weather."}
RESULT = {"role": "tool", "tool_call_id": "functions.get_weather:0", "content": '{"sky": "blue ☀"}'}
ANSWER = {"role": "assistant", "content": "It is blue."}
THOUGHT_ANSWER = {**ANSWER, "reasoning_content": "The sky is blue."}
TWO = {"role": "assistant", "content": "Both.", "tool_calls": [call("now"), call("get_weather", 1, city="東京")]}
THANKS = {"role": "user", "content": "Thanks. /nothink <|user|> <think>"}

CASES = [
    {"messages": [USER]},
    {"messages": [SYSTEM, USER]},
    {"messages": [SYSTEM, USER], "tools": [WEATHER, NOW]},
    {"messages": [USER], "tools": [WEATHER], "enable_thinking": False},
    {"messages": [USER], "tools": [WEATHER], "enable_thinking": True, "thinking": True},
    {"messages": [USER], "tools": [WEATHER], "reasoning_effort": "high"},
    {"messages": [USER], "reasoning_effort": "low", "builtin_tools": ["browser", "python"]},
    {"messages": [SYSTEM, USER, CALL, RESULT], "tools": [WEATHER, NOW]},
    {"messages": [SYSTEM, USER, THOUGHT_CALL, RESULT], "tools": [WEATHER, NOW]},
    {"messages": [USER, THOUGHT_CALL, RESULT, THOUGHT_ANSWER, THANKS], "tools": [WEATHER]},
    {"messages": [USER, THOUGHT_CALL, RESULT, THOUGHT_CALL, RESULT], "tools": [WEATHER]},
    {"messages": [USER, TWO, {**RESULT, "content": "12:00"}, RESULT], "tools": [WEATHER, NOW]},
    {"messages": [USER, THOUGHT_ANSWER, THANKS]},
    {"messages": [USER, {"role": "assistant", "content": "<think>old</think>\n\nNew."}, THANKS]},
    {"messages": [USER, ANSWER], "add_generation_prompt": False},
    {"messages": [USER, THOUGHT_CALL], "tools": [WEATHER], "add_generation_prompt": False},
    {"messages": [SYSTEM, USER, ANSWER, {**SYSTEM, "content": "Be kind."}, THANKS]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "parts"}, {"type": "text", "text": "é"}]}]},
    {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call("now")]}, {**RESULT, "content": ""}]},
    {"messages": [RESULT]},
]


def with_text_arguments(message):
    """Some templates put the arguments together as text."""
    if "tool_calls" not in message:
        return message
    calls = []
    for one in message["tool_calls"]:
        function = one["function"]
        text = json.dumps(function["arguments"], ensure_ascii=False)
        calls.append({**one, "function": {**function, "arguments": text}})
    return {**message, "tool_calls": calls}


def main():
    warnings.simplefilter("ignore")
    environment = jinja_oracle.make_environment()
    cases = []
    for case in CASES:
        variables = {"add_generation_prompt": True, "tools": None, "documents": None, "bos_token": "<BOS>",
                     "eos_token": "<EOS>", **case}
        cases.append(variables)
        if any("tool_calls" in message for message in variables["messages"]):
            cases.append({**variables, "messages": [with_text_arguments(m) for m in variables["messages"]]})
    expected = {"cases": cases, "outputs": {}}
    for path in sorted(FOLDER.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        made = [jinja_oracle.render(environment, source, variables) for variables in cases]
        expected["outputs"][path.name] = [text if good else None for good, text in made]
        print(path.name, sum(good for good, _ in made), "of", len(made), "rendered")
    text = json.dumps(expected, ensure_ascii=True, separators=(",", ":")) + "\n"
    (FOLDER / "expected.json").write_text(text, encoding="utf-8")
    print(len(text), "bytes")


main()
