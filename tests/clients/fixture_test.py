"""The scripted model itself: fixture_test.py FOURFOLD. Three turns with a tool call, its result and text,
whole and streamed, through chat completions, responses and messages; with two templates, with drafts and
without, at temperatures up to 2. No package is needed: requests are written as the protocols have them.
"""
import json
import os
import sys
import unittest
import urllib.request

from served import PLAIN_SAYS, WEATHER, WEATHER_SAYS, WEATHER_SCHEMA, Served, ask

PROGRAM = ""
CALL = {"city": "Paris", "days": 3}
THOUGHT = {**WEATHER, "thought": "The weather of a city is asked for."}


def events(url, body):
    """The data of server-sent events, as JSON."""
    request = urllib.request.Request(url, json.dumps({**body, "stream": True}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        for line in answer:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[6:])


class Chat:
    """Each protocol: ask once, and give (text, thought, calls as (id, name, arguments)); keep what goes back."""
    path = "/v1/chat/completions"
    results = "tool"

    def __init__(self, url, tools):
        self.url, self.history = url + self.path, []
        self.more = {"tools": [{"type": "function", "function": {"name": "weather", "parameters": WEATHER_SCHEMA}}]}
        if not tools:
            self.more = {}

    def user(self, text):
        self.history.append({"role": "user", "content": text})

    def ask(self, stream, **more):
        body = {"messages": self.history, **self.more, **more}
        if stream:
            message = self.joined(events(self.url, body))
        else:
            message = ask(self.url, body)["choices"][0]["message"]
        self.history.append({"role": "assistant", "content": message.get("content"),
                             **({"tool_calls": message["tool_calls"]} if message.get("tool_calls") else {})})
        calls = [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
                 for call in message.get("tool_calls") or []]
        return message.get("content") or "", message.get("reasoning_content") or "", calls

    @staticmethod
    def joined(pieces):
        message = {"content": "", "reasoning_content": "", "tool_calls": []}
        for piece in pieces:
            for choice in piece["choices"]:
                delta = choice["delta"]
                for name in ("content", "reasoning_content"):
                    message[name] += delta.get(name) or ""
                for part in delta.get("tool_calls") or []:
                    if part["index"] == len(message["tool_calls"]):
                        message["tool_calls"].append({"id": part["id"], "type": "function",
                                                      "function": {"name": "", "arguments": ""}})
                    for name in ("name", "arguments"):
                        message["tool_calls"][part["index"]]["function"][name] += part["function"].get(name) or ""
        return message

    def result(self, call, text):
        self.history.append({"role": "tool", "tool_call_id": call, "content": text})


class Responses(Chat):
    path = "/v1/responses"

    def __init__(self, url, tools):
        super().__init__(url, tools)
        self.more = {"tools": [{"type": "function", "name": "weather", "parameters": WEATHER_SCHEMA}]} if tools else {}

    def ask(self, stream, **more):
        body = {"input": self.history, **self.more, **more}
        if stream:
            answer = [event for event in events(self.url, body) if event["type"] == "response.completed"][0]["response"]
        else:
            answer = ask(self.url, body)
        self.history += answer["output"]
        of = {kind: [item for item in answer["output"] if item["type"] == kind]
              for kind in ("message", "reasoning", "function_call")}
        return ("".join(part["text"] for item in of["message"] for part in item["content"]),
                "".join(part["text"] for item in of["reasoning"] for part in item.get("content") or item["summary"]),
                [(item["call_id"], item["name"], json.loads(item["arguments"])) for item in of["function_call"]])

    def result(self, call, text):
        self.history.append({"type": "function_call_output", "call_id": call, "output": text})


class Messages(Chat):
    path = "/v1/messages"

    def __init__(self, url, tools):
        super().__init__(url, tools)
        self.more = {"tools": [{"name": "weather", "input_schema": WEATHER_SCHEMA}]} if tools else {}

    def ask(self, stream, **more):
        body = {"messages": self.history, "max_tokens": 500, **self.more, **more}
        content = self.blocks(events(self.url, body)) if stream else ask(self.url, body)["content"]
        self.history.append({"role": "assistant", "content": content})
        return ("".join(block["text"] for block in content if block["type"] == "text"),
                "".join(block["thinking"] for block in content if block["type"] == "thinking"),
                [(block["id"], block["name"], block["input"]) for block in content if block["type"] == "tool_use"])

    @staticmethod
    def blocks(pieces):
        content, texts = [], []
        for event in pieces:
            if event["type"] == "content_block_start":
                content.append(event["content_block"])
                texts.append("")
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                texts[event["index"]] += delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
        for block, text in zip(content, texts):
            if block["type"] == "tool_use":
                block["input"] = json.loads(text)
            else:
                block[block["type"]] = text
        return content

    def result(self, call, text):
        self.history.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]})


