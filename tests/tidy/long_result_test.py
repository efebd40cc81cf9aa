"""tools/long_result.py and the parts of ./dev test --long: what holds, what is taken from elsewhere, what is counted."""
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import long_result  # noqa: E402


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


class LongResult(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.file = pathlib.Path(holder.name) / "long-test.txt"

    def call(self, *words):
        return run(sys.executable, ROOT / "tools" / "long_result.py", *words, FOURFOLD_LONG_RESULT=str(self.file))

    def tree(self):
        return self.call("--here")[1].strip()

    def test_a_part_is_done_when_it_passed_at_this_commit(self):
        tree = self.tree()
        self.assertEqual(self.call("--done", "soak")[0], 1)
        self.call("--record", "soak", tree, 1, 200, "many requests")
        self.assertEqual(self.call("--done", "soak")[0], 1)
        self.call("--record", "soak", tree, 0, 200, "many requests")
        self.call("--record", "clang", tree, 77, 0, "another compiler", "it is not there")
        # What no commit has cannot be done: the next change would look the same.
        self.assertEqual(self.call("--done", "soak")[0], 1 if tree.endswith("+") else 0)
        self.assertEqual(self.call("--done", "clang")[0], 1)
        # By the compiler that is asked for.
        self.call("--record", "machine-code", tree, 0, 60, "code", "nvcc V13.0.88")
        for other in ("nvcc V13.1.2", "nvcc V13.0.8"):
            self.assertEqual(self.call("--done", "machine-code", other)[0], 1)
        self.assertEqual(self.call("--done", "machine-code", "nvcc V13.0.88")[0], 1 if tree.endswith("+") else 0)
        text = self.file.read_text()
        self.assertEqual(text.count("soak"), 1)
        self.assertIn("3 min  soak: many requests", text)
        self.assertIn("clang: another compiler (it is not there)", text)
        changed = 3 if tree.endswith("+") else 0
        self.assertRegex(self.call("--age")[1], f"2 of .*, the oldest 0 days ago; what {changed} of them read")
        self.file.write_text(text.replace(tree, "0000000+"))
        self.assertEqual(self.call("--done", "soak")[0], 1)
        self.assertIn("what 3 of them read has changed since", self.call("--age")[1])

    def clone(self):
        """A history of a few files with the tool in it, how to commit, and how to call the tool."""
        folder = self.file.parent / "clone"
        for name in ("src/kernels/row.h", "src/server/loop.cpp", "docs/long-test.txt", "tools/long_result.py"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        for name in ("long_result.py", "long_test.sh"):
            (folder / "tools" / name).write_text((ROOT / "tools" / name).read_text())

        def commit():
            for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.example commit -qm change"):
                self.assertEqual(run("git", "-C", folder, *words.split())[0], 0, words)

        def tool(*words):
            return run(sys.executable, folder / "tools" / "long_result.py", *words)

        commit()
        return folder, commit, tool

    def test_a_result_holds_until_something_changes_that_its_part_reads(self):
        folder, commit, tool = self.clone()

        def done(part):
            return tool("--done", part)[0] == 0

        tree = tool("--here")[1].strip()
        for part in ("machine-code", "clients"):
            tool("--record", part, tree, 0, 60, "a part")
        self.assertEqual((done("machine-code"), done("clients")), (True, True))
        # A shallow clone does not know the commit.
        (folder / "docs/long-test.txt").write_text((folder / "docs/long-test.txt").read_text().replace(tree, "0000000"))
        self.assertEqual((done("machine-code"), done("clients")), (True, True))
        (folder / "src/server/loop.cpp").write_text("int other;\n")
        self.assertEqual((done("machine-code"), done("clients")), (True, False))
        commit()
        self.assertEqual((done("machine-code"), done("clients")), (True, False))
        self.assertIn("what 1 of them read", tool("--age")[1])
        # Nor with a file that no commit has: sources are found by their folder.
        (folder / "src/kernels/other.cpp").touch()
        self.assertEqual(done("machine-code"), False)
        (folder / "src/kernels/other.cpp").unlink()
        self.assertEqual(done("machine-code"), True)
        (folder / "src/kernels/row.h").write_text("int row;\n")
        self.assertEqual(done("machine-code"), False)
        commit()
        self.assertEqual(done("machine-code"), False)

    def copied(self, tree, *parts):
        """What a copy without git wrote of these parts, whose sources it says are of this commit."""
        copy = self.file.parent / "copy"
        for name in ("tools", "docs"):
            (copy / name).mkdir(parents=True, exist_ok=True)
        (copy / "tools/long_result.py").write_text((ROOT / "tools/long_result.py").read_text())
        (copy / "docs/long-test.txt").unlink(missing_ok=True)
        for part in parts:
            run(sys.executable, copy / "tools/long_result.py", "--record", part, tree, 0, 60, "a part",
                FOURFOLD_COMMIT=tree, GIT_DIR="/nowhere")
        self.assertEqual((copy / "docs/long-test.txt").read_text().count(f"{tree:10} {'-':12}"), len(parts))
        return copy / "docs/long-test.txt"

    def test_results_of_a_copy_without_git_are_taken_where_sources_are_the_same(self):
        folder, commit, tool = self.clone()
        tree = tool("--here")[1].strip()
        lines = self.copied(tree, "seeds", "soak")
        (folder / "src/server/loop.cpp").write_text("int other;\n")
        commit()
        self.assertIn(f"left: soak, whose sources are not those of {tree}", tool("--adopt", lines)[1])
        self.assertEqual([tool("--done", part)[0] for part in ("seeds", "soak")], [0, 1])
        lines = self.copied("1234567", "clients")
        self.assertIn("left: clients, whose commit 1234567 this history does not have", tool("--adopt", lines)[1])
        # What is on top here, nobody over there has run.
        lines = self.copied(tool("--here")[1].strip(), "soak")
        for name in ("src/server/loop.cpp", "src/server/new.cpp"):
            before = (folder / name).read_text() if (folder / name).exists() else None
            (folder / name).write_text("int third;\n")
            self.assertIn("left: soak, which reads files that are not as they are committed here", tool("--adopt", lines)[1])
            (folder / name).unlink() if before is None else (folder / name).write_text(before)
        self.assertNotIn("left", tool("--adopt", lines)[1])
        self.assertEqual(tool("--done", "soak")[0], 0)

    def test_what_holds_here_is_not_given_up_for_an_older_or_a_failed_result(self):
        def row(verdict, date):
            return long_result.Row(verdict, date, "1234567", "-", "a line")

        here = row("passed", "2026-02-02")
        for mine, still, theirs, left in (
            (here, True, row("passed", "2026-02-01"), True),
            (here, True, row("FAILED", "2026-02-02"), True),
            (here, True, row("skipped", "2026-02-03"), True),
            (here, True, row("passed", "2026-02-03"), False),
            (here, False, row("passed", "2026-02-01"), True),
            (here, False, row("FAILED", "2026-02-02"), True),
            (here, False, row("FAILED", "2026-02-03"), False),
            (row("FAILED", "2026-02-02"), True, row("passed", "2026-02-02"), False),
            (row("FAILED", "2026-02-02"), True, row("passed", "2026-02-01"), True),
            (None, False, row("FAILED", "2026-02-02"), False),
        ):
            with mock.patch.multiple(long_result, holds=lambda *_, still=still: still, digest=lambda *_: "0" * 12,
                                     digest_at=lambda *_: "0" * 12):
                self.assertEqual(long_result.refusal("soak", theirs, mine).startswith("which is "), left, (mine, still, theirs))

    def test_what_parts_read_is_there(self):
        self.assertLessEqual(set(long_result.READS), set(long_result.parts()))
        for part in long_result.parts():
            for path in long_result.reads(part):
                place = path.removeprefix(":!")
                self.assertTrue((ROOT / place).exists() or any(ROOT.glob(place)), f"{part} reads {path}")
        # Tests of doors build the examples and run those in Python.
        for path in ("examples", "include", "python", "tests"):
            self.assertIn(path, long_result.reads("asan-serving"))
        self.assertEqual(long_result.reads("tsan-rest"), long_result.ALL)

    def test_parts_that_never_ran_are_counted(self):
        _, _, tool = self.clone()
        tree = tool("--here")[1].strip()
        for part, status in (("soak", 0), ("clang", 77), ("a-part-of-old", 0)):
            tool("--record", part, tree, status, 60, "a part")
        count = len(long_result.parts())
        self.assertIn(f"long test: 1 of {count} parts passed, {count - 2} never run", tool("--age")[1])

    def test_a_tree_that_changed_meanwhile_has_not_passed(self):
        self.call("--record", "soak", "0000000", 0, 200, "many requests")
        self.assertIn("FAILED", self.file.read_text())
        self.assertIn("the tree changed while it ran", self.file.read_text())

    def test_what_fails_in_the_middle_of_a_part_is_recorded(self):
        script = """
            set -euo pipefail
            cd %s
            source tools/long_test.sh
            build() { echo building; }
            run_tests() { echo tests fail; return 8; }
            build_folder() { echo none; }
            long_wanted=(); long_list=no; long_parts=(); long_verdict=passed
            long_part rooms "some rooms" sanitize_rooms asan base
            long_part late "a command after a failed one" eval 'false; true'
            echo "verdict $long_verdict"
        """ % ROOT
        status, output = run("/bin/bash", "-c", script, FOURFOLD_LONG_RESULT=str(self.file))
        self.assertEqual(status, 0, output)
        self.assertIn("verdict failed", output)
        self.assertEqual(self.file.read_text().count("FAILED"), 2, self.file.read_text())

    def test_a_part_fails_whose_filter_names_no_test(self):
        program = self.file.parent / "test_room"
        program.write_text("""#!/bin/sh
case $* in
  *--gtest_list_tests*Gone*) echo Running main ;;
  *--gtest_list_tests*) printf 'Running main\\nSuite.\\n  One\\n  Two/0  # GetParam() = 1\\n' ;;
  *) echo "ran $*" ;;
esac
""")
        program.chmod(0o755)

        def only(name):
            script = f"set -euo pipefail; source {ROOT}/tools/long_test.sh; part() {{ run_only {program} '{name}'; }}; part"
            return run("/bin/bash", "-c", script)

        self.assertEqual(only("Suite.*:Other*"), (0, "ran --gtest_filter=Suite.*:Other*\n"))
        self.assertEqual(only("Suite.*:*Gone.*"), (1, "test_room has no test '*Gone.*'\n"))
        listed = run("/bin/bash", "-c", f"source {ROOT}/tools/long_test.sh; tests_of {program} 'Suite*'")
        self.assertEqual(listed, (0, "Suite.One\nSuite.Two/0\n"))

    def test_a_line_names_what_was_skipped_and_what_the_machine_lacks(self):
        script = """
            set -euo pipefail
            cd %s
            source tools/long_test.sh
            long_wanted=(); long_list=no; long_parts=(); long_verdict=passed
            long_part rooms "some rooms" printf 'tests: 3 passed\\n  skipped: page.page\\n  skipped: text.more\\n'
        """ % ROOT
        run("/bin/bash", "-c", script, FOURFOLD_LONG_RESULT=str(self.file), FOURFOLD_LONG_NOTE="without OpenSSL")
        self.assertIn("rooms: some rooms (skipped: page.page text.more; without OpenSSL)", self.file.read_text())

    def test_a_copy_without_git_is_told_its_commit(self):
        copy = self.file.parent / "tools" / "long_result.py"
        copy.parent.mkdir()
        copy.write_text((ROOT / "tools" / "long_result.py").read_text())
        for words, want in ({}, "unknown"), ({"FOURFOLD_COMMIT": "1234567"}, "1234567"):
            self.assertEqual(run(sys.executable, copy, "--here", **words)[1].strip(), want)
        # And goes on with what has passed in it, where git itself is not there.
        words = {"FOURFOLD_COMMIT": "1234567", "FOURFOLD_LONG_RESULT": str(self.file), "PATH": "/nowhere"}
        run(sys.executable, copy, "--record", "soak", "1234567", "0", "60", "many requests", **words)
        self.assertEqual(run(sys.executable, copy, "--done", "soak", **words)[0], 0)
        self.assertEqual(run(sys.executable, copy, "--done", "soak", **words | {"FOURFOLD_COMMIT": "7654321"})[0], 1)
        # Nobody says of what.
        words = {"FOURFOLD_LONG_RESULT": str(self.file)}
        run(sys.executable, copy, "--record", "soak", "unknown", "0", "60", "many requests", **words)
        self.assertEqual(run(sys.executable, copy, "--done", "soak", **words)[0], 1)

    def test_parts_are_listed_and_unknown_ones_refused(self):
        status, output = run(ROOT / "dev", "test", "--long", "--list", FOURFOLD_LONG_RESULT=str(self.file))
        self.assertEqual(status, 0)
        self.assertEqual([line.split(":")[0] for line in output.splitlines()], long_result.parts())
        for part in ("default", "asan-serving", "tsan-rest", "mutations-step", "clients"):
            self.assertIn(f"{part}: ", output)
        status, output = run(ROOT / "dev", "test", "--long", "--list", "clnag")
        self.assertEqual(status, 64)
        self.assertIn("test --long has no part 'clnag'; parts: default", output)


if __name__ == "__main__":
    unittest.main()
