#!/usr/bin/env python3
"""Holds the template engine against jinja2 on template files x random conversations and on generated expressions.

    ninja -C build text_probe
    python3 tools/text/compare_templates.py build/text_probe [TEMPLATE.jinja...] [--conversations 100] [--expressions 50000]

A case agrees when both give the same text, or both fail.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import warnings

import conversations
import fuzz_strings
import jinja_oracle
import template_expressions


def ask(probe, cases):
    frames = []
    for source, variables in cases:
        for part in (source.encode(), json.dumps(variables).encode()):
            frames += (struct.pack("<I", len(part)), part)
    answer = subprocess.run([probe, "render"], input=b"".join(frames), capture_output=True)
    if answer.returncode != 0:
        sys.exit(f"text_probe ended with {answer.returncode}: {answer.stderr.decode()[-400:]}")
    out, at = [], 0
    while at < len(answer.stdout):
        size = struct.unpack_from("<I", answer.stdout, at)[0]
        text = answer.stdout[at + 4 : at + 4 + size].decode()
        out.append((text[0] == "+", text[1:]))
        at += 4 + size
    return out


def compare(probe, environment, cases, shown):
    agree, failures, bad = 0, 0, []
    for (source, variables), ours in zip(cases, ask(probe, cases)):
        theirs = jinja_oracle.render(environment, source, variables)
        # Python prints addresses of generators and functions; nobody can want those.
        same = ours == theirs or " object at 0x" in theirs[1].lower() if theirs[0] else not ours[0]
        agree += same
        failures += not theirs[0]
        if not same:
            bad.append((source, variables, theirs, ours))
    for source, variables, theirs, ours in bad[:shown]:
        print(
            "  template:",
            repr(source[:300]),
            "\n  jinja2:  ",
            str(theirs)[:700],
            "\n  ours:    ",
            str(ours)[:700],
        )
    return agree, failures, len(bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe")
    parser.add_argument("templates", nargs="*")
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--expressions", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shown", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of Python's compiler, about 1[0] in a template
    environment = jinja_oracle.make_environment()
    wrong = 0
    for path in options.templates:
        source = pathlib.Path(path).read_text(encoding="utf-8")
        draws = [
            conversations.variables(fuzz_strings.Random(options.seed * 7919 + i))
            for i in range(options.conversations)
        ]
        agree, failures, bad = compare(
            options.probe, environment, [(source, v) for v in draws], options.shown
        )
        print(f"{path}: {agree} agree ({failures} of them failures of both), {bad} differ", flush=True)
        wrong += bad
    cases = [template_expressions.case(options.seed, i) for i in range(options.expressions)]
    agree, failures, bad = compare(options.probe, environment, cases, 10 * options.shown)
    print(f"generated: {agree} agree ({failures} of them failures of both), {bad} differ")
    sys.exit(1 if wrong + bad else 0)


main()
