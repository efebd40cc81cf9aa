"""What a new user meets first: `fourfold` alone at a terminal, --version, and options of serve from a file and from the
environment: first_minutes_test.py FOURFOLD
"""
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "FOURFOLD_"))}
    return {**kept, "TERM": "dumb", **more}


def run(*words, status=0, **more):
    done = subprocess.run([PROGRAM, *words], env=environment(**more), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


class Hello(unittest.TestCase):
    def at_terminal(self, **more):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([PROGRAM], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**more))
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # the other side is closed
            pass
        os.close(ours)
        self.assertEqual(process.wait(30), 0)
        return text.decode().replace("\r\n", "\n")

    def test_ten_lines(self):
        with tempfile.TemporaryDirectory() as cache:
            text = self.at_terminal(HF_HUB_CACHE=cache)
            self.assertEqual(text.count("\n"), 10, text)
            for words in ("Fourfold 0.", "  GPU     ", "  CPU     ", "kernels for ", "GB of memory", "storyteller (comes with",
                          "fourfold chat ", "fourfold serve ", "fourfold pull ORG/NAME", "fourfold help lists the rest"):
                self.assertIn(words, text)
            for name in ("a", "b", "c"):
                snapshot = pathlib.Path(cache) / f"models--org--{name}/snapshots/{'0' * 40}"
                snapshot.mkdir(parents=True)
                for file in ("config.json", "model.safetensors"):
                    (snapshot / file).write_text("{}")
            (pathlib.Path(cache) / "models--org--begun/snapshots" / ("0" * 40)).mkdir(parents=True)
            text = self.at_terminal(HF_HUB_CACHE=cache)
            self.assertIn("org/a, org/b, and 1 more: fourfold list", text)
            self.assertIn("fourfold chat org/a ", text)
            self.assertEqual(text.count("\n"), 10, text)

    def test_help_where_nobody_reads(self):
        self.assertEqual(run().stdout, run("help").stdout)

    def test_version(self):
        first, *rest = run("--version").stdout.splitlines()
        project = re.search(r"project\(fourfold VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertRegex(first, rf"^fourfold {re.escape(project)}( \([0-9a-f]+.*\))?$")
        for name, words in (("compiler", r"(GNU|Clang) \d+\.\d+"), ("CPU", "plain"), ("GPU", r"none: |sm_\d+"),
                            ("with", r"Boost 1\.\d+, CLI11 \d\.\d")):
            self.assertTrue(any(re.match(rf"  {name} +.*(?:{words})", line) for line in rest), (name, rest))


class RoughEdges(unittest.TestCase):
    def test_a_reader_that_stops(self):
        """`fourfold run | head`: no complaint, and the end of a program that writes into a closed pipe."""
        process = subprocess.Popen([PROGRAM, "run", "-p", "Tell me a story.", "--seed", "1", "--max-tokens", "200"],
                                   env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(process.stdout.read(1))
        process.stdout.close()
        said = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(60), -signal.SIGPIPE, said)
        self.assertNotIn("cannot be written", said)
        self.assertNotIn("ipe", said)
        # A full disk is something else.
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "help"], env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("standard output cannot be written", done.stderr)

    def test_flags_of_other_servers(self):
        for flag in ("--gpu-memory-utilization", "--tool-call-parser", "--n-gpu-layers"):
            said = run("serve", flag, "1", status=64).stderr
            self.assertIn(f"serve has no option {flag}", said)
            self.assertIn("docs/serving.md has a table of vLLM's and llama-server's flags", said)

    def test_help_shows_flags_as_they_are_typed(self):
        for command in ("inspect", "report", "bench model"):
            text = run("help", *command.split()).stdout
            self.assertNotIn("{false}", text)
            self.assertRegex(text, r"--no-[a-z]+ ")
        self.assertIn("GB/s", run("inspect").stdout)
        self.assertNotEqual(run("inspect").stdout.count("\n"), run("inspect", "--no-measure").stdout.count("\n"))

    def test_bench_model_says_how_far_it_is(self):
        done = run("bench", "model", "--shape", "tiny", "--layers", "1", "--prompt", "64", "--tokens", "4")
        self.assertIn("making random weights of 1 layer", done.stderr)


