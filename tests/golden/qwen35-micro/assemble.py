#!/usr/bin/env python3
"""Writes the golden checkpoints, complete: assemble.py OUT

The folders here hold configs and references. The weights are drawn again (weights.py), quantised where the release does so
(quantise.py) and stored under its names. Shards and indexes come out byte for byte as make_tiny_qwen35.py wrote them; their
digests are below. Plain Python, no packages.
"""
import array
import hashlib
import json
import pathlib
import shutil
import struct
import sys

from quantise import BLOCK, E2M1_MAX, E4M3_MAX, f32, fp8, nvfp4
from weights import EXPERTS, HIDDEN, LAYERS, LM, WIDTH, draw

HERE = pathlib.Path(__file__).resolve().parent
INPUT_AMAX = 8.0  # stands in for a calibrated activation maximum
ORDER = ["F32", "BF16", "F8_E4M3", "U8"]  # as the safetensors package sorts
DIGESTS = {
    "bf16/model-00001-of-00002.safetensors": "41bea92f0d1506e6dd965797b7d5739caf28fa2fcd5e940618112b7dd8174a05",
    "bf16/model-00002-of-00002.safetensors": "bd1de8522798d2b119d18f186bf7445346648cb53e60dfd3c785e2fd88a6c292",
    "bf16/model.safetensors.index.json": "5a047ed80beaeedf4ac3a1f92369397c0b22edfb78f8313b977b15da8f9fb8e8",
    "modelopt/model-00001-of-00002.safetensors": "b60f5ccc9b47dd636feb0ce69354df37737d288fdebd94eaf462dc13a7bb79f0",
    "modelopt/model-00002-of-00002.safetensors": "d12d9a3733f6da5ea429d1181f5968d1e01256c883822de0ca16f45049dbab08",
    "modelopt/model.safetensors.index.json": "908e2aa18b347388083ec1a929fd355b411ce4eb0e50b0f8ea0fc0dd53e11ef0",
    "modelopt_mixed/model-00001-of-00002.safetensors": "3f35e3035ccdbc4b782b11638353ba574d55c8c4cc381addbb5cb7495e68047e",
    "modelopt_mixed/model-00002-of-00002.safetensors": "562b2e5e4d2e8ff6a11d83cac2a189bae19e58fda298ab210cf060b5dc843b99",
    "modelopt_mixed/model.safetensors.index.json": "e03b908aaaaf1b187dfe72c9b8b1a1f4b2e5fde54890e1a2c6a8d9c09cf3be15",
    "compressed/model-00001-of-00002.safetensors": "c90f15529729dd81ceefa9ccc0fa4a2f45b7bbf5fb99037fca181e3d0330ae7f",
    "compressed/model-00002-of-00002.safetensors": "8d198d43feb206587d01a7d8b3d4e02c15e73fe092e0c938d6ef0cdbf9ad21df",
    "compressed/model.safetensors.index.json": "1b8a2f6ee0e26335a4394db7a4381695592e5c022f93a5c7c687521969129c37",
}


def scalar(value, shape=()):
    return "F32", list(shape), f32([value]).tobytes()


class Weight:
    def __init__(self, shape, codes):
        self.shape, self.codes = shape, codes
        self.values = array.array("f", array.array("I", [code << 16 for code in codes]).tobytes())
        self.amax = max(map(abs, self.values))

    def stored(self):
        return "BF16", self.shape, self.codes.tobytes()


def is_routed(name):
    return name.startswith(LM) and ".mlp.experts." in name


def is_shared(name):
    return name.startswith(LM) and ".mlp.shared_expert." in name


def is_attention(name):
    return name.startswith(LM) and ".self_attn." in name and name.endswith("_proj.weight")


def is_delta(name):
    return name.startswith(LM) and name.endswith(
        (".linear_attn.in_proj_qkv.weight", ".linear_attn.in_proj_z.weight", ".linear_attn.out_proj.weight"))


