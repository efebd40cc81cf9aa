"""tools/compare_families.py with a stand-in for the program: what its cells say, what ends with 1, and that columns of other
machines stay."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("fourfold 9 (abc)")
elif words[0] == "make-model":
    pathlib.Path(words[1]).mkdir()
    (pathlib.Path(words[1]) / "made").write_text(" ".join(words[2:]))
else:
    model, backend, ranks = pathlib.Path(words[1]), words[4], words[6]
    made = (model / "made").read_text()
    assert words[3::2] == ["--backend", "--tp", "--json"], words
    if backend == "cuda":
        sys.stderr.write("fourfold: notice: untuned\\nfourfold: rows of 160 columns\\n  Do otherwise.\\n")
        sys.exit(2)
    beyond = backend == "sim" and ranks == "2"
    number = {{"largest": 1.0, "largest_bound": 4.0, "typical": 0.5 if not beyond else 3, "typical_bound": 1.0}}
    turned = [{{"router": "layers.0.mlp.router", "position": 41, "leaves": "4", "comes": "6"}}] if "--seed 2" in made else []
    run = {{"activations": "w4a16", "fine": not beyond, "numbers": [number], "routers_turned": turned,
           "tokens": [{{"undecided": 1 if "mxfp4" in made else 0}}]}}
    print(json.dumps({{"runs": [run], "fine": not beyond}}))
    sys.exit(1 if beyond else 0)
"""


class CompareFamilies(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name) / "out.md"
        self.program = pathlib.Path(folder.name) / "program"
        self.program.write_text(PROGRAM.format(python=sys.executable))
        self.program.chmod(0o755)

    def run_tool(self, backends, *models, only="tiny-glm,tiny-glm-seed2,tiny-gpt-oss-mxfp4"):
        return subprocess.run([sys.executable, ROOT / "tools/compare_families.py", self.program, self.out, "--backends", backends,
                               "--only", only, *models], capture_output=True, text=True)

    def row(self, name):
        return next(line for line in self.out.read_text().splitlines() if line.startswith(f"| {name} |"))

    def test_cells(self):
        done = self.run_tool("sim,cuda")
        self.assertEqual(done.returncode, 0, done.stderr)
        refused = "refused: rows of 160 columns |"
        self.assertEqual(self.row("tiny-glm"), "| tiny-glm | w4a16 0.50 | " + refused)
        self.assertEqual(self.row("tiny-glm-seed2"), "| tiny-glm-seed2 | w4a16 0.50, layers.0 at 41: 4 or 6 | " + refused)
        self.assertEqual(self.row("tiny-gpt-oss-mxfp4"), "| tiny-gpt-oss-mxfp4 | w4a16 0.50, 1 token | " + refused)

    def test_models_with_their_own_reference(self):
        (self.out.parent / "made").write_text("mxfp4")
        done = self.run_tool("cpu", f"own={self.out.parent}", only="tiny-glm")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.row("own"), "| own | w4a16 0.50, 1 token |")

    def test_beyond(self):
        done = self.run_tool("sim:2", only="tiny-glm")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("**w4a16 3.00 BEYOND**", self.row("tiny-glm"))

    def test_other_columns_stay(self):
        self.run_tool("cuda")
        before = self.out.read_text()
        self.run_tool("cpu", only="tiny-glm")
        self.assertEqual(self.row("tiny-glm"), "| tiny-glm | refused: rows of 160 columns | w4a16 0.50 |")
        self.assertEqual(self.row("tiny-glm-seed2"), "| tiny-glm-seed2 | refused: rows of 160 columns | - |")
        self.assertIn(next(line for line in before.splitlines() if line.startswith("* cuda: ")), self.out.read_text())
        self.assertIn("* cpu: fourfold 9 (abc), ", self.out.read_text())


if __name__ == "__main__":
    unittest.main()
