"""Real clients against `fourfold serve` of a scripted model: run.py --program FOURFOLD --folder DIR [--long] [SUITE...]

Each suite has a Python environment of its own in DIR, made from the pinned versions in requirements/SUITE.txt by uv (from PyPI)
when they change. Ends with 1 when a row failed, with 77 (skipped) when packages are missing and PyPI cannot be reached.

    --write   the rows go into the tables of docs/agents.md, those of --long suites into docs/agents-test.txt as well
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
UV = "uv==0.13.7"
SKIPPED = 77
# In ./dev test, and only in ./dev test --long: the downloads are large.
SUITES = ["frameworks", "litellm_sdk", "routers", "replayed"]
LONG_SUITES = ["agents", "aider", "litellm_proxy"]


def requirements(suite):
    path = HERE / "requirements" / f"{suite}.txt"
    return path.read_text() if path.exists() else ""


def pins(suite):
    """{package: version}, as the file pins them."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^ ;\n]+)", requirements(suite), re.MULTILINE)
    return {name.lower(): version for name, version in found}


class NoPackages(Exception):
    pass


def install(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise NoPackages(f"{' '.join(str(word) for word in command)}: {done.stderr.strip()[-600:]}")


def environment(folder, suite):
    """The Python that has what the suite needs; the one that runs this where it needs nothing."""
    wanted = requirements(suite)
    if not wanted:
        return sys.executable
    place = folder / suite
    stamp = place / "made-from"
    content = hashlib.sha256(f"{UV} {sys.version} {wanted}".encode()).hexdigest()
    python = place / "bin/python"
    if stamp.exists() and stamp.read_text() == content:
        return python
    uv = folder / "uv/bin/uv"
    if not uv.exists():
        venv.create(folder / "uv", with_pip=True, clear=True)
        install(folder / "uv/bin/pip", "install", "--quiet", "--disable-pip-version-check", UV)
    install(uv, "venv", "--quiet", "--clear", "--python", sys.executable, place)
    install(uv, "pip", "install", "--quiet", "--python", python, "--requirement", HERE / "requirements" / f"{suite}.txt")
    stamp.write_text(content)
    return python


def run_suite(suite, program, folder):
    """Its rows as suite.py wrote them."""
    begun = time.time()
    python = environment(folder, suite)
    print(f"{suite}: packages in {time.time() - begun:.1f} s", flush=True)
    out = folder / f"{suite}.json"
    out.unlink(missing_ok=True)
    done = subprocess.run([python, HERE / "suite.py", suite, program, out], cwd=HERE,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    if not out.exists():
        return [{"row": suite, "result": f"NO: the suite ended with {done.returncode}", "seconds": 0}]
    return json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("suites", nargs="*")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    suites = options.suites or SUITES + (LONG_SUITES if options.long else [])
    results = {}
    try:
        for suite in suites:
            results[suite] = run_suite(suite, options.program.resolve(), folder)
    except NoPackages as error:
        print(f"clients: SKIPPED, packages are missing: {error}")
        return SKIPPED
    if options.write:
        import report
        report.write(results, {suite: pins(suite) for suite in results}, options.program)
    failed = [row for rows in results.values() for row in rows if row["result"] != "yes"]
    for row in failed:
        print(f"FAILED {row['row']}: {row['result']}")
    print(f"clients: {sum(len(rows) for rows in results.values())} rows, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