class Quantiser:
    """Matrices that share an input share a tensor scale; each is quantised once for all folders that agree on it."""

    def __init__(self, weights):
        self.weights, self.done = weights, {}

    def nvfp4(self, name, groups):
        module = name[:-len(".weight")]
        leaf = module.rsplit(".", 1)[-1]
        group = next((group for group in groups if leaf in group), (leaf,))
        amax = max(self.weights[f"{module[:-len(leaf)]}{one}.weight"].amax for one in group)
        key = name, amax
        if key not in self.done:
            weight = self.weights[name]
            rows, columns = weight.shape
            packed, scales, scale = nvfp4(weight.values, amax)
            self.done[key] = (("U8", [rows, columns // 2], packed), ("F8_E4M3", [rows, columns // BLOCK], scales), scale)
        return self.done[key]


def modelopt_nvfp4(out, quantiser, name):
    stem = name[:-len(".weight")]
    out[name], out[stem + ".weight_scale"], scale = quantiser.nvfp4(name, [("gate_proj", "up_proj")])
    out[stem + ".weight_scale_2"] = scalar(scale)


def bf16(weights, _):
    """The experts of the main layers in two tensors a layer, behind all others; those of MTP one by one."""
    out = {name: weight.stored() for name, weight in weights.items() if not is_routed(name)}
    for layer in range(LAYERS):
        prefix = f"{LM}layers.{layer}.mlp.experts."
        gate, up, down = ([weights[f"{prefix}{e}.{part}_proj.weight"].codes.tobytes() for e in range(EXPERTS)]
                          for part in ("gate", "up", "down"))
        both = b"".join(content for pair in zip(gate, up) for content in pair)
        out[prefix + "gate_up_proj"] = "BF16", [EXPERTS, 2 * WIDTH, HIDDEN], both
        out[prefix + "down_proj"] = "BF16", [EXPERTS, HIDDEN, WIDTH], b"".join(down)
    return out


def modelopt(weights, quantiser):
    out = {}
    for name, weight in weights.items():
        if is_routed(name):
            modelopt_nvfp4(out, quantiser, name)
            out[name[:-len("weight")] + "input_scale"] = scalar(INPUT_AMAX / (E2M1_MAX * E4M3_MAX))
        else:
            out[name] = weight.stored()
    return out


def modelopt_mixed(weights, quantiser):
    out = {}
    for name, weight in weights.items():
        if is_attention(name) or is_delta(name):
            stem = name[:-len("weight")]
            codes, scale = fp8(weight.values)
            out[name], out[stem + "weight_scale"] = ("F8_E4M3", weight.shape, codes), scalar(scale)
            out[stem + "input_scale"] = scalar(INPUT_AMAX / E4M3_MAX)
        elif is_routed(name) or is_shared(name) or name == "lm_head.weight":
            modelopt_nvfp4(out, quantiser, name)
        else:
            out[name] = weight.stored()
    return out


def compressed(weights, quantiser):
    out, groups = {}, [("gate_proj", "up_proj"), ("q_proj", "k_proj", "v_proj")]
    for name, weight in weights.items():
        if is_routed(name) or is_shared(name) or is_attention(name):
            stem = name[:-len("weight")]
            out[stem + "weight_packed"], out[stem + "weight_scale"], scale = quantiser.nvfp4(name, groups)
            out[stem + "weight_global_scale"] = scalar(1.0 / scale, [1])
            out[stem + "input_global_scale"] = scalar(E2M1_MAX * E4M3_MAX / INPUT_AMAX, [1])
        else:
            out[name] = weight.stored()
    return out


def shard_bytes(tensors):
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name in sorted(tensors, key=lambda name: (ORDER.index(tensors[name][0]), name)):
        dtype, shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def checkpoint_files(tensors):
    """Two shards, cut where the maker cut them, and their index."""
    total, before, shards = sum(len(content) for _, _, content in tensors.values()), 0, ({}, {})
    index = {}
    for name, tensor in tensors.items():
        number = 1 if before > total / 2 else 0
        shards[number][name] = tensor
        index[name] = f"model-{number + 1:05d}-of-00002.safetensors"
        before += len(tensor[2])
    files = {f"model-{i + 1:05d}-of-00002.safetensors": shard_bytes(shard) for i, shard in enumerate(shards)}
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1)
    return {**files, "model.safetensors.index.json": text.encode()}


def main(out):
    weights = {name: Weight(shape, codes) for name, (shape, codes) in draw().items()}
    quantiser = Quantiser(weights)
    for make in (bf16, modelopt, modelopt_mixed, compressed):
        folder = make.__name__
        (out / folder).mkdir(parents=True, exist_ok=True)
        for path in (HERE / folder).iterdir():
            shutil.copyfile(path, out / folder / path.name)
        for name, data in checkpoint_files(make(weights, quantiser)).items():
            path, digest = f"{folder}/{name}", hashlib.sha256(data).hexdigest()
            if digest != DIGESTS[path]:
                sys.exit(f"{path}: digest {digest}, not {DIGESTS[path]}; this is not the golden file")
            (out / path).write_bytes(data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
