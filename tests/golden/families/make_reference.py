#!/usr/bin/env python3
"""Reference outputs for a checkpoint of `fourfold make-model --format bf16`, computed by Hugging Face transformers.

    fourfold make-model tiny-next --shape tiny-next --format bf16 --seed 1
    make_reference.py tiny-next tiny-next.safetensors

float32 on the CPU; the MTP layer where transformers has a module for it (GLM, DeepSeek). The file has the tensors that `fourfold compare` reads; the
head of ../qwen35-micro/make_tiny_qwen35.py lists them. Needs torch, transformers >= 5.23 and safetensors.
"""
import argparse
import json
import os

import torch
import transformers
from safetensors.torch import save_file

CLASSES = {"qwen3_5": "Qwen3_5ForCausalLM", "qwen3_5_moe": "Qwen3_5MoeForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
           "qwen3_moe": "Qwen3MoeForCausalLM", "glm4_moe": "Glm4MoeForCausalLM", "minimax_m2": "MiniMaxM2ForCausalLM", "gpt_oss": "GptOssForCausalLM",
           "deepseek_v3": "DeepseekV3ForCausalLM", "mistral4": "Mistral4ForCausalLM"}


def mtp_outputs(model, ids, final, first, count):
    """Row i: hidden state i and token i + 1. Then `count` drafts, each from the one before."""
    from transformers.modeling_layers import MtpModel
    # Where the layer is in the checkpoint; the class knows the places in the releases alone.
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{model.config.num_hidden_layers}.*"]
    mtp = MtpModel.from_pretrained(model, dtype=torch.float32).eval()

    def run(tokens, hidden):
        positions = torch.arange(1, len(tokens) + 1)[None]
        out = mtp.forward_layer(0, hidden[None], positions, None, input_ids=tokens[None])[0]
        return out, model.lm_head(out)

    logits = run(ids[1:], final[:-1])[1]
    tokens, hidden, drafts, chosen_from = torch.cat((ids[1:], torch.tensor([first]))), final, [], []
    for _ in range(count):
        out, drafted = run(tokens, hidden)
        chosen_from.append(drafted[-1])
        drafts.append(int(drafted[-1].argmax()))
        tokens, hidden = torch.cat((tokens, torch.tensor(drafts[-1:]))), torch.cat((hidden, out[-1:]))
    return {"p.mtp_logits_f32": logits.contiguous(), "p.mtp_draft_ids": torch.tensor(drafts),
            "p.mtp_draft_logits_f32": torch.stack(chosen_from)}


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--tokens", type=int, default=70, help="crosses a block of 64")
    parser.add_argument("--greedy", type=int, default=8)
    parser.add_argument("--drafts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with open(os.path.join(options.model, "config.json")) as file:
        config = json.load(file)
    name = CLASSES[config["model_type"]]
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {name}")
    extra = {}
    for field in ("routed_scaling_factor", "swiglu_limit"):  # transformers wants a 1 to be written 1.0
        if field in config:
            config[field] = float(config[field])
            extra["config"] = transformers.AutoConfig.for_model(**config)
    if config.get("quantization_config", {}).get("quant_method") == "mxfp4":  # exact: codes times powers of two
        extra["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    model = getattr(transformers, name).from_pretrained(options.model, dtype=torch.float32, **extra).eval()

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
    mtp = {}
    if config.get("num_nextn_predict_layers", 0) > 0:
        mtp = mtp_outputs(model, ids, caught["after"], greedy[0], options.drafts)
    save_file({"p.input_ids": ids, "p.logits_f32": logits.contiguous(), "p.hidden_f32": hidden.contiguous(),
               "p.final_norm_f32": caught["after"].contiguous(), "p.greedy_ids": torch.tensor(greedy),
               "p.greedy_gap": torch.tensor(gaps), "p.greedy_logits_f32": torch.stack(chosen_from), **mtp}, options.out)
    print(f"{options.out}: logits deviation {float(logits.std()):.2f}, greedy {greedy}, least gap {min(gaps):.3f}")


if __name__ == "__main__":
    main()
