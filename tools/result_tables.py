"""Writes the measured tables between their markers, from bench/results/: chosen rows of whole models in README.md
(model-*.csv), and in docs/performance.md every row of Qwen3.5's models and of the other families (those of their files that
are there) and the MoE layer with uniform routing (moe-*.csv; parts and other routings stay in the files).

    result_tables.py ROOT            rewrite the tables
    result_tables.py ROOT --check    fail when a page is not what the files say
"""
import csv
import pathlib
import sys

NOT_YET = "No run of `./dev gpu` is committed yet."
# file, what, users, context, words
MODEL_ROWS = [
    ("model-h200-35b-bf16.csv", "decode", 1, 0, "Qwen3.5-35B-A3B, one user"),
    ("model-h200-35b-bf16-context.csv", "decode", 1, 32768, "the same after 32,768 tokens"),
    ("model-h200-35b-bf16.csv", "decode", 64, 0, "the same with 64 users"),
    ("model-h200-35b-bf16.csv", "prompt", 1, 2048, "the same, a prompt of 2,048 tokens"),
    ("model-h200-122b-bf16.csv", "decode", 1, 0, "Qwen3.5-122B-A10B, one user"),
    ("model-h200-397b-tp4-bf16.csv", "decode", 1, 0, "Qwen3.5-397B-A17B, one user, a rank of four without the others"),
]
# Qwen3.5: file and words.
QWEN = [
    ("model-h200-35b-bf16.csv", "35B, dense bf16"),
    ("model-h200-35b-bf16-context.csv", "35B, dense bf16"),
    ("model-h200-35b-fp8.csv", "35B, dense fp8"),
    ("model-h200-35b-nvfp4.csv", "35B, dense nvfp4"),
    ("model-h200-122b-bf16.csv", "122B, dense bf16"),
    ("model-h200-397b-tp4-bf16.csv", "397B, a rank of four, dense bf16"),
]
# Families beside Qwen3.5: shape and words. Shown where `fourfold report --results` has left their files.
FAMILIES = [
    ("gpt-oss-120b", "gpt-oss-120b (MXFP4 experts)"),
    ("glm-4.5-air", "GLM-4.5-Air"),
    ("minimax-m2", "MiniMax-M2"),
    ("mistral-small-4", "Mistral-Small-4-119B"),
]


def family_files(results):
    """(path, words) of those that are there."""
    files = [(results / f"model-h200-{shape}-bf16.csv", words) for shape, words in FAMILIES]
    return [(path, words) for path, words in files if path.exists()]


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


def layer_table(path, facts, rows):
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


def layers(results):
    lines = []
    for path in sorted(results.glob("moe-*.csv")):
        lines += layer_table(path, *read(path))
    return "\n".join(lines).rstrip() or NOT_YET


def percent(share):
    """An empty cell for what was not held against a floor."""
    return f"{100 * float(share):.0f} %" if float(share) else ""


def every_row(files, head):
    """A table of all that (path, words) of `files` hold."""
    lines, names, commits, left_out = [], [], set(), []
    for path, words in files:
        facts, rows = read(path)
        for row in rows:
            what = [f"prompt of {int(row['context']):,}", ""] if row["what"] == "prompt" else [row["users"], f"{int(row['context']):,}"]
            experts = float(row["experts"])
            lines.append("| " + " | ".join([words, *what, f"{float(row['tokens_per_s']):,.0f}", f"{float(row['ms']):.2f}",
                                             percent(row["floor_share"]), f"{experts:.0f}" if experts else ""]) + " |")
        names.append(f"`{path.name}`")
        commits.add(facts.get("commit", "unknown"))
        if "left out, for want of memory" in facts:
            left_out.append(f"{words}: {facts['left out, for want of memory']}.")
    if not lines:
        return NOT_YET
    text = [f"| {head} | users | context | tokens/s | ms a step | of the floor | experts of a layer |",
            "|---|---:|---:|---:|---:|---:|---:|", *lines, "", f"Commit {', '.join(sorted(commits))}; {', '.join(names)}."]
    return "\n".join(text + (["Left out, for want of memory: " + " ".join(left_out)] if left_out else []))


def qwen(results):
    files = [(results / name, words) for name, words in QWEN]
    return every_row([(path, words) for path, words in files if path.exists()], "Qwen3.5, one H200")


def families(results):
    return every_row(family_files(results), "one H200, dense weights bf16")


def models(results):
    lines, commits = [], set()
    if not any(results.glob("model-*.csv")):
        return NOT_YET
    others = [(path.name, "decode", 1, 0, f"{words}, one user") for path, words in family_files(results)]
    for name, what, users, context, words in MODEL_ROWS + others:
        if not (results / name).exists():
            raise ValueError(f"bench/results/{name} is shown in README.md and is not there")
        facts, rows = read(results / name)
        found = [row for row in rows if (row["what"], row["users"], row["context"]) == (what, str(users), str(context))]
        if len(found) != 1:
            raise ValueError(f"bench/results/{name} has {len(found)} rows {what},{users},{context}; one is shown")
        lines.append(f"| {words} | {float(found[0]['tokens_per_s']):,.0f} | {float(found[0]['ms']):.2f} "
                     f"| {percent(found[0]['floor_share'])} |")
        commits.add(facts.get("commit", "unknown"))
    return "\n".join(["| one H200, NVFP4 experts, other weights bf16 | tokens/s | ms a step | of the floor |",
                      "|---|---:|---:|---:|", *lines, "",
                      f"Commit {', '.join(sorted(commits))}; `bench/results/model-h200-*.csv`."])


# page, marker, what makes its table
TABLES = [("README.md", "models", models), ("docs/performance.md", "qwen", qwen),
          ("docs/performance.md", "families", families), ("docs/performance.md", "layers", layers)]


def with_table(page, text, marker, table):
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{page}: needs {begin} and {end} once each")
    head, rest = text.split(begin)
    return f"{head}{begin}\n{table}\n{end}{rest.split(end)[1]}"


def rewrite(root, page, marker, table, check, source, remedy):
    """Puts a table into its page, or with `check` only looks. False: it could not, or it differs."""
    path = root / page
    text = path.read_text()
    try:
        wanted = with_table(page, text, marker, table)
    except ValueError as error:
        print(error)
        return False
    if wanted == text:
        print(f"docs: {page}, {marker}: as {source} says")
        return True
    if check:
        print(f"docs: the table {marker} in {page} differs from {source}; run {remedy}")
        return False
    path.write_text(wanted)
    print(f"docs: {page} rewritten from {source}")
    return True


def main(arguments):
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    if len(folders) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    root = pathlib.Path(folders[0])
    for page, marker, make in TABLES:
        if not rewrite(root, page, marker, make(root / "bench" / "results"), check, "bench/results/", "./dev docs"):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
