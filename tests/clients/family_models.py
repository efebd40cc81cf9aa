"""Each family's own small model behind `fourfold serve`, with the chat template of its release, through the official packages.

The weights are random, so a model says nothing of its own accord. Token masks make it call; to think and speak, `logit_bias` puts
a few tokens in order, and `repetition_penalty` takes each back once it was said. What it said is known by its token ids
(`return_token_ids`), which are read here once more, by a reader of a few lines; what the server made of them must be the same.
"""
import json
import pathlib
import re
import subprocess
import tempfile

import anthropic
import openai

from families import DEEPSEEK, GLM, HARMONY, KIMI, MINIMAX, MISTRAL
from rank_files import byte_letters
from served import GOLDEN, Server, check

OWN_SERVERS = True
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["city", "days"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}}
SYSTEM = {"role": "system", "content": "Be kind."}  # Mistral's template has a long one of its own otherwise, with its tags in it
QUESTION = {"role": "user", "content": "A question."}
TURNS = [SYSTEM, QUESTION]
SEED = 7
THINK_OFF = {"chat_template_kwargs": {"enable_thinking": False}}


class Vocabulary:
    """The made-up tokenizer with a family's control tokens in place of Qwen's."""

    def __init__(self, file, family):
        document = json.loads(file.read_bytes())
        kept = ("<|endoftext|>",)
        wanted = [*family["special"], *family["plain"]]
        places = [token for token in document["added_tokens"] if token["content"] not in kept]
        check(len(places) >= len(wanted), f"{len(places)} places for {wanted}")
        for number, token in enumerate(places):
            content = wanted[number] if number < len(wanted) else f"<|unused_{number}|>"
            token.update(content=content, special=content not in family["plain"])
        file.write_text(json.dumps(document))
        letters = {letter: byte for byte, letter in enumerate(byte_letters())}
        self.bytes = {number: bytes(letters[letter] for letter in word) for word, number in document["model"]["vocab"].items()}
        self.ids = {token["content"]: token["id"] for token in document["added_tokens"]}
        self.bytes |= {number: content.encode() for content, number in self.ids.items()}
        # Two words that no prompt has.
        self.words = [document["model"]["vocab"][word] for word in ("babu", "bavi")]

    def id_of(self, content):
        return next(number for number, known in self.bytes.items() if known == content)

    def text(self, ids):
        return b"".join(self.bytes[number] for number in ids).decode(errors="replace")


class Tags:
    """How a family thinks between two tags. opened: by the prompt; always: whatever is asked; switch: what switches it on."""

    def __init__(self, begin="<think>", end="</think>", opened=True, always=False, switch=None):
        self.begin, self.end, self.opened, self.always, self.switch = begin, end, opened, always, switch or {}
        self.form, self.token_count = {}, 3 if opened else 4

    def order(self, vocabulary):
        """A bias and a penalty by which random weights open thoughts, say a word, close them and say another."""
        tokens = [vocabulary.words[0], vocabulary.ids[self.end], vocabulary.words[1]]
        if not self.opened:
            tokens.insert(0, vocabulary.ids[self.begin])
        return dict(zip(tokens, (100, 80, 60, 40))), 5

    def read(self, said):
        """Thoughts and what is behind them; None where the answer has no thoughts that end."""
        begin = "" if self.opened else self.begin
        found = re.match(r"\s*" + re.escape(begin) + "(.*?)" + re.escape(self.end) + "(.*)", said, re.DOTALL)
        return found and (found[1].strip(), found[2].strip())


