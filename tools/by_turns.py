"""Two builds side by side: `fourfold bench model` of each by turns, so that a machine that warms up or slows down meets both.

    tools/by_turns.py OLD NEW [--turns 3] [--backend cuda] -- "--shape 35b --users 1,16" "--shape gpt-oss-120b --users 1" ...

One line a measurement: the median of each build's turns, what the new one gains, and how far a build's own turns lie apart.
A gain smaller than that is none. Plain Python 3.9, no packages.
"""
import argparse
import csv
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile


def measure(program, options):
    """{(what, users, context): tokens a second} of one run."""
    with tempfile.TemporaryDirectory() as scratch:
        table = pathlib.Path(scratch, "table.csv")
        done = subprocess.run([program, "bench", "model", *options, "--csv", str(table)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{program} bench model {shlex.join(options)}: exit {done.returncode}: {done.stderr.strip()}")
        lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    return {(row["what"], row["users"], row["context"]): float(row["tokens_per_s"]) for row in csv.DictReader(lines)}


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def compare(programs, options, turns):
    """Lines of text for one set of options."""
    runs = ([], [])
    for _ in range(turns):
        for run, program in zip(runs, programs):
            run.append(measure(program, options))
    lines = []
    for key in runs[0][0]:
        old, new = ([run[key] for run in of if key in run] for of in runs)
        if not new:
            lines.append(f"  {' '.join(key):24} {statistics.median(old):10.1f}   only the old build has it")
            continue
        gain = statistics.median(new) / statistics.median(old) - 1
        lines.append(f"  {' '.join(key):24} {statistics.median(old):10.1f} {statistics.median(new):10.1f} {gain:+8.1%}   "
                     f"own turns {spread(old):.1%}, {spread(new):.1%} apart")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("options", nargs="+", help="options of bench model, quoted, a set each")
    asked = parser.parse_args()
    if asked.turns < 1:
        parser.error(f"--turns {asked.turns}: at least 1")
    print(f"what, users, context: tokens/s of {asked.old}, of {asked.new}, median of {asked.turns} turns each")
    for options in asked.options:
        print(options, flush=True)
        for line in compare((asked.old, asked.new), ["--backend", asked.backend, *shlex.split(options)], asked.turns):
            print(line, flush=True)


if __name__ == "__main__":
    main()
