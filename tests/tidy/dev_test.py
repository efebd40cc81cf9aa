"""./dev and its parts where they must refuse or report: bad words, missing packages, failing builds and tests."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


class Dev(unittest.TestCase):
    def test_help_names_every_command(self):
        status, output = run(ROOT / "dev", "help")
        self.assertEqual(status, 0)
        for command in ("try", "test", "test --long", "build", "gpu", "fmt", "tidy", "docs", "bundle"):
            self.assertIn(f"./dev {command}", output)

    def test_unknown_words_are_refused(self):
        for words in (("tset",), ("test", "--short"), ("try", "hard"), ("fmt", "--fix"), ("bundle",), ("gpu", "now")):
            status, output = run(ROOT / "dev", *words)
            self.assertEqual(status, 64, words)
            self.assertIn("dev: ", output)


class SetUp(unittest.TestCase):
    """A machine of which only the listed programs are visible."""

    def machine(self, **scripts):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        folder = pathlib.Path(holder.name)
        for name in ("bash", "sed", "sort", "head", "grep", "tail", "mktemp", "rm", "cat"):
            (folder / name).symlink_to(f"/usr/bin/{name}" if pathlib.Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
        for name, body in scripts.items():
            path = folder / name.replace("_plus", "+")
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        return folder

    def set_up(self, folder, *groups):
        return run("/bin/bash", ROOT / "tools" / "setup.sh", *groups, PATH=str(folder), CXX="")

    def test_other_distributions_get_the_list_with_versions(self):
        status, output = self.set_up(self.machine(), "build", "test")
        self.assertEqual(status, 3)
        for text in ("cmake ninja-build g++ python3", "cmake 3.25 or newer", "CLI11 2.1", "GoogleTest 1.12", "nvcc 12.9"):
            self.assertIn(text, output)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_root_installs_and_says_so_in_one_line(self):
        folder = self.machine()
        log = folder / "log"
        (folder / "apt-get").write_text(f'#!/bin/sh\necho "$@" >>{log}\nexit 1\n')
        (folder / "apt-get").chmod(0o755)
        status, output = self.set_up(folder, "build")
        self.assertEqual(status, 3)  # the fake fails, and that is passed on
        self.assertIn("setup: installing cmake ninja-build g++ python3", output)
        self.assertIn("update", log.read_text())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
    def test_without_root_or_terminal_the_line_is_shown(self):
        folder = self.machine()
        (folder / "apt-get").write_text("#!/bin/sh\n")
        (folder / "apt-get").chmod(0o755)
        folder.chmod(0o755)
        script = folder / "setup.sh"
        script.write_text((ROOT / "tools" / "setup.sh").read_text())
        done = subprocess.run(["/bin/bash", str(script), "build"], capture_output=True, text=True, user=65534,
                              stdin=subprocess.DEVNULL, env={"PATH": str(folder)})
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("sudo apt-get install -y --no-install-recommends --no-remove cmake", done.stderr)

    def test_an_old_cmake_is_named_with_both_versions(self):
        folder = self.machine(cmake="echo cmake version 3.18.4", ninja="", python3="", c_plus_plus="echo 12",
                              g_plus_plus="echo 12")
        for header in ("CLI/CLI.hpp", "boost/json.hpp", "gtest/gtest.h"):
            (folder / header).parent.mkdir(exist_ok=True)
            (folder / header).write_text("")
        status, output = run("/bin/bash", ROOT / "tools" / "setup.sh", "build", "test", PATH=str(folder), CXX="",
                             CPATH=str(folder))
        self.assertEqual(status, 3)
        self.assertIn("3.18.4; fourfold needs 3.25", output)


class Progress(unittest.TestCase):
    def test_failing_builds_and_tests_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            ninja = pathlib.Path(folder) / "build.ninja"
            ninja.write_text("rule no\n  command = echo what went wrong; false\nbuild a: no\n")
            status, output = run(sys.executable, ROOT / "tools" / "progress.py", "ninja", folder, 1)
            self.assertNotEqual(status, 0)
            self.assertIn("what went wrong", output)
            (pathlib.Path(folder) / "CTestTestfile.cmake").write_text('add_test(good "true")\nadd_test(bad "false")\n')
            status, output = run(sys.executable, ROOT / "tools" / "progress.py", "ctest", folder, 1)
            self.assertNotEqual(status, 0)
            self.assertIn("1 passed, 1 failed, 0 skipped", output)
            self.assertIn("bad", output)


if __name__ == "__main__":
    unittest.main()
