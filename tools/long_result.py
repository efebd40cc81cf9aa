"""The committed results of ./dev test --long, docs/long-test.txt: a line for each part, written when the part ended.

long_result.py --age                                          one line for ./dev test
long_result.py --here                                         the tree as it is now
long_result.py --record PART HERE STATUS SECONDS SAYS [NOTE]  HERE: the tree before the part began; STATUS: what the
                                                              command ended with; 77 is skipped
long_result.py --done PART [WORDS]                            ends with 0 where PART has passed with what it reads, and its
                                                              line has these words
long_result.py --adopt FILE                                   the lines that another machine wrote in a copy without git, where
                                                              what they read here is what it was at their commit, and says
                                                              of the others why not

`here` is the newest commit that changed more than docs, so committing a result does not make it old; with + where
there are changes that no commit has. A result holds until something changes that its part reads (READS): behind the commit
is a digest of that, which a shallow clone has as well. In a copy without git it is `-`, and FOURFOLD_COMMIT says that
the tree is that commit's. FOURFOLD_LONG_NOTE is what a reader must know of the machine: which
packages it lacks. Several parts may be run at once.
"""
import datetime
import fcntl
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULT = pathlib.Path(os.environ.get("FOURFOLD_LONG_RESULT", ROOT / "docs" / "long-test.txt"))
HEAD = """Results of ./dev test --long, which goes on with the parts that have not passed with what they read. A line is
written when its part ends: verdict, date, commit (+: with changes on top), digest of what it reads, machine, time, part.
"""
SKIPPED = 77

# What a part's verdict depends on, where that is not everything but docs: paths as git has them. Whole folders, for a file
# that is forgotten here makes an old verdict stand; every part reads its own command. Not ./dev: a line of its help would
# cost hours, and that builds and tests which fail end it with an error is tested in tests/tidy/dev_test.py.
BUILD = ("CMakeLists.txt", "CMakePresets.json", "cmake", "tests/CMakeLists.txt", "tools/long_test.sh")
ROWS = (*BUILD, "src/base", "src/plan", "src/kernels")
KERNELS = (*ROWS, "src/sim", "src/cli", "tests/kernels", "tests/support")
BINDINGS = (*KERNELS, "include", "python", "examples", "tests/packaging", "tests/clients", "tools/vllm_test.sh")
PRODUCT = (".", ":!docs", ":!bench/results", ":!tests")
SOURCES = (*BUILD, "src", "include", "models", "tests", ":!tests/clients", ":!tests/page", ":!tests/tidy", ":!tests/packaging")
READS = {
    "machine-code": (*ROWS, "tests/kernels", "tools/check_cubins.py", "tools/count_instructions.py", ":!tests/kernels/*_test.cpp"),
    "mutations-layer": KERNELS,
    "mutations-step": KERNELS,
    "seeds": KERNELS,
    "torch": BINDINGS,
    "vllm": BINDINGS,
    "package-wheel": PRODUCT,
    "package-wheel-x86-64": PRODUCT,
    "package-deb": PRODUCT,
    "package-image": PRODUCT,
}
READS |= dict.fromkeys(("families", "shortened", "scenarios", "long-prompt", "storyteller-fp4", "soak"), SOURCES)
# A sanitizer looks at code, not at what docs and results say. tests/doors builds the examples and runs the Python ones.
SANITIZED = (*SOURCES, "examples", "python", "tuned", "tools")
ALL = (".", ":!docs")


def reads(part):
    if part.startswith(("asan-", "tsan-")) and not part.endswith("-rest"):
        return SANITIZED
    return READS.get(part, ALL)


def parts():
    """The names of all parts, which all_long_parts() makes some of in a loop."""
    script = 'set -eu; source "$1"; long_part() { echo "$1"; }; all_long_parts'
    done = subprocess.run(["bash", "-c", script, "bash", str(ROOT / "tools" / "long_test.sh")], capture_output=True, text=True,
                          check=True)
    return done.stdout.split()


def git(*words, **environment):
    """What git says, or None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, env={**os.environ, **environment})
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def here():
    commit = git("log", "-1", "--format=%h", "--", *ALL) or os.environ.get("FOURFOLD_COMMIT") or "unknown"
    return commit + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", *ALL) else "")


def hashed(listed):
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


def digest(part):
    """Of what the part reads, as it is committed; + where there is more or other than that, - where git does not say."""
    listed, changed = git("ls-files", "-s", "--", *reads(part)), git("status", "--porcelain", "--", *reads(part))
    if not listed or changed is None:
        return "-"
    return "+" if changed else hashed(listed)


def digest_at(commit, part):
    """The same of a commit; None where this history does not have it."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(pathlib.Path(folder) / "index")}
        if git("read-tree", commit, **index) is None:
            return None
        return hashed(git("ls-files", "-s", "--", *reads(part), **index))


