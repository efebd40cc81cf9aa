#!/usr/bin/env python3
"""Reference outputs for a checkpoint of `fourfold make-model --format bf16` or of quantised.py, computed by Hugging Face transformers.

    fourfold make-model tiny-next --shape tiny-next --format bf16 --seed 1
    make_reference.py tiny-next tiny-next.safetensors

What is quantised is dequantised here, by the definitions of the formats; inputs are not rounded. float32 on the CPU; the MTP layer where transformers has a module for it (GLM, DeepSeek). The file has the tensors that `fourfold compare` reads; the
head of ../qwen35-micro/make_tiny_qwen35.py lists them. Needs torch, transformers >= 5.23 and safetensors.
"""
import argparse
import json
import os
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
SCALES = ("weight_scale", "weight_scale_2", "weight_scale_inv", "weight_global_scale", "input_scale", "input_global_scale", "activation_scale",
          "k_scale", "v_scale", "pre_quant_scale")


def fp4_values(codes):
    """Even columns are in the low nibbles."""
    return E2M1[torch.stack((codes & 15, codes >> 4), -1).reshape(codes.shape[0], -1).long()]


def nvfp4_weight(codes, block_scales, tensor_scale):
    """A block scale has 16 columns."""
    return fp4_values(codes) * (block_scales.float() * tensor_scale).repeat_interleave(16, 1)


def mx_weight(values, scales):
    """A byte is a power of two for 32 columns."""
    return values * torch.exp2(scales.float() - 127).repeat_interleave(32, 1)


def fp8_weight(codes, scale):
    """A scale for the tensor, for each row, or for blocks of 128 x 128; in bytes, of MXFP8."""
    if scale.dtype == torch.uint8:
        return mx_weight(codes.float(), scale)
    if scale.numel() > 1 and scale.shape != (codes.shape[0], 1):
        scale = scale.repeat_interleave(128, 0)[:codes.shape[0]].repeat_interleave(128, 1)[:, :codes.shape[1]]
    return codes.float() * scale.float()


def dequantised(tensors):
    out = {}
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        of = lambda one: tensors[f"{module}.{one}"]
        if part in SCALES or part.endswith(("proj_scale_inv", "proj_activation_scale")):
            continue
        if part in ("weight", "weight_packed") and tensor.dtype == torch.uint8 and of("weight_scale").dtype == torch.uint8:
            out[module + ".weight"] = mx_weight(fp4_values(tensor), of("weight_scale"))
        elif part == "weight_packed":
            out[module + ".weight"] = nvfp4_weight(tensor, of("weight_scale"), 1 / of("weight_global_scale"))
        elif part == "weight" and tensor.dtype == torch.uint8:
            out[name] = nvfp4_weight(tensor, of("weight_scale"), of("weight_scale_2"))
            if module + ".pre_quant_scale" in tensors:  # AWQ: what the inputs are multiplied by, column by column
                out[name] = out[name] * of("pre_quant_scale").float()
        elif part == "weight" and tensor.dtype == torch.float8_e4m3fn:
            out[name] = fp8_weight(tensor, of("weight_scale_inv" if name + "_scale_inv" in tensors else "weight_scale"))
        elif tensor.dtype == torch.float8_e4m3fn:  # experts in one, a scale for each
            out[name] = tensor.float() * tensors[name + "_scale_inv"].float()
        else:
            out[name] = tensor.float()
    return out


def stacked(tensors, experts):
    """Experts as transformers' Mistral4 has them: gate above up, all in one."""
    out = {name: tensor for name, tensor in tensors.items() if ".mlp.experts." not in name or name.endswith("_proj")}
    for prefix in {name.split("experts.")[0] + "experts." for name in tensors.keys() - out.keys()}:
        one = lambda e, part: tensors[f"{prefix}{e}.{part}_proj.weight"]
        out[prefix + "gate_up_proj"] = torch.stack([torch.cat((one(e, "gate"), one(e, "up"))) for e in range(experts)])
        out[prefix + "down_proj"] = torch.stack([one(e, "down") for e in range(experts)])
    return out


def plain_folder(model, temp):
    """A quantised folder's model in float32, the text model alone."""
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    config.pop("quantization_config")
    tensors = dequantised(load_file(os.path.join(model, "model.safetensors")))
    if config["model_type"] == "mistral3":
        config, tensors = config["text_config"], {name.removeprefix("language_model."): tensor for name, tensor in tensors.items()}
    if config["model_type"] == "mistral4":
        tensors = stacked(tensors, config["n_routed_experts"])
    for name in os.listdir(model):
        if name.endswith("generation_config.json"):
            shutil.copyfile(os.path.join(model, name), os.path.join(temp, name))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, os.path.join(temp, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(temp, "config.json"), "w") as file:
        json.dump({**config, "dtype": "float32"}, file)
    return temp


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
        method = json.load(file).get("quantization_config", {}).get("quant_method", "mxfp4")
    with tempfile.TemporaryDirectory() as temp:
        write_reference(options.model if method == "mxfp4" else plain_folder(options.model, temp), options)


@torch.no_grad()
def write_reference(folder, options):
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    name = config["architectures"][0].replace("ForConditionalGeneration", "ForCausalLM")  # without a vision part
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {name}")
    extra = {}
    if config["model_type"] == "kimi_k2":  # what its release has code of its own for, the same as DeepSeek-V3's
        config["model_type"] = "deepseek_v3"
    for field in ("routed_scaling_factor", "swiglu_limit"):  # transformers wants a 1 to be written 1.0
        if field in config:
            config[field] = float(config[field])
            extra["config"] = transformers.AutoConfig.for_model(**config)
    if config.get("quantization_config", {}).get("quant_method") == "mxfp4":  # exact: codes times powers of two
        extra["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
    model, loading = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **extra)
    if loading["missing_keys"] or loading["mismatched_keys"]:
        raise SystemExit(f"{options.model}: without {loading}")
    model.eval()

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
