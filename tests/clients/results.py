"""The committed results of the tests with real clients: docs/agents-test.txt, a paragraph for each suite, and
the tables of docs/agents.md and docs/serving.md that are made from it.

    results.py --check      the tables are those of the results, and the results those of the pinned versions

run.py --write writes both.
"""
import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FILE = ROOT / "docs/agents-test.txt"
OFFICIAL = "official"  # has a table of its own, client x feature, in docs/serving.md
BEGIN, END = "<!-- results: written by tests/clients/run.py -->\n", "<!-- /results -->\n"
HEAD = ("Results of tests/clients/run.py --write, which ./dev test --long runs for all suites: a paragraph for each\n"
        "suite of clients, written anew when the suite is run.\n")


def pins(suite):
    """The packages of a suite, as its requirements pin them: "name version, name version"."""
    path = HERE / "requirements" / f"{suite}.txt"
    text = path.read_text() if path.exists() else ""
    found = re.findall(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?==([^ ;\n]+)", text, re.MULTILINE)
    return ", ".join(f"{name} {version}" for name, version in found) or "none"


def version(program):
    """Of the program that was tested, with its commit."""
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]


def read():
    """{suite: its paragraph's lines}"""
    paragraphs = FILE.read_text().split("\n\n") if FILE.exists() else []
    found = {}
    for paragraph in paragraphs:
        lines = paragraph.strip("\n").split("\n")
        if lines[0].startswith("suite: "):
            found[lines[0].removeprefix("suite: ")] = lines
    return found


def facts(lines):
    return dict(line.split(": ", 1) for line in lines if not line.startswith("  "))


def row_line(row):
    verdict = "passed" if row["result"] == "yes" else "FAILED"
    more = row["more"] if row["result"] == "yes" else row["result"].replace("\n", " ")
    return f"  {verdict}  {row['row']} ({row['seconds']} s{'; ' + more if more else ''})"


def rows(lines):
    """(verdict, name) of each row."""
    for line in lines:
        if line.startswith("  "):
            verdict, rest = line.split(maxsplit=1)
            yield verdict, re.match(r"(.*?) \([0-9.]+ s[;)]", rest)[1]


def packages_of(name, packages):
    """Those a row's name speaks of; all of them where it names none."""
    named = [pin for pin in packages.split(", ")
             if re.search(rf"(?<![\w-]){re.escape(pin.split()[0])}(?![\w-])", name, re.IGNORECASE)]
    return ", ".join(named) or packages


def table(found):
    lines = ["| client and what it did | packages | date | result |", "|---|---|---|---|"]
    for suite in sorted(set(found) - {OFFICIAL}):
        about = facts(found[suite])
        lines += [f"| {name} | {packages_of(name, about['packages'])} | {about['date']} | {verdict} |"
                  for verdict, name in rows(found[suite])]
    return "\n".join(lines) + "\n"


def official_table(found):
    """Rows are named "client: feature"; "-" where a client has no such thing."""
    lines = found.get(OFFICIAL, [])
    versions = dict(word.split() for word in facts(lines)["packages"].split(", ")) if lines else {}
    done = {tuple(name.split(": ", 1)): "yes" if verdict == "passed" else "NO" for verdict, name in rows(lines)}
    clients = list(dict.fromkeys(client for client, _ in done))
    heads = [f"{client} {versions.get(client, '')}".strip() for client in clients]
    text = ["| feature | " + " | ".join(heads) + " |", "|---" * (len(clients) + 1) + "|"]
    for feature in dict.fromkeys(feature for _, feature in done):
        text.append(f"| {feature} | " + " | ".join(done.get((client, feature), "-") for client in clients) + " |")
    return "\n".join(text) + "\n"


PAGES = {ROOT / "docs/agents.md": table, ROOT / "docs/serving.md": official_table}


def page_with(page, content):
    head, begin, rest = page.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"results: {page} has no place for the table: {BEGIN.strip()} and {END.strip()}")
    return head + BEGIN + content + END + tail


def write(suite, made, program):
    found = read()
    found[suite] = [f"suite: {suite}", f"date: {datetime.date.today()}", f"program: {version(program)}",
                    f"machine: {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[2]:.1f}, "
                    f"Python {platform.python_version()}",
                    f"packages: {pins(suite)}", *map(row_line, made)]
    FILE.write_text(HEAD + "".join("\n" + "\n".join(found[name]) + "\n" for name in sorted(found)))
    for page, content in PAGES.items():
        page.write_text(page_with(page, content(found)))


def check():
    found = read()
    wrong = []
    for path in sorted((HERE / "requirements").glob("*.txt")):
        suite = path.stem
        # Overrides, and packages of tests elsewhere that take only the installer from here.
        if not (HERE / f"{suite}.py").exists():
            continue
        if suite not in found:
            wrong.append(f"{FILE.name} has no results of {suite}")
        elif (tested := facts(found[suite])["packages"]) != pins(suite):
            wrong.append(f"{FILE.name} has results of {suite} with {tested}, pinned are {pins(suite)}")
    for page, content in PAGES.items():
        if page_with(page, content(found)) != page.read_text():
            wrong.append(f"the table of {page.name} is not the one of {FILE.name}")
    for line in wrong:
        print(f"results: {line}; tests/clients/run.py --write SUITE mends it")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:] != ["--check"]:
        sys.exit("usage: results.py --check")
    sys.exit(check())
