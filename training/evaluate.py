"""Measures a trained model: held-out perplexity exact and rounded to NVFP4, MTP agreement, answers to the fixed prompts.

    evaluate.py --model FILE --data FOLDER --out FOLDER [--seeds 5] [--device cuda]

Writes eval.json, samples.json (what judge.py reads) and calibration.json (largest inputs of the matrices, for export.py).
"""
import argparse
import json
import math
import pathlib

import torch
from tokenizers import Tokenizer

from model import Config, Storyteller
from nvfp4 import FakeQuantisation, rounded_inputs
from sample import answers, chat_prompt
from train import Data

HERE = pathlib.Path(__file__).resolve().parent


def load_model(file, device):
    kept = torch.load(file, map_location="cpu")
    model = Storyteller(Config(**kept["config"]))
    model.load_state_dict({name: value.float() for name, value in kept["model"].items()})
    model = model.to(device)
    model.kind = torch.bfloat16 if device == "cuda" else torch.float32
    return model


@torch.no_grad()
def measure(model, rows, batch, watch=None):
    """Mean loss of the next token, how often the best one is right, how often the MTP layer drafts what the model would
    choose (greedy acceptance at k = 1), and the chance it has when the model draws (sampled acceptance)."""
    sums = torch.zeros(4, dtype=torch.float64)
    for at in range(0, len(rows), batch):
        part = rows[at:at + batch].long()
        tokens, targets = part[:, :-1], part[:, 1:]
        hidden, _ = model.hidden(tokens, watch)
        drafted, _ = model.drafted(targets, hidden, watch)
        logits = model.logits(hidden).log_softmax(-1)
        loss = -logits.gather(-1, targets[..., None]).mean()
        best = logits.argmax(-1)
        drafts = model.logits(drafted)[:, :-1].argmax(-1)
        agreed = (drafts == best[:, 1:]).float().mean()
        chance = logits[:, 1:].gather(-1, drafts[..., None]).exp().mean()
        sums += len(part) * torch.tensor([loss, (best == targets).float().mean(), agreed, chance], dtype=torch.float64)
    loss, right, agreed, chance = (sums / len(rows)).tolist()
    return {"loss": loss, "perplexity": math.exp(loss), "top1": right, "mtp_greedy": agreed, "mtp_sampled": chance}


@torch.no_grad()
def calibrate(model, rows):
    """Largest magnitude of every matrix's input, by layer; routed experts share theirs."""
    largest, c = {}, model.config

    def watch(layer):
        def see(name, x, used=None):
            parts = {name: x}
            if name == "down":
                routed = c.experts * c.width
                parts = {"down": (x * (used != 0))[..., :routed], "shared_down": x[..., routed:]}
            for part, values in parts.items():
                key = f"{layer}.{part}"
                largest[key] = max(largest.get(key, 0.0), float(values.abs().max()))
            return x
        return see

    hidden, _ = model.hidden(rows[:, :-1].long(), watch)
    model.drafted(rows[:, 1:].long(), hidden, watch)
    return largest


def rounding(model, largest):
    """W4A4: every input of a quantised matrix rounded with its calibrated scale."""
    c = model.config

    def watch(layer):
        def see(name, x, used=None):
            if name != "down":
                return rounded_inputs(x, torch.tensor(largest[f"{layer}.{name}"]))
            routed = c.experts * c.width
            return torch.cat((rounded_inputs(x[..., :routed], torch.tensor(largest[f"{layer}.down"])),
                              rounded_inputs(x[..., routed:], torch.tensor(largest[f"{layer}.shared_down"]))), -1)
        return see
    return watch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tokenizer", default=str(HERE.parent / "models" / "storyteller" / "tokenizer.json"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10000, help="of held-out text, at most")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--most", type=int, default=320, help="tokens of an answer")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = parser.parse_args()
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    facts = json.loads((pathlib.Path(a.data) / "data.json").read_text())
    data = Data(a.data, facts["length"], a.device, 1)
    model = load_model(a.model, a.device)
    rows = data.held_out_rows(a.rows)
    result = {"held_out_tokens": len(rows) * facts["length"], "bf16": measure(model, rows, a.batch)}
    FakeQuantisation(model).round()
    largest = calibrate(model, data.book_rows(0, a.batch))
    (out / "calibration.json").write_text(json.dumps(largest, indent=1) + "\n")
    result["w4a16"] = measure(model, rows, a.batch)
    result["w4a4"] = measure(model, rows, a.batch, rounding(model, largest))
    for name in ("w4a16", "w4a4"):
        result["loss_of_" + name] = result[name]["perplexity"] / result["bf16"]["perplexity"] - 1
    print(json.dumps(result, indent=1), flush=True)
    (out / "eval.json").write_text(json.dumps(result, indent=1) + "\n")
    tokenizer = Tokenizer.from_file(a.tokenizer)
    fixed = json.loads((HERE / "prompts.json").read_text())
    prompts = [entry["prompt"] for entry in fixed["stories"] + fixed["itself"]]
    asked = [(prompt, seed, thinking) for seed in range(a.seeds) for prompt in prompts
             for thinking in ((False, True) if seed == 0 else (False,))]
    made = answers(model, tokenizer, [chat_prompt(prompt, thinking) for prompt, _, thinking in asked], 1, a.most)
    samples = [{"prompt": prompt, "seed": seed, "thinking": thinking, "answer": answer, "ended": ended}
               for (prompt, seed, thinking), (answer, ended) in zip(asked, made)]
    (out / "samples.json").write_text(json.dumps(samples, indent=1) + "\n")
    for sample in samples[:2 * len(prompts)]:
        print(f"### {sample['prompt']} {'(thinking)' if sample['thinking'] else ''}\n{sample['answer']}"
              f"{' [stop]' if sample['ended'] else ' [cut]'}\n")


if __name__ == "__main__":
    main()
