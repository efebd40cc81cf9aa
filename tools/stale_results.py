"""Says which results of a GPU are older than the kernels they measured or proved. A notice, not a failure: the
machine that runs the tests has no GPU to repeat them on.

    stale_results.py        one line, or one more for every kind of stale file
"""
import functools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What runs on the GPU: not the CPU's kernels, nor the proofs, nor what they are held against, nor what predicts, nor texts.
KERNELS = ["src/kernels", "src/backend/cuda", ":!src/kernels/cpu", ":!src/kernels/verify", ":!src/kernels/launch/work_*",
           ":!src/kernels/reference", ":!src/kernels/*/*reference.h", ":!src/*.md"]
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # or a literal, which may hold its marks
PATTERNS = ["verify-*.json", "moe-*.csv", "model-*.csv", "report-*.json"]


def commit_of(path):
    """The commit a result file names; None when it names none."""
    if path.suffix == ".json":
        return json.loads(path.read_text()).get("commit")
    found = re.search(r"^# commit: (\S+)", path.read_text(), re.MULTILINE)
    return found.group(1) if found else None


def git(root, *arguments):
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)


def code(root, commit, path):
    """A file's text without comments and spaces; empty where the commit has no such file."""
    text = git(root, "show", f"{commit}:{path}").stdout
    return "".join(COMMENT.sub(lambda found: found[1] or "", text).split())


@functools.cache
def changed_files(root, commit):
    """How many files of kernels have other code than at `commit`; None when git does not know it."""
    if git(root, "cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        return None
    done = git(root, "diff", "--name-only", "--no-renames", commit, "HEAD", "--", *KERNELS)
    done.check_returncode()
    return sum(code(root, commit, path) != code(root, "HEAD", path) for path in done.stdout.split("\n") if path)


def notices(root):
    lines = []
    for pattern in PATTERNS:
        for path in sorted((root / "bench" / "results").glob(pattern)):
            commit = commit_of(path)
            changed = changed_files(root, commit) if commit else None
            if changed is None:
                lines.append(f"{path.name}: of commit {commit or 'unknown'}, which this history does not have")
            elif changed > 0:
                lines.append(f"{path.name}: of {commit}; {changed} files of kernels have changed since")
    return lines


def main():
    if git(ROOT, "rev-parse", "HEAD").returncode != 0:
        print("GPU results: no git history here, so their age is unknown")
        return
    lines = notices(ROOT)
    print("GPU results: all of the kernels in this tree" if not lines else
          "GPU results: older than the kernels in this tree (./dev gpu repeats them):")
    for line in lines:
        print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
