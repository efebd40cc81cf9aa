"""The generated table of README.md and the runner of marked shell blocks, on small trees; both must be able to fail."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
CSV = """# machine: NVIDIA H200
# driver: 580.1
# commit: abc1234
shape,routing,tokens,role,part,rows,microseconds,spread,gbps,share,tflops,experts
35b,uniform,1,generated,layer,moe_few 32x8x512 w4a16 nvfp4,12.5,0.01,1234.5,0.271,3.2,8
35b,uniform,1,generated,gate_up,moe_few 32x8x512 w4a16 nvfp4,8.0,0.01,1300,0.28,3.2,8
35b,uniform,8192,prompt,layer,moe_gemm 256x160x64 w4a16 wgmma nvfp4,1500.25,0.02,900,0.2,412.4,256
35b,zipf,64,generated,layer,moe_stream 128x8x256 w4a16 nvfp4,77.7,0.02,900,0.2,412.4,256
"""


def run(tool, *arguments):
    done = subprocess.run([sys.executable, str(TOOLS / tool), *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


class Pages(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        (self.root / "docs").mkdir()
        (self.root / "bench" / "results").mkdir(parents=True)
        self.readme = self.root / "README.md"
        self.readme.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")

    def test_the_table_is_written_from_the_results(self):
        (self.root / "bench" / "results" / "moe-h200.csv").write_text(CSV)
        self.assertEqual(run("readme_table.py", self.root, "--check")[0], 1)
        self.assertEqual(run("readme_table.py", self.root)[0], 0)
        text = self.readme.read_text()
        self.assertIn("**NVIDIA H200** (driver 580.1, commit abc1234; `bench/results/moe-h200.csv`)", text)
        self.assertIn("| 35b | 1 | 12.5 | 1,234 | 27 % | 3 |", text)
        self.assertIn("| 35b | 8,192 | 1,500.2 | 900 | 20 % | 412 |", text)
        self.assertNotIn("8.0", text)  # parts and other routings stay in the file
        self.assertNotIn("77.7", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertEqual(run("readme_table.py", self.root, "--check")[0], 0)

    def test_no_result_is_said(self):
        self.assertEqual(run("readme_table.py", self.root)[0], 0)
        self.assertIn("No run of `./dev gpu` is committed yet", self.readme.read_text())

    def test_lost_markers(self):
        self.readme.write_text("nothing\n")
        self.assertEqual(run("readme_table.py", self.root)[0], 1)

    def test_marked_blocks_run_and_others_do_not(self):
        self.readme.write_text("<!-- run -->\n```sh\necho fine >file\n```\n```sh\nexit 7\n```\n")
        self.assertEqual(run("readme_blocks.py", self.root, self.root), (0, "docs: 1 marked blocks run, 0 failed\n"))

    def test_a_failing_block_is_named(self):
        self.readme.write_text("text\n<!-- run -->\n```sh\nfalse | cat\n```\n")
        status, output = run("readme_blocks.py", self.root, self.root)
        self.assertEqual(status, 1)
        self.assertIn("README.md:4: ended with 1", output)

    def test_pages_without_a_marked_block_fail(self):
        self.assertEqual(run("readme_blocks.py", self.root, self.root)[0], 1)


if __name__ == "__main__":
    unittest.main()
