"""The committed results of ./dev test --long, docs/long-test.txt: a line for each part, written when the part ended.

long_result.py --age                                          one line for ./dev test
long_result.py --here                                         the tree as it is now
long_result.py --record PART HERE STATUS SECONDS SAYS [NOTE]  HERE: the tree before the part began; STATUS: what the
                                                              command ended with; 77 is skipped
long_result.py --done PART [WORDS]                            ends with 0 where PART has passed with what it reads, and its
                                                              line has these words
long_result.py --adopt FILE                                   the lines that another machine wrote in a copy without git: their
                                                              digests are this tree's, where what they read is what it
                                                              was at their commit

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
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULT = pathlib.Path(os.environ.get("FOURFOLD_LONG_RESULT", ROOT / "docs" / "long-test.txt"))
HEAD = """Results of ./dev test --long, which goes on with the parts that have not passed with what they read. A line is
written when its part ends: verdict, date, commit (+: with changes on top), digest of what it reads, machine, time, part.
"""
SKIPPED = 77

# What a part's verdict depends on, where that is not everything but docs: paths as git has them. Whole folders, for a file
# that is forgotten here makes an old verdict stand; every part reads its own command.
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
# A sanitizer looks at code, not at what docs and results say.
READS |= dict.fromkeys((f"{tool}-{group}" for tool in ("asan", "tsan") for group in ("serving", "base", "backend", "sim", "cli")),
                       (*SOURCES, "tuned", "tools"))
READS |= dict.fromkeys(("families", "shortened", "scenarios", "long-prompt", "storyteller-fp4", "soak"), SOURCES)
ALL = (".", ":!docs")


def git(*words):
    """What git says, or None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def here():
    commit = git("log", "-1", "--format=%h", "--", *ALL) or os.environ.get("FOURFOLD_COMMIT") or "unknown"
    return commit + ("+" if git("status", "--porcelain", "--untracked-files=no", "--", *ALL) else "")


def digest(part):
    """Of what the part reads, as it is committed; + where there is more or other than that, - where git does not say."""
    paths = READS.get(part, ALL)
    listed, changed = git("ls-files", "-s", "--", *paths), git("status", "--porcelain", "--", *paths)
    if not listed or changed is None:
        return "-"
    return "+" if changed else hashlib.sha256(listed.encode()).hexdigest()[:12]


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
            verdict, date, tree, reads, _, _, _, part = words[:8]
            rows[part.rstrip(":")] = Row(verdict, date, tree, reads, line)
    return rows


def record(part, tree, status, seconds, says, note=""):
    verdict = {0: "passed", SKIPPED: "skipped"}.get(int(status), "FAILED")
    if here() != tree:
        verdict, note = "FAILED", f"the tree changed while it ran: {here()} at the end"
    note = "; ".join(words for words in (note, os.environ.get("FOURFOLD_LONG_NOTE")) if words)
    today, reads = datetime.date.today().isoformat(), digest(part)
    line = (f"{verdict:7} {today} {tree:10} {reads:12} {machine():10} {max(1, round(int(seconds) / 60)):4} min  {part}: {says}"
            + (f" ({note})" if note else ""))
    write({part: Row(verdict, today, tree, reads, line)})
    print(line)


def write(parts):
    """Puts the rows of these parts in the place of what they had."""
    folder = os.open(RESULT.parent, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)  # until this ends
    rows = read() | parts
    new = RESULT.with_suffix(".new")
    new.write_text(HEAD + "\n" + "".join(row.line + "\n" for row in rows.values()))
    new.replace(RESULT)
    os.close(folder)


def adopt(file):
    """Takes the rows of a copy without git. What such a copy had on top, nobody knows but who made it."""
    mine = read()
    for part, row in read(pathlib.Path(file)).items():
        if row.reads != "-" or (part in mine and row.line == mine[part].line):
            continue
        if git("diff", "--quiet", row.tree, "HEAD", "--", *READS.get(part, ALL)) is None:
            print(f"left: {part}, whose sources are not those of {row.tree}")
            continue
        reads = digest(part)
        line = row.line.replace(f"{row.tree:10} {'-':12}", f"{row.tree:10} {reads:12}", 1)
        write({part: row._replace(reads=reads, line=line)})
        print(line)


def is_done(part, words=""):
    row = read().get(part)
    if row is None or row.verdict != "passed" or not holds(part, row):
        return False
    return re.search(re.escape(words) + r"(?![\w.])", row.line) is not None


def age_line(today):
    rows = read()
    if not rows:
        return "long test: no committed result; ./dev test --long writes docs/long-test.txt"
    passed = sum(row.verdict == "passed" for row in rows.values())
    oldest = min(row.date for row in rows.values())
    days = (today - datetime.date.fromisoformat(oldest)).days
    older = sum(not holds(part, row) for part, row in rows.items())
    return (f"long test: {passed} of {len(rows)} parts passed, the oldest {days} days ago; "
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