class Config(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "serve.toml"

    def show(self, *words, **more):
        """{key: (value, origin)}"""
        lines = run("config", "show", *words, **more).stdout.splitlines()
        found = {}
        for line in lines:
            if match := re.fullmatch(r"(?:# )?([a-z-]+)(?: = (.*?))? +# (.*)", line):
                found[match[1]] = (match[2], match[3])
        return found

    def refused(self, text=None, *words, **more):
        if text is not None:
            self.file.write_text(text)
            words = ("--config", self.file, *words)
        return run("serve", *words, status=2, **more).stderr

    def test_precedence(self):
        self.file.write_text('port = 1111\nhost = "0.0.0.0"\nmax_context = 2222\nno-auth = true\nmodel = "a/b"\n'
                             'allow-host = ["x", "y"]\nrate-limit = 2.5\nstrict = true\n')
        self.assertEqual(self.show()["port"], ("8000", "default"))
        shown = self.show("--config", self.file)
        at = str(self.file)
        self.assertEqual(shown["port"], ("1111", f"{at}:1"))
        self.assertEqual(shown["host"], ('"0.0.0.0"', f"{at}:2"))
        self.assertEqual(shown["max-context"], ("2222", f"{at}:3"))
        self.assertEqual(shown["no-auth"], ("true", f"{at}:4"))
        self.assertEqual(shown["model"], ('"a/b"', f"{at}:5"))
        self.assertEqual(shown["allow-host"], ('["x", "y"]', f"{at}:6"))
        self.assertEqual(shown["rate-limit"], ("2.5", f"{at}:7"))
        self.assertEqual(shown["strict"], ("true", f"{at}:8"))
        self.assertEqual(shown["grace"], ("30", "default"))
        self.assertEqual(shown["kv-tokens"], (None, "default"))
        variables = {"FOURFOLD_SERVE_CONFIG": at, "FOURFOLD_SERVE_PORT": "3333", "FOURFOLD_SERVE_ALLOW_HOST": "v,w",
                     "FOURFOLD_SERVE_MAX_MODEL_LEN": "4444", "FOURFOLD_SERVE_LOG_REQUESTS": "true"}
        shown = self.show("--port", "5555", **variables)
        self.assertEqual(shown["port"], ("5555", "the command line"))
        self.assertEqual(shown["allow-host"], ('["v", "w"]', "FOURFOLD_SERVE_ALLOW_HOST"))
        self.assertEqual(shown["max-context"], ("4444", "FOURFOLD_SERVE_MAX_MODEL_LEN"))
        self.assertEqual(shown["log-requests"], ("true", "FOURFOLD_SERVE_LOG_REQUESTS"))
        self.assertEqual(shown["host"], ('"0.0.0.0"', f"{at}:2"))
        self.assertEqual(self.show("c/d", **variables)["model"], ('"c/d"', "the command line"))

    def test_every_option_of_serve_is_a_key(self):
        """One value of each kind for every option that `fourfold help serve` lists, through a file and through variables."""
        options = set(re.findall(r"^  (?:-\w,)?--([a-z-]+)", run("help", "serve").stdout, re.MULTILINE))
        shown = self.show()
        self.assertEqual(options - {"help", "config"}, set(shown) - {"model", "strict"})
        self.assertGreater(len(options), 35)
        for key, (value, _) in shown.items():
            given = {"true": "false", "false": "true"}.get(value, '"1"' if value is None or value[0] in '"[' else "1")
            self.file.write_text(f"{key} = {given}\n")
            plain = "(hidden)" if key == "api-key" else given.strip('"')
            self.assertIn(plain, self.show("--config", self.file)[key][0], key)
            name = "FOURFOLD_SERVE_" + key.upper().replace("-", "_")
            self.assertEqual((plain in self.show(**{name: given.strip('"')})[key][0], self.show(**{name: given.strip('"')})[key][1]),
                             (True, name))

    def test_what_is_shown_is_a_config_file(self):
        first = run("config", "show", "--port", "1234", "--served-model-name", 'a "name"', "--mtp", "2", "--no-auth").stdout
        self.file.write_text(first)
        again = run("config", "show", "--config", self.file).stdout
        self.assertEqual(re.sub(" +#.*", "", first), re.sub(" +#.*", "", again))

    def test_keys_are_not_shown(self):
        self.assertNotIn("secret", run("config", "show", "--api-key", "secret").stdout)

    def test_mistakes(self):
        self.assertIn("serve.toml:2: serve has no option prot; did you mean port?", self.refused("\nprot = 1\n"))
        self.assertIn("serve.toml:1: serve has no option config", self.refused('config = "x"\n'))
        self.assertIn("FOURFOLD_SERVE_PROT: serve has no option prot; did you mean port?", self.refused(FOURFOLD_SERVE_PROT="1"))
        self.assertIn("FOURFOLD_SERVE_API_KEY is empty", self.refused('api-key = ["x"]\n', FOURFOLD_SERVE_API_KEY=""))
        self.assertIn("serve.toml:2:", self.refused("port = 1\nport = 2\n"))
        self.assertIn("is given twice, here and in", self.refused("max-context = 1\nmax-model-len = 2\n"))
        self.assertRegex(self.refused("port = \n"), r"serve\.toml:[12]: ")
        self.assertIn("serve.toml:1: serve is neither text, a number", self.refused("[serve]\nport = 1\n"))
        self.assertIn("serve.toml:1: port has one value, not a list", self.refused("port = [1]\n"))
        self.assertIn("serve.toml:1: no-auth is true or false", self.refused("no-auth = 3\n"))
        self.assertIn("serve.toml:1: ", self.refused('port = "many"\n'))
        self.assertIn("cannot read", self.refused(None, "--config", "/no/such/file"))
        self.assertIn("--port 70000: 0 to 65535", self.refused("port = 70000\n"))
        self.assertIn("--no-auth and a key", self.refused('no-auth = true\napi-key = ["x"]\n'))
        self.assertIn("TLS needs both", self.refused('tls-cert = "x"\n'))

    def test_the_packaged_file(self):
        shown = self.show("--config", ROOT / "packaging/serve.toml")
        self.assertEqual(shown["port"][0], "8000")
        self.assertIn("packaging/serve.toml:", shown["host"][1])
        # What it has in comments is right as well.
        text = (ROOT / "packaging/serve.toml").read_text()
        self.file.write_text("\n".join(re.findall(r"^# ([a-z-]+ = .*)$", text, re.MULTILINE)))
        self.assertIn("serve.toml:", self.show("--config", self.file)["api-key-file"][1])

    def test_serve_runs_by_it(self):
        self.file.write_text('port = 0\nmax-context = 256\nserved-model-name = "from-the-file"\nprefix-cache-mb = 0\n')
        process = subprocess.Popen([PROGRAM, "serve", "--config", self.file], env=environment(FOURFOLD_SERVE_MAX_SEQUENCES="3"),
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            text = ""
            while "Ctrl-C" not in text:
                line = process.stdout.readline()
                self.assertTrue(line, text)
                text += line
            self.assertIn("from-the-file on ", text)
            self.assertIn("3 requests at once, 256 tokens each", text)
            self.assertIn("prefixes    NOT shared: --prefix-cache-mb 0", text)
        finally:
            process.terminate()
            process.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
