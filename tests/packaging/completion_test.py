"""Completions and the manual, from the program's own tables: completion_test.py PROGRAM. Shells that are not installed are
left out; bash always is."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


def ask(*words):
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout


def options_of(*command):
    """By what `fourfold help` prints."""
    found = set()
    for line in ask(*command, "--help").splitlines():
        match = re.match(r"^  (-[-\w,]+)", line)
        found.update(match.group(1).split(",") if match else [])
    return found


class Completion(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def bash(self, *words):
        script = self.folder / "completion"
        script.write_text(ask("completion", "bash"))
        line = " ".join(f"'{word}'" for word in words)
        code = (f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _fourfold; "
                "printf '%s\\n' ${COMPREPLY[@]+\"${COMPREPLY[@]}\"}")
        done = subprocess.run(["bash", "-u", "-c", code], check=True, capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return set(done.stdout.split())

    def test_bash(self):
        self.assertEqual(self.bash("fourfold", "se"), {"serve"})
        self.assertEqual(self.bash("fourfold", "serve", "--po"), {"--port"})
        self.assertEqual(self.bash("fourfold", "serve", "--"), {o for o in options_of("serve") if o.startswith("--")})
        self.assertEqual(self.bash("fourfold", "bench", "mod"), {"model"})
        self.assertEqual(self.bash("fourfold", "bench", "model", "-"), options_of("bench", "model"))
        self.assertEqual(self.bash("fourfold", "run", "so"), set())  # a file, which is bash's own to complete

    def test_other_shells_know_every_option_of_every_command(self):
        for shell, spelled in (("zsh", "*{}["), ("fish", " -l {} ")):
            text = ask("completion", shell)
            for command in (("serve",), ("run",), ("bench", "serve")):
                for option in options_of(*command):
                    if option.startswith("--"):
                        self.assertIn(spelled.format(option if shell == "zsh" else option[2:]), text, (shell, command))
            if shutil.which(shell):
                (self.folder / shell).write_text(text)
                subprocess.run([shell, "-n", str(self.folder / shell)], check=True)

    def test_an_unknown_shell_is_refused(self):
        done = subprocess.run([PROGRAM, "completion", "csh"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 64)
        self.assertIn("csh", done.stderr)

    def test_manual(self):
        text = ask("man")
        for option in options_of("serve"):
            self.assertIn(option.replace("-", "\\-"), text)
        self.assertEqual([line for line in text.splitlines() if re.match(r"[.'](?!(TH|SH|TP|B|I|\\\")\b|\.?\\\")", line)], [])
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], input=text, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
