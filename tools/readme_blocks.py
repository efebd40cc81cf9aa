"""Runs the shell blocks of README.md and docs/*.md that follow a line <!-- run -->; a block that fails fails the test.

    readme_blocks.py ROOT FOLDER

Blocks say build/fourfold; FOLDER is where the program of this build is. They run in an empty temporary folder, so that
they can write files, with `build` a link to FOLDER.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^<!-- run -->\n+```(?:sh|bash|shell)\n(.*?)^```", re.M | re.S)

SHOWN_LINES = 30  # of what a failing block said


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 64
    root, folder = (pathlib.Path(argument).resolve() for argument in arguments)
    failures = count = 0
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = page.read_text()
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            count += 1
            with tempfile.TemporaryDirectory() as place:
                os.symlink(folder, pathlib.Path(place) / "build")
                run = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", match.group(1)], cwd=place,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if run.returncode:
                failures += 1
                print(f"{page.relative_to(root)}:{line}: ended with {run.returncode}\n{match.group(1)}"
                      + "\n".join(run.stdout.splitlines()[-SHOWN_LINES:]))
    print(f"docs: {count} marked blocks run, {failures} failed")
    return 1 if failures or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
