"""Runs `fourfold compare` over folders of make_tiny_qwen35.py and writes one table of what it found.

    compare_oracles.py PROGRAM OUT.md NAME=FOLDER...

FOLDER holds bf16, modelopt, modelopt_mixed and compressed, or is itself one model with a reference.safetensors. Both
backends, every activation format a model was made for. Ends with 1 when anything lies beyond its bound. Plain Python 3.9.
"""
import datetime
import json
import pathlib
import platform
import subprocess
import sys

VARIANTS = ("bf16", "modelopt", "modelopt_mixed", "compressed")


def models(words):
    for word in words:
        name, _, folder = word.partition("=")
        folder = pathlib.Path(folder)
        if (folder / "reference.safetensors").exists():
            yield name, folder
            continue
        for variant in VARIANTS:
            yield f"{name} {variant}", folder / variant


def worst(numbers, what):
    """The item of this kind that is nearest to its bound."""
    items = [item for item in numbers if item["what"].startswith(what)]
    if not items:
        return None
    return max(items, key=lambda item: max(item["largest"] / item["largest_bound"], item["typical"] / item["typical_bound"]))


def cell(item):
    if item is None:
        return "-"
    return f"{item['largest']:.1e} ({item['largest_bound']:.1e}), {item['typical']:.1e} ({item['typical_bound']:.1e})"


def tokens(run, what):
    items = [item for item in run["tokens"] if item["what"] == what]
    if not items:
        return "-"
    same, count = sum(item["same"] for item in items), sum(item["count"] for item in items)
    undecided = sum(item["undecided"] for item in items)
    return f"{same} of {count}" + (f", {undecided} undecided" if undecided else "")


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main(program, out, *words):
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    lines = ["# Compare: oracles", "",
             "Written by tools/compare_oracles.py. Each cell is the largest difference and the typical row's, each with its "
             "bound in brackets,", "of the item nearest to its bound; `fourfold compare` prints all of them and where the "
             "bounds come from.", "",
             f"{version}, {processor()}, {datetime.date.today().isoformat()}", "",
             "| model | backend | activations | logits | layers | MTP logits | greedy tokens | drafts | |",
             "|---|---|---|---|---|---|---|---|---|"]
    fine = True
    for name, folder in models(words):
        for backend in ("reference", "cpu"):
            run = subprocess.run([program, "compare", str(folder), str(folder / "reference.safetensors"), "--backend",
                                  backend, "--json"], capture_output=True, text=True)
            if run.returncode not in (0, 1):
                sys.exit(f"{name} on {backend}: {run.stderr}")
            report = json.loads(run.stdout)
            fine = fine and report["fine"]
            for part in report["runs"]:
                lines.append(f"| {name} | {backend} | {part['activations']} | {cell(worst(part['numbers'], 'logits'))} | "
                             f"{cell(worst(part['numbers'], 'layer'))} | {cell(worst(part['numbers'], 'mtp'))} | "
                             f"{tokens(part, 'greedy')} | {tokens(part, 'drafts')} | "
                             f"{'fine' if part['fine'] else 'BEYOND'} |")
            print(name, backend, "fine" if report["fine"] else "BEYOND", flush=True)
    pathlib.Path(out).write_text("\n".join(lines) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
