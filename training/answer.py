"""Answers of an exported model to the fixed prompts, by the program itself.

    answer.py PROGRAM MODEL OUT.json [--seeds 5] [-- OPTIONS OF fourfold run]
"""
import argparse
import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("options", nargs="*")
    a = parser.parse_args()
    fixed = json.loads((HERE / "prompts.json").read_text())
    samples = []
    for entry in fixed["stories"] + fixed["itself"]:
        for seed in range(a.seeds):
            run = subprocess.run([a.program, "run", a.model, "-p", entry["prompt"], "--seed", str(seed), "--max-tokens", "400",
                                  *a.options], capture_output=True, text=True)
            if run.returncode != 0:
                raise SystemExit(run.stderr)
            samples.append({"prompt": entry["prompt"], "seed": seed, "thinking": False, "answer": run.stdout.strip(),
                            "ended": "was cut at" not in run.stderr})
    pathlib.Path(a.out).write_text(json.dumps(samples, indent=1) + "\n")


if __name__ == "__main__":
    main()
