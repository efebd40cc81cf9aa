"""tools/long_result.py and the parts of ./dev test --long: what holds, what is taken from elsewhere, what is counted."""
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
        self.assertIn(f"2 of 3 parts passed, the oldest 0 days ago; what {changed} of them read", self.call("--age")[1])
        self.file.write_text(text.replace(tree, "0000000+"))
        self.assertEqual(self.call("--done", "soak")[0], 1)
        self.assertIn("what 3 of them read has changed since", self.call("--age")[1])

    def test_a_result_holds_until_something_changes_that_its_part_reads(self):
        folder = self.file.parent / "clone"
        for name in ("src/kernels/row.h", "src/server/loop.cpp", "docs/long-test.txt", "tools/long_result.py"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        tool = folder / "tools" / "long_result.py"
        tool.write_text((ROOT / "tools" / "long_result.py").read_text())

        def commit():
            for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.example commit -qm change"):
                self.assertEqual(run("git", "-C", folder, *words.split())[0], 0, words)

        def done(part):
            return run(sys.executable, tool, "--done", part)[0] == 0

        commit()
        tree = run(sys.executable, tool, "--here")[1].strip()
        for part in ("machine-code", "clients"):
            run(sys.executable, tool, "--record", part, tree, 0, 60, "a part")
        self.assertEqual((done("machine-code"), done("clients")), (True, True))
        # A shallow clone does not know the commit.
        (folder / "docs/long-test.txt").write_text((folder / "docs/long-test.txt").read_text().replace(tree, "0000000"))
        self.assertEqual((done("machine-code"), done("clients")), (True, True))
        (folder / "src/server/loop.cpp").write_text("int other;\n")
        self.assertEqual((done("machine-code"), done("clients")), (True, False))
        commit()
        self.assertEqual((done("machine-code"), done("clients")), (True, False))
        self.assertIn("what 1 of them read", run(sys.executable, tool, "--age")[1])
        # Nor with a file that no commit has: sources are found by their folder.
        (folder / "src/kernels/other.cpp").touch()
        self.assertEqual(done("machine-code"), False)
        (folder / "src/kernels/other.cpp").unlink()
        self.assertEqual(done("machine-code"), True)
        (folder / "src/kernels/row.h").write_text("int row;\n")
        self.assertEqual(done("machine-code"), False)
        commit()
        self.assertEqual(done("machine-code"), False)

    def test_results_of_a_copy_without_git_are_taken_where_sources_are_the_same(self):
        folder = self.file.parent / "clone"
        for name in ("src/kernels/row.h", "src/server/loop.cpp", "docs/long-test.txt", "tools/long_result.py"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        tool = folder / "tools" / "long_result.py"
        tool.write_text((ROOT / "tools" / "long_result.py").read_text())

        def commit():
            for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@b.example commit -qm change"):
                self.assertEqual(run("git", "-C", folder, *words.split())[0], 0, words)

        commit()
        tree = run(sys.executable, tool, "--here")[1].strip()
        copy = self.file.parent / "copy"
        (copy / "tools").mkdir(parents=True)
        (copy / "docs").mkdir()
        (copy / "tools/long_result.py").write_text(tool.read_text())
        for part in ("seeds", "soak"):
            run(sys.executable, copy / "tools/long_result.py", "--record", part, tree, 0, 60, "a part", FOURFOLD_COMMIT=tree,
                GIT_DIR="/nowhere")
        self.assertEqual((copy / "docs/long-test.txt").read_text().count(f"{tree:10} {'-':12}"), 2)
        (folder / "src/server/loop.cpp").write_text("int other;\n")
        commit()
        said = run(sys.executable, tool, "--adopt", copy / "docs/long-test.txt")[1]
        self.assertIn(f"left: soak, whose sources are not those of {tree}", said)
        self.assertEqual([run(sys.executable, tool, "--done", part)[0] for part in ("seeds", "soak")], [0, 1])

    def test_what_parts_read_is_there(self):
        sys.path.insert(0, str(ROOT / "tools"))
        import long_result
        parts = run(ROOT / "dev", "test", "--long", "--list", FOURFOLD_LONG_RESULT=str(self.file))[1]
        for part, paths in long_result.READS.items():
            self.assertIn(f"{part}: ", parts)
            for path in paths:
                place = path.removeprefix(":!")
                self.assertTrue((ROOT / place).exists() or any(ROOT.glob(place)), f"{part} reads {path}")

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
        for part in ("default", "asan-serving", "tsan-rest", "mutations-step", "clients"):
            self.assertIn(f"{part}: ", output)
        status, output = run(ROOT / "dev", "test", "--long", "--list", "clnag")
        self.assertEqual(status, 64)
        self.assertIn("test --long has no part 'clnag'; parts: default", output)


if __name__ == "__main__":
    unittest.main()