class Channels:
    """gpt-oss's: messages with headers, which token masks hold to where an answer has a form."""
    opened, always, switch, form, token_count = True, False, {}, {"guided_choice": ["yes", "no"]}, 300

    def order(self, vocabulary):
        # "a" is the first token of "analysis"; it and <|end|> are in the prompt, so that their bias is halved.
        return {vocabulary.id_of(b"a"): 50, vocabulary.words[0]: 70, vocabulary.ids["<|end|>"]: 100}, 2

    def read(self, said):
        found = re.match(r"<\|channel\|>analysis<\|message\|>(.*?)<\|end\|><\|start\|>assistant(.*)", said, re.DOTALL)
        return found and (found[1].strip(), found[2].removeprefix("<|channel|>final<|message|>").strip())


# A call with these arguments, as the family's models write it.
def glm_call(line):
    return lambda city, days: (f"<tool_call>weather{line}<arg_key>city</arg_key>{line}<arg_value>{city}</arg_value>{line}"
                               f"<arg_key>days</arg_key>{line}<arg_value>{days}</arg_value>{line}</tool_call>")


def minimax_call(city, days):
    return (f'<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">{city}</parameter>\n'
            f'<parameter name="days">{days}</parameter>\n</invoke>\n</minimax:tool_call>')


def json_call(before, behind=""):
    """before: a regular expression."""
    return lambda city, days: (before, {"city": city, "days": days}, behind)


def deepseek_call(before, behind=""):
    return json_call("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + before, behind + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>")


def is_call(written, wanted):
    """Whether this is that call. JSON may have blanks, and an answer that may have one call ends with its arguments."""
    if isinstance(wanted, str):
        return wanted.startswith(written) and "days" in written
    before, arguments, behind = wanted
    text = re.sub("^" + before, "", written)
    if text == written:
        return False
    text = text.lstrip()
    read, end = json.JSONDecoder().raw_decode(text)
    return read == arguments and behind.startswith(text[end:].strip())


def steered(order):
    if not order:
        return {}
    bias, penalty = order
    return {"logit_bias": {str(number): value for number, value in bias.items()}, "repetition_penalty": penalty}


class Model:
    """`with Model(...) as model`: served, with a client of each package."""

    def __init__(self, program, shape, template, family, format="bf16", config=None):
        self.folder = tempfile.TemporaryDirectory(prefix="fourfold-clients-", ignore_cleanup_errors=True)
        folder = pathlib.Path(self.folder.name) / "model"
        subprocess.run([program, "make-model", folder, "--shape", shape, "--format", format, "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        self.vocabulary = Vocabulary(folder / "tokenizer.json", family)
        (folder / "chat_template.jinja").write_bytes((GOLDEN / f"families/{template}.jinja").read_bytes())
        ends = {"eos_token_id": [self.vocabulary.ids[end] for end in family["ends"]]}
        (folder / "generation_config.json").write_text(json.dumps(ends))
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_bytes()), **ends, **(config or {})}))
        self.ends = [self.vocabulary.ids[end] for end in family["ends"]]
        self.server = Server(program, folder, ("--max-context", "4096"))

    def __enter__(self):
        self.server.__enter__()
        self.openai = openai.OpenAI(base_url=self.server.url + "/v1", api_key="unused", max_retries=0, timeout=300)
        self.anthropic = anthropic.Anthropic(base_url=self.server.url, api_key="unused", max_retries=0, timeout=300)
        return self

    def __exit__(self, *_):
        self.server.__exit__()
        self.folder.cleanup()

    def chat(self, order=None, extra=None, **more):
        more = {"model": "default", "messages": TURNS, "max_completion_tokens": 300, "seed": SEED, "temperature": 1, **more}
        extra = {"return_token_ids": True, "top_k": 0, "top_p": 1, **(extra or {}), **steered(order)}
        return self.openai.chat.completions.create(**more, extra_body=extra)

    def said(self, choice):
        """What the model wrote, without the token that ended it."""
        ids = choice.token_ids
        return self.vocabulary.text(ids[:-1] if ids and ids[-1] in self.ends else ids)


