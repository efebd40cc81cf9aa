#!/usr/bin/env python3
"""Reference outputs for a checkpoint of `fourfold make-model --format bf16`, computed by Hugging Face transformers.

    fourfold make-model tiny-next --shape tiny-next --format bf16 --seed 1
    make_reference.py tiny-next tiny-next.safetensors

float32 on the CPU, no MTP (transformers has no such module). The file has the tensors that `fourfold compare` reads; the
head of ../qwen35-micro/make_tiny_qwen35.py lists them. Needs torch, transformers >= 5.2 and safetensors.
"""
import argparse
import json
import os

import torch
import transformers
from safetensors.torch import save_file

CLASSES = {"qwen3_5": "Qwen3_5ForCausalLM", "qwen3_5_moe": "Qwen3_5MoeForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
           "qwen3_moe": "Qwen3MoeForCausalLM"}


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--tokens", type=int, default=70, help="crosses a block of 64")
    parser.add_argument("--greedy", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with open(os.path.join(options.model, "config.json")) as file:
        config = json.load(file)
    name = CLASSES[config["model_type"]]
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {name}")
    model = getattr(transformers, name).from_pretrained(options.model, dtype=torch.float32).eval()

    vocab = config.get("text_config", config)["vocab_size"]
    generator = torch.Generator().manual_seed(options.seed)
    ids = torch.randint(0, vocab - 40, (options.tokens,), generator=generator)
    out = model(ids[None], output_hidden_states=True, use_cache=False)
    logits = out.logits[0]
    # transformers gives the last state behind the final norm; the layer's own output is caught by a hook.
    caught = {}
    inner = model.model
    hook = inner.norm.register_forward_hook(lambda module, args, result: caught.update(before=args[0][0], after=result[0]))
    model(ids[None], use_cache=False)
    hook.remove()
    hidden = torch.stack([state[0] for state in out.hidden_states[:-1]] + [caught["before"]])

    greedy, gaps, chosen_from, sequence = [], [], [], ids
    for _ in range(options.greedy):  # without a cache: nothing to get wrong
        chosen_from.append(model(sequence[None], use_cache=False).logits[0, -1])
        best = torch.topk(chosen_from[-1], 2)
        greedy.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        sequence = torch.cat((sequence, best.indices[:1]))
    save_file({"p.input_ids": ids, "p.logits_f32": logits.contiguous(), "p.hidden_f32": hidden.contiguous(),
               "p.final_norm_f32": caught["after"].contiguous(), "p.greedy_ids": torch.tensor(greedy),
               "p.greedy_gap": torch.tensor(gaps), "p.greedy_logits_f32": torch.stack(chosen_from)}, options.out)
    print(f"{options.out}: logits deviation {float(logits.std()):.2f}, greedy {greedy}, least gap {min(gaps):.3f}")


if __name__ == "__main__":
    main()
