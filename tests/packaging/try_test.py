"""./dev try with a program at hand, and fourfold-chat, which it builds where there is none: try_test.py FOURFOLD CHAT."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

CHAT = sys.argv.pop(2)
PROGRAM = sys.argv.pop(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]


def write_wheel(folder):
    """What ./dev try needs of one, named for this machine; beside it one for another."""
    folder.mkdir()
    (folder / "fourfold-9.9.9-py3-none-manylinux_2_34_other.whl").write_bytes(b"")
    with zipfile.ZipFile(folder / f"fourfold-0.1.0-py3-none-manylinux_2_34_{os.uname().machine}.whl", "w") as wheel:
        wheel.write(PROGRAM, "fourfold-0.1.0.data/scripts/fourfold")
        for path in (ROOT / "models/storyteller").iterdir():
            wheel.write(path, f"fourfold-0.1.0.data/data/share/fourfold/models/storyteller/{path.name}")


class Try(unittest.TestCase):
    def run_try(self, wheel=False, **environment):
        """In a copy, without a terminal, with a wheel in dist/ or none: what it says."""
        with tempfile.TemporaryDirectory() as place:
            shutil.copy(ROOT / "dev", place)
            shutil.copytree(ROOT / "tools", pathlib.Path(place, "tools"))
            if wheel:
                write_wheel(pathlib.Path(place, "dist"))
            clean = {name: value for name, value in os.environ.items() if not name.startswith("FOURFOLD_")}
            done = subprocess.run(["./dev", "try"], cwd=place, env={**clean, **environment}, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout

    def test_a_program_at_hand_starts_in_seconds(self):
        start = time.monotonic()
        said = self.run_try(FOURFOLD_PROGRAM=PROGRAM)
        self.assertLess(time.monotonic() - start, 120)  # some 3 s on a quiet machine
        self.assertLess(said.index("An answer"), said.index("The chat page"))
        self.assertLess(said.index("The chat page"), said.index("./dev try --proof"))
        self.assertNotIn("Building", said)

    def test_one_on_the_path_is_taken(self):
        with tempfile.TemporaryDirectory() as place:
            os.symlink(PROGRAM, pathlib.Path(place, "fourfold"))
            said = self.run_try(PATH=f"{place}:{os.environ['PATH']}")
        self.assertIn(f"There is {place}/fourfold already", said)

    def test_a_wheel_in_dist_is_unpacked(self):
        without = [folder for folder in os.environ["PATH"].split(":") if not pathlib.Path(folder, "fourfold").exists()]
        said = self.run_try(wheel=True, PATH=":".join(without))
        self.assertIn("unpacked into build/wheel", said)
        self.assertIn("The chat page: build/wheel/bin/fourfold serve", said)
        self.assertNotIn("Building", said)

    def test_the_chat_program_answers_and_says_what_it_lacks(self):
        answer = subprocess.run([CHAT, "run", "-p", "What are you?", "--seed", "1"], capture_output=True, text=True)
        self.assertIn("demonstration model", answer.stdout)
        whole = subprocess.run([PROGRAM, "run", "-p", "What are you?", "--seed", "1"], capture_output=True, text=True)
        self.assertEqual(answer.stdout, whole.stdout)
        for backend in (["sim"], ["cuda"], ["sim", "--tp", "2"]):
            refused = subprocess.run([CHAT, "run", "-p", "x", "--backend", *backend], capture_output=True, text=True)
            self.assertEqual(refused.returncode, 2, backend)
            self.assertIn("./dev build makes build/fourfold", refused.stderr)
        served = subprocess.run([CHAT, "serve", "--port", "0", "--backend", "sim"], capture_output=True, text=True)
        self.assertEqual(served.returncode, 2)
        self.assertIn("neither CUDA kernels nor the simulated GPU", served.stderr)
        self.assertIn("This is fourfold-chat", subprocess.run([CHAT], capture_output=True, text=True).stdout)


if __name__ == "__main__":
    unittest.main()
