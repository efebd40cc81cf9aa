"""Real vocabularies that packages carry, through `fourfold serve`'s /tokenize: the packages' own ids for the same texts.

o200k is the vocabulary that gpt-oss's is made of, tekken Mistral's, and cl100k has the expression that cuts GLM's text. Their files
hold tokens by rank; here they become a tokenizer.json as Hugging Face's converters make them: a token's merge is what byte pairs of
lower rank leave of it, and the cutting is that of the small tokenizer of the same kind in tests/golden/text.
"""
import base64
import gzip
import importlib.resources
import json
import pathlib
import subprocess
import sys
import tempfile

import bpe_openai
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from served import GOLDEN, PLAIN_SAYS, ROOT, Server, ask, chat_template, check

sys.path.insert(0, str(ROOT / "tools/text"))
import fuzz_strings  # noqa: E402

OWN_SERVERS = True
CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
FUZZ_COUNT, FUZZ_SEED = 3000, 25


def byte_letters():
    """The letter that stands for each byte in a tokenizer.json."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def halves(token, ranks):
    """The two parts that byte pair merging leaves of a token before the token itself is made; None where it is never made."""
    parts, limit = [token[i:i + 1] for i in range(len(token))], ranks[token]
    while len(parts) > 2:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1))
        if rank >= limit:
            return None
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def write_tokenizer(path, kind, ranks, first_id):
    document = json.loads((GOLDEN / f"{kind}.tokenizer.json").read_text())
    letters = byte_letters()
    spelt = lambda token: "".join(letters[byte] for byte in token)
    merges = [halves(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    document["model"]["vocab"] = {spelt(token): rank + first_id for token, rank in ranks.items()}
    document["model"]["merges"] = [[spelt(part) for part in pair] for pair in merges if pair]
    document["model"]["ignore_merges"] = True  # a piece that is a token is that token
    document["post_processor"] = None
    document["added_tokens"] = [
        {"id": first_id + len(ranks) + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True} for i, content in enumerate(CONTROLS)]
    path.write_text(json.dumps(document))


def texts():
    """Hostile strings, and files of this repository."""
    pieces = fuzz_strings.load_pieces()
    out = [fuzz_strings.fuzz_string(pieces, FUZZ_SEED, i) for i in range(FUZZ_COUNT)]
    for name in ("README.md", "CHANGELOG.md", "docs/serving.md", "src/kernels/mla/README.md", "tools/tidy.py", "dev",
                 "tests/golden/text/fuzz_pieces.json"):
        out.append((ROOT / name).read_text())
    return [text for text in out if text and not any(control in text for control in CONTROLS)]


def compared(program, kind, ranks, encode, first_id=0):
    with tempfile.TemporaryDirectory(prefix="fourfold-vocabulary-") as folder:
        folder = pathlib.Path(folder)
        (folder / "text").mkdir()
        write_tokenizer(folder / "text/tokenizer.json", kind, ranks, first_id)
        (folder / "text/chat_template.jinja").write_text(chat_template("qwen3"))
        (folder / "script.json").write_text(json.dumps({"without_tools": [{"text": PLAIN_SAYS}]}))
        subprocess.run([program, "make-model", folder / "model", "--script", folder / "script.json", "--text-of", folder / "text"],
                       check=True, stdout=subprocess.DEVNULL)
        tokens, count = 0, 0
        with Server(program, folder / "model") as server:
            for text in texts():
                ours = ask(server.url + "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
                theirs = [first_id + rank for rank in encode(text)]
                check(ours == theirs, f"{text!r}: {ours}, the package has {theirs}")
                back = ask(server.url + "/detokenize", {"tokens": ours})["prompt"]
                check(back == text, f"{text!r} comes back as {back!r}")
                tokens, count = tokens + len(ours), count + 1
        return f"{count} texts, {tokens} tokens, a vocabulary of {len(ranks)}"


def of_openai(program, name, kind):
    data = importlib.resources.files(bpe_openai) / f"data/{name}_base.tiktoken.gz"
    lines = gzip.decompress(data.read_bytes()).splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
    return compared(program, kind, ranks, bpe_openai.get_encoding(f"{name}_base").encode_ordinary)


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
    return compared(program, "tekken", ranks, encode, special)


ROWS = [o200k, cl100k, tekken]