def streamed(pieces):
    """Thoughts, text, and calls as (name, arguments) of a stream."""
    thoughts, text, calls = "", "", {}
    for piece in pieces:
        for choice in piece.choices:
            thoughts += getattr(choice.delta, "reasoning_content", None) or ""
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
    return thoughts, text, [calls[index] for index in sorted(calls)]


def whole(message):
    """The same of a message that came at once."""
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    return getattr(message, "reasoning_content", None) or "", message.content or "", calls


def chats(model):
    """Free words: a stream says what a whole answer says, and both packages take it."""
    answer = model.chat(max_completion_tokens=20, extra=THINK_OFF)
    check(answer.usage.completion_tokens == len(answer.choices[0].token_ids) > 0, answer)
    pieces = list(model.chat(max_completion_tokens=20, extra=THINK_OFF, stream=True))
    check(streamed(pieces) == whole(answer.choices[0].message), f"{answer} {pieces}")
    message = model.anthropic.messages.create(model="default", max_tokens=20, messages=[QUESTION])
    check(message.usage.output_tokens > 0, message)


def thinks(model, tags):
    """Thoughts apart from the text, as the token ids have them."""
    asked = {"order": tags.order(model.vocabulary), "extra": {**tags.form, **tags.switch}, "max_completion_tokens": tags.token_count}
    answer = model.chat(**asked)
    thoughts, text, calls_made = whole(answer.choices[0].message)
    read = tags.read(model.said(answer.choices[0]))
    check(read and all(read) and (thoughts.strip(), text.strip(), calls_made) == (*read, []), f"read as {read}: {answer}")
    check(0 < answer.usage.completion_tokens_details.reasoning_tokens < answer.usage.completion_tokens, answer.usage)
    check(streamed(model.chat(**asked, stream=True)) == whole(answer.choices[0].message), "the stream says the same")


def calls(model, call, tags=None):
    """A call that must come, in the family's own words; with tags behind thoughts."""
    asked = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    if tags:
        asked |= {"order": tags.order(model.vocabulary), "extra": tags.switch}
    else:
        asked |= {"extra": THINK_OFF}
    answer = model.chat(**asked).choices[0]
    thoughts, text, made = whole(answer.message)
    check(answer.finish_reason == "tool_calls" and len(made) == 1 and made[0][0] == "weather" and not text, answer)
    arguments = json.loads(made[0][1])
    check(arguments["city"] in ("Paris", "Rome") and 1 <= arguments["days"] <= 9, arguments)
    said = model.said(answer)
    if tags:
        read = tags.read(said)
        check(read and read[0] and thoughts.strip() == read[0], f"{answer}, {said!r}")
        said = read[1]
    else:
        check(not thoughts, answer)
    check(is_call(said.strip(), call(**arguments)), f"{said!r} is not {call(**arguments)!r}")
    check(streamed(model.chat(**asked, stream=True)) == whole(answer.message), "the stream says the same")
    return answer.message


def results(model, message):
    """What a tool said goes back, and the prompt shows it behind the call."""
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    answer = model.chat(messages=[*TURNS, message.model_dump(exclude_none=True), result], tools=[TOOL], max_completion_tokens=4)
    prompt = model.vocabulary.text(answer.prompt_token_ids)
    city = json.loads(message.tool_calls[0].function.arguments)["city"]
    at = [prompt.find("A question."), prompt.rfind(city), prompt.rfind("sunny")]
    check(-1 < at[0] < at[1] < at[2], prompt)


def messages(model):
    """The same through Anthropic's package: whole and streamed, and the result goes back."""
    tool = {"name": "weather", "description": "The weather.", "input_schema": SCHEMA}
    more = {"model": "default", "max_tokens": 300, "messages": [QUESTION], "tools": [tool],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "extra_body": {"seed": SEED}}
    message = model.anthropic.messages.create(**more)
    use = message.content[-1]
    check(message.stop_reason == "tool_use" and use.type == "tool_use" and use.name == "weather", message)
    check(use.input["city"] in ("Paris", "Rome") and 1 <= use.input["days"] <= 9, use)
    with model.anthropic.messages.stream(**more) as stream:
        check(stream.get_final_message().content[-1].input == use.input, "the stream says the same")
    history = [QUESTION, {"role": "assistant", "content": message.content},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}]
    again = model.anthropic.messages.create(model="default", max_tokens=4, messages=history, tools=[tool])
    check(again.usage.input_tokens + again.usage.cache_read_input_tokens > message.usage.input_tokens, again)