class Fixture(unittest.TestCase):
    def three_turns(self, talk, stream, **more):
        for turn in range(3):
            talk.user(f"And the weather, number {turn}?")
            text, _, calls = talk.ask(stream, **more)
            self.assertEqual((text.strip(), [call[1:] for call in calls]), ("", [("weather", CALL)]))
            talk.result(calls[0][0], f"sunny, {turn}")
            text, _, calls = talk.ask(stream, **more)
            self.assertEqual((text, calls), (WEATHER_SAYS, []))

    def test_every_protocol_whole_and_streamed(self):
        for template, options in (("qwen3", ("--mtp", "0")), ("tool_xml", ("--mtp", "5"))):
            with Served(PROGRAM, WEATHER, template, options) as served:
                for kind in (Chat, Responses, Messages):
                    for stream in (False, True) if template == "qwen3" or "FOURFOLD_LONG" in os.environ else (True,):
                        for temperature in (0, 2) if kind is Chat else (1,):
                            with self.subTest(template=template, kind=kind.__name__, stream=stream, temperature=temperature):
                                self.three_turns(kind(served.url, True), stream, temperature=temperature)
                drafts = served.metric("vllm:spec_decode_num_draft_tokens_total")
                accepted = served.metric("vllm:spec_decode_num_accepted_tokens_total")
                if options == ("--mtp", "0"):
                    self.assertEqual(drafts, 0)
                else:
                    self.assertGreater(accepted, 0.5 * drafts)  # the draft layer knows the script too

    def test_without_tools_the_other_answer(self):
        with Served(PROGRAM, WEATHER) as served:
            for kind in (Chat, Responses, Messages):
                talk = kind(served.url, False)
                for turn in range(2):
                    talk.user("Who is there?")
                    self.assertEqual(talk.ask(stream=turn == 1), (PLAIN_SAYS, "", []))

    def test_thoughts_are_apart(self):
        for template in ("qwen3", "tool_xml"):
            with Served(PROGRAM, THOUGHT, template) as served:
                for stream in (False, True):
                    talk = Chat(served.url, True)
                    talk.user("The weather?")
                    text, thought, calls = talk.ask(stream)
                    self.assertEqual((text.strip(), thought.strip(), len(calls)), ("", THOUGHT["thought"], 1))
                    talk.result(calls[0][0], "sunny")
                    self.assertEqual(talk.ask(stream, chat_template_kwargs={"enable_thinking": False}),
                                     (WEATHER_SAYS, "", []))

    def test_a_long_prompt_is_found_again(self):
        """As long as those of agents: the second turn reads the new tokens only."""
        with Served(PROGRAM, WEATHER, options=("--max-context", "65536")) as served:
            talk = Chat(served.url, True)
            talk.history.append({"role": "system", "content": "All of this must be kept in mind. " * 1200})
            talk.user("The weather?")
            first = ask(talk.url, {"messages": talk.history, **talk.more})
            self.assertGreater(first["usage"]["prompt_tokens"], 9000)
            call = first["choices"][0]["message"]["tool_calls"][0]
            self.assertEqual(json.loads(call["function"]["arguments"]), CALL)
            talk.history += [{"role": "assistant", "content": "", "tool_calls": [call]},
                             {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
            second = ask(talk.url, {"messages": talk.history, **talk.more})
            self.assertEqual(second["choices"][0]["message"]["content"], WEATHER_SAYS)
            usage = second["usage"]
            self.assertLess(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"], 256)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
