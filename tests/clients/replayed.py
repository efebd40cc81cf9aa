"""Agents that cannot be had from PyPI or Debian: OpenCode and Cline, replayed and not run. (opencode-ai on PyPI is a
client of OpenCode's own server, cline another program of that name.) Their requests are built here as their public
source builds them, and the streams are held to what that code needs of them: three turns with a call, its result
and words. Where they come from:
- OpenCode: github.com/sst/opencode at 31e22f65a23c, packages/opencode/src/session/llm/request.ts and llm.ts, sent
  by @ai-sdk/openai-compatible
- Cline: github.com/cline/cline at 0162b82878a6, src/core/api/providers/openai.ts ("OpenAI Compatible")
"""
import json
import urllib.request

from served import Served, check

OWN_SERVERS = True
COMMAND = "echo made by a tool call >> made.txt"
SAYS = "The line stands in the file now."
SYSTEM = "You are an agent that helps with software. Answer in a few lines, and use the tools for what is to do. " * 60
ENVIRONMENT = ("<environment_details>\n# Visible Files\nmade.txt\n\n# Current Mode\nACT MODE\n"
               "</environment_details>")


def stream(url, body, headers):
    """Text, calls and usage of a stream whose form is checked: a call's first piece has its id and name, the end
    has a reason, then comes the usage without choices."""
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    headers = {"Content-Type": "application/json", "Authorization": "Bearer unused", **headers}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        events = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
    check(events[-1] == b"[DONE]", f"the last event is {events[-1]}")
    chunks = [json.loads(event) for event in events[:-1]]
    check(chunks[-1]["choices"] == [] and chunks[-1]["usage"]["prompt_tokens"] > 0, f"no usage: {chunks[-1]}")
    text, calls, reasons = "", {}, []
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        text += choice["delta"].get("content") or ""
        for piece in choice["delta"].get("tool_calls") or []:
            call = calls.setdefault(piece["index"], {"id": piece.get("id"), "type": "function", "function": {
                "name": piece["function"].get("name"), "arguments": ""}})
            check(call["id"] and call["function"]["name"], f"a call begins with {piece}")
            call["function"]["arguments"] += piece["function"].get("arguments") or ""
        reasons += [choice["finish_reason"]] if choice.get("finish_reason") else []
    check(reasons == ["tool_calls" if calls else "stop"], f"reasons are {reasons}")
    return text, list(calls.values()), chunks[-1]["usage"]


def check_call(calls, name):
    check([call["function"]["name"] for call in calls] == [name], f"calls are {calls}")
    arguments = json.loads(calls[0]["function"]["arguments"])
    check(arguments["command"] == COMMAND, f"arguments are {arguments}")
    return arguments


def tool(name, **properties):
    return {"type": "function", "function": {"name": name, "description": f"The tool {name}.", "parameters": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties,
        "required": list(properties), "additionalProperties": False}}}


STRING = {"type": "string", "description": "A text."}


