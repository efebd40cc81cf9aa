"""lm-eval's local-completions on our server: loglikelihood_rolling equals `fourfold perplexity` on the same windows.

    lm_eval_test.py --program FOURFOLD [--result FILE]        (tests/clients/lm_eval.sh makes the environment and calls this)

The package finds the server's own tokenizer (/tokenizer_info, /tokenize), sends token ids with echo and logprobs, and adds
up; nothing of it is replaced. Once through the model class, window by window and in batches, once through simple_evaluate
with a task of ours, and a choice task. Windows are those of perplexity: the text begins with the prefix token that lm-eval
puts before it, and its length is a whole number of windows (the last window of other texts has a longer context there).
"""
import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import socket
import subprocess
import tempfile
import time
import urllib.request

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="unused")
import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_LENGTH = 130  # lm-eval's; its windows predict two tokens fewer
WINDOW = MAX_LENGTH - 2
WINDOWS = 6
NATS = 1e-4  # a token


def check(truth, what):
    if not truth:
        raise AssertionError(what)


def ask(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def serve(program, log):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([program, "serve", "--port", str(port)], stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            ask(url, "/version")
            return server, url
        except OSError:
            check(server.poll() is None, "the server ended")
            time.sleep(0.2)
    server.kill()
    raise AssertionError("the server does not answer")


def text_of_whole_windows(url, source):
    """The longest beginning of the text that has WINDOWS windows of tokens, found by trying."""
    wanted = WINDOW * WINDOWS
    for end in range(wanted, len(source)):
        count = ask(url, "/tokenize", {"prompt": source[:end], "add_special_tokens": False})["count"]
        if count == wanted:
            return source[:end]
        check(count < wanted, "no beginning has this many tokens")
    raise AssertionError("the text is too short")


def rolling(model, text):
    return model.loglikelihood_rolling(
        [Instance("loglikelihood_rolling", {}, (text,), 0, ("t", 0, 1))], disable_tqdm=True)[0]


def perplexity(program, folder, text, prefix):
    file = pathlib.Path(folder) / "text.txt"
    file.write_text(prefix + text)
    run = subprocess.run([program, "perplexity", str(ROOT / "models/storyteller"), str(file), "--window", str(WINDOW),
                          "--json"], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def evaluate(url, folder, text):
    """The same through the whole package: a task of one document, read from a file."""
    data = pathlib.Path(folder) / "data.jsonl"
    data.write_text(json.dumps({"text": text}) + "\n")
    task = {"task": "our_text", "dataset_path": "json", "output_type": "loglikelihood_rolling", "test_split": "train",
            "dataset_kwargs": {"data_files": str(data)}, "doc_to_text": "", "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "bits_per_byte"}]}
    results = lm_eval.simple_evaluate(
        model="local-completions", tasks=[task], batch_size=3, cache_requests=False,
        model_args={"model": "default", "base_url": url + "/v1/completions", "max_length": MAX_LENGTH})
    return results["results"]["our_text"]["bits_per_byte,none"]


def choose(model):
    """A choice task: the story goes on in words, not in letters at random."""
    pairs = [("Once upon a", " time"), ("Once upon a", " xqzj")]
    answers = model.loglikelihood([Instance("loglikelihood", {}, pair, i, ("t", i, 1)) for i, pair in enumerate(pairs)],
                                  disable_tqdm=True)
    check(answers[0][0] > answers[1][0], answers)
    check(answers[0][1] and not answers[1][1], "the greedy continuation is known to be")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "wb") as log:
        server, url = serve(options.program, log)
        try:
            source = " ".join((ROOT / "models/storyteller/README.md").read_text().split())
            text = text_of_whole_windows(url, source)
            prefix = ask(url, "/tokenizer_info")["eos_token"]
            wanted = perplexity(options.program, folder, text, prefix)
            check(wanted["tokens"] == WINDOW * WINDOWS, wanted)
            lines = []
            for batch, concurrent in [(1, 1), (4, 1), (2, 3)]:
                model = LocalCompletionsAPI(base_url=url + "/v1/completions", model="default", max_length=MAX_LENGTH,
                                            batch_size=batch, num_concurrent=concurrent)
                check(model.tokenizer_backend == "remote", "the server's tokenizer is found")
                nats = -rolling(model, text) / wanted["tokens"]
                check(abs(nats - wanted["mean_surprise"]) < NATS, (nats, wanted))
                lines.append(f"loglikelihood_rolling, batches of {batch}, {concurrent} at once: {nats:.9f} nats a token, "
                             f"perplexity says {wanted['mean_surprise']:.9f}")
            choose(model)
            lines.append("loglikelihood of two continuations: the likelier one is, and is known to be greedy")
            bits = evaluate(url, folder, text)
            nats = bits * 0.6931471805599453 * len(text.encode()) / wanted["tokens"]
            check(abs(nats - wanted["mean_surprise"]) < NATS, (nats, wanted))
            lines.append(f"simple_evaluate, bits_per_byte of the text: {nats:.9f} nats a token")
        finally:
            server.terminate()
            server.wait(30)
    head = [f"lm_eval {importlib.metadata.version('lm_eval')} (local-completions, remote tokenizer) on fourfold serve, "
            f"models/storyteller, {WINDOWS} windows of {WINDOW} tokens",
            f"date: {datetime.date.today()}  machine: {platform.machine()}, {os.cpu_count()} cores",
            "command: tests/clients/lm_eval.sh build/fourfold docs/lm-eval.txt"]
    report = "\n".join(head + lines) + "\n"
    print(report, end="")
    if options.result:
        pathlib.Path(options.result).write_text(report)


if __name__ == "__main__":
    main()