def holds(part, row):
    """Whether what the part reads is what it was when it passed."""
    if row.tree.endswith("+") or row.reads == "+":
        return False
    if row.reads == "-":
        return row.tree == here() != "unknown"
    return row.reads == digest(part)


def machine():
    return f"{platform.machine()}/{os.cpu_count()}"


class Row(typing.NamedTuple):
    verdict: str
    date: str
    tree: str
    reads: str
    line: str


def read(file=RESULT):
    """{part: its Row}, in the order of the file."""
    if not file.exists():
        return {}
    rows = {}
    for line in file.read_text().splitlines():
        words = line.split()
        if words and words[0] in ("passed", "FAILED", "skipped"):
            verdict, date, tree, digest_then, _, _, _, part = words[:8]
            rows[part.rstrip(":")] = Row(verdict, date, tree, digest_then, line)
    return rows


def record(part, tree, status, seconds, says, note=""):
    verdict = {0: "passed", SKIPPED: "skipped"}.get(int(status), "FAILED")
    if here() != tree:
        verdict, note = "FAILED", f"the tree changed while it ran: {here()} at the end"
    note = "; ".join(words for words in (note, os.environ.get("FOURFOLD_LONG_NOTE")) if words)
    today, now = datetime.date.today().isoformat(), digest(part)
    line = (f"{verdict:7} {today} {tree:10} {now:12} {machine():10} {max(1, round(int(seconds) / 60)):4} min  {part}: {says}"
            + (f" ({note})" if note else ""))
    write({part: Row(verdict, today, tree, now, line)})
    print(line)


def write(new_rows):
    """Puts the rows of these parts in the place of what they had."""
    folder = os.open(RESULT.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # until this ends
    rows = read() | new_rows
    new = RESULT.with_suffix(".new")
    new.write_text(HEAD + "\n" + "".join(row.line + "\n" for row in rows.values()))
    new.replace(RESULT)
    os.close(folder)


def refusal(part, row, mine):
    """Why a row of a copy without git is not taken for the one that is here; empty where it is."""
    if mine is not None:
        stands = mine.date == row.date or (mine.verdict == "passed" and holds(part, mine))
        if row.date < mine.date or (row.verdict != "passed" and stands):
            return f"which is {mine.verdict} here, of {mine.date}; that one {row.verdict}, of {row.date}"
    here_now, then = digest(part), digest_at(row.tree, part)
    if here_now in ("+", "-"):
        return "which reads files that are not as they are committed here"
    if then is None:
        return f"whose commit {row.tree} this history does not have"
    return "" if then == here_now else f"whose sources are not those of {row.tree}"


def adopt(file):
    """Takes the rows of a copy without git. What such a copy had on top, nobody knows but who made it."""
    mine = read()
    for part, row in read(pathlib.Path(file)).items():
        if row.reads != "-":
            continue
        if why := refusal(part, row, mine.get(part)):
            print(f"left: {part}, {why}")
            continue
        now = digest(part)
        line = row.line.replace(f"{row.tree:10} {'-':12}", f"{row.tree:10} {now:12}", 1)
        write({part: row._replace(reads=now, line=line)})
        print(line)


def is_done(part, words=""):
    row = read().get(part)
    if row is None or row.verdict != "passed" or not holds(part, row):
        return False
    return re.search(re.escape(words) + r"(?![\w.])", row.line) is not None


def age_line(today):
    names = parts()
    rows = {part: row for part, row in read().items() if part in names}
    if not rows:
        return "long test: no committed result; ./dev test --long writes docs/long-test.txt"
    passed = sum(row.verdict == "passed" for row in rows.values())
    oldest = min(row.date for row in rows.values())
    days = (today - datetime.date.fromisoformat(oldest)).days
    older = sum(not holds(part, row) for part, row in rows.items())
    return (f"long test: {passed} of {len(names)} parts passed, {len(names) - len(rows)} never run, the oldest {days} days ago; "
            f"what {older} of them read has changed since (docs/long-test.txt)")


def main(words):
    if words == ["--age"]:
        print(age_line(datetime.date.today()))
    elif words == ["--here"]:
        print(here())
    elif words[:1] == ["--record"] and len(words) in (6, 7):
        record(*words[1:])
    elif words[:1] == ["--adopt"] and len(words) == 2:
        adopt(words[1])
    elif words[:1] == ["--done"] and len(words) in (2, 3):
        return 0 if is_done(*words[1:]) else 1
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