def opencode(program):
    """OpenCode (not run: requests as its source builds them): a title, three turns with a bash call each"""
    tools = [tool("bash", command=STRING, description=STRING, timeout={"type": "integer", "exclusiveMinimum": 0}),
             tool("edit", filePath=STRING, oldString=STRING, newString=STRING), tool("glob", pattern=STRING),
             tool("read", filePath=STRING, offset={"type": "integer", "minimum": 0, "maximum": 9007199254740991}),
             tool("todowrite", todos={"type": "array", "items": {
                 "type": "object", "required": ["content", "status"], "properties": {
                     "content": STRING, "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]}}}})]
    call = {"name": "bash", "arguments": {"command": COMMAND, "description": "Write a line"}}
    script = {"with_tools": [{"calls": [call]}, {"text": SAYS}], "without_tools": [{"text": "A line for a file"}]}
    headers = {"x-session-affinity": "ses_1", "X-Session-Id": "ses_1", "User-Agent": "opencode/1"}
    common = {"model": "scripted", "max_tokens": 32000, "temperature": 0.55, "top_p": 1}
    with Served(program, script) as served:
        title, _, _ = stream(served.url, {**common, "messages": [
            {"role": "system", "content": "You write titles."}, {"role": "user", "content": "Generate a title:\n"},
            {"role": "user", "content": "Make a line in the file."}]}, headers)
        check(title == "A line for a file", title)
        history = [{"role": "system", "content": SYSTEM}]
        for turn in range(3):
            history.append({"role": "user", "content": "Make a line in the file."})
            for calling in (True, False):
                body = {**common, "messages": history, "tools": tools, "tool_choice": "auto"}
                text, calls, usage = stream(served.url, body, headers)
                if calling:
                    arguments = check_call(calls, "bash")
                    # Arguments are written anew, without spaces; what was said beside a call stays.
                    calls[0]["function"]["arguments"] = json.dumps(arguments, separators=(",", ":"))
                    history += [{"role": "assistant", "content": text, "tool_calls": calls},
                                {"role": "tool", "tool_call_id": calls[0]["id"], "content": "(no output)"}]
                else:
                    check(text == SAYS and not calls, f"turn {turn}: {text} {calls}")
                    history.append({"role": "assistant", "content": text})
                if turn or not calling:
                    new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
                    check(new < 256, f"turn {turn}: {new} of {usage['prompt_tokens']} prompt tokens were read anew")


def user_turn(text):
    """Cline's turns are lists of parts; the last one tells of the editor."""
    return {"role": "user", "content": [{"type": "text", "text": text}, {"type": "text", "text": ENVIRONMENT}]}


def cline_native(program):
    """Cline (not run: requests as its source builds them): three turns with a native tool call each"""
    tools = [tool("execute_command", command=STRING, requires_approval={"type": "boolean"}),
             tool("attempt_completion", result=STRING), tool("read_file", path=STRING)]
    script = {"with_tools": [
        {"calls": [{"name": "execute_command", "arguments": {"command": COMMAND, "requires_approval": False}}]},
        {"calls": [{"name": "attempt_completion", "arguments": {"result": SAYS}}]}]}
    with Served(program, script) as served:
        history = [{"role": "system", "content": SYSTEM}, user_turn("<task>\nMake a line in the file.\n</task>")]
        for turn in range(3):
            for name in ("execute_command", "attempt_completion"):
                text, calls, _ = stream(served.url, {"model": "scripted", "messages": history, "temperature": 0,
                                                     "tools": tools}, {"User-Agent": "OpenAI/JS 4.83.0"})
                check([call["function"]["name"] for call in calls] == [name], f"turn {turn}: {text} {calls}")
                history += [{"role": "assistant", "content": text or None, "tool_calls": calls},
                            {"role": "tool", "tool_call_id": calls[0]["id"], "content": "Command executed."},
                            user_turn("Go on.")]
            check(json.loads(calls[0]["function"]["arguments"]) == {"result": SAYS}, f"the result is {calls}")


def cline_tags(program):
    """Cline (not run: requests as its source builds them): three turns with calls in its own tags, as text"""
    calls = f"I write it.\n\n<execute_command>\n<command>{COMMAND}</command>\n</execute_command>"
    done = f"<attempt_completion>\n<result>{SAYS}</result>\n</attempt_completion>"
    with Served(program, {"without_tools": [{"text": calls}, {"text": done}]}) as served:
        history = [{"role": "system", "content": SYSTEM}, user_turn("<task>\nMake a line in the file.\n</task>")]
        for turn in range(3):
            for wanted in (calls, done):
                text, native, _ = stream(served.url, {"model": "scripted", "messages": history, "temperature": 0}, {})
                check(text == wanted and not native, f"turn {turn}: {text!r} {native}")
                history += [{"role": "assistant", "content": text},
                            user_turn("[execute_command] Result:\nCommand executed.")]


ROWS = [opencode, cline_native, cline_tags]
