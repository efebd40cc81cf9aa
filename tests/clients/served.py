"""What the tests with real clients share: a model that follows a script, `fourfold serve` of it, and what its
metrics say.
"""
import contextlib
import functools
import json
import os
import pathlib
import random
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/text"

# Most clients: a tool of the tests' own, then words; other words where no tools are shown.
WEATHER = {
    "with_tools": [{"calls": [{"name": "weather", "arguments": {"city": "Paris", "days": 3}}]},
                   {"text": "It stays sunny in Paris for three days."}],
    "without_tools": [{"text": "Good morning, this is a scripted answer."}]}
WEATHER_SAYS = WEATHER["with_tools"][1]["text"]
PLAIN_SAYS = WEATHER["without_tools"][0]["text"]
WEATHER_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                  "required": ["city", "days"], "additionalProperties": False}


def check(truth, what):
    if not truth:
        raise AssertionError(str(what)[:2000])


def free_port():
    """Below those the system gives to outgoing connections: none takes it before a server has it, or while one that was
    killed starts again."""
    for port in random.sample(range(10_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("none of 100 ports is free")


def ask(url, body=None, headers=None):
    """The answer's JSON, or its text where it is none. An error's message is what the server said."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error.code} {error.read().decode()[:500]}") from error
    try:
        return json.loads(text)
    except ValueError:
        return text


def wait_for(url, process, seconds=120):
    for _ in range(int(seconds / 0.1)):
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except OSError:
            if process.poll() is not None:
                raise AssertionError(f"{url}: its process ended with {process.returncode}") from None
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer in {seconds} s")


def stop(process, seconds=30):
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@functools.cache
def tokenizer():
    """Qwen3's own, which lies packed among the golden files."""
    with tarfile.open(GOLDEN / "qwen3.tokenizer.tar.xz") as archive:
        return archive.extractfile("qwen3.tokenizer.json").read()


def tokenizer_with(special, plain):
    """Qwen3's with the control tokens and the plain ones of another family."""
    file = json.loads(tokenizer())
    known = {token["content"]: token["id"] for token in file["added_tokens"]}
    for content in [*special, *plain]:
        if content not in known:
            known[content] = max(known.values()) + 1
            file["added_tokens"].append({"id": known[content], "content": content, "single_word": False, "lstrip": False,
                                         "rstrip": False, "normalized": False, "special": content in special})
    return json.dumps(file).encode()


def chat_template(name):
    """Qwen3's own ("qwen3"), or ours in the manner of Qwen3-Coder ("tool_xml"), with Qwen's control tokens."""
    text = (GOLDEN / f"templates/{name}.jinja").read_text()
    return text.replace("<|turn|>", "<|im_start|>").replace("<|end|>", "<|im_end|>")


class Server:
    """`with Server(program, model) as server`: `fourfold serve` of a model's folder, at server.url."""

    def __init__(self, program, model, options=()):
        self.command, self.options = [program, "serve", model], options

    def __enter__(self):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen([*self.command, "--port", str(port), *self.options], stdout=self.log, stderr=self.log)
        try:
            wait_for(self.url + "/ready", self.process)
        except BaseException:
            print(self.said())
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        stop(self.process)
        self.log.close()

    def said(self):
        """What the server wrote so far."""
        return pathlib.Path(self.log.name).read_text()

    def metric(self, name):
        """The sum of a metric over its labels."""
        found = [float(line.rsplit(" ", 1)[1]) for line in ask(self.url + "/metrics").splitlines()
                 if line.split("{")[0].split(" ")[0] == name]
        check(found, f"there is no metric {name}")
        return sum(found)


class Served(Server):
    """`with Served(program, script) as served`: a scripted model is served; served.work is a folder to work in."""

    def __init__(self, program, script, template="qwen3", options=(), family=None):
        self.folder = tempfile.TemporaryDirectory(prefix="fourfold-clients-", ignore_cleanup_errors=True)
        self.work = pathlib.Path(self.folder.name)
        self.program, self.script, self.template, self.family = program, script, template, family
        super().__init__(program, self.work / "scripted", options)

    def write_text(self, text):
        """The tokenizer and the chat template."""
        if self.family:
            (text / "tokenizer.json").write_bytes(tokenizer_with(self.family["special"], self.family["plain"]))
            (text / "chat_template.jinja").write_bytes((GOLDEN / f"families/{self.template}.jinja").read_bytes())
        else:
            (text / "tokenizer.json").write_bytes(tokenizer())
            (text / "chat_template.jinja").write_text(chat_template(self.template))

    def __enter__(self):
        text = self.work / "text"
        text.mkdir()
        self.write_text(text)
        (self.work / "script.json").write_text(json.dumps(self.script))
        subprocess.run([self.program, "make-model", self.work / "scripted", "--script", self.work / "script.json",
                        "--text-of", text], check=True, stdout=subprocess.DEVNULL)
        return super().__enter__()

    def __exit__(self, *_):
        super().__exit__()
        self.folder.cleanup()


def clean_environment(home, **more):
    """For programs that must not see whose machine they run on."""
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE", "TMPDIR") if name in os.environ}
    return {**keep, "HOME": str(home), **{name: str(value) for name, value in more.items()}}
