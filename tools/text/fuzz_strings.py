"""Hostile strings, drawn the same here and in tests/text/fuzz_strings.h, so that golden files need only hold hashes."""

import json
import pathlib

MASK = (1 << 64) - 1
GOLDEN_RATIO = 0x9E3779B97F4A7C15
PIECES_FILE = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/text/fuzz_pieces.json"


def mix_bits(value):
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class Random:
    """base/random.h."""

    def __init__(self, seed):
        self.start = mix_bits((seed + GOLDEN_RATIO) & MASK)
        self.index = 0

    def bits(self):
        self.index += 1
        return mix_bits((self.start + self.index * GOLDEN_RATIO) & MASK)

    def below(self, count):
        rest = (1 << 64) % count
        draw = self.bits()
        while draw < rest:
            draw = self.bits()
        return draw % count


def load_pieces():
    return json.loads(PIECES_FILE.read_text(encoding="utf-8"))


def fuzz_string(pieces, seed, index):
    random = Random(seed * 1_000_003 + index)
    out = []
    for _ in range(1 + random.below(24)):
        kind = random.below(8)
        if kind == 0:
            code = random.below(0x110000 - 0x800)
            out.append(chr(code + 0x800 if code >= 0xD800 else code))
        elif kind == 1:
            out.append(chr(random.below(0x3400)))
        else:
            out.append(pieces[random.below(len(pieces))])
    return "".join(out)


def fnv(values, start=0xCBF29CE484222325):
    """A running 64-bit hash of integers; the string's end is marked by -1."""
    for value in values:
        start = ((start ^ (value & MASK)) * 0x100000001B3) & MASK
    return ((start ^ MASK) * 0x100000001B3) & MASK
