"""What the official clients can do with our server, shown by doing it: the table client x feature of docs/serving.md.

The model is models/storyteller, which is small and knows no tools: what is checked is the protocol, not the wit. Where a
call must come (tool_choice required or named) the server's own masks see to it; with auto and none the answer is text.
"""
import contextlib
import json
import pathlib
import subprocess
import tempfile

import anthropic
import openai
import pydantic

from served import ROOT, Server, chat_template, check, free_port, stop

STORY = [{"role": "user", "content": "Tell me a story about a cat."}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12},
                                           "days": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["city", "days"], "additionalProperties": False}
CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}},
              {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {},
                                                                  "additionalProperties": False}}}]
# The model draws what a form leaves open. Members of any name, of any depth, would not end in one call of ten (so clock has
# none); a string without a limit, a Trip's city, always has.
FORM_TOKENS = 2000
THINK_OFF = {"chat_template_kwargs": {"enable_thinking": False}}


class Trip(pydantic.BaseModel):
    city: str
    days: int


def check_arguments(text):
    arguments = json.loads(text) if isinstance(text, str) else text
    check(isinstance(arguments["city"], str) and 1 <= arguments["days"] <= 9, f"arguments are {arguments}")


class OpenAi:
    """Each method is a row of the table; its first line of documentation is the row's name."""

    def __init__(self, url):
        self.client = openai.OpenAI(base_url=url + "/v1", api_key="unused", max_retries=0, timeout=300)

    def chat(self, **more):
        more = {"model": "default", "messages": STORY, "max_completion_tokens": 24, "extra_body": THINK_OFF, **more}
        return self.client.chat.completions.create(**more)

    def models(self):
        """list models"""
        check(len(list(self.client.models.list())) >= 1, "no model")

    def whole(self):
        """chat"""
        answer = self.chat(messages=[{"role": "system", "content": "Be kind."}, *STORY])
        check(answer.choices[0].message.content, "no content")
        check(answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens, "usage")

    def plain(self):
        """chat, thinking not mentioned"""
        answer = self.client.chat.completions.create(model="default", messages=STORY, max_completion_tokens=24)
        check(answer.choices[0].message.reasoning_content or answer.choices[0].message.content, "thoughts or text")

    def stream(self):
        """stream, with usage"""
        pieces = list(self.chat(stream=True, stream_options={"include_usage": True}, temperature=0))
        check(pieces[0].choices[0].delta.role == "assistant", "the role comes first")
        check(pieces[-1].usage.completion_tokens == 24, "the usage comes last")
        check(pieces[-2].choices[0].finish_reason == "length", "the reason comes before")
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        check(text == self.chat(temperature=0).choices[0].message.content, "the text of a whole answer")

    def thinking(self):
        """thinking apart from the text"""
        answer = self.chat(extra_body={"chat_template_kwargs": {"enable_thinking": True}})
        check(answer.choices[0].message.reasoning_content, "no reasoning_content")
        check(answer.usage.completion_tokens_details.reasoning_tokens > 0, "no reasoning_tokens")

    def several(self):
        """n"""
        answers = [choice.message.content for choice in self.chat(n=3, seed=5, temperature=1).choices]
        check(len(answers) == 3 and len(set(answers)) > 1, "three that differ")
        check(answers == [c.message.content for c in self.chat(n=3, seed=5, temperature=1).choices], "the seed holds")

    def logprobs(self):
        """logprobs"""
        tokens = self.chat(logprobs=True, top_logprobs=4, max_completion_tokens=5).choices[0].logprobs.content
        check(len(tokens) == 5 and all(len(token.top_logprobs) == 4 for token in tokens), "5 tokens with 4 each")
        check(all(token.logprob <= 0 for token in tokens), "log-probabilities")

    def stop(self):
        """stop strings"""
        answer = self.chat(stop=["a"], max_completion_tokens=200).choices[0]
        check(answer.finish_reason == "stop" and "a" not in answer.message.content, "stops")

    def tool_auto(self):
        """tools: auto"""
        check(self.chat(tools=CHAT_TOOLS, tool_choice="auto").choices[0].message is not None, "answers")

    def tool_none(self):
        """tools: none"""
        check(not self.chat(tools=CHAT_TOOLS, tool_choice="none").choices[0].message.tool_calls, "no call")

    def tool_required(self):
        """tools: required"""
        answer = self.chat(tools=CHAT_TOOLS, tool_choice="required", max_completion_tokens=FORM_TOKENS,
                           parallel_tool_calls=False).choices[0]
        check(answer.finish_reason == "tool_calls" and len(answer.message.tool_calls) == 1, "one call")
        check(answer.message.tool_calls[0].function.name in ("weather", "clock"), "one of the tools")
        json.loads(answer.message.tool_calls[0].function.arguments)

    def tool_named(self):
        """tools: a named one"""
        answer = self.chat(tools=CHAT_TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}},
                           max_completion_tokens=FORM_TOKENS, parallel_tool_calls=False).choices[0]
        call = answer.message.tool_calls[0]
        check(call.function.name == "weather", "the one that was named")
        check_arguments(call.function.arguments)
        again = self.chat(tools=CHAT_TOOLS, messages=[*STORY, answer.message.model_dump(exclude_none=True),
                                                      {"role": "tool", "tool_call_id": call.id, "content": "sunny"}])
        check(again.usage.prompt_tokens > 0, "the result goes back")

    def tool_stream(self):
        """tools in a stream"""
        name, arguments = "", ""
        for piece in self.chat(tools=CHAT_TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}},
                               stream=True, max_completion_tokens=FORM_TOKENS, parallel_tool_calls=False):
            for call in piece.choices[0].delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
        check(name == "weather", "the name comes once")
        check_arguments(arguments)

    def tool_allowed(self):
        """tools: only those allowed, others left out and named"""
        allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "clock"}}]}
        answer = self.client.chat.completions.with_raw_response.create(
            model="default", messages=STORY, max_completion_tokens=FORM_TOKENS, extra_body=THINK_OFF, parallel_tool_calls=False,
            tools=[*CHAT_TOOLS, {"type": "custom", "custom": {"name": "free"}}],
            tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
        check(answer.headers["X-Fourfold-Ignored"] == "tools[].type=custom", answer.headers)
        check(answer.parse().choices[0].message.tool_calls[0].function.name == "clock", "the one that is allowed")

    def json_schema(self):
        """json_schema"""
        format = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": SCHEMA}}
        check_arguments(self.chat(response_format=format, max_completion_tokens=FORM_TOKENS).choices[0].message.content)
        answer = self.client.chat.completions.parse(model="default", messages=STORY, response_format=Trip,
                                                    max_completion_tokens=800, extra_body=THINK_OFF, temperature=0)
        check(isinstance(answer.choices[0].message.parsed, Trip), "parsed")

    def json_object(self):
        """json_object"""
        answer = self.chat(response_format={"type": "json_object"}, max_completion_tokens=60).choices[0]
        check(answer.message.content.startswith("{"), "an object")
        if answer.finish_reason == "stop":
            json.loads(answer.message.content)

    def completions(self):
        """completions, whole and streamed"""
        more = {"model": "default", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
        whole = self.client.completions.create(**more, logprobs=2)
        check(len(whole.choices[0].logprobs.tokens) == 8, "logprobs")
        pieces = self.client.completions.create(**more, stream=True)
        check("".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text, "the same text")

    def responses(self):
        """responses: text"""
        answer = self.client.responses.create(model="default", input="Tell me a story.", instructions="Be kind.",
                                              max_output_tokens=24, reasoning={"effort": "none"})
        check(answer.output_text and answer.status == "incomplete", "text that was cut")

    def responses_stream(self):
        """responses: stream"""
        format = {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}
        with self.client.responses.stream(model="default", input="A trip?", max_output_tokens=FORM_TOKENS,
                                          reasoning={"effort": "none"}, text={"format": format}) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            check(stream.get_final_response().output_text == text, "deltas make the text")
        check_arguments(text)

    def responses_tools(self):
        """responses: tools and json_schema"""
        tool = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
        more = {"model": "default", "reasoning": {"effort": "none"}, "max_output_tokens": FORM_TOKENS}
        answer = self.client.responses.create(input="Weather?", tools=[tool], parallel_tool_calls=False,
                                              tool_choice={"type": "function", "name": "weather"}, **more)
        call = next(item for item in answer.output if item.type == "function_call")
        check_arguments(call.arguments)
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        history = [{"role": "user", "content": "Weather?"}, *[item.model_dump() for item in answer.output], result]
        check(self.client.responses.create(input=history, tools=[tool], **more).status, "the result goes back")
        format = {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}
        check_arguments(self.client.responses.create(input="Trip?", text={"format": format}, **more).output_text)

    def responses_kept(self):
        """responses: previous_response_id, retrieve, delete"""
        more = {"model": "default", "reasoning": {"effort": "none"}, "max_output_tokens": 8}
        first = self.client.responses.create(input="My name is Ann.", **more)
        check(first.store and self.client.responses.retrieve(first.id).output_text == first.output_text, "is kept")
        second = self.client.responses.create(input="Who am I?", previous_response_id=first.id, **more)
        history = [{"role": "user", "content": "My name is Ann."}, *[item.model_dump() for item in first.output],
                   {"role": "user", "content": "Who am I?"}]
        whole = self.client.responses.create(input=history, store=False, **more)
        check(second.usage.input_tokens == whole.usage.input_tokens and not whole.store, "goes on as if all was sent")
        self.client.responses.delete(first.id)
        try:
            self.client.responses.create(input="And?", previous_response_id=first.id, **more)
            raise AssertionError("a deleted response was gone on from")
        except openai.BadRequestError as error:
            check(error.code == "previous_response_not_found", error.code)

    def responses_logprobs(self):
        """responses: logprobs"""
        answer = self.client.responses.create(model="default", input="A story?", max_output_tokens=6, top_logprobs=2,
                                              reasoning={"effort": "none"}, include=["message.output_text.logprobs"])
        part = answer.output[-1].content[0]
        check("".join(token.token for token in part.logprobs) == part.text, "they are of the text")
        check(all(len(token.top_logprobs) == 2 for token in part.logprobs), "two of each")

    def count(self):
        """count tokens"""
        counted = self.client.responses.input_tokens.count(model="default", input="A story?", instructions="Be kind.")
        answer = self.client.responses.create(model="default", input="A story?", instructions="Be kind.", max_output_tokens=2)
        check(counted.input_tokens == answer.usage.input_tokens, "as the answer says")

    def unknown(self):
        """fields nobody knows, and misspelt ones"""
        answer = self.client.chat.completions.with_raw_response.create(
            model="default", messages=STORY, max_completion_tokens=10 ** 7, stop="a", extra_body={"colour": "red"})
        check(answer.headers["X-Fourfold-Ignored"] == "colour", answer.headers)
        check(answer.headers["X-Fourfold-Changed"].startswith("max_completion_tokens="), answer.headers)
        self.chat(stop="", max_completion_tokens=2)
        try:
            self.chat(extra_body={"temprature": 1})
            raise AssertionError("a misspelt field was taken")
        except openai.BadRequestError as error:
            check("did you mean temperature?" in error.message, error.message)

    def errors(self):
        """errors"""
        long = [{"role": "user", "content": "word " * 20000}]
        for kind, code, param, more in (
                (openai.NotFoundError, "model_not_found", "model", {"model": "gpt-4"}),
                (openai.BadRequestError, "context_length_exceeded", "messages", {"messages": long}),
                (openai.BadRequestError, "invalid_value", "top_p", {"top_p": 7}),
                (openai.BadRequestError, "invalid_type", "n", {"n": "two"}),
                (openai.BadRequestError, "missing_required_parameter", "messages[0].role",
                 {"messages": [{"content": "a"}]}),
                (openai.BadRequestError, "unknown_parameter", "temprature", {"extra_body": {"temprature": 1}})):
            for stream in (False, True):
                try:
                    self.chat(stream=stream, **more)
                    raise AssertionError(f"{more} was served")
                except kind as error:
                    check((error.code, error.param) == (code, param), (error.code, error.param, code, param))
                    check(error.type and error.message, error.body)


class Anthropic:
    def __init__(self, url):
        self.client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0, timeout=300)

    def message(self, **more):
        more = {"model": "default", "max_tokens": 24, "messages": STORY, "thinking": {"type": "disabled"}, **more}
        return self.client.messages.create(**more)

    def models(self):
        """list models"""
        models = list(self.client.models.list())
        check(models[0].type == "model" and models[0].display_name and models[0].created_at.year >= 2026, models)
        check(self.client.models.retrieve(models[0].id).id == models[0].id, "one of them")

    def system_turns(self):
        """system turns, and prefixes behind a line that differs"""
        def read(number):
            billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.{number}; cch={number * 7919};"}
            turns = [*STORY, {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go on."}]
            return self.message(system=[billing, {"type": "text", "text": "Be kind to cats. " * 40}], messages=turns).usage
        first, second = read(1), read(2)
        check(second.cache_read_input_tokens > 100, f"{first}, {second}")

    def tool_runner(self):
        """beta.messages.tool_runner, which goes on without threads"""
        @anthropic.beta_tool
        def weather(city: str) -> str:
            """The weather."""
            return "sunny in " + city
        runner = self.client.beta.messages.tool_runner(model="default", max_tokens=24, messages=STORY, tools=[weather])
        check(runner.until_done().content[0].text, "answers")

    def tool_choice(self, choice, **more):
        tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]} for tool in CHAT_TOOLS]
        # Not of any seed: a sampled call may be longer than max_tokens, and the greedy one of JSON is.
        return self.message(tools=tools, tool_choice=choice, extra_body={"seed": 1}, **more)

    def whole(self):
        """chat"""
        answer = self.message(system="Be kind.")
        check(answer.content[0].text and answer.stop_reason == "max_tokens", "text")
        check(answer.usage.output_tokens == 24, "usage")

    def plain(self):
        """chat, thinking not mentioned"""
        answer = self.client.messages.create(model="default", max_tokens=24, messages=STORY)
        check([block.type for block in answer.content] == ["text"] and answer.content[0].text, "text alone")
        with self.client.messages.stream(model="default", max_tokens=24, messages=STORY) as stream:
            check([block.type for block in stream.get_final_message().content] == ["text"], "text alone, streamed")

    def stream(self):
        """stream, with usage"""
        with self.client.messages.stream(model="default", max_tokens=24, messages=STORY,
                                         thinking={"type": "disabled"}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        check(final.content[0].text == text != "" and final.usage.output_tokens == 24, "deltas make the text")

    def thinking(self):
        """thinking apart from the text"""
        answer = self.message(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1200)
        check(answer.content[0].type == "thinking", "thinks")

    def stop(self):
        """stop strings"""
        answer = self.message(stop_sequences=["a"], max_tokens=200)
        check(answer.stop_reason == "stop_sequence" and answer.stop_sequence == "a", answer.stop_reason)

    def tool_auto(self):
        """tools: auto"""
        check(self.tool_choice({"type": "auto"}).content, "answers")

    def tool_none(self):
        """tools: none"""
        check(all(block.type == "text" for block in self.tool_choice({"type": "none"}).content), "no call")

    def tool_required(self):
        """tools: required"""
        answer = self.tool_choice({"type": "any", "disable_parallel_tool_use": True}, max_tokens=FORM_TOKENS)
        check(answer.stop_reason == "tool_use" and answer.content[-1].type == "tool_use", "one call")

    def tool_named(self):
        """tools: a named one"""
        answer = self.tool_choice({"type": "tool", "name": "weather", "disable_parallel_tool_use": True}, max_tokens=FORM_TOKENS)
        call = answer.content[-1]
        check(call.name == "weather", "the one that was named")
        check_arguments(call.input)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
        history = [*STORY, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        check(self.tool_choice({"type": "auto"}, messages=history).content is not None, "the result goes back")

    def tool_stream(self):
        """tools in a stream"""
        tools = [{"name": "weather", "input_schema": SCHEMA}]
        with self.client.messages.stream(model="default", max_tokens=FORM_TOKENS, messages=STORY, tools=tools,
                                         tool_choice={"type": "any", "disable_parallel_tool_use": True},
                                         thinking={"type": "disabled"}) as stream:
            check_arguments(stream.get_final_message().content[-1].input)

    def json_schema(self):
        """json_schema"""
        answer = self.message(max_tokens=FORM_TOKENS, extra_body={
            "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
        check_arguments(answer.content[0].text)

    def count(self):
        """count tokens"""
        counted = self.client.messages.count_tokens(model="default", messages=STORY, thinking={"type": "disabled"})
        usage = self.message().usage
        check(counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, "as the answer says")

    def errors(self):
        """errors"""
        try:
            self.message(model="claude")
            raise AssertionError("an unknown model was served")
        except anthropic.NotFoundError as error:
            check(error.body["error"]["type"] == "not_found_error", error.body)
            check(error.body["error"]["details"]["error_code"] == "model_not_found", error.body)


class Curl:
    def __init__(self, url):
        self.url = url

    def ask(self, path, body, *more):
        run = subprocess.run(["curl", "-sS", *more, self.url + path, "-H", "Content-Type: application/json",
                              "-d", json.dumps(body)], capture_output=True, text=True, check=True)
        return run.stdout

    def models(self):
        """list models"""
        run = subprocess.run(["curl", "-sS", self.url + "/v1/models"], capture_output=True, text=True, check=True)
        check(json.loads(run.stdout)["data"], "no model")

    def whole(self):
        """chat"""
        answer = json.loads(self.ask("/v1/chat/completions", {"messages": STORY, "max_tokens": 8}))
        check(answer["choices"][0]["message"]["role"] == "assistant", "an answer")

    def stream(self):
        """stream, with usage"""
        body = {"messages": STORY, "max_tokens": 8, "stream": True, "stream_options": {"include_usage": True}}
        lines = self.ask("/v1/chat/completions", body, "-N").split("\n\n")
        check(lines[-2] == "data: [DONE]" and json.loads(lines[-3][6:])["usage"]["completion_tokens"] == 8, "events")

    def errors(self):
        """errors"""
        check(json.loads(self.ask("/v1/chat/completions", {"messages": []}))["error"]["param"] == "messages", "the field")


CLIENTS = {"openai": OpenAi, "anthropic": Anthropic, "curl": Curl}


def model_folder(folder, template):
    """models/storyteller under a template of the tests, which shows tools and their calls."""
    for file in (ROOT / "models/storyteller").iterdir():
        if file.name != "chat_template.jinja":
            (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").write_text(chat_template(template))


def rows(asked, client, names=(), remark=""):
    """Its methods, or those of these names, as functions whose documentation says what they show."""
    for name, value in vars(type(asked)).items():
        if callable(value) and (value.__doc__ or "").strip() and (not names or name in names):
            def row(_, method=getattr(asked, name)):
                method()
            row.__doc__ = f"{client}: {value.__doc__}{remark}"
            yield row


# Calls that must come, from a model whose template shows them as JSON.
DEMANDED = {"openai": ("tool_required", "tool_named", "tool_stream"), "anthropic": ("tool_required", "tool_named")}


def lost_rank(program):
    """openai: a rank that is lost"""
    with contextlib.ExitStack() as scope:
        folder = pathlib.Path(scope.enter_context(tempfile.TemporaryDirectory()))
        token = folder / "token"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        address = f"127.0.0.1:{free_port()}"

        def start_rank():
            rank = subprocess.Popen([program, "rank", "--join", address, "--token-file", token, "--threads", "1"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            scope.callback(stop, rank)
            return rank
        rank = start_rank()
        server = scope.enter_context(Server(program, ROOT / "models/storyteller", (
            "--tp", "2", "--threads", "2", "--max-context", "2048", "--nodes", "by-hand", "--token-file", str(token),
            "--rank-listen", address)))
        asked = OpenAi(server.url)
        with asked.chat(stream=True, max_completion_tokens=1500, extra_body={"ignore_eos": True, **THINK_OFF}) as answer:
            pieces = iter(answer)
            next(pieces)
            rank.kill()
            try:
                for _ in pieces:
                    pass
                raise AssertionError("the stream ended as if it were whole")
            except openai.APIError as error:
                check(error.code == "rank_lost", (error.code, error.message))
        for stream in (False, True):
            try:
                asked.chat(stream=stream)
                raise AssertionError("a group that has lost a rank answers")
            except openai.InternalServerError as error:
                check((error.status_code, error.code) == (503, "rank_lost"), (error.status_code, error.body))
                check(error.response.headers["Retry-After"] == "1", error.response.headers)
        # What the client does by itself: it asks again until the rank is back.
        start_rank()
        patient = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=200, timeout=300)
        check(patient.chat.completions.create(model="default", messages=STORY, max_tokens=4).choices, "an answer")


def run_suite(program, run_row):
    results = [run_row(lost_rank, program)]
    for template in ("tool_xml", "qwen3"):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model_folder(folder, template)
            with Server(program, folder, ("--max-context", "4096")) as server:
                for client, kind in CLIENTS.items():
                    asked = kind(server.url)
                    if template == "tool_xml":
                        chosen = rows(asked, client)
                    elif client in DEMANDED:
                        chosen = rows(asked, client, DEMANDED[client], ", calls in JSON")
                    else:
                        continue
                    results += [run_row(row, None) for row in chosen]
    return results
