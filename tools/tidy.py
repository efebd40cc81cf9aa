"""Checks what the compiler does not: who includes whom, facts defined twice, sizes, missing tests, names in the docs, words, versions of
packages.

    tidy.py ROOT [--strict]

The rules about rooms are read from the table in docs/architecture.md, so that the page people read is the rule that is
enforced. Exceptions are listed with their reason: tests/tidy/without_test.txt, tests/tidy/large.txt. Every finding is one
line: path:line: what is wrong and what to do. Long lines are counted, and are findings with --strict only: ./dev fmt
mends them. Plain Python 3.9, no packages.
"""
import pathlib
import re
import subprocess
import sys

CODE_SUFFIXES = {".h", ".cpp", ".c", ".cu", ".cuh", ".inl", ".in"}
TEXT_SUFFIXES = CODE_SUFFIXES | {".py", ".sh", ".md", ".txt", ".cmake", ".json", ".csv", ".yml", ""}
GENERATED = re.compile(r"(generated|written) by tools/", re.I)  # in the first lines of a file: sizes are not checked

FILE_LINES = 500
LINE_COLUMNS = 120
FUNCTION_LINES = 70
TREE_BYTES = 40 << 20
# Put together so that this file does not contain them.
FORBIDDEN = {"../" + "shared": "a sibling folder", "/wo" + "rk/": "a path of one machine"}


