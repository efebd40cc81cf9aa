"""aider, which needs no tools: the model writes whole files into its answers, and aider puts them in place.
"""
import pathlib
import subprocess
import sys

from served import Served, check, clean_environment

OWN_SERVERS = True
FILES = ["first line\n", "first line\nsecond line\n", "first line\nsecond line\nthe third and last\n"]
SCRIPT = {"without_tools": [{"text": f"{words}\n\nnotes.txt\n```\n{content}```"} for words, content in
                            zip(("So it begins:", "Here is one more:", "And that makes three:"), FILES)]}


def aider(program):
    """aider: three turns of one conversation, each an edit of a file"""
    with Served(program, SCRIPT) as served:
        folder, home = served.work / "project", served.work / "home"
        folder.mkdir()
        home.mkdir()
        for turn, content in enumerate(FILES):
            done = subprocess.run(
                [pathlib.Path(sys.executable).parent / "aider", "--model", "openai/scripted", "--message",
                 "Add a line to the notes.", "--no-git", "--yes-always", "--analytics-disable", "--no-check-update",
                 "--no-show-model-warnings", "--no-detect-urls", "--restore-chat-history", "notes.txt"],
                cwd=folder, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
                env=clean_environment(home, OPENAI_API_BASE=served.url + "/v1", OPENAI_API_KEY="unused"))
            check(done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:])
            check((folder / "notes.txt").read_text() == content, f"turn {turn}: {(folder / 'notes.txt').read_text()!r}; "
                                                                 f"{done.stdout[-1500:]}")


ROWS = [aider]
