"""tools/by_turns.py with stand-ins for the programs: what its lines say, in what order it runs them, how it fails."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A build whose speed is its name's, and another one each turn; it notes that it ran.
PROGRAM = """#!{python}
import pathlib, sys
words = sys.argv[1:]
assert words[:4] == ["bench", "model", "--backend", "cuda"], words
if "--users" not in words:
    sys.exit("fourfold: no users")
log = pathlib.Path(__file__).parent / "log"
turn = log.read_text().count("{name}") if log.exists() else 0
with log.open("a") as file:
    file.write("{name}")
lines = ["# a comment", "what,users,context,tokens_per_s,ms", f"decode,1,0,{{{speed} + turn}},1"]
if "{name}" == "o":
    lines.append("decode,4,0,7,1")
pathlib.Path(words[words.index("--csv") + 1]).write_text("\\n".join(lines))
"""


class ByTurns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, speed in [("o", 100), ("n", 120)]:
            program = self.folder / name
            program.write_text(PROGRAM.format(python=sys.executable, name=name, speed=speed))
            program.chmod(0o755)

    def run_tool(self, *words):
        return subprocess.run([sys.executable, ROOT / "tools/by_turns.py", self.folder / "o", self.folder / "n", *words],
                              capture_output=True, text=True)

    def test_by_turns_medians_and_gain(self):
        done = self.run_tool("--turns", "3", "--", "--shape 35b --users 1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "log").read_text(), "ononon")
        self.assertIn("decode 1 0                    101.0      121.0   +19.8%   own turns 2.0%, 1.7% apart", done.stdout)
        self.assertIn("decode 4 0                      7.0   only the old build has it", done.stdout)

    def test_a_build_that_fails_is_said(self):
        done = self.run_tool("--", "--shape 35b")
        self.assertEqual(done.returncode, 1)
        self.assertIn("bench model --backend cuda --shape 35b: exit 1: fourfold: no users", done.stderr)
        self.assertEqual(self.run_tool("--turns", "0", "--", "--users 1").returncode, 2)


if __name__ == "__main__":
    unittest.main()