class Tree:
    """The files of the project: those git knows or would add, or all of them where there is no git."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.findings = []
        self.long_lines = []
        listed = None
        if (self.root / ".git").exists():
            git = ["git", "-c", f"safe.directory={self.root}", "-C", str(self.root)]
            run = subprocess.run([*git, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
            if run.returncode == 0:
                listed = run.stdout.splitlines()
        if listed is None:
            listed = [str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()]
            listed = [path for path in listed if not path.startswith("build")]
        self.paths = sorted(path for path in set(listed) if (self.root / path).is_file())
        self.texts = {}

    def find(self, path, line, message):
        self.findings.append(f"{path}:{line}: {message}")

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self.texts[path]

    def code(self, *folders):
        return [path for path in self.paths
                if path.split("/")[0] in folders and pathlib.PurePath(path).suffix in CODE_SUFFIXES]


# ---- rooms -----------------------------------------------------------------------------------------------

ARCHITECTURE = "docs/architecture.md"


def room_table(tree):
    """{room: rooms it may include}, from the table whose head begins with | room | may include |."""
    table = {}
    in_table = False
    for number, line in enumerate(tree.text(ARCHITECTURE).splitlines(), 1):
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]
        if cells[:2] == ["room", "may include"]:
            in_table = True
        elif in_table and not line.startswith("|"):
            break
        elif in_table and not set(cells[0]) <= set("-: "):
            if cells[0] in table:
                tree.find(ARCHITECTURE, number, f"room {cells[0]} stands twice in the table")
            table[cells[0]] = {name.strip() for name in cells[1].split(",")} - {"", "-", "std"}
    if not table:
        tree.find(ARCHITECTURE, 1, "no table with the head | room | may include |")
    return table


def rows_of(table, path):
    """The rows that apply to a path below src: its room and any sub-room it lies in, the innermost last."""
    return sorted((room for room in table if path.startswith(room + "/")), key=len)


def is_upward(table, rows, include):
    """Whether a folder with a line of its own inside a sub-room (backend/cuda/load) includes what it may not of that
    sub-room: the files above it, or a folder beside it that its line does not name."""
    if len(rows) < 3:
        return False
    targets = rows_of(table, include)
    return rows[-2] in targets and rows[-1] not in targets and not table[rows[-1]].intersection(targets)


def check_includes(tree, table):
    for path in tree.code("src"):
        inner = path[len("src/"):]
        rows = rows_of(table, inner)
        room = inner.split("/")[0]
        if room not in table:
            tree.find(path, 1, f"room {room} is not in the table of {ARCHITECTURE}; add what it may include")
            continue
        allowed = {room}.union(*(table[row] for row in rows))
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            if is_upward(table, rows, match.group(1)):
                named = sorted(name for name in table[rows[-1]] if name.startswith(rows[-2] + "/"))
                tree.find(path, number, f"{rows[-1]} may include {', '.join(named) or 'nothing'} of {rows[-2]}; not "
                                        f"{match.group(1)} ({ARCHITECTURE})")
                continue
            if target == "fourfold" or target in allowed:
                continue
            if "/" not in match.group(1):
                beside = str(pathlib.PurePath(path).parent / match.group(1))
                if beside in tree.paths:  # otherwise it is made by the build
                    tree.find(path, number, f'"{match.group(1)}": include from src/, as "room/file.h"')
            else:
                tree.find(path, number, f"{rows[-1]} may include {', '.join(sorted(allowed))}; not {target} "
                                        f"({ARCHITECTURE})")


def check_cycles(tree, table):
    def reaches(start, goal, seen):
        return any(room == goal or (room not in seen and reaches(room, goal, seen | {room}))
                   for room in table.get(start, ()))

    for room in table:
        if reaches(room, room, frozenset()):
            tree.find(ARCHITECTURE, 1, f"room {room} includes itself by way of others; rooms have no cycles")


def check_links(tree, table):
    """CMake links the rooms by the same table."""
    for path in tree.paths:
        if path != "CMakeLists.txt" and not re.fullmatch(r"cmake/[^/]*\.cmake", path):
            continue
        for match in re.finditer(r"^\s*fourfold_room\((\w+) LINK ([^)]*)\)", tree.text(path), re.M):
            line = tree.text(path).count("\n", 0, match.start()) + 1
            for linked in re.findall(r"fourfold_(\w+)", match.group(2)):
                if linked in table and linked not in table.get(match.group(1), set()):
                    tree.find(path, line, f"room {match.group(1)} links {linked}, which the table of "
                                          f"{ARCHITECTURE} does not allow")


# ---- facts: one definition each ------------------------------------------------------------------------------

# Enums of other facts: a program's inputs; how a checkpoint stores a tensor, and says it does; another library's operands.
OTHER_FORMATS = "InputFormat|MatrixFormat|StoredAs|QuantAlgorithm|KvCacheScheme|Operands"
# What it is, where it is defined, what a definition looks like. Anything below src that looks like one elsewhere is a
# second one; it refers to the first instead, or a static_assert compares them.
FACTS = [
    ("the 64-token grain", "src/base/token_grain.h",
     r"\bk(?:Page|Anchor|Delta|Grain)\w*\s*=\s*64\b|\bkTokenGrain\s*=(?!=)|\bpage_tokens\s*=\s*64\b"),
    ("a record's size", "src/plan/record_size.h",
     r"\bkRecord(?:Rows|Columns)\s*=(?!=)|\bnamespace fourfold::record \{(?:(?!\n\}).)*?\bk(?:Rows|Columns)\s*=\s*\d"),
    ("the weight formats", "src/base/weight_format.h",
     rf"\benum\s+(?:class\s+)?(?!(?:class|{OTHER_FORMATS})\b)\w+[^;{{]*\{{[^}}]*\bnvfp4\b"),
    ("the shapes of published models", "src/base/published_shapes.h",
     r"\{(?:\"[\w-]+\",\s*)?(?:2048,\s*512,\s*256,\s*8|3072,\s*1024,\s*256,\s*8|4096,\s*(?:1024|256),\s*512,\s*10)\}"
     r"|\.name = \"(?:35b|122b|397b)\""),
]


def check_facts(tree):
    for what, home, pattern in FACTS:
        if home not in tree.paths:
            continue
        if not re.search(pattern, tree.text(home), re.S):
            tree.find(home, 1, f"no definition of {what} is here any more; tell tools/tidy.py where it is")
        for path in tree.code("src", "include"):
            if path == home:
                continue
            for found in re.finditer(pattern, tree.text(path), re.S):
                tree.find(path, tree.text(path).count("\n", 0, found.end()) + 1,
                          f"a second definition of {what}; {home} has the one, refer to it")


# ---- exceptions: lines "path: reason" ------------------------------------------------------------------------

WITHOUT_TEST = "tests/tidy/without_test.txt"
LARGE = "tests/tidy/large.txt"


def exceptions(tree, list_path):
    """{path: its line in the list}; a path that ends in / stands for all below it, a * for any name."""
    lines = {}
    if list_path in tree.paths:
        for number, line in enumerate(tree.text(list_path).splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            path, _, reason = line.partition(":")
            lines[path] = number
            if not reason.strip():
                tree.find(list_path, number, "a line is path: reason")
            if not path.endswith("/") and not any(is_named(one, path) for one in tree.paths):
                tree.find(list_path, number, f"{path} does not exist; remove the line")
    return lines


def is_named(path, name):
    return path == name or "*" in name and re.fullmatch(re.escape(name).replace(r"\*", "[^/]*"), path) is not None


def is_below(path, lines):
    return any(name.endswith("/") and path.startswith(name) or is_named(path, name) for name in lines)


# ---- sizes -----------------------------------------------------------------------------------------------

CONTROL = re.compile(r"^\s*(if|for|while|switch|else|do|case|catch|try|return|namespace|struct|class|enum|union|extern)\b")


def long_functions(text):
    """(line, lines) of each function over the limit, in code as clang-format lays it out."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if not line.endswith("{") or ")" not in line or CONTROL.match(line) or "= [" in line or "([" in line:
            continue
        indent = line[:len(line) - len(line.lstrip())]
        if len(indent) > 2:  # continuation lines of a signature end in a deeper indent than the brace that closes it
            indent = next((before[:len(before) - len(before.lstrip())] for before in reversed(lines[:start])
                           if before.strip() and len(before) - len(before.lstrip()) <= 2), "")
        for end in range(start + 1, len(lines)):
            if lines[end].startswith(indent + "}"):
                if end - start + 1 > FUNCTION_LINES:
                    yield start + 1, end - start + 1
                break


def check_sizes(tree):
    reasons = exceptions(tree, LARGE)
    for path in tree.code("src", "tests", "include", "examples", "tools"):
        lines = tree.text(path).splitlines()
        if any(GENERATED.search(line) for line in lines[:3]):
            continue
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_COLUMNS:
                tree.long_lines.append(f"{path}:{number}: {len(line)} columns; a line has at most {LINE_COLUMNS}")
        too_large = []
        if len(lines) > FILE_LINES:
            too_large.append((1, f"{len(lines)} lines; a file has at most {FILE_LINES}. Split it by what it owns"))
        for number, length in long_functions(tree.text(path)):
            too_large.append((number, f"a function of {length} lines; at most {FUNCTION_LINES}"))
        if path not in reasons:
            for number, message in too_large:
                tree.find(path, number, message)
        elif not too_large:
            tree.find(LARGE, reasons[path], f"{path} is small enough now; remove the line")
    total = sum((tree.root / path).stat().st_size for path in tree.paths)
    if total >= TREE_BYTES:
        largest = max(tree.paths, key=lambda path: (tree.root / path).stat().st_size)
        tree.find(largest, 1, f"the tree has {total:,} bytes, the limit is {TREE_BYTES:,}; this is its largest file")


# ---- tests -----------------------------------------------------------------------------------------------

def check_tests(tree):
    reasons = exceptions(tree, WITHOUT_TEST)
    tests = {(path.split("/")[1], pathlib.PurePath(path).name) for path in tree.code("tests")}
    for path in tree.code("src"):
        if not path.endswith((".cpp", ".cu")):
            continue
        wanted = (path.split("/")[1], pathlib.PurePath(path).stem + "_test.cpp")
        if wanted in tests and path in reasons:
            tree.find(WITHOUT_TEST, reasons[path], f"{path} has a test now; remove the line")
        elif wanted not in tests and path not in reasons and not is_below(path, reasons):
            tree.find(path, 1, f"no tests/{wanted[0]}/{wanted[1]}; write it, or say in {WITHOUT_TEST} what tests it")


# ---- rows of kernels -------------------------------------------------------------------------------------

KERNEL_LISTS = "cmake/kernels.cmake"


def check_rows(tree):
    """A kernel's rows are listed in its rows.h alone, and every list is compiled once (docs/kernels.md, Adding a row)."""
    rooms = {match.group(1) for match in (re.fullmatch(r"src/kernels/(\w+)/rows\.h", path) for path in tree.paths) if match}
    for path in tree.code("src", "tests", "tools"):
        own = re.match(r"(?:src|tests)/kernels/(\w+)/", path)
        own = own.group(1) if own else ""
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            if "RowList<" in line and path not in (f"src/kernels/{own}/rows.h", "src/kernels/moe/row_list.h"):
                tree.find(path, number, "a second list of rows; list them in the kernel's rows.h")
            match = re.search(r'#include "kernels/(\w+)/rows\.h"', line)
            if match and match.group(1) != own and not path.startswith("tests/kernels/"):
                tree.find(path, number, f"reads the rows of {match.group(1)} alone; visit kernels::AllRows of all_rows.h")
    if not rooms and KERNEL_LISTS not in tree.paths:
        return
    text = tree.text(KERNEL_LISTS) if KERNEL_LISTS in tree.paths else ""
    lists = re.search(r"set\(kernel_lists([^)]*)\)", text)
    listed = re.findall(r"[a-z_]+", lists.group(1)) if lists else []
    for room in sorted(rooms | set(listed)):
        if listed.count(room) != 1 or room not in rooms:
            tree.find(KERNEL_LISTS, 1, f"kernel_lists names {room} {listed.count(room)} times; every src/kernels/*/rows.h once")


# ---- docs and words --------------------------------------------------------------------------------------

def check_docs(tree):
    """In docs/architecture.md every `file` and every `function()` exists."""
    words = set()
    for path in tree.code("src", "include"):
        words.update(re.findall(r"\w+", tree.text(path)))
    for number, line in enumerate(tree.text(ARCHITECTURE).splitlines(), 1):
        for name in re.findall(r"`(?:\w+::)*(\w+)\(\)`", line):
            if name not in words:
                tree.find(ARCHITECTURE, number, f"{name}() is nowhere in src")
        for name in re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", line):
            if not (tree.root / name).exists() and not (tree.root / "src" / name).exists():
                tree.find(ARCHITECTURE, number, f"{name} does not exist")


def check_words(tree):
    for path in tree.paths:
        if pathlib.PurePath(path).suffix not in TEXT_SUFFIXES:
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for word, meaning in FORBIDDEN.items():
                if word in line:
                    tree.find(path, number, f"'{word}' is {meaning}; the project speaks of itself alone")


def check_packages(tree):
    """Packages from PyPI have a version: what the tests install today they install tomorrow."""
    install = re.compile(r"""\bpip3?["']?,?\s+["']?install\b(.*)""")
    for path in tree.paths:
        name = pathlib.PurePath(path)
        if path.split("/")[0] not in ("tests", "tools", "training", "python", "dev"):
            continue
        if name.suffix not in (".sh", ".py", ".txt", ".cmake", ""):
            continue
        # An override says what is not installed.
        listed = "requirements" in f"{name.parent.name} {name.name}" and name.suffix == ".txt" and ".override" not in name.name
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            found = install.search(line)
            if not found and not listed:
                continue
            text = found.group(1) if found else re.split("[#;]", line)[0]
            # In a list of arguments only what is quoted is a word.
            words = re.findall(r"""["']([^"']+)["']""", text[1:]) if text[:1] in ("'", '"') else re.split(r"[\s,;&|)\]]+", text)
            previous = ""
            for word in (word.strip("'\"`") for word in words):
                package = re.fullmatch(r"[A-Za-z][\w.-]*(\[[\w,]+\])?([<>=!~].*)?", word)
                if package and previous not in ("-r", "--requirement", "-c") and "==" not in word:
                    tree.find(path, number, f"'{word}' has no version; write {re.split('[<>=!~]', word)[0]}==...")
                previous = word


def check_hints(tree):
    """A hint is for whoever runs the program, who knows no names of the source."""
    for path in tree.code("src"):
        text = tree.text(path)
        for call in re.finditer(r'fail_with_hint\(\s*Code::\w+,\s*(?:[\w:]+\(\s*)?((?:"(?:[^"\\]|\\.)*"\s*)+)', text):
            if "::" in call.group(1):
                tree.find(path, text.count("\n", 0, call.start()) + 1, "a hint names something of the source; say what to do")


def main(arguments):
    strict = "--strict" in arguments
    arguments = [argument for argument in arguments if argument != "--strict"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 64
    tree = Tree(arguments[0])
    if ARCHITECTURE not in tree.paths:
        tree.find(ARCHITECTURE, 1, "is missing; it holds the table of rooms")
    else:
        table = room_table(tree)
        check_includes(tree, table)
        check_cycles(tree, table)
        check_links(tree, table)
        check_docs(tree)
    check_facts(tree)
    check_sizes(tree)
    check_tests(tree)
    check_rows(tree)
    check_words(tree)
    check_packages(tree)
    check_hints(tree)
    if strict:
        tree.findings += tree.long_lines
    print("".join(line + "\n" for line in tree.findings), end="")
    print(f"tidy: {len(tree.paths)} files, {len(tree.findings)} findings, {len(tree.long_lines)} lines over "
          f"{LINE_COLUMNS} columns")
    return 1 if tree.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
