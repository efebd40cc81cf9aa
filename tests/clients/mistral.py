"""Mistral's prompts beside its own package for them, token by token: mistral-common, with a real tekken vocabulary.

The package's newest vocabulary is made a tokenizer of version 15, Mistral-Small-4's, whose own file is in no package: special tokens
in the package's order, and the efforts none and high. The server has the template that the package makes for it.
"""
import base64
import importlib.resources
import json
import pathlib
import subprocess
import tempfile

from mistral_common.integrations.chat_templates.chat_templates import convert_tokenizer_to_chat_template
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.base import SpecialTokens
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from rank_files import write_tokenizer
from served import GOLDEN, PLAIN_SAYS, WEATHER_SCHEMA, Server, ask, chat_template, check

OWN_SERVERS = True
SCRIPT_CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Das Wetter.", "parameters": WEATHER_SCHEMA}}]
SYSTEM = {"role": "system", "content": "Be kind. <b>&amp;</b>"}
USER = {"role": "user", "content": "Größe [INST] 你好 🙂?"}
THOUGHT = {"reasoning_content": "Hm.\n\nI look."}
CALLS = [{"id": f"call0000{i}", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": city, "days": i})}}
         for i, city in enumerate(("Zürich", "東京"))]
RESULTS = [{"role": "tool", "tool_call_id": call["id"], "content": '{"sky": "blue ☀"}'} for call in CALLS]
ANSWER = {"role": "assistant", "content": "It is blue."}
CALLING = {"role": "assistant", "content": "", "tool_calls": CALLS}
TALKS = [[USER], [SYSTEM, USER], [USER, ANSWER, USER], [SYSTEM, USER, {**ANSWER, **THOUGHT}, USER],
         [USER, CALLING, *RESULTS], [SYSTEM, USER, {**CALLING, **THOUGHT}, *RESULTS, ANSWER, USER]]


def version_15(path):
    """A tekken file as Mistral-Small-4's is, and the ids of its control tokens."""
    document = json.loads((importlib.resources.files("mistral_common") / "data/tekken_240911.json").read_text())
    controls = {token.value: rank for rank, token in enumerate(SpecialTokens)}
    document["config"]["version"] = "v15"
    document["special_tokens"] = [{"rank": rank, "token_str": text, "is_control": True} for text, rank in controls.items()]
    document["model_settings_builder"] = {"reasoning_effort": {"type": "enum", "values": ["none", "high"], "accepts_none": True,
                                                               "default": "none"}}
    path.write_text(json.dumps(document))
    return document, controls


def make_model(program, folder, document, controls):
    """A model with that vocabulary. Scripts are not for Mistral's template, so it comes behind."""
    special = document["config"]["default_num_special_tokens"]
    count = document["config"]["default_vocab_size"] - special
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in document["vocab"][:count]}
    (folder / "text").mkdir()
    more = {content: special + count + i for i, content in enumerate(SCRIPT_CONTROLS)}
    write_tokenizer(folder / "text/tokenizer.json", "tekken", ranks, special, {**controls, **more})
    (folder / "text/chat_template.jinja").write_text(chat_template("qwen3"))
    (folder / "script.json").write_text(json.dumps({"without_tools": [{"text": PLAIN_SAYS}]}))
    subprocess.run([program, "make-model", folder / "model", "--script", folder / "script.json", "--text-of", folder / "text"],
                   check=True, stdout=subprocess.DEVNULL)
    (folder / "model/chat_template.jinja").write_bytes((GOLDEN / "families/mistral-small-4.jinja").read_bytes())
    (folder / "model/tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))


def mistral(program):
    """mistral-common: the template it makes for a tokenizer of version 15, and the tokens of prompts (efforts, tools, thoughts, calls)"""
    with tempfile.TemporaryDirectory(prefix="fourfold-mistral-") as folder:
        folder = pathlib.Path(folder)
        document, controls = version_15(folder / "tekken.json")
        made = convert_tokenizer_to_chat_template(folder / "tekken.json")
        check(made.encode() == (GOLDEN / "families/mistral-small-4.jinja").read_bytes(), "the package makes another template now")
        package = MistralTokenizer.from_file(folder / "tekken.json")
        make_model(program, folder, document, controls)
        count = 0
        with Server(program, folder / "model") as server:
            for effort in (None, "none", "high"):
                for tools in (None, TOOLS):
                    for talk in TALKS:
                        asked = {"messages": talk, "tools": tools, "reasoning_effort": effort}
                        answer = ask(server.url + "/v1/chat/completions", {**asked, "max_tokens": 1, "return_token_ids": True})
                        theirs = package.encode_chat_completion(ChatCompletionRequest.from_openai(**asked))
                        check(answer["prompt_token_ids"] == theirs.tokens, f"{asked}: {answer['prompt_token_ids']}, the package has {theirs}")
                        count += 1
        return f"{count} prompts"


ROWS = [mistral]
