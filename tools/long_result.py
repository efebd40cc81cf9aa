"""Prints the age of the committed result of ./dev test --long (docs/long-test.txt)."""
import datetime
import pathlib
import sys

RESULT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "long-test.txt"


def age_line(today: datetime.date) -> str:
    if not RESULT.exists():
        return "long test: no committed result; ./dev test --long writes docs/long-test.txt"
    facts = dict(line.split(": ", 1) for line in RESULT.read_text().splitlines() if ": " in line)
    days = (today - datetime.date.fromisoformat(facts["date"])).days
    return f"long test: {facts['verdict']}, {days} days old (docs/long-test.txt, commit {facts['commit']})"


if __name__ == "__main__":
    if sys.argv[1:] != ["--age"]:
        sys.exit("usage: long_result.py --age")
    print(age_line(datetime.date.today()))
