"""What docs/serving.md says of options is true of the program.

    serving_docs_test.py ROOT PROGRAM

Every option in the last column of its tables, and every one of the `fourfold serve` lines, is one that the program has.
"""
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def claimed(text):
    """{option: line}, of lines that speak of our program."""
    found = {}
    option_table = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            option_table = cells[:1] == ["option"] or (option_table and cells[0].startswith(("`--", "---")))
            ours = " ".join(cells) if option_table else cells[-1]
        else:
            option_table = False
            ours = line if "fourfold serve" in line else ""
        for option in OPTION.findall(ours):
            found.setdefault(option, number)
    return found


def main(root, program):
    page = pathlib.Path(root) / "docs/serving.md"
    known = set()
    for words in (["serve", "--help"], ["--help"]):  # its own, and those of every command
        known |= set(OPTION.findall(subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout))
    options = claimed(page.read_text())
    wrong = {option: line for option, line in options.items() if option not in known}
    for option, line in wrong.items():
        print(f"docs/serving.md:{line}: fourfold serve has no {option}")
    print(f"docs: {len(options)} options named, {len(wrong)} of them unknown")
    return 1 if wrong or len(options) < 20 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
