"""Trains Storyteller.

    train.py --data FOLDER --out FOLDER --steps N [--tiny] [--device cuda]

FOLDER of --data is what prepare.py wrote. Books alone first; from `chat_from` on half of every batch is conversations;
from `quantise_from` on the weights are rounded to NVFP4 in every step, from `round_inputs_from` on the matrices' inputs, too.
Writes log.csv, checkpoint.pt (read again when the command is repeated) and at the end model.pt with the weights in bf16, not rounded to NVFP4.
"""
import argparse
import csv
import dataclasses
import json
import math
import pathlib
import time

import numpy
import torch

from model import Config, Storyteller, TINY
from nvfp4 import FakeQuantisation, round_inputs
from optimiser import Optimiser


class Data:
    """Rows of tokens on the device. The rows of step s depend on s and the seed alone."""

    def __init__(self, folder, length, device, seed):
        folder = pathlib.Path(folder)
        facts = json.loads((folder / "data.json").read_text())
        if facts["length"] != length:
            raise SystemExit(f"{folder}: rows of {facts['length']} tokens; prepare.py --length {length} makes the wanted ones")

        def load(name):
            return torch.from_numpy(numpy.fromfile(folder / name, dtype=numpy.uint16).astype(numpy.int32)).to(device)

        self.books, self.held_out = load("books.bin"), load("held_out.bin")
        self.chat = load("chat.bin").view(-1, length + 1)
        self.length, self.device, self.seed, self.orders = length, device, seed, {}

    def place(self, things, i):
        """Entry i of an endless sequence of shuffled epochs over `things` = (name, count)."""
        epoch, at = divmod(i, things[1])
        if self.orders.get(things[0], (None,))[0] != epoch:
            source = numpy.random.default_rng([self.seed, epoch, len(things[0])])
            self.orders[things[0]] = (epoch, source.permutation(things[1]), int(source.integers(self.length)))
        return self.orders[things[0]][1][at], self.orders[things[0]][2]

    def book_rows(self, first, count):
        """Windows of the stream; every epoch cuts it elsewhere."""
        windows = (len(self.books) - 1) // self.length - 1
        starts = []
        for i in range(first, first + count):
            place, shift = self.place(("books", windows), i)
            starts.append(int(place) * self.length + shift)
        return self.books[torch.tensor(starts, device=self.device)[:, None] + torch.arange(self.length + 1, device=self.device)]

    def chat_rows(self, first, count):
        places = [int(self.place(("chat", len(self.chat)), i)[0]) for i in range(first, first + count)]
        return self.chat[torch.tensor(places, device=self.device)]

    def held_out_rows(self, count):
        count = min(count, (len(self.held_out) - 1) // self.length)
        return torch.stack([self.held_out[i * self.length:(i + 1) * self.length + 1] for i in range(count)])


def rate_share(step, arguments):
    """Warm-up, constant, then a straight line to nothing over the last part."""
    warm_up = min(1.0, (step + 1) / arguments.warm_up)
    left = (arguments.steps - step) / max(1, arguments.steps - arguments.chat_from * arguments.steps)
    return min(warm_up, 1.0, max(0.0, left))


def batch_of(data, step, arguments, counts):
    chats = arguments.batch // 2 if step >= arguments.chat_from * arguments.steps else 0
    rows = data.book_rows(counts["books"], arguments.batch - chats)
    counts["books"] += arguments.batch - chats
    if chats:
        rows = torch.cat((rows, data.chat_rows(counts["chat"], chats)))
        counts["chat"] += chats
    return rows.long()


def held_out_loss(model, rows, batch):
    """With gradients, though nobody asks for them: without, every layer would be compiled once more."""
    losses = [torch.stack([part.detach() for part in model.losses(rows[i:i + batch].long())[:2]])
              for i in range(0, len(rows) - batch + 1, batch)]
    return torch.stack(losses).mean(0).tolist()


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--warm-up", type=int, default=150)
    parser.add_argument("--chat-from", type=float, default=0.5, help="share of the steps before conversations")
    parser.add_argument("--quantise-from", type=float, default=0.65, help="share of the steps before rounding")
    parser.add_argument("--round-inputs-from", type=float, default=0.85, help="share of the steps before inputs are rounded")
    parser.add_argument("--mtp-weight", type=float, default=0.3)
    parser.add_argument("--balance-weight", type=float, default=0.01)
    parser.add_argument("--save-every", type=float, default=90, help="seconds between checkpoints")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true", help="a model of a few layers, to try the script on a CPU")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Run:
    def __init__(self, arguments):
        self.arguments = arguments
        self.out = pathlib.Path(arguments.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.data = Data(arguments.data, arguments.length, arguments.device, arguments.seed)
        self.model = Storyteller(TINY if arguments.tiny else Config(), arguments.seed).to(arguments.device)
        if arguments.device == "cuda":
            self.model.kind = torch.bfloat16
        self.optimiser = Optimiser(self.model, arguments.rate)
        self.quantisation = FakeQuantisation(self.model)
        if not arguments.no_compile:
            self.model.compile()
            self.quantisation.compile()
        self.step, self.counts, self.log = 0, {"books": 0, "chat": 0}, []
        if (self.out / "checkpoint.pt").exists():
            self.resume()

    def resume(self):
        kept = torch.load(self.out / "checkpoint.pt", map_location=self.arguments.device)
        self.model.load_state_dict(kept["model"])
        self.optimiser.load(kept["optimiser"])
        self.step, self.counts, self.log = kept["step"], kept["counts"], kept["log"]
        print(f"goes on at step {self.step}", flush=True)

    def save(self):
        state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state(), "step": self.step,
                 "counts": self.counts, "log": self.log}
        torch.save(state, self.out / "checkpoint.new")
        (self.out / "checkpoint.new").rename(self.out / "checkpoint.pt")

    def one_step(self):
        a, rows = self.arguments, batch_of(self.data, self.step, self.arguments, self.counts)
        rounds = self.step >= a.quantise_from * a.steps
        self.model.watch = round_inputs if self.step >= a.round_inputs_from * a.steps else None
        if rounds:
            self.quantisation.round()
        loss, draft, balance = self.model.losses(rows)
        (loss + a.mtp_weight * draft + a.balance_weight * balance).backward()
        if rounds:
            self.quantisation.restore()
        norm = self.optimiser.step(rate_share(self.step, a))
        self.optimiser.forget_gradients()
        self.step += 1
        return torch.stack((loss.detach(), draft.detach(), balance.detach(), norm))

    def note(self, numbers, began, tokens):
        seconds = time.time() - began
        loss, draft, balance, norm = numbers.tolist()
        row = {"step": self.step, "seconds": round(seconds, 1), "tokens": self.step * self.arguments.batch * self.arguments.length,
               "loss": round(loss, 4), "mtp_loss": round(draft, 4), "balance": round(balance, 4), "norm": round(norm, 3),
               "rate": round(self.arguments.rate * rate_share(self.step, self.arguments), 6), "held_out": "",
               "tokens_a_second": round(tokens)}
        if len(self.log) % 10 == 9:
            row["held_out"] = round(held_out_loss(self.model, self.data.held_out_rows(2 * self.arguments.batch),
                                                  self.arguments.batch)[0], 4)
        self.log.append(row)
        print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        if not math.isfinite(loss):
            raise SystemExit("the loss is no number any more")
        with open(self.out / "log.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerows(self.log)

    def go(self):
        a = self.arguments
        parameters = sum(p.numel() for p in self.model.parameters())
        print(f"{parameters:,} parameters, {len(self.data.books):,} tokens of books, {len(self.data.chat):,} rows of chat, "
              f"{a.steps * a.batch * a.length:,} tokens to train", flush=True)
        began, saved, since, marked = time.time(), time.time(), [], (self.step, time.time())
        every = max(1, min(25, a.steps // 10))
        while self.step < a.steps:
            since.append(self.one_step())
            if self.step % every == 0:
                numbers = torch.stack(since).mean(0)
                numbers.tolist()  # waits for the device
                speed = (self.step - marked[0]) * a.batch * a.length / (time.time() - marked[1])
                self.note(numbers, began, speed)
                since, marked = [], (self.step, time.time())
            if time.time() - saved > a.save_every:
                self.save()
                saved = time.time()
        self.save()
        torch.save({"config": dataclasses.asdict(self.model.config), "model": self.stored_weights(), "steps": a.steps},
                   self.out / "model.pt")

    def stored_weights(self):
        """As a 16-bit checkpoint holds them; what is measured and exported starts from these."""
        return {name: value.to(torch.bfloat16) for name, value in self.model.state_dict().items()}


def main():
    torch.manual_seed(0)
    Run(arguments_of()).go()


if __name__ == "__main__":
    main()