def blocks(message):
    return tuple("".join(getattr(block, kind, None) or "" for block in message.content) for kind in ("thinking", "text"))


def thoughts_in_messages(model, tags):
    """Blocks of Anthropic's, whole and streamed, with the thoughts and the text that chat has for the same seed."""
    answer = model.chat(extra=tags.switch, max_completion_tokens=60).choices[0].message
    more = {"model": "default", "max_tokens": 60, "messages": [QUESTION], "system": SYSTEM["content"],
            "thinking": {"type": "enabled", "budget_tokens": 50}, "extra_body": {"seed": SEED, "temperature": 1, "top_p": 1}}
    message = model.anthropic.messages.create(**more)
    thoughts, text = blocks(message)
    check((thoughts, text) == whole(answer)[:2] and (thoughts or text), f"{message}, {answer}")
    check(thoughts or not tags.opened or tags.form, message)
    with model.anthropic.messages.stream(**more) as stream:
        check(blocks(stream.get_final_message()) == (thoughts, text), "the stream says the same")


def shown(made, format_words, call, tags=None, also=None):
    """also: what is tried beside, with the model."""
    with made as model:
        check(f"calls are read as {format_words}" in model.server.said(), model.server.said())
        chats(model)
        if not tags or not tags.always:
            results(model, calls(model, call))
            messages(model)
        if not tags:
            return
        thinks(model, tags)
        thoughts_in_messages(model, tags)
        if tags.opened:
            results(model, calls(model, call, tags))
        if also:
            also(model)


def glm_4_5(program):
    """GLM's small model, GLM-4.5's template: chat, stream, tools, thoughts it opens itself"""
    shown(Model(program, "tiny-glm", "glm-4.5", GLM), "GLM's tags", glm_call("\n"), Tags(opened=False))


def glm_4_6(program):
    """GLM's small model, GLM-4.6's template: the same"""
    shown(Model(program, "tiny-glm", "glm-4.6", GLM), "GLM's tags", glm_call("\n"), Tags(opened=False))


def glm_4_7(program):
    """GLM's small model, GLM-4.7-Flash's template: the same, and calls behind thoughts"""
    shown(Model(program, "tiny-glm", "glm-4.7-flash", GLM), "GLM's tags on one line", glm_call(""), Tags())


def minimax(program):
    """MiniMax-M2's small model and template: the same"""
    shown(Model(program, "tiny-minimax", "minimax-m2", MINIMAX), "MiniMax's tags", minimax_call, Tags(always=True))


def gpt_oss_model(program):
    return Model(program, "tiny-gpt-oss", "gpt-oss", {**HARMONY, "ends": ["<|return|>", "<|call|>"]}, format="mxfp4")


def gpt_oss(program):
    """gpt-oss's small model in MXFP4 and its template: the same, in channels"""
    call = json_call(re.escape("<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"))
    shown(gpt_oss_model(program), "messages of gpt-oss's channels (Harmony)", call, Channels())


FENCED_CALL = deepseek_call("function<｜tool▁sep｜>weather\n```json\n", "\n```")


def deepseek_v3(program):
    """DeepSeek's small model, V3's template: chat, stream, tools"""
    shown(Model(program, "tiny-deepseek", "deepseek-v3", DEEPSEEK), "DeepSeek's tokens with fenced JSON", FENCED_CALL)


