"""Conversations for template tests: plain ones by hand and random ones with tools, floats, nulls and thinking."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather <now> in a city & more",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": 'Name, e.g. "Zürich"'},
                    "days": {"type": "integer", "default": 3, "minimum": 1},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds",
            "parameters": {
                "type": "object",
                "properties": {
                    "a": {"type": "number"},
                    "b": {"type": ["number", "null"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": [],
            },
        },
    },
]

TEXTS = [
    "Hello",
    "",
    "  spaced out \n",
    "line one\nline two\n",
    "雪 and é",
    "<think>\nhmm\n</think>\n\nFine.",
    "a 'quoted' \"text\" & <b>",
    "<tool_response>\nx\n</tool_response>",
    "{{ not a tag }}",
    "\u00a0odd space\u2028",
    "😀",
]
ARGUMENTS = [
    {},
    {"city": "Zürich"},
    {"city": "Rom", "days": 3, "unit": "celsius"},
    {"a": 1.5, "b": None, "tags": []},
    {"a": 1e-7, "b": 1e22, "tags": ["x", "y\n"]},
    {"a": 100000.0, "b": True, "nested": {"k": [1, 2.50, {"z": False}]}},
    {"a": -0.0, "b": 123456789012, "text": "two\nlines"},
    {"a": 0.1, "b": 1e16, "c": 123456.789e3},
]


def message(random, role):
    text = TEXTS[random.below(len(TEXTS))]
    out = {"role": role, "content": text}
    if role == "user" and random.below(6) == 0:
        out["content"] = [{"type": "text", "text": text}, {"type": "text", "text": "second"}]
    if role == "assistant":
        if random.below(3) == 0:
            out["reasoning_content"] = [None, "", "I think.\n", "step 1\nstep 2"][random.below(4)]
        if random.below(3) == 0:
            names = ["get_weather", "add"]
            out["tool_calls"] = [
                {
                    "id": f"call{i}abcd",
                    "type": "function",
                    "function": {
                        "name": names[random.below(2)],
                        "arguments": ARGUMENTS[random.below(len(ARGUMENTS))],
                    },
                }
                for i in range(1 + random.below(2))
            ]
            if random.below(2):
                out["content"] = [None, ""][random.below(2)]
    if role == "tool":
        out["tool_call_id"] = "call0abcd"
        out["name"] = "add"
    return out


def variables(random):
    messages = []
    if random.below(2):
        messages.append(message(random, "system"))
    for _ in range(1 + random.below(4)):
        messages.append(message(random, "user"))
        reply = message(random, "assistant")
        messages.append(reply)
        if "tool_calls" in reply:
            messages += [message(random, "tool") for _ in reply["tool_calls"]]
            if random.below(2):
                messages.append(message(random, "assistant"))
    if random.below(3) and messages[-1]["role"] == "assistant":
        messages.append(message(random, "user"))
    out = {
        "messages": messages,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "add_generation_prompt": bool(random.below(2)),
        "tools": TOOLS[: 1 + random.below(2)] if random.below(2) else None,
        "documents": None,
    }
    if random.below(2):
        out["enable_thinking"] = bool(random.below(2))
    return out
