"""tools/mutate.py on a small tree whose "compiler" is grep: what it calls caught, what it refuses, and that it restores."""
import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import mutate  # noqa: E402
import mutation_draw  # noqa: E402

SOURCE = "int answer = 42;\nint unseen = 7;\nint again = 1;\nint again = 1;\n"
# Says what GoogleTest says. The test program is "linked" anew whenever the source changes.
PROGRAM = r"""#!/bin/sh
source=$(dirname "$0")/../src/base/a.cpp
echo "[ RUN      ] Answer.IsRight"
if grep -q "answer = hang" "$source"; then echo $$ >"$(dirname "$0")/pid"; sleep 600; fi
if grep -q "answer = crash" "$source"; then kill -SEGV $$; fi
if ! grep -q "answer = 42" "$source"; then echo "[  FAILED  ] Answer.IsRight (0 ms)"; exit 1; fi
echo "[       OK ] Answer.IsRight (0 ms)"
"""
NINJA = """rule link
  command = if grep -q nonsense $in; then echo "a.cpp:1: error: nonsense"; exit 1; fi; cp program test_base && chmod +x test_base
build test_base: link ../src/base/a.cpp
"""


class Mutate(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for folder in ("src/base", "build", "tools", "docs"):
            (self.root / folder).mkdir(parents=True)
        self.source = self.root / "src/base/a.cpp"
        self.source.write_text(SOURCE)
        (self.root / "build/program").write_text(PROGRAM)
        (self.root / "build/build.ninja").write_text(NINJA)
        (self.root / ".gitignore").write_text("build\ntools\ndocs\n")
        mutate.git(self.root, "init", "-q")
        mutate.git(self.root, "add", "-A")
        mutate.git(self.root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")

    def give(self, *changes, **more):
        entries = [{"id": number + 1, "room": "base", "by": "hand", "file": "src/base/a.cpp", "old": old, "new": new, **more}
                   for number, (old, new) in enumerate(changes)]
        (self.root / "tools/mutations.json").write_text(json.dumps({"tests": {"src/": ["base"]}, "mutations": entries}))

    def run_it(self, only="", again=False, slack=60):
        options = argparse.Namespace(only=only, again=again, copy=str(self.root), jobs=1)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = mutate.run(options, self.root, slack)
        self.assertEqual(self.source.read_text(), SOURCE, "the source is as it was")
        return status, out.getvalue(), (self.root / "docs/mutations.txt").read_text()

    def test_caught_and_survived(self):
        self.give(("answer = 42", "answer = 43"), ("unseen = 7", "unseen = 8"), ("answer = 42", "answer = crash"))
        status, _, table = self.run_it()
        self.assertEqual(status, 1)  # one survived, and nobody says why
        self.assertIn("caught: 2 of 3", table)
        self.assertRegex(table, r"(?m)^  1 \w+ caught   base       hand src/base/a.cpp:1 \| answer = 42 -> answer = 43 \| "
                                r"by Answer.IsRight \(test_base\)$")
        self.assertRegex(table, r"(?m)^  2 .* survived .*a.cpp:2 .* all of test_base passed \| NO REASON GIVEN$")
        self.assertRegex(table, r"(?m)^  3 .* caught .* by Answer.IsRight")

    def test_a_run_goes_on_and_begins_again_only_when_asked(self):
        self.give(("answer = 42", "answer = 43"), ("answer = 42", "answer = 44"))
        self.assertIn("[1/1]", self.run_it(only="2")[1])
        self.assertIn("[1/1]", self.run_it()[1])
        self.assertNotIn("[1/", self.run_it()[1])
        self.assertIn("[2/2]", self.run_it(again=True)[1])
        with self.assertRaisesRegex(mutate.Refused, "no mutation 3"):
            self.run_it(only="1-3")

    def test_a_reason_is_shown(self):
        self.give(("unseen = 7", "unseen = 8"), note="nobody reads it")
        self.assertIn("passed | nobody reads it", self.run_it()[2])

    def test_what_does_not_compile_gives_way_to_the_next_draw(self):
        following = {"file": "src/base/a.cpp", "old": "answer = 42", "new": "answer = 0"}
        self.give(("unseen = 7", "unseen = nonsense"), next=[following])
        self.assertRegex(self.run_it()[2], r"caught .*answer = 42 -> answer = 0 .*draw 2: those before did not compile")
        self.give(("unseen = 7", "unseen = nonsense"))
        with self.assertRaisesRegex(mutate.Refused, "does not compile"):
            self.run_it(again=True)
        self.assertEqual(self.source.read_text(), SOURCE)

    def test_a_python_test_is_run_by_ctest(self):
        self.give(("answer = 42", "answer = 43"), ("unseen = 7", "unseen = 8"), tests=["ctest:base.script"], note="why")
        (self.root / "build/build.ninja").write_text(NINJA.replace("test_base", "fourfold"))
        (self.root / "build/CTestTestfile.cmake").write_text('add_test(base.script "./fourfold")\nadd_test(base.script2 "false")\n')
        self.assertEqual(self.run_it()[0], 1)
        _, _, table = self.run_it(again=True)
        self.assertRegex(table, r"(?m)^  1 .* caught .* by base.script \(ctest\) \| why$")
        self.assertRegex(table, r"(?m)^  2 .* survived .* all of base.script passed \| why$")

    def test_a_hang_is_caught_and_ended(self):
        self.give(("answer = 42", "answer = hang"))
        self.assertIn("by time-out in Answer.IsRight (test_base)", self.run_it(slack=1)[2])
        with self.assertRaises(ProcessLookupError):
            os.kill(int((self.root / "build/pid").read_text()), 0)

    def test_texts_that_do_not_stand_there_once_are_refused(self):
        for old, count in (("answer = 41", 0), ("again = 1", 2)):
            self.give((old, "x"))
            with self.assertRaisesRegex(mutate.Refused, f"stands {count} times"):
                self.run_it()
        self.give(("answer = 42", "answer = 42"))
        with self.assertRaisesRegex(mutate.Refused, "changes nothing"):
            self.run_it()

    def test_tests_that_fail_by_themselves_are_refused(self):
        self.give(("unseen = 7", "unseen = 8"))
        self.source.write_text(SOURCE.replace("42", "41"))
        mutate.git(self.root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "broken")
        with self.assertRaisesRegex(mutate.Refused, "test_base fails without a mutation: Answer.IsRight"):
            self.run_it()

    def test_a_checkout_with_changes_is_refused(self):
        self.give(("answer = 42", "answer = 43"))
        self.source.write_text(SOURCE + "// mine\n")
        with self.assertRaisesRegex(mutate.Refused, "has changes"):
            self.run_it()
        self.assertIn("mine", self.source.read_text())

    def test_an_interrupt_restores(self):
        self.give(("answer = 42", "answer = hang"))
        for name in ("mutate.py",):
            (self.root / "tools" / name).write_text((ROOT / "tools" / name).read_text())
        process = subprocess.Popen([sys.executable, self.root / "tools/mutate.py", "--copy", self.root],
                                   stdout=subprocess.DEVNULL)
        while not (self.root / "build/pid").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        self.assertIn("hang", self.source.read_text())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(10), 143)
        self.assertEqual(self.source.read_text(), SOURCE)


class List(unittest.TestCase):
    """The committed list: three or more a room of docs/architecture.md, some of each drawn by the seed."""

    def test_is_as_large_as_it_says(self):
        given = json.loads((ROOT / "tools/mutations.json").read_text())
        entries = given["mutations"]
        self.assertEqual([entry["id"] for entry in entries], list(range(1, len(entries) + 1)))
        drawn = collections.Counter(entry["room"] for entry in entries if entry["by"] == "seed")
        self.assertEqual(dict(drawn), mutation_draw.ROOMS)
        table = (ROOT / "docs/architecture.md").read_text().split("| room |")[1].split("\n\n")[0]
        for line in table.splitlines()[2:]:
            room = line.split("|")[1].strip()
            if "/" not in room:
                self.assertGreaterEqual(sum(entry["room"] == room for entry in entries), 3, room)


class Draw(unittest.TestCase):
    def test_finds_what_it_says_outside_of_texts(self):
        import random

        def of(line, before=";"):
            return [(kind, changed.strip()) for kind, changed in mutation_draw.of_line(line, before, random.Random(1))]

        self.assertEqual(of("  if (a < b) return x;"), [("comparison", "if (a <= b) return x;")])
        self.assertIn(of("  f(a, 7);")[0], [("constant", "f(a, 6);"), ("constant", "f(a, 8);")])
        self.assertEqual(of("  f(a, 7);")[1], ("statement", ";"))
        self.assertEqual(of("  f(a);", before="  if (x)"), [])
        self.assertEqual(of('  int x = g("a < 7");  // 3 > 2'), [])
        self.assertEqual(of("  x = 0x1p7 + 1.5 + b1;"), [("statement", ";")])


if __name__ == "__main__":
    unittest.main()
