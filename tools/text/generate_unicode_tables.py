#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cpp: the character classes and NFC data the tokenizer needs.

The truth is the `tokenizers` package, because a model was trained on its splits: character classes are those of
Unicode 16 (its regex engine), while its NFC knows only the characters of Unicode 9. Both facts are probed here, not
assumed: the script stops when a class differs and leaves out of NFC every character the package does not treat.

    pip install tokenizers==0.23.3 unicodedata2==16.0.0
    python3 tools/text/generate_unicode_tables.py src/text/unicode_tables.cpp
"""

import sys

import unicodedata2 as ucd
from tokenizers import Regex, normalizers, pre_tokenizers

CHARS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASS_BITS = {
    "upper": 1,
    "lower": 2,
    "other_letter": 4,
    "mark": 8,
    "number": 16,
    "punctuation": 32,
    "symbol": 64,
    "space": 128,
}
CATEGORY_CLASS = {"Lu": 1, "Lt": 1, "Ll": 2, "Lm": 4, "Lo": 4}
MAJOR_CLASS = {"M": 8, "N": 16, "P": 32, "S": 64}
# One mark of each neighbourhood of combining classes: 1, 7, 10, 103, 216, 218, 220, 230, 240.
MARK_PROBES = "\u0334\u093c\u05b0\u0e38\u031b\u302a\u0316\u0301\u0345"
BLOCK = 256


def matched_by(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    left = split.pre_tokenize_str("".join(map(chr, CHARS)))
    return set(CHARS) - {ord(c) for piece, _ in left for c in piece}


def class_of(code):
    category = ucd.category(chr(code))
    return CATEGORY_CLASS.get(category, MAJOR_CLASS.get(category[0], 0))


def check_classes(classes):
    for pattern, bits in (
        (r"\p{L}", 7),
        (r"[\p{Lu}\p{Lt}]", 1),
        (r"\p{Ll}", 2),
        (r"\p{M}", 8),
        (r"\p{N}", 16),
        (r"\p{P}", 32),
        (r"\p{S}", 64),
    ):
        ours = {c for c in CHARS if classes[c] & bits}
        theirs = matched_by(pattern)
        if ours != theirs:
            sys.exit(
                f"{pattern}: {len(ours ^ theirs)} code points differ from the package: other Unicode version?"
            )


def unknown_to_nfc():
    """Code points that the package's NFC leaves alone although Unicode 16 composes or reorders them."""
    nfc = normalizers.NFC()
    unknown = set()
    for c in CHARS:
        char = chr(c)
        apart = ucd.normalize("NFD", char)
        if apart != char and nfc.normalize_str(apart) != ucd.normalize("NFC", apart):
            unknown.add(c)
        if ucd.combining(char):
            pairs = [s for p in MARK_PROBES for s in ("a" + char + p, "a" + p + char)]
            if any(nfc.normalize_str(s) != ucd.normalize("NFC", s) for s in pairs):
                unknown.add(c)
    return unknown


def rows(values, per_line, form):
    for start in range(0, len(values), per_line):
        yield "    " + " ".join(form(v) + "," for v in values[start : start + per_line])


def case_rows(convert):
    """Simple and one-to-many mappings of Python's str methods, which Jinja's upper and lower are."""
    changed = [(c, convert(chr(c))) for c in CHARS if c >= 0x80 and convert(chr(c)) != chr(c)]
    return [(c, [ord(x) for x in text] + [0] * (3 - len(text))) for c, text in changed]


def main():
    classes = {c: class_of(c) for c in CHARS}
    check_classes(classes)
    for c in matched_by(r"\s"):
        classes[c] |= CLASS_BITS["space"]
    unknown = unknown_to_nfc()
    known = [c for c in CHARS if c not in unknown]
    hangul = range(0xAC00, 0xAC00 + 11172)

    decompositions, compositions = [], []
    second_of_pair = {
        *range(0x1161, 0x1176),
        *range(0x11A8, 0x11C3),
    }  # Hangul vowels and tails compose by rule
    changes_alone = set()
    for c in known:
        mapping = ucd.decomposition(chr(c))
        if c in hangul or not mapping or mapping.startswith("<"):
            continue
        parts = [int(x, 16) for x in mapping.split()]
        decompositions.append((c, parts[0], parts[1] if len(parts) == 2 else 0))
        if ucd.normalize("NFC", chr(c)) != chr(c):
            changes_alone.add(c)
        elif len(parts) == 2:
            compositions.append((parts[0], parts[1], c))
            second_of_pair.add(parts[1])

    records, record_of = [], {}
    index_of = bytearray(0x110000)
    for c in range(0x110000):
        ccc = 0 if c in unknown or c not in classes else ucd.combining(chr(c))
        care = c in second_of_pair or c in changes_alone or ccc != 0
        record = (classes.get(c, 0), ccc, int(care))
        if record not in record_of:
            record_of[record] = len(records)
            records.append(record)
        index_of[c] = record_of[record]
    assert len(records) <= 256

    blocks, block_of, stage1 = [], {}, []
    for start in range(0, 0x110000, BLOCK):
        block = bytes(index_of[start : start + BLOCK])
        if block not in block_of:
            block_of[block] = len(blocks)
            blocks.append(block)
        stage1.append(block_of[block])
    assert len(blocks) <= 256

    number = lambda v: str(v)
    triple = lambda t: "{" + ", ".join(f"0x{x:X}" for x in t) + "}"
    case = lambda t: f"{{0x{t[0]:X}, {{" + ", ".join(f"0x{x:X}" for x in t[1]) + "}}"
    out = [
        "// Written by tools/text/generate_unicode_tables.py; do not edit.",
        "// Character classes: Unicode 16. NFC: the characters of Unicode 9, as the tokenizers package has it.",
        "// clang-format off",
        '#include "text/unicode_tables.h"',
        "",
        "namespace fourfold::text {",
        "",
        f"const CharRecord kCharRecords[{len(records)}] = {{",
        *rows(records, 8, lambda r: "{%d, %d, %d}" % r),
        "};",
        "",
        f"const std::uint8_t kCharBlockOf[{len(stage1)}] = {{",
        *rows(stage1, 32, number),
        "};",
        "",
        f"const std::uint8_t kCharBlocks[{len(blocks)}][{BLOCK}] = {{",
    ]
    for block in blocks:
        out += ["  {", *rows(block, 32, number), "  },"]
    compositions.sort()
    for name, kind, values, form in (
        ("kDecompositions", "Decomposition", decompositions, triple),
        ("kCompositions", "Composition", compositions, triple),
        ("kUpperCase", "CaseMapping", case_rows(str.upper), case),
        ("kLowerCase", "CaseMapping", case_rows(str.lower), case),
    ):
        if name == "kDecompositions":
            out += ["};"]
        out += [
            "",
            f"static const {kind} {name}Rows[{len(values)}] = {{",
            *rows(values, 4, form),
            "};",
            f"const std::span<const {kind}> {name}({name}Rows);",
        ]
    out += ["", "}  // namespace fourfold::text", ""]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("\n".join(out))
    print(
        f"{len(records)} records, {len(blocks)} blocks, {len(decompositions)} decompositions, "
        f"{len(compositions)} compositions, {len(unknown)} characters left out of NFC"
    )


main()
