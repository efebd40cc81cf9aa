"""What run.py ends with, and when it makes an environment anew: run_test.py. No server and no package is needed."""
import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import run


def outcome(**suites):
    """The end of a run whose suites have these results; None: its packages are missing. And the suites that had a turn."""
    turns = []

    def rows(suite):
        turns.append(suite)
        if suites[suite] is None:
            raise run.NoPackages("PyPI is not there")
        return [{"row": suite, "result": result} for result in suites[suite]]

    with contextlib.redirect_stdout(io.StringIO()):
        return run.run_all(suites, rows, lambda *_: None), turns


class Ends(unittest.TestCase):
    def test_a_suite_that_is_skipped_hides_nothing(self):
        self.assertEqual((0, ["a", "b"]), outcome(a=["yes"], b=["yes", "yes"]))
        self.assertEqual((1, ["a", "b"]), outcome(a=["NO: x"], b=["yes"]))
        self.assertEqual((run.SKIPPED, ["a", "b"]), outcome(a=None, b=["yes"]))
        self.assertEqual((1, ["a", "b"]), outcome(a=["NO: x"], b=None))
        self.assertEqual((1, ["a", "b", "c"]), outcome(a=None, b=["yes"], c=["NO: x"]))


class Stamp(unittest.TestCase):
    def test_it_changes_with_all_that_decides_the_packages(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "HERE", pathlib.Path(folder)):
            place = pathlib.Path(folder) / "requirements"
            place.mkdir()
            stamps = [run.made_from("x")]
            for name, text in (("x.txt", "a==1"), ("x.txt", "a==2"), ("x.override.txt", "b==1"), ("x.override.txt", "b==2")):
                (place / name).write_text(text)
                stamps.append(run.made_from("x"))
            for name, value in (("NEWEST", "2020-01-01T00:00:00Z"), ("UV", "uv==0")):
                with mock.patch.object(run, name, value):
                    stamps.append(run.made_from("x"))
            self.assertEqual(len(stamps), len(set(stamps)))
            self.assertEqual(stamps[4], run.made_from("x"))

    def test_packages_newer_than_the_date_are_not_taken(self):
        commands = []
        with tempfile.TemporaryDirectory() as folder, \
                mock.patch.object(run, "install", lambda *command: commands.append([str(word) for word in command])), \
                mock.patch.object(run.venv, "create"):
            place = pathlib.Path(folder)
            (place / "open_webui_suite").mkdir()
            run.made_environment(place, "open_webui_suite")
        last = commands[-1]
        self.assertEqual(run.NEWEST, last[last.index("--exclude-newer") + 1])
        self.assertTrue(last[last.index("--override") + 1].endswith("open_webui_suite.override.txt"))
        self.assertTrue(last[last.index("--requirement") + 1].endswith("open_webui_suite.txt"))


if __name__ == "__main__":
    unittest.main()
