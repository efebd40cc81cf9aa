#!/usr/bin/env python3
"""Writes the golden files of tests/golden/text from the Python packages the text room must agree with.

    pip install tokenizers==0.23.3 jinja2==3.1.6
    python3 tools/text/make_golden_text.py QWEN3_FOLDER

QWEN3_FOLDER holds Qwen3's qwen3.tokenizer.json (the one packed in qwen3.tokenizer.tar.xz) and its chat template as
qwen3.chat_template.jinja. Everything else is made here; running it twice gives the same files.
"""

import io
import json
import lzma
import pathlib
import sys
import tarfile
import warnings

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import conversations
import fuzz_strings
import jinja_oracle
import template_expressions

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/text"
FUZZ_SEED, FUZZ_COUNT, FUZZ_BLOCK = 20_260, 300_000, 1_000

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
OTHERS = r" ?[^\s\p{L}\p{N}]+"
# The expressions of the families' own tokenizer.json files, letter by letter.
SPLITS = {
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + OTHERS + r"[\r\n]*|" + SPACES],
    "qwen35": [
        CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
    ],
    "llama3": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + OTHERS + r"[\r\n]*|" + SPACES],
    "o200k": [
        r"[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "*"
        + LOWER
        + "+"
        + CONTRACTIONS
        + r"?|[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "+"
        + LOWER
        + "*"
        + CONTRACTIONS
        + r"?|\p{N}{1,3}|"
        + OTHERS
        + r"[\r\n/]*|"
        + SPACES
    ],
    "tekken": [
        r"[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "*"
        + LOWER
        + r"+|[^\r\n\p{L}\p{N}]?"
        + UPPER
        + "+"
        + LOWER
        + r"*|\p{N}|"
        + OTHERS
        + r"[\r\n/]*|"
        + SPACES
    ],
    "deepseek": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
        "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ],
    "gpt2": [],
    "digits": [],
}
ADDED = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
ADDED_PLAIN = ["<think>", "</think>", "<tool_call>"]


