"""Real clients against `fourfold serve` of a scripted model: run.py --program FOURFOLD --folder DIR [--write]
SUITE...|long|all

Each suite has a Python environment of its own in DIR, made from the pinned versions in requirements/SUITE.txt
by uv (from PyPI) when they change. Ends with 1 when a row failed, with 77 (skipped) when packages are missing
and PyPI cannot be reached. --write puts the results into docs/agents-test.txt and the tables that are made
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
SKIPPED = 77
# In ./dev test (clients.cmake has a test for each), and only in ./dev test --long: the downloads are large.
SUITES = ["official", "frameworks", "routers", "replayed"]
LONG_SUITES = ["claude_suite", "codex_suite", "aider_suite", "litellm_suite", "open_webui_suite", "lm_eval_suite"]


def requirements(suite):
    path = HERE / "requirements" / f"{suite}.txt"
    return path.read_text() if path.exists() else ""


def override(suite):
    """A file of requirements that replace those of packages, where a suite has one."""
    path = HERE / "requirements" / f"{suite}.override.txt"
    return ["--override", path] if path.exists() else []


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


def made_environment(folder, suite):
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
        try:
            venv.create(folder / "uv", with_pip=True, clear=True)
        except subprocess.CalledProcessError as error:  # Debian has venv in a package of its own
            raise NoPackages(f"python3 -m venv: {error}") from error
        install(folder / "uv/bin/pip", "install", "--quiet", "--disable-pip-version-check", UV)
    install(uv, "venv", "--quiet", "--clear", "--python", sys.executable, place)
    install(uv, "pip", "install", "--quiet", "--python", python, *override(suite), "--requirement",
            HERE / "requirements" / f"{suite}.txt")
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
    failed = 0
    for suite in suites:
        try:
            rows = run_suite(suite, options.program.resolve(), folder)
        except NoPackages as error:
            print(f"clients: {suite} SKIPPED, packages are missing: {error}")
            return SKIPPED
        bad = [row for row in rows if row["result"] != "yes"]
        for row in bad:
            print(f"FAILED {row['row']}: {row['result']}")
        print(f"clients: {suite}: {len(rows)} rows, {len(bad)} failed", flush=True)
        failed += len(bad)
        if options.write:
            results_file.write(suite, rows, options.program.resolve())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
