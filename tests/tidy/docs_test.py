"""The generated tables and the runner of marked shell blocks, on small trees; both must be able to fail."""
import json
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
MODELS = """# Qwen3.5-35B-A3B: 40 of 40 layers
# commit: abc1234
what,users,context,tokens_per_s,ms,floor_share,experts
decode,1,0,516.99,1.93427,0.519767,8
decode,64,0,8182.65,7.82142,0.676224,217.8
prompt,1,2048,53275.3,38.4418,0,0
"""
FAMILY = """# GLM-4.5-Air: 46 of 46 layers
# commit: abc1234
# left out, for want of memory: 64 users with 8,192 tokens of context (160 GB are needed)
what,users,context,tokens_per_s,ms,floor_share,experts
decode,1,0,180.4,5.541,0.672,8
decode,16,8192,1159.7,13.797,0.801,82.3
prompt,1,2048,20000,102.4,0,0
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
        self.readme.write_text("before\n<!-- models:begin -->\nold\n<!-- models:end -->\nafter\n")
        self.page = self.root / "docs" / "performance.md"
        self.page.write_text("before\n<!-- qwen:begin -->\nold\n<!-- qwen:end -->\n<!-- families:begin -->\nold\n<!-- families:end -->\n"
                             "<!-- layers:begin -->\nold\n<!-- layers:end -->\nafter\n")

    def test_the_table_is_written_from_the_results(self):
        (self.root / "bench" / "results" / "moe-h200.csv").write_text(CSV)
        self.assertEqual(run("result_tables.py", self.root, "--check")[0], 1)
        self.assertEqual(run("result_tables.py", self.root)[0], 0)
        text = self.page.read_text()
        self.assertIn("**NVIDIA H200** (driver 580.1, commit abc1234; `bench/results/moe-h200.csv`)", text)
        self.assertIn("| 35b | 1 | 12.5 | 1,234 | 27 % | 3 |", text)
        self.assertIn("| 35b | 8,192 | 1,500.2 | 900 | 20 % | 412 |", text)
        self.assertNotIn("8.0", text)  # parts and other routings stay in the file
        self.assertNotIn("77.7", text)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        self.assertEqual(run("result_tables.py", self.root, "--check")[0], 0)

    def test_the_readme_shows_chosen_rows_of_whole_models(self):
        results = self.root / "bench" / "results"
        file = results / "model-h200-35b-bf16.csv"
        file.write_text(MODELS)
        status, output = run("result_tables.py", self.root)
        self.assertEqual(status, 1)
        self.assertIn("model-h200-35b-bf16-context.csv is shown in README.md and is not there", output)
        (results / "model-h200-35b-bf16-context.csv").write_text(MODELS.replace("decode,1,0", "decode,1,32768"))
        for name in ("122b", "397b-tp4"):
            (results / f"model-h200-{name}-bf16.csv").write_text(MODELS)
        self.assertEqual(run("result_tables.py", self.root)[0], 0)
        text = self.readme.read_text()
        self.assertIn("| Qwen3.5-35B-A3B, one user | 517 | 1.93 | 52 % |", text)
        self.assertIn("a prompt of 2,048 tokens | 53,275 | 38.44 |  |", text)
        self.assertIn("Commit abc1234;", text)
        self.assertIn("| 35B, dense bf16 | 64 | 0 | 8,183 | 7.82 | 68 % | 218 |", self.page.read_text())
        self.assertEqual(run("result_tables.py", self.root, "--check")[0], 0)
        file.write_text(MODELS.replace("516.99", "517.99"))
        self.assertEqual(run("result_tables.py", self.root, "--check")[0], 1)
        file.write_text(MODELS.replace("decode,64", "decode,65"))
        status, output = run("result_tables.py", self.root)
        self.assertEqual(status, 1)
        self.assertIn("model-h200-35b-bf16.csv has 0 rows decode,64,0", output)

    def test_families_are_shown_where_they_are(self):
        results = self.root / "bench" / "results"
        for name in ("35b-bf16", "122b-bf16", "397b-tp4-bf16"):
            (results / f"model-h200-{name}.csv").write_text(MODELS)
        (results / "model-h200-35b-bf16-context.csv").write_text(MODELS.replace("decode,1,0", "decode,1,32768"))
        self.assertEqual(run("result_tables.py", self.root)[0], 0)
        self.assertNotIn("GLM", self.readme.read_text() + self.page.read_text())
        (results / "model-h200-glm-4.5-air-bf16.csv").write_text(FAMILY)
        self.assertEqual(run("result_tables.py", self.root, "--check")[0], 1)
        self.assertEqual(run("result_tables.py", self.root)[0], 0)
        self.assertIn("| GLM-4.5-Air, one user | 180 | 5.54 | 67 % |", self.readme.read_text())
        text = self.page.read_text()
        self.assertIn("| GLM-4.5-Air | 16 | 8,192 | 1,160 | 13.80 | 80 % | 82 |", text)
        self.assertIn("| GLM-4.5-Air | prompt of 2,048 |  | 20,000 | 102.40 |  |  |", text)
        self.assertIn("Left out, for want of memory: GLM-4.5-Air: 64 users with 8,192 tokens", text)
        self.assertNotIn("MiniMax", text)

    def test_floors_are_what_the_program_says(self):
        self.page.write_text("before\n<!-- floors:begin -->\n<!-- floors:end -->\nafter\n")
        program = self.root / "program"

        def say(floor, row="combine"):
            rows = [{"what": "step", "row": "unknown to all", "us": [1, 2]},
                    {"what": "prompt", "row": row, "floor_us": floor, "floor_by": "memory", "us": [3000, 5000]},
                    {"what": "prompt", "row": "embed bf16", "us": [100, 300]}]
            answer = json.dumps({"rows": rows, "prompt_tokens_per_s": [1000, 2000]})
            program.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
            program.chmod(0o755)

        say(1000)
        self.assertEqual(run("floor_tables.py", self.root, program, "--check")[0], 1)
        self.assertEqual(run("floor_tables.py", self.root, program)[0], 0)
        text = self.page.read_text()
        self.assertIn("| combine | `combine` | 1.0, memory | 3.0 to 5.0 |", text)
        self.assertIn("| together | | 1.0 | 3.1 to 5.3 |", text)
        self.assertIn("* RTX 5090, 3.2 ms above all floors: combine 3.0 ms (4.0 times its floor), the rest 0.20 ms.", text)
        self.assertEqual(run("floor_tables.py", self.root, program, "--check")[0], 0)
        say(1100)
        status, output = run("floor_tables.py", self.root, program, "--check")
        self.assertEqual(status, 1)
        self.assertIn("run tools/floor_tables.py", output)
        say(1000, "made_up 64")
        status, output = run("floor_tables.py", self.root, program, "--check")
        self.assertEqual(status, 1)
        self.assertIn("no words for the row 'made_up 64'", output)

    def test_no_result_is_said(self):
        self.assertEqual(run("result_tables.py", self.root)[0], 0)
        for page in (self.readme, self.page):
            self.assertIn("No run of `./dev gpu` is committed yet", page.read_text())

    def test_lost_markers(self):
        self.readme.write_text("nothing\n")
        self.assertEqual(run("result_tables.py", self.root)[0], 1)

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
