"""Writes docs/performance.md's tables of what a prompt's kernels take on cards that are not here: the floor (bytes over the
published bandwidth, operations over the published rate, whichever is longer) and what the model of kernels' time predicts, as
`fourfold plan --predict --json` says them.

    floor_tables.py ROOT PROGRAM            rewrite the tables
    floor_tables.py ROOT PROGRAM --check    fail when the page is not what the program says
"""
import json
import pathlib
import subprocess
import sys

from result_tables import rewrite

PAGE, MARKER = "docs/performance.md", "floors"
CARDS = [("rtx-pro-6000", "RTX PRO 6000"), ("rtx-5090", "RTX 5090"), ("dgx-spark", "DGX Spark")]
PROMPTS = [2048, 8192]
# Beginning of the row, what is in it, part; words. The first that fits; a row that none fits is an error, so that a new
# kernel on the prompt's path gets its line.
WORDS = [
    ("moe_gemm", "w4a4", "gate_up", "routed experts, GEMM1"),
    ("moe_gemm", "w4a4", "down", "routed experts, GEMM2"),
    ("moe_gemm", "bf16", None, "dense matrices and shared expert"),
    ("attend_prompt", "", None, "attention"),
    ("prepare", "", None, "attention: norm and rotary of heads"),
    ("delta_prepare", "", None, "DeltaNet, chunks prepared"),
    ("delta_scan", "", None, "DeltaNet, state through the chunks"),
    ("delta_finish", "", None, "DeltaNet, gated norm"),
    ("quantize_tokens", "", None, "quantising of tokens"),
    ("stage_tokens", "", None, "staging of tokens"),
    ("combine", "", None, "combine"),
    ("norm_prompt", "", None, "norms"),
    ("norm_fp4", "", None, "norms"),
    ("dense_few", "", None, "head, one row a piece"),
    ("route_", "", None, "routing"),
    ("embed", "", None, "the rest"),
    ("select_norm", "", None, "the rest"),
    ("sampling", "", None, "the rest"),
]
STANDS_OUT = 5  # lines below a table


def words_of(row):
    for start, holds, part, words in WORDS:
        if row["row"].startswith(start) and holds in row["row"] and part in (None, row.get("part", "")):
            return words
    raise ValueError(f"tools/floor_tables.py has no words for the row '{row['row']}' of a prompt")


def lines_of(answer):
    """{words: [floor ms, low ms, high ms, what limits the longest of them, its row]} in the order of WORDS."""
    found = {}
    for row in answer["rows"]:
        if row["what"] != "prompt":
            continue
        line = found.setdefault(words_of(row), [0.0, 0.0, 0.0, "", 0.0, row["row"]])
        floor = row.get("floor_us", 0) / 1e3
        line[0] += floor
        line[1] += row["us"][0] / 1e3
        line[2] += row["us"][1] / 1e3
        if floor > line[4]:
            line[3], line[4], line[5] = row["floor_by"], floor, row["row"]
    order = [words for *_, words in WORDS]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def number(ms):
    return f"{ms:.2f}" if ms < 1 else f"{ms:.1f}" if ms < 100 else f"{ms:,.0f}"


def cells(line):
    floor = f"{number(line[0])}, {line[3]}" if line[0] else ""
    return f"{floor} | {number(line[1])} to {number(line[2])}"


def table(prompt, answers):
    lines = [f"A prompt of {prompt:,}, milliseconds:", "",
             "| | row | " + " | ".join(f"{words}: floor | predicted" for _, words in CARDS) + " |",
             "|---|---|" + "---|---|" * len(CARDS)]
    cards = [lines_of(answers[card]["auto"]) for card, _ in CARDS]
    for words, first in cards[0].items():
        row = f"`{first[5]}`" if words != "the rest" and words != "routing" else ""
        lines.append(f"| {words} | {row} | " + " | ".join(cells(card[words]) for card in cards) + " |")
    together = [[sum(line[i] for line in card.values()) for i in range(3)] for card in cards]
    lines.append("| together | | " + " | ".join(f"{number(a)} | {number(b)} to {number(c)}" for a, b, c in together) + " |")
    for words, kind in (("tokens/s", "auto"), ("tokens/s with `--activations w4a16`", "w4a16")):
        speeds = []
        for (card, _), (floor, *_) in zip(CARDS, together):
            low, high = answers[card][kind]["prompt_tokens_per_s"]
            speeds.append((f"{1e3 * prompt / floor:,.0f}" if kind == "auto" else "") + f" | {low:,.0f} to {high:,.0f}")
        lines.append(f"| {words} | | " + " | ".join(speeds) + " |")
    lines += ["", "What stands out: most above its floor, by the middle of what is predicted."]
    for (_, words), card in zip(CARDS, cards):
        middle = {name: (line[1] + line[2]) / 2 for name, line in card.items()}
        above = sorted(card, key=lambda name: card[name][0] - middle[name])[:STANDS_OUT]
        lost = sum(middle[name] - card[name][0] for name in card)
        said = [f"{name} {number(middle[name] - card[name][0])} ms"
                + (f" ({middle[name] / card[name][0]:.1f} times its floor)" if card[name][0] else "") for name in above]
        lines.append(f"* {words}, {number(lost)} ms above all floors: {', '.join(said)}.")
    return lines


def ask(program, card, prompt, activations):
    command = [str(program), "plan", "--predict", "--model", "35b", "--gpu", card, "--prompt", str(prompt),
               "--activations", activations, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def tables(program):
    lines = []
    for prompt in PROMPTS:
        answers = {card: {kind: ask(program, card, prompt, kind) for kind in ("auto", "w4a16")} for card, _ in CARDS}
        lines += table(prompt, answers) + [""]
    return "\n".join(lines).rstrip()


def main(arguments):
    check = "--check" in arguments
    places = [argument for argument in arguments if argument != "--check"]
    if len(places) != 2:
        print(__doc__, file=sys.stderr)
        return 64
    made = tables(places[1])
    remedy = "tools/floor_tables.py . build/fourfold"
    return 0 if rewrite(pathlib.Path(places[0]), PAGE, MARKER, made, check, places[1], remedy) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
