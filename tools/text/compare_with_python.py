#!/usr/bin/env python3
"""Holds the tokenizer against the `tokenizers` package on fuzzed strings and prints the counts.

    ninja -C build text_probe
    python3 tools/text/compare_with_python.py build/text_probe TOKENIZER.json... [--count 300000] [--seed 1]

For each file: ids of every string, ids with special tokens taken as text, and text of random id sequences.
"""

import argparse
import struct
import subprocess
import sys

from tokenizers import Tokenizer

import fuzz_strings


def ask(command, frames):
    data = b"".join(struct.pack("<I", len(f)) + f for f in frames)
    answer = subprocess.run(command, input=data, capture_output=True)
    if answer.returncode != 0:
        sys.exit(f"{' '.join(command)}: {answer.stderr.decode()}")
    out, at = [], 0
    while at < len(answer.stdout):
        size = struct.unpack_from("<I", answer.stdout, at)[0]
        out.append(answer.stdout[at + 4 : at + 4 + size])
        at += 4 + size
    return out


def ids_of(frame):
    return list(struct.unpack(f"<{len(frame) // 4}i", frame))


def report(what, name, differences):
    count, bad = differences
    print(f"{name}: {what}: {count} compared, {len(bad)} differ", flush=True)
    for example in bad[:3]:
        print("   ", *example)
    return len(bad)


def compare_encode(probe, path, oracle, texts, flags):
    ours = ask([probe, "encode", path, *flags], [t.encode() for t in texts])
    theirs = oracle.encode_batch(texts, add_special_tokens=False)
    return len(texts), [
        (repr(t), ids_of(o), e.ids) for t, o, e in zip(texts, ours, theirs) if ids_of(o) != e.ids
    ]


def compare_decode(probe, path, oracle, seed, count, skip):
    limit = max(oracle.get_vocab(with_added_tokens=True).values()) + 3
    random = fuzz_strings.Random(seed + 77)
    sequences = [[random.below(limit) for _ in range(1 + random.below(12))] for _ in range(count)]
    frames = [struct.pack(f"<{len(s)}i", *s) for s in sequences]
    ours = ask([probe, "decode", path] + (["skip-special"] if skip else []), frames)
    theirs = oracle.decode_batch(sequences, skip_special_tokens=skip)
    return count, [(s, o, t.encode()) for s, o, t in zip(sequences, ours, theirs) if o != t.encode()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    pieces = fuzz_strings.load_pieces()
    texts = [fuzz_strings.fuzz_string(pieces, options.seed, i) for i in range(options.count)]
    bad = 0
    for path in options.files:
        oracle = Tokenizer.from_file(path)
        for start in range(0, len(texts), 50_000):  # the oracle keeps its answers in memory
            batch = texts[start : start + 50_000]
            bad += report("encode", path, compare_encode(options.probe, path, oracle, batch, []))
        oracle.encode_special_tokens = True
        batch = texts[:50_000]
        bad += report(
            "special as text", path, compare_encode(options.probe, path, oracle, batch, ["special-as-text"])
        )
        for skip in (False, True):
            bad += report(
                f"decode, skip special {skip}",
                path,
                compare_decode(options.probe, path, oracle, options.seed, 50_000, skip),
            )
    sys.exit(1 if bad else 0)


main()
