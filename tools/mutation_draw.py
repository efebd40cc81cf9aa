"""Draws mutations of the sources by a seed: a flipped comparison, a constant one more or less, a statement left out.

    mutation_draw.py SEED    prints the drawn entries of tools/mutations.json

What is drawn depends on the sources, so tools/mutations.json keeps the result and the commits it was drawn at: those of
rooms that came later were drawn when they came.
"""
import json
import pathlib
import random
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# How many of a room; each has a few draws behind it, for one that does not compile.
ROOMS = {"base": 2, "plan": 2, "sim": 2, "kernels": 2, "json": 2, "checkpoint": 1, "text": 1, "backend": 2, "model": 1,
         "sample": 1, "schedule": 1, "engine": 1, "library": 2, "constrain": 1, "server": 1, "http": 2, "loadgen": 2,
         "doctor": 2, "cli": 2, "hub": 1, "events": 1, "nodes": 1, "evaluate": 1}
SPARES = 3
# Not compiled or not run without a GPU, proofs and measurements themselves, and tables made by a program.
LEFT_OUT = re.compile(r"cuda_machine|gpu_cuda|nccl|kernels/bench/|kernels/verify/|unicode_tables|boost_json|bench_gpu")
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
TEXT = re.compile(r'R"\(.*?\)"|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'|//.*')
NUMBER = re.compile(r"(?<![\w.'])(?:0|[1-9][0-9]*)(?![\w.'])")
# A call or an assignment that is all of its line; what begins with a type is a declaration.
STATEMENT = re.compile(r"^\s+(?!return|break|continue|using|case|throw|delete|fail)[\w.:\[\]>*()-]+"
                       r"(?: [-+*/|&]?= .*|\(.*\));$")


def masked(line):
    """The line with texts and comments blanked, so that nothing inside them is found."""
    return TEXT.sub(lambda found: " " * len(found.group()), line)


def of_line(line, before, dice):
    """The mutations of one line: what they are, and the line after them."""
    plain = masked(line)
    if plain.lstrip().startswith(("#", "static_assert", "template")):
        return
    for found in re.finditer(r" (<=|>=|==|!=|<|>) ", plain):
        flipped = COMPARISONS[found.group(1)]
        yield "comparison", line[:found.start()] + f" {flipped} " + line[found.end():]
    for found in NUMBER.finditer(plain):
        step = dice.choice((1, -1)) if int(found.group()) > 0 else 1
        yield "constant", line[:found.start()] + str(int(found.group()) + step) + line[found.end():]
    if STATEMENT.match(plain.rstrip()) and before.rstrip().endswith((";", "{", "}")):
        yield "statement", line[:len(line) - len(line.lstrip())] + ";"


def unique(text, lines, number):
    """How many lines before this one are needed until the text stands in the file once."""
    for first in range(number, -1, -1):
        if text.count("\n".join(lines[first:number + 1])) == 1:
            return first
    raise ValueError("a file cannot hold itself twice")


def candidates(room, dice):
    for path in sorted((ROOT / "src" / room).rglob("*.cpp")):
        name = str(path.relative_to(ROOT))
        if LEFT_OUT.search(name):
            continue
        text = path.read_text()
        lines = text.split("\n")
        for number, line in enumerate(lines):
            for kind, changed in of_line(line, lines[number - 1] if number else "", dice):
                first = unique(text, lines, number)
                before = "".join(one + "\n" for one in lines[first:number])
                yield {"kind": kind, "file": name, "old": before + line, "new": before + changed}


def draw(seed):
    out = []
    for room, count in ROOMS.items():
        dice = random.Random(f"{seed} {room}")
        found = list(candidates(room, dice))
        dice.shuffle(found)
        for slot in range(count):
            behind = count + slot * SPARES
            out.append({"room": room, "by": "seed", **found[slot], "next": found[behind:behind + SPARES]})
    return out


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: mutation_draw.py SEED")
    print(json.dumps(draw(int(sys.argv[1])), indent=1))
