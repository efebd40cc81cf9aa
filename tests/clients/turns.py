"""What the tests with coding agents share: three turns of a conversation, each with a tool call that makes a
line in a file and with words. Beside the outcome: what came of the prefix cache, as an agent's prompt has ten
thousand tokens and more that must not be read again.
"""
import pathlib
import subprocess

from served import check

SAYS = "The line stands in the file now."
COMMAND = "echo made by a tool call >> made.txt"


def script(tool, arguments):
    return {"with_tools": [{"calls": [{"name": tool, "arguments": arguments}]}, {"text": SAYS}],
            "without_tools": [{"text": "A line for a file."}]}


def run(command, folder, environment):
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600)
    check(done.returncode == 0, f"{pathlib.Path(command[0]).name} ended with {done.returncode}: "
                                f"{done.stdout[-1500:]} {done.stderr[-1500:]}")
    return done.stdout


class Turns:
    """Three turns: that the tool did its work, and how many tokens of each turn's prompts were read anew."""

    def __init__(self, served):
        self.served = served
        self.folder = served.work / "project"
        self.folder.mkdir()
        self.seen = self.count()
        self.fresh, self.asked = [], []

    def count(self):
        return tuple(self.served.metric(f"vllm:prefix_cache_{name}_total") for name in ("queries", "hits"))

    def done(self, text):
        turn = len(self.fresh) + 1
        check(text == SAYS, f"turn {turn} ended with {text!r}")
        made = (self.folder / "made.txt").read_text() if (self.folder / "made.txt").exists() else ""
        check(made == "made by a tool call\n" * turn, f"in turn {turn} made.txt is {made!r}")
        queries, hits = self.count()
        asked, cached = queries - self.seen[0], hits - self.seen[1]
        self.seen = (queries, hits)
        self.asked.append(int(asked))
        self.fresh.append(int(asked - cached))

    def report(self):
        check(len(self.fresh) == 3, "three turns")
        # The first turn reads the prompt once; later ones what is new, and a page that was begun.
        for asked, fresh in list(zip(self.asked, self.fresh))[1:]:
            check(fresh < 0.15 * asked, f"of {asked} prompt tokens {fresh} were read anew: prefixes were not found")
        return "prompt tokens of the turns " + ", ".join(
            f"{asked:,} ({fresh:,} read)" for asked, fresh in zip(self.asked, self.fresh))
