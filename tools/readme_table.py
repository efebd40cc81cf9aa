"""Writes the measured table of README.md, between its bench markers, from bench/results/moe-*.csv: the whole
layer with uniform routing; parts and other routings stay in the files.

    readme_table.py ROOT            rewrite the table
    readme_table.py ROOT --check    fail when README.md is not what the files say
"""
import csv
import pathlib
import sys

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
NOT_YET = "No run of `./dev gpu` is committed yet."


def read(path):
    """(facts from the # lines, rows) of one result file."""
    facts, lines = {}, []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            name, _, value = line[1:].partition(":")
            facts[name.strip()] = value.strip()
        elif line.strip():
            lines.append(line)
    return facts, list(csv.DictReader(lines))


def table_of(path, facts, rows):
    layers = [row for row in rows if row["part"] == "layer" and row["routing"] == "uniform"]
    if not layers:
        return []
    known = ", ".join(f"{name} {facts[name]}" for name in ("driver", "commit") if name in facts)
    lines = [f"**{facts.get('machine', 'unknown machine')}** ({known + '; ' if known else ''}`bench/results/{path.name}`)",
             "", "| shape | tokens | us | GB/s | of the memory ceiling | TFLOPS | rows |",
             "|---|---:|---:|---:|---:|---:|---|"]
    for row in layers:
        lines.append(f"| {row['shape']} | {int(row['tokens']):,} | {float(row['microseconds']):,.1f} "
                     f"| {float(row['gbps']):,.0f} | {100 * float(row['share']):.0f} % | {float(row['tflops']):,.0f} "
                     f"| {row['rows']} |")
    return lines + [""]


def generated(root):
    lines = []
    for path in sorted((root / "bench" / "results").glob("moe-*.csv")):
        lines += table_of(path, *read(path))
    return "\n".join(lines).rstrip() or NOT_YET


def main(arguments):
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    if len(folders) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    root = pathlib.Path(folders[0])
    readme = root / "README.md"
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        print(f"README.md: needs {BEGIN} and {END} once each")
        return 1
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    wanted = f"{head}{BEGIN}\n{generated(root)}\n{END}{tail}"
    if wanted == text:
        print("docs: README.md is what bench/results/ says")
    elif check:
        print("docs: the table in README.md differs from bench/results/; run ./dev docs")
        return 1
    else:
        readme.write_text(wanted)
        print("docs: README.md rewritten from bench/results/")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
