"""Real clients against `fourfold serve` of a scripted model: run.py --program FOURFOLD --folder DIR [--write]
SUITE...|long|all

Each suite has a Python environment of its own in DIR, made by uv (from PyPI) from the pinned versions in
requirements/SUITE.txt and, of what these ask for, from what there was on NEWEST, when either changes. Ends with 1
when a row failed, else with 77 (skipped) when a suite's packages are missing and PyPI cannot be reached. --write puts the results into docs/agents-test.txt and the tables that are made
from it (results.py).
"""
import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time
import venv

import results as results_file

HERE = pathlib.Path(__file__).resolve().parent
UV = "uv==0.13.7"
# Packages that others ask for are taken as they were then, so that a result can be had again. With a newer version in
# requirements/, a newer date.
NEWEST = "2026-11-16T00:00:00Z"
SKIPPED = 77
# In ./dev test (clients.cmake reads this line and makes a test of each), and only in ./dev test --long: downloads are large, or
# others ask much the same (family_models with each template, hub.pull with a hub of its own).
SUITES = ["official", "family_models", "harmony", "routers", "kv_events", "replayed", "sbom_package"]
LONG_SUITES = ["families", "hub_package", "frameworks", "claude_suite", "codex_suite", "aider_suite", "litellm_suite", "ray_suite", "dynamo_suite", "open_webui_suite",
               "lm_eval_suite", "vocabularies", "mistral"]


def requirement_files(suite):
    """What uv gets as requirements, and as requirements that replace those of packages, where a suite has them."""
    names = {"--requirement": f"{suite}.txt", "--override": f"{suite}.override.txt"}
    paths = {option: HERE / "requirements" / name for option, name in names.items()}
    return {option: path for option, path in paths.items() if path.exists()}


def made_from(suite):
    """Changes with everything that decides which packages a suite gets."""
    texts = [path.read_text() for path in requirement_files(suite).values()]
    return hashlib.sha256("\0".join([UV, NEWEST, sys.version, *texts]).encode()).hexdigest()


class NoPackages(Exception):
    pass


def install(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise NoPackages(f"{' '.join(str(word) for word in command)}: {done.stderr.strip()[-600:]}")


def environment(folder, suite):
    """The Python that has what the suite needs; the one that runs this where it needs nothing."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # suites run beside each other and share the installer
        return made_environment(folder, suite)


def environment_or_skip(folder, suite):
    """For tests that only borrow the installer."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return environment(folder, suite)
    except NoPackages as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)


def made_environment(folder, suite):
    files = requirement_files(suite)
    if not files:
        return sys.executable
    place = folder / suite
    stamp = place / "made-from"
    content = made_from(suite)
    python = place / "bin/python"
    if stamp.exists() and stamp.read_text() == content:
        return python
    uv = folder / "uv/bin/uv"
    if not uv.exists():
        try:
            venv.create(folder / "uv", with_pip=True, clear=True)
        except subprocess.CalledProcessError as error:  # Debian has venv in a package of its own
            raise NoPackages(f"python3 -m venv: {error}") from error
        install(folder / "uv/bin/pip", "install", "--quiet", "--disable-pip-version-check", UV)
    install(uv, "venv", "--quiet", "--clear", "--python", sys.executable, place)
    install(uv, "pip", "install", "--quiet", "--python", python, "--exclude-newer", NEWEST,
            *[word for option, path in files.items() for word in (option, path)])
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
                          env={**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "pycache")})
    if not out.exists():
        return [{"row": suite, "result": f"NO: the suite ended with {done.returncode}", "seconds": 0}]
    return json.loads(out.read_text())


def run_all(suites, run, write):
    """What the program ends with: every suite has its turn, and a suite that is skipped hides no failure."""
    failed, skipped = 0, False
    for suite in suites:
        try:
            rows = run(suite)
        except NoPackages as error:
            print(f"clients: {suite} SKIPPED, packages are missing: {error}", flush=True)
            skipped = True
            continue
        bad = [row for row in rows if row["result"] != "yes"]
        for row in bad:
            print(f"FAILED {row['row']}: {row['result']}")
        print(f"clients: {suite}: {len(rows)} rows, {len(bad)} failed", flush=True)
        failed += len(bad)
        write(suite, rows)
    return 1 if failed else SKIPPED if skipped else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("suites", nargs="+", choices=[*SUITES, *LONG_SUITES, "long", "all"])
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    suites = {"long": LONG_SUITES, "all": SUITES + LONG_SUITES}.get(options.suites[0], options.suites)
    program = options.program.resolve()
    write = results_file.write if options.write else lambda *_: None
    return run_all(suites, lambda suite: run_suite(suite, program, folder), lambda suite, rows: write(suite, rows, program))


if __name__ == "__main__":
    sys.exit(main())