def deepseek_v3_tools(program):
    """DeepSeek's small model, vLLM's template for V3 with tools: the same"""
    shown(Model(program, "tiny-deepseek", "deepseek-v3-tools", DEEPSEEK), "DeepSeek's tokens with fenced JSON", FENCED_CALL)


def deepseek_r1(program):
    """DeepSeek's small model, R1's template: the same, and thoughts, and calls behind them"""
    shown(Model(program, "tiny-deepseek", "deepseek-r1", DEEPSEEK), "DeepSeek's tokens with fenced JSON", FENCED_CALL, Tags(always=True))


def deepseek_v3_1(program):
    """DeepSeek's small model, V3.1's template: the same, thoughts switched on"""
    switch = {"chat_template_kwargs": {"enable_thinking": True}}
    shown(Model(program, "tiny-deepseek", "deepseek-v3.1", DEEPSEEK), "DeepSeek's tokens", deepseek_call("weather<｜tool▁sep｜>"),
          Tags(switch=switch))


def kimi(program):
    """Kimi-K2's small model and template: chat, stream, tools, thoughts it opens itself"""
    call = json_call(re.escape("<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:") + "[0-9]+"
                     + re.escape("<|tool_call_argument_begin|>"),
                     "<|tool_call_end|><|tool_calls_section_end|>")
    shown(Model(program, "tiny-deepseek", "kimi-k2", KIMI, config={"model_type": "kimi_k2"}), "Kimi's tokens", call, Tags(opened=False))


MISTRAL_CALL = json_call(re.escape("[TOOL_CALLS]weather[ARGS]"))


def ministral(program):
    """Mistral-Small-4's small model, Ministral-3's template: the same"""
    shown(Model(program, "tiny-mistral", "ministral-3", MISTRAL), "Mistral's tokens", MISTRAL_CALL,
          Tags("[THINK]", "[/THINK]", opened=False))


def efforts(model):
    """Every effort through both packages: the settings the prompt shows, and with them the answer of the same seed."""
    said, thinking = {}, {"enabled": {"type": "enabled", "budget_tokens": 10}, "disabled": {"type": "disabled"}, "adaptive": {"type": "adaptive"}}

    def message(kind, **more):
        answer = model.anthropic.messages.create(model="default", max_tokens=20, messages=[QUESTION], system=SYSTEM["content"],
                                                 thinking=thinking[kind], **more, extra_body={"seed": SEED, "temperature": 1, "top_p": 1})
        return blocks(answer)

    for effort in ("none", "minimal", "low", "medium", "high", "max"):
        wanted = "none" if effort in ("none", "minimal") else "high"
        answer = model.chat(reasoning_effort=effort, max_completion_tokens=20)
        prompt = model.vocabulary.text(answer.prompt_token_ids)
        check(f'[MODEL_SETTINGS]{{"reasoning_effort": "{wanted}"}}[/MODEL_SETTINGS][INST]' in prompt, f"{effort}: {prompt}")
        said.setdefault(wanted, set()).add(whole(answer.choices[0].message)[:2])
        said[wanted].add(message("adaptive", output_config={"effort": effort}))
    for kind, wanted in (("enabled", "high"), ("disabled", "none")):
        said[wanted].add(message(kind))
    check(len(said["none"]) == len(said["high"]) == 1 and said["none"] != said["high"], said)


def mistral_small_4(program):
    """Mistral-Small-4's small model, the template of its tokenizer's version: the same, and every effort"""
    shown(Model(program, "tiny-mistral", "mistral-small-4", MISTRAL), "Mistral's tokens", MISTRAL_CALL,
          Tags("[THINK]", "[/THINK]", opened=False, switch={"reasoning_effort": "high"}), also=efforts)


ROWS = [glm_4_5, glm_4_6, glm_4_7, minimax, gpt_oss, deepseek_v3, deepseek_v3_tools, deepseek_r1, deepseek_v3_1, kimi, ministral,
        mistral_small_4]
