"""gpt-oss's prompts and answers beside OpenAI's own package for them, token by token: openai-harmony, with the real vocabulary.

The package would fetch o200k from the network; bpe-openai carries the same file (the package checks its hash). The server has the chat
template of the release and o200k with gpt-oss's control tokens.
"""
import datetime
import json
import os
import pathlib
import tempfile

import openai

import family_models
from rank_files import openai_file, openai_ranks, write_tokenizer
from served import GOLDEN, PLAIN_SAYS, WEATHER, WEATHER_SCHEMA, Served, check

OWN_SERVERS = True
CONTROLS = {"<|startoftext|>": 199998, "<|endoftext|>": 199999, "<|return|>": 200002, "<|constrain|>": 200003, "<|channel|>": 200005,
            "<|start|>": 200006, "<|end|>": 200007, "<|message|>": 200008, "<|call|>": 200012, "<|endofprompt|>": 200018}
QUESTION = {"role": "user", "content": "A question."}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER_SCHEMA}}


def load_package(folder):
    (folder / "o200k_base.tiktoken").write_bytes(openai_file("o200k"))
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(folder)
    import openai_harmony
    return openai_harmony, openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


class GptOss(Served):
    """A scripted model with gpt-oss's template and vocabulary."""

    def write_text(self, text):
        write_tokenizer(text / "tokenizer.json", "o200k", openai_ranks("o200k"), 0, CONTROLS)
        (text / "chat_template.jinja").write_bytes((GOLDEN / "families/gpt-oss.jinja").read_bytes())


def conversation(package, effort, instructions, tools, turns):
    """As the package writes it. turns: (role, text)."""
    role, message = package.Role, package.Message
    system = package.SystemContent.new().with_reasoning_effort(getattr(package.ReasoningEffort, effort.upper()))
    system = system.with_conversation_start_date(datetime.date.today().isoformat())
    messages = [message.from_role_and_content(role.SYSTEM, system)]
    if instructions or tools:
        developer = package.DeveloperContent.new()
        if instructions:
            developer = developer.with_instructions(instructions)
        if tools:
            developer = developer.with_function_tools([package.ToolDescription.new(
                tool["function"]["name"], tool["function"]["description"], parameters=tool["function"]["parameters"]) for tool in tools])
        messages.append(message.from_role_and_content(role.DEVELOPER, developer))
    for who, text in turns:
        if who == "assistant":
            messages.append(message.from_role_and_content(role.ASSISTANT, text).with_channel("final"))
        else:
            messages.append(message.from_role_and_content(role.USER, text))
    return package.Conversation.from_messages(messages)


def prompts(server, package, encoding):
    """How many prompts have the package's tokens."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=300)
    talk = [("user", "A question."), ("assistant", "An answer."), ("user", "Größe <|end|> 你好 🙂?")]
    count = 0
    for effort in ("low", "medium", "high"):
        for instructions, tools in ((None, None), (None, [TOOL]), ("Be kind.", [TOOL])):
            for turns in (talk[:1], talk):
                messages = [{"role": who, "content": text} for who, text in turns]
                if instructions:
                    messages.insert(0, {"role": "developer", "content": instructions})
                answer = client.chat.completions.create(model="default", messages=messages, tools=tools or openai.NOT_GIVEN,
                                                        max_tokens=1, reasoning_effort=effort, extra_body={"return_token_ids": True})
                theirs = encoding.render_conversation_for_completion(conversation(package, effort, instructions, tools, turns),
                                                                     package.Role.ASSISTANT)
                check(answer.prompt_token_ids == theirs, f"{effort}, {instructions}, {turns}:\n"
                      f"{encoding.decode_utf8(answer.prompt_token_ids)}\nthe package has\n{encoding.decode_utf8(theirs)}")
                count += 1
    return count


def answers(server, package, encoding):
    """What the package reads of the ids of an answer is what the server made of it."""
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=300)
    for tools in ([TOOL], None):
        choice = client.chat.completions.create(model="default", messages=[QUESTION], tools=tools or openai.NOT_GIVEN,
                                                extra_body={"return_token_ids": True}).choices[0]
        read = encoding.parse_messages_from_completion_tokens(choice.token_ids, package.Role.ASSISTANT)
        calls = [(message.recipient, json.loads(message.content[0].text)) for message in read if message.recipient]
        ours = [("functions." + call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []]
        check(calls == ours and len(calls) == (1 if tools else 0), f"{choice}, the package has {read}")
        final = "".join(message.content[0].text for message in read if message.channel == "final")
        check(final == (choice.message.content or "") and (tools or final == PLAIN_SAYS), f"{choice}, the package has {read}")


def harmony(program):
    """openai-harmony: the tokens of prompts (efforts, tools, instructions, turns), and its reading of answers"""
    script = {"with_tools": WEATHER["with_tools"][:1], "without_tools": WEATHER["without_tools"], "ends": ["<|call|>", "<|end|>"]}
    with tempfile.TemporaryDirectory(prefix="fourfold-harmony-") as folder:
        package, encoding = load_package(pathlib.Path(folder))
        with GptOss(program, script) as server:
            count = prompts(server, package, encoding)
            answers(server, package, encoding)
    return f"{count} prompts"


def thoughts(program):
    """openai-harmony: its reading of thoughts before a call and before the final message, of gpt-oss's small model"""
    with tempfile.TemporaryDirectory(prefix="fourfold-harmony-") as folder, family_models.gpt_oss_model(program) as model:
        package, encoding = load_package(pathlib.Path(folder))
        channels = family_models.Channels()
        order = channels.order(model.vocabulary)
        for asked in ({"extra": channels.form}, {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}):
            choice = model.chat(order=order, **asked).choices[0]
            # The small model's vocabulary is its own: the text goes back to tokens by the package's.
            ids = encoding.encode(model.said(choice), allowed_special="all")
            read = encoding.parse_messages_from_completion_tokens(ids, package.Role.ASSISTANT)
            theirs = [(message.channel, message.recipient, message.content[0].text) for message in read]
            ours = [("analysis", None, choice.message.reasoning_content)]
            for call in choice.message.tool_calls or []:
                ours.append(("commentary", "functions." + call.function.name, call.function.arguments))
            if choice.message.content:
                ours.append(("final", None, choice.message.content))
            check(theirs == ours and len(ours) == 2 and ours[0][2], f"{choice}, the package has {read}")


ROWS = [harmony, thoughts]