def train(name, pieces):
    """A small vocabulary whose merges cross every script of the pieces."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC() if name in ("qwen2", "qwen35") else None
    splits = [
        pre_tokenizers.Split(Regex(s), *(("removed", True) if name == "o200k" else ("isolated", False)))
        for s in SPLITS[name]
    ]
    if name == "digits":
        splits = [pre_tokenizers.Digits(individual_digits=True)]
    own_regex = name in ("gpt2", "digits")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=own_regex)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([fuzz_strings.fuzz_string(pieces, 5, i) for i in range(4000)], trainer)
    tokenizer.add_special_tokens(ADDED)
    tokenizer.add_tokens(ADDED_PLAIN)
    return tokenizer


def with_extras(name, text):
    """What the trainer cannot set: whole pieces first, tokens around the text, a token that swallows spaces."""
    document = json.loads(text)
    if name == "llama3":
        document["model"]["ignore_merges"] = True
        token = {"id": "<|im_start|>", "ids": [document["added_tokens"][0]["id"]], "tokens": ["<|im_start|>"]}
        document["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<|im_start|>": token},
        }
    if name == "o200k":
        for token in document["added_tokens"]:
            token["lstrip"] = token["content"] == "<think>"
            token["rstrip"] = token["content"] in ("<think>", "<|im_end|>")
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def fuzz_hashes(tokenizer, pieces):
    out = []
    for start in range(0, FUZZ_COUNT, FUZZ_BLOCK):
        texts = [fuzz_strings.fuzz_string(pieces, FUZZ_SEED, i) for i in range(start, start + FUZZ_BLOCK)]
        value = 0xCBF29CE484222325
        for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
            value = fuzz_strings.fnv(encoding.ids, value)
        out.append(f"{value:016x}")
    return out


def named_vectors(tokenizer):
    texts = [
        "Hello, world!",
        "雪 😀 café e\u0301",
        "  one\n\nTwo... 42!\t",
        "caf\u00e9",
        "cafe\u0301",
        "\u1112\u1161\u11ab\uae00",
        "",
        " ",
        "a\u0000b",
        "<|im_start|>user\nHi<|im_end|>\n",
        "<tool_call><think>x</think>",
        "DON'T they'll I'VE",
        "x\r\ny\r\n\r\n  z",
        "नमस्ते दुनिया",
        "def f(x):\n    return x ** 2\n",
        "1234567890",
        "\u0301\u0323e\u0323\u0301",
        "a" * 100,
        "=" * 77,
        " " * 50 + "x",
    ]
    raw = [
        b"\xff",
        b"a\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98x",
        b"\xed\xa0\x80",
        b"ok\xc0\xafok",
        b"\xf4\x90\x80\x80",
        b"\x80\x80\xe9\x9b\xaa",
    ]
    out = []
    for text in [t.encode() for t in texts] + raw:
        encoding = tokenizer.encode(text.decode("utf-8", errors="replace"), add_special_tokens=False)
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text.decode("utf-8", errors="replace"), add_special_tokens=False)
        tokenizer.encode_special_tokens = False
        out.append(
            {
                "bytes": text.hex(),
                "ids": encoding.ids,
                "special_as_text": plain.ids,
                "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False),
                "skipped": tokenizer.decode(encoding.ids, skip_special_tokens=True),
                "with_special": tokenizer.encode(text.decode("utf-8", errors="replace")).ids,
            }
        )
    return out


def broken_decodes(tokenizer, count):
    random = fuzz_strings.Random(31)
    limit = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 5
    out = []
    for _ in range(count):
        ids = [
            random.below(300) if random.below(2) else random.below(limit) for _ in range(1 + random.below(10))
        ]
        out.append(
            {
                "ids": ids,
                "text": tokenizer.decode(ids, skip_special_tokens=False),
                "skipped": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    return out


def write(name, value):
    path = GOLDEN / name
    path.write_text(
        (
            value
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n"
        ),
        encoding="utf-8",
    )
    print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


def write_packed(name, values):
    """Files by name, in one archive that is the same however often it is written."""
    path = GOLDEN / name
    with tarfile.open(path, "w:xz", preset=9 | lzma.PRESET_EXTREME, format=tarfile.USTAR_FORMAT) as archive:
        for member, value in values.items():
            data = (json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n").encode()
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    print(f"{path.name}: {path.stat().st_size} bytes", flush=True)


def write_tokenizers(qwen3):
    pieces = fuzz_strings.load_pieces()
    hashes = {"seed": FUZZ_SEED, "block": FUZZ_BLOCK, "families": {}}
    vectors = {}
    for name in SPLITS:
        text = with_extras(name, train(name, pieces).to_str())
        write(f"{name}.tokenizer.json", text)
        tokenizer = Tokenizer.from_str(text)
        hashes["families"][name] = fuzz_hashes(tokenizer, pieces)
        vectors[name] = {"encode": named_vectors(tokenizer), "decode": broken_decodes(tokenizer, 60)}
    tokenizer = Tokenizer.from_file(str(qwen3 / "qwen3.tokenizer.json"))
    hashes["families"]["qwen3"] = fuzz_hashes(tokenizer, pieces)
    vectors["qwen3"] = {"encode": named_vectors(tokenizer), "decode": broken_decodes(tokenizer, 200)}
    write("fuzz_hashes.json", hashes)
    write("vectors.json", vectors)


def write_templates(qwen3):
    environment = jinja_oracle.make_environment()
    sources = {
        path.name: path.read_text(encoding="utf-8") for path in sorted((GOLDEN / "templates").glob("*.jinja"))
    }
    draws = [conversations.variables(fuzz_strings.Random(4_000 + i)) for i in range(60)]
    outputs = {
        name: [jinja_oracle.render(environment, source, v) for v in draws] for name, source in sources.items()
    }
    cases = []
    for i in range(4_000):
        source, variables = template_expressions.case(9, i)
        good, text = jinja_oracle.render(environment, source, variables)
        if not (good and " object at 0x" in text.lower()):
            cases.append([source, text if good else None])
    write_packed(
        "templates.tar.xz",
        {
            "template_conversations.json": draws,
            "template_outputs.json": {
                name: [text if good else None for good, text in made] for name, made in outputs.items()
            },
            "template_cases.json": {"variables": template_expressions.VARIABLES, "cases": cases},
        },
    )


def main():
    warnings.simplefilter("ignore")
    qwen3 = pathlib.Path(sys.argv[1])
    write_tokenizers(qwen3)
    write_templates(qwen3)


main()
