"""lm-eval's local-completions: what it adds up equals `fourfold perplexity` on the same windows of the same text.

The package finds the server's own tokenizer (/tokenizer_info, /tokenize), sends token ids with echo and logprobs, and adds
up; nothing of it is replaced. The model is models/storyteller. Windows are those of perplexity: the text begins with the prefix
token that lm-eval puts before it, and its length is a whole number of windows (the last window of other texts has a longer
context there). tests/faults/loglikelihood_test.cpp replays the same requests in ./dev test, without the package.
"""
import functools
import json
import math
import os
import pathlib
import subprocess
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", OPENAI_API_KEY="unused")
import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.openai_completions import LocalCompletionsAPI  # noqa: E402

from served import ROOT, Server, ask, check  # noqa: E402

MODEL = ROOT / "models/storyteller"
MAX_LENGTH = 130  # lm-eval's; its windows predict two tokens fewer
WINDOW = MAX_LENGTH - 2
WINDOWS = 6
NATS = 1e-4  # a token


def text_of_whole_windows(url, source):
    """The longest beginning of the text that has WINDOWS windows of tokens, found by trying."""
    wanted = WINDOW * WINDOWS
    for end in range(wanted, len(source)):
        count = ask(url + "/tokenize", {"prompt": source[:end], "add_special_tokens": False})["count"]
        if count == wanted:
            return source[:end]
        check(count < wanted, "no beginning has this many tokens")
    raise AssertionError("the text is too short")


class Comparison:
    def __init__(self, program, url):
        self.url = url
        self.text = text_of_whole_windows(url, " ".join((MODEL / "README.md").read_text().split()))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "text.txt"
            file.write_text(ask(url + "/tokenizer_info")["eos_token"] + self.text)
            run = subprocess.run([program, "perplexity", MODEL, file, "--window", str(WINDOW), "--json"], check=True,
                                 capture_output=True, text=True)
        score = json.loads(run.stdout)
        check(score["tokens"] == WINDOW * WINDOWS, score)
        self.tokens, self.surprise = score["tokens"], score["mean_surprise"]

    def verdict(self, nats):
        check(abs(nats - self.surprise) < NATS, (nats, self.surprise))
        return f"{nats:.9f} nats a token, perplexity says {self.surprise:.9f}, {WINDOWS} windows of {WINDOW} tokens"

    def model(self, batch, concurrent):
        model = LocalCompletionsAPI(base_url=self.url + "/v1/completions", model="default", max_length=MAX_LENGTH,
                                    batch_size=batch, num_concurrent=concurrent)
        check(model.tokenizer_backend == "remote", "the server's tokenizer is found")
        return model


def rolling(batch, concurrent, comparison):
    asked = [Instance("loglikelihood_rolling", {}, (comparison.text,), 0, ("t", 0, 1))]
    answer = comparison.model(batch, concurrent).loglikelihood_rolling(asked, disable_tqdm=True)[0]
    return comparison.verdict(-answer / comparison.tokens)


def one_by_one(comparison):
    """lm-eval (lm_eval, local-completions): loglikelihood_rolling equals `fourfold perplexity`, window by window"""
    return rolling(1, 1, comparison)


def in_batches(comparison):
    """lm-eval (lm_eval, local-completions): loglikelihood_rolling equals `fourfold perplexity`, in batches of 4"""
    return rolling(4, 1, comparison)


def at_once(comparison):
    """lm-eval (lm_eval, local-completions): loglikelihood_rolling equals `fourfold perplexity`, three requests at once"""
    return rolling(2, 3, comparison)


def evaluate(comparison):
    """lm-eval (lm_eval, local-completions): `simple_evaluate` of a text, bits per byte equal `fourfold perplexity`"""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data.jsonl"
        data.write_text(json.dumps({"text": comparison.text}) + "\n")
        task = {"task": "our_text", "dataset_path": "json", "output_type": "loglikelihood_rolling", "test_split": "train",
                "dataset_kwargs": {"data_files": str(data)}, "doc_to_text": "", "doc_to_target": "{{text}}",
                "metric_list": [{"metric": "bits_per_byte"}]}
        results = lm_eval.simple_evaluate(
            model="local-completions", tasks=[task], batch_size=3, cache_requests=False,
            model_args={"model": "default", "base_url": comparison.url + "/v1/completions", "max_length": MAX_LENGTH})
    bits = results["results"]["our_text"]["bits_per_byte,none"]
    return comparison.verdict(bits * math.log(2) * len(comparison.text.encode()) / comparison.tokens)


def choose(comparison):
    """lm-eval (lm_eval, local-completions): loglikelihood of two continuations; the greedy one is known to be"""
    # The story goes on in words, not in letters at random.
    pairs = [("Once upon a", " time"), ("Once upon a", " xqzj")]
    asked = [Instance("loglikelihood", {}, pair, i, ("t", i, 1)) for i, pair in enumerate(pairs)]
    answers = comparison.model(1, 1).loglikelihood(asked, disable_tqdm=True)
    check(answers[0][0] > answers[1][0], answers)
    check(answers[0][1] and not answers[1][1], "the greedy continuation is known to be")


def run_suite(program, run_row):
    with Server(program, MODEL) as server:
        # Made by the first row, so that what goes wrong in it is that row's.
        comparison = functools.cache(lambda: Comparison(program, server.url))
        return [run_row(functools.wraps(row)(lambda _, row=row: row(comparison())), None)
                for row in (one_by_one, in_batches, at_once, evaluate, choose)]
