"""Runs `fourfold compare` over the references of tests/golden/families and writes one table: a row a model, a column a backend.

    compare_families.py PROGRAM OUT.md [--backends reference,cpu,cpu:2,sim,sim:2,cuda] [--only NAME,...] [NAME=FOLDER...]

cpu:2 is `--backend cpu --tp 2`. NAME=FOLDER adds a model that has a reference.safetensors in it. Columns of OUT.md that are not
run this time stay as they are, so that each machine fills its own. Models are made with `make-model`, and quantised by
tests/golden/families/quantised.py where their names say so, in a folder that is deleted. Ends with 1 when anything lies beyond its bound. Plain Python 3.9.
"""
import argparse
import datetime
import json
import pathlib
import platform
import subprocess
import sys
import tempfile

FAMILIES = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/families"
sys.path.insert(0, str(FAMILIES))
import quantised

BACKENDS = "reference,cpu,cpu:2,sim,sim:2"
HEAD = [
    "# Compare: families", "",
    "Written by tools/compare_families.py; versions, machines and days of the columns are below the table, and cpu:2 is two ranks. A",
    "cell has, for each activation format, how near the nearest number is to its bound (1 is at the bound), greedy tokens and drafts",
    "that were too close to call, and router choices that were: layer and position, the f32 reference's expert, and the one taken.", ""]


def references(only):
    """(name, shape, format, seed, file) of every golden file."""
    for file in sorted(FAMILIES.glob("*.safetensors"), key=lambda path: path.stem):
        name, scheme, seed = file.stem, "bf16", "1"
        shape = quantised.recipe_of(name)[0]
        if shape.endswith("-mxfp4"):
            shape, scheme = shape[:-len("-mxfp4")], "mxfp4"
        elif shape.endswith("-seed2"):
            shape, seed = shape[:-len("-seed2")], "2"
        if not only or name in only:
            yield name, shape, scheme, seed, file


def make(program, name, shape, scheme, seed, folder):
    is_quantised = quantised.recipe_of(name)[1] is not None
    made = folder.with_suffix(".bf16") if is_quantised else folder
    subprocess.run([program, "make-model", str(made), "--shape", shape, "--format", scheme, "--seed", seed], check=True,
                   stdout=subprocess.DEVNULL)
    if is_quantised:
        quantised.main(made, folder, name)


def share(run):
    """How near the nearest number is to its bound; what is no number is infinitely far."""
    shares = [item[what] / item[what + "_bound"] for item in run["numbers"] for what in ("largest", "typical")
              if isinstance(item[what], (int, float))]
    return max(shares) if len(shares) == 2 * len(run["numbers"]) else float("inf")


def cell(run):
    text = f"{run['activations']} {share(run):.2f}"
    undecided = sum(item["undecided"] for item in run["tokens"])
    if undecided:
        text += f", {undecided} token{'s' if undecided > 1 else ''}"
    for turn in run.get("routers_turned", []):
        text += f", {turn['router'].rsplit('.mlp', 1)[0]} at {turn['position']}: {turn['leaves']} or {turn['comes']}"
    return text if run["fine"] else f"**{text} BEYOND**"


def compare(program, backend, model, reference):
    """The text of a cell, and whether it is fine."""
    name, _, ranks = backend.partition(":")
    done = subprocess.run([program, "compare", str(model), str(reference), "--backend", name, "--tp", ranks or "1", "--json"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    if done.returncode not in (0, 1):
        lines = [line for line in done.stderr.splitlines() if line.startswith("fourfold: ") and "notice:" not in line]
        if done.returncode != 2 or not lines:  # 2: refused, in words
            return f"**ended with {done.returncode}**", False
        return "refused: " + lines[-1][len("fourfold: "):], True
    report = json.loads(done.stdout)
    return "; ".join(cell(run) for run in report["runs"]), report["fine"]


def machine(backend):
    """What ran it: the GPU, else the processor."""
    if backend.startswith("cuda"):
        try:
            asked = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], stdout=subprocess.PIPE,
                                   universal_newlines=True)
            return asked.stdout.splitlines()[0].strip()
        except (OSError, IndexError):
            return "a GPU"
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def cells(line):
    return [part.strip() for part in line.strip().strip("|").split("|")]


def read(out):
    """Rows and notes of a table that is there: {model: {column: cell}}, {column: note}."""
    if not out.exists():
        return {}, {}
    lines = out.read_text().splitlines()
    table = [cells(line) for line in lines if line.startswith("|")]
    rows = {line[0]: dict(zip(table[0][1:], line[1:])) for line in table[2:]}
    notes = dict(line[2:].split(": ", 1) for line in lines if line.startswith("* "))
    return rows, notes


def write(out, rows, notes):
    columns = list(notes)
    lines = HEAD + ["| model | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += ["| " + " | ".join([name] + [row.get(column, "") or "-" for column in columns]) + " |" for name, row in sorted(rows.items())]
    lines += [""] + [f"* {column}: {note}" for column, note in notes.items()]
    out.write_text("\n".join(lines) + "\n")


def main(words):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--backends", default=BACKENDS)
    parser.add_argument("--only", default="")
    parser.add_argument("models", nargs="*")
    given = parser.parse_intermixed_args(words)
    backends = given.backends.split(",")
    version = subprocess.run([given.program, "--version"], stdout=subprocess.PIPE, universal_newlines=True).stdout.split("\n")[0]
    rows, notes = read(given.out)
    for backend in backends:
        notes[backend] = f"{version}, {machine(backend)}, {datetime.date.today().isoformat()}"
    all_fine = True
    with tempfile.TemporaryDirectory() as temp:
        found = [(word.partition("=")[0], pathlib.Path(word.partition("=")[2]), None) for word in given.models]
        for name, shape, scheme, seed, file in references(given.only.split(",") if given.only else []):
            folder = pathlib.Path(temp) / name
            make(given.program, name, shape, scheme, seed, folder)
            found.append((name, folder, file))
        for name, folder, file in found:
            for backend in backends:
                text, fine = compare(given.program, backend, folder, file or folder / "reference.safetensors")
                rows.setdefault(name, {})[backend] = text.replace("|", "/")
                all_fine = all_fine and fine
                print(f"{name} {backend}: {text}", flush=True)
                write(given.out, rows, notes)
    return 0 if all_fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
