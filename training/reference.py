"""What this folder's definition of the model computes from an exported checkpoint, for `fourfold compare`.

    reference.py MODEL_FOLDER OUT.safetensors

Weights are read back from the shards and dequantised, so the two sides share nothing but the files.
"""
import argparse
import json
import pathlib

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer

from model import CHUNK, Config, Storyteller, attention_layer, delta_layer, rms, rope_table
from nvfp4 import BLOCK
from sample import chat_prompt

VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
GREEDY, DRAFTS = 16, 4


class Files:
    def __init__(self, folder):
        self.tensors = {}
        for file in sorted(folder.glob("model-*.safetensors")):
            with safe_open(file, "pt") as shard:
                self.tensors.update({name: shard.get_tensor(name) for name in shard.keys()})

    def __getitem__(self, name):
        value = self.tensors[name]
        if value.dtype != torch.uint8:
            return value.float()
        module = name.removesuffix(".weight")
        codes = torch.stack((value & 15, value >> 4), -1).flatten(-2).long()
        numbers = VALUES[codes & 7] * torch.where(codes & 8 != 0, -1.0, 1.0)
        scale = self.tensors[module + ".weight_scale"].float() * self.tensors[module + ".weight_scale_2"]
        return (numbers.unflatten(-1, (-1, BLOCK)) * scale[..., None]).flatten(-2)


def config_of(folder):
    c = json.loads((folder / "config.json").read_text())
    return Config(vocab=c["vocab_size"], hidden=c["hidden_size"], layers=c["num_hidden_layers"],
                  interval=c["full_attention_interval"], heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"],
                  head_dim=c["head_dim"], key_heads=c["linear_num_key_heads"], value_heads=c["linear_num_value_heads"],
                  delta_dim=c["linear_key_head_dim"], experts=c["num_experts"], top_k=c["num_experts_per_tok"],
                  width=c["moe_intermediate_size"], shared_width=c["shared_expert_intermediate_size"],
                  rope_theta=c["rope_parameters"]["rope_theta"], epsilon=c["rms_norm_eps"],
                  positions=c["max_position_embeddings"])


def fill_layer(layer, files, prefix, experts):
    names = {"input_norm": "input_layernorm.weight", "post_norm": "post_attention_layernorm.weight",
             "gate": "mlp.gate.weight", "shared_expert_gate": "mlp.shared_expert_gate.weight",
             "shared_expert_down": "mlp.shared_expert.down_proj.weight"}
    mixer = "self_attn." if "q_proj" in layer else "linear_attn."
    for name, value in layer.items():
        if name in names:
            value.copy_(files[prefix + names[name]])
        elif name == "experts_down":
            value.copy_(torch.stack([files[f"{prefix}mlp.experts.{e}.down_proj.weight"] for e in range(experts)]))
        elif name == "experts_gate_up":
            value.copy_(torch.stack([torch.cat([files[f"{prefix}mlp.experts.{e}.{part}_proj.weight"]
                                                for part in ("gate", "up")]) for e in range(experts)]))
        elif name == "shared_expert_gate_up":
            value.copy_(torch.cat([files[f"{prefix}mlp.shared_expert.{part}_proj.weight"] for part in ("gate", "up")]))
        else:
            value.copy_(files[prefix + mixer + name + ("" if name in ("A_log", "dt_bias") else ".weight")])


@torch.no_grad()
def read_model(folder):
    files, config = Files(folder), config_of(folder)
    model = Storyteller(config)
    model.embedding.copy_(files["model.embed_tokens.weight"])
    model.final_norm.copy_(files["model.norm.weight"])
    for i, layer in enumerate(model.layers):
        fill_layer(layer, files, f"model.layers.{i}.", config.experts)
    for ours, theirs in (("embedding_norm", "pre_fc_norm_embedding"), ("hidden_norm", "pre_fc_norm_hidden"),
                         ("final_norm", "norm"), ("fc", "fc")):
        model.mtp[ours].copy_(files[f"mtp.{theirs}.weight"])
    fill_layer(model.mtp_layer, files, "mtp.layers.0.", config.experts)
    return model


def padded(ids):
    return torch.cat((ids, ids.new_zeros(-len(ids) % CHUNK)))[None]


def run(model, ids):
    """(every layer's output, after the final norm, logits); what is padded behind does not show."""
    c, seen = model.config, []
    x = torch.nn.functional.embedding(padded(ids), model.embedding)
    table = rope_table(c, x.shape[1], x.device)
    seen.append(x[0, :len(ids)])
    for i, layer in enumerate(model.layers):
        if c.is_attention(i):
            x, _ = attention_layer(c, model.kind, x, dict(layer.items()), *table)
        else:
            x, _ = delta_layer(c, model.kind, x, dict(layer.items()))
        seen.append(x[0, :len(ids)])
    final = rms(x, 1 + model.final_norm, c.epsilon)[0, :len(ids)]
    return torch.stack(seen), final, model.logits(final)


def draft(model, following, hidden):
    size = len(following)
    hidden = torch.cat((hidden, hidden.new_zeros(-size % CHUNK, hidden.shape[1])))[None]
    out, _ = model.drafted(padded(following), hidden)
    return out[0, :size]


@torch.no_grad()
def prompt_outputs(model, name, ids):
    hidden, final, logits = run(model, ids)
    greedy, gaps, text = [], [], ids
    for _ in range(GREEDY):
        best = run(model, text)[2][-1].topk(2)
        greedy.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
        text = torch.cat((text, best.indices[:1]))
    mtp = model.logits(draft(model, ids[1:], final[:-1]))
    following, states, drafts, rows = torch.cat((ids[1:], torch.tensor(greedy[:1]))), final, [], []
    for _ in range(DRAFTS):
        out = draft(model, following, states)
        rows.append(model.logits(out[-1:])[0])
        drafts.append(int(rows[-1].argmax()))
        following = torch.cat((following, torch.tensor(drafts[-1:])))
        states = torch.cat((states, out[-1:]))
    return {f"{name}.{key}": value.contiguous() for key, value in {
        "input_ids": ids, "logits_f32": logits, "hidden_f32": hidden, "final_norm_f32": final,
        "greedy_ids": torch.tensor(greedy), "greedy_gap": torch.tensor(gaps), "mtp_logits_f32": mtp,
        "mtp_draft_ids": torch.tensor(drafts), "mtp_draft_logits_f32": torch.stack(rows)}.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out")
    a = parser.parse_args()
    folder = pathlib.Path(a.folder)
    model, tokenizer = read_model(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = {"short": "It was a", "long": chat_prompt("Tell me a story about an old lighthouse and the sea.")
             + "The lighthouse stood at the end of the rocks, where the sea was never still; and the old man who kept it had not "
             "spoken to a living soul since the winter, when the boat came with oil and bread, and went away again."}
    outputs = {}
    for name, text in texts.items():
        outputs.update(prompt_outputs(model, name, torch.tensor(tokenizer.encode(text).ids)))
    save_file(outputs, a.out)


if __name__ == "__main__":
    main()
