#!/usr/bin/env python3
"""Writes a model of `make-model --format bf16` again, quantised: quantised.py MODEL OUT NAME

    fourfold make-model tiny-glm --shape tiny-glm --format bf16 --seed 1
    quantised.py tiny-glm tiny-glm-nvfp4-modelopt tiny-glm-nvfp4-modelopt

Tensors, names and quantization_config are those that the makers' own packages write (make_quantised.py wrote both and compared
them); quantised.json has the configs, and the digest of model.safetensors, which is the same on every machine. FP8 in blocks, which
DeepSeek and MiniMax release without a package, is written from its definition, and Mistral's static FP8 as transformers converts the
release (convert_mistral4_weight_to_hf.py). Plain Python, no packages.
"""
import array
import bisect
import hashlib
import json
import math
import pathlib
import re
import shutil
import struct
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "qwen35-micro"))
from keep_rows import read
from quantise import BLOCK, E2M1_BOUNDS, E2M1_MAX, E4M3, E4M3_BOUNDS, E4M3_MAX, e4m3_codes, f32, fp8, nearest, nvfp4, pack_e2m1

RECIPES = ("nvfp4-modelopt", "nvfp4-awq", "nvfp4-compressed", "fp8-tensor", "fp8-rows", "fp8-blocks", "fp8-static", "mxfp8-modelopt",
           "mxfp8-compressed", "mxfp4-modelopt", "mxfp4-compressed")
FP8_BLOCK = 128
MX_BLOCK = 32
# Never quantised: embedding, head, routers, what joins the inputs of an MTP layer, Qwen's own, and DeltaNet's small projections.
PLAIN = re.compile(r"embed_tokens|lm_head|mlp\.gate$|moe\.gate$|eh_proj|^mtp\.|in_proj_[ab]$")
# Released in float32.
IN_F32 = re.compile(r"e_score_correction_bias$|block_sparse_moe\.gate\.weight$")
# What a release leaves as it is, too. ModelOpt's exports of MiniMax have NVFP4 experts alone, those of DeepSeek nothing of its
# attention but the output projection.
ALSO_PLAIN = {("minimax_m2", "nvfp4-modelopt"): "self_attn", ("deepseek_v3", "nvfp4-modelopt"): r"self_attn\.(?!o_proj)"}
# Exported with the scales of an FP8 cache.
FP8_CACHE = {("deepseek_v3", "nvfp4-modelopt")}
# AWQ: matrices whose input is no norm's, into which ModelOpt would multiply the factors, and which keep them.
WITH_FACTORS = re.compile(r"(o|out|down)_proj$")
FACTORS = (0.5, 0.703125, 1.0, 1.4140625, 2.0)
# Matrices of one input, which kernels multiply by together, share the scale of the tensor.
TOGETHER = (("gate_proj", "up_proj"), ("w1", "w3"), ("q_proj", "k_proj", "v_proj"))


def recipe_of(name):
    """(shape, recipe) of a golden model's name."""
    recipe = next((recipe for recipe in RECIPES if name.endswith("-" + recipe)), None)
    return (name[:-len(recipe) - 1], recipe) if recipe else (name, None)


def bf16(values):
    """The nearest bf16 of each, as floats."""
    bits = array.array("I", f32(values).tobytes())
    return array.array("f", array.array("I", [(x + 0x7FFF + (x >> 16 & 1)) & 0xFFFF0000 for x in bits]).tobytes())


def bf16_bytes(values):
    """Of numbers that bf16 has."""
    return array.array("H", [bits >> 16 for bits in array.array("I", f32(values).tobytes())]).tobytes()


def floats(codes):
    return array.array("f", array.array("I", [code << 16 for code in array.array("H", codes)]).tobytes())


def widened(tensor):
    return "F32", tensor[1], floats(tensor[2]).tobytes()


def input_factors(module, recipe, columns):
    """What AWQ multiplies each column of the input by; all 1 where that is in a norm."""
    if recipe != "nvfp4-awq" or not WITH_FACTORS.search(module):
        return None
    return [FACTORS[zlib.crc32(f"{module} {column}".encode()) % len(FACTORS)] for column in range(columns)]


class Weight:
    def __init__(self, shape, codes, factors):
        self.shape, self.values, self.factors = shape, floats(codes), factors
        if factors:
            self.values = bf16([value / factors[i % shape[1]] for i, value in enumerate(self.values)])
        self.amax = max(map(abs, self.values))


def unstacked(tensors):
    """Experts one by one, as quantised checkpoints have them."""
    out = {}
    for name, (dtype, shape, content) in tensors.items():
        if not name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            out[name] = dtype, shape, content
            continue
        prefix, leaf = name.rsplit(".", 1)
        parts = ("gate_proj", "up_proj") if leaf == "gate_up_proj" else ("down_proj",)
        rows, columns = shape[1] // len(parts), shape[2]
        for i in range(shape[0] * len(parts)):
            module = f"{prefix}.{i // len(parts)}.{parts[i % len(parts)]}"
            size = rows * columns * 2
            out[module + ".weight"] = dtype, [rows, columns], content[i * size:(i + 1) * size]
    return out


def is_quantised(module, config, recipe):
    if PLAIN.search(module):
        return False
    left = ALSO_PLAIN.get((config["model_type"], recipe))
    if left and re.search(left, module):
        return False
    # The layer for drafts, behind the last: NVFP4 exports leave it as it is.
    return "fp8" in recipe or f".layers.{config.get('text_config', config)['num_hidden_layers']}." not in module


def group(module):
    """The modules of the same input, itself among them."""
    leaf = module.rsplit(".", 1)[-1]
    together = next((leaves for leaves in TOGETHER if leaf in leaves), (leaf,))
    return [module[:-len(leaf)] + one for one in together]


def input_amax(module):
    """Stands in for a calibrated maximum of the activations: one for each input."""
    return 6 + zlib.crc32(group(module)[0].encode()) % 16 / 4


def scalar(value, shape=()):
    return "F32", list(shape), f32([value]).tobytes()


def modelopt_nvfp4(module, weight, amax):
    packed, scales, scale = nvfp4(weight.values, amax)
    rows, columns = weight.shape
    factors = {"pre_quant_scale": ("BF16", [columns], bf16_bytes(weight.factors))} if weight.factors else {}
    return {**factors, "weight": ("U8", [rows, columns // 2], packed), "weight_scale": ("F8_E4M3", [rows, columns // BLOCK], scales),
            "weight_scale_2": scalar(scale), "input_scale": scalar(input_amax(module) / (E2M1_MAX * E4M3_MAX))}


def reciprocal_scale(amax):
    """torch divides a number by a tensor in two steps."""
    return f32([f32([1 / amax])[0] * (E4M3_MAX * E2M1_MAX)])[0]


def compressed_nvfp4(module, weight, amax):
    """The scales are reciprocal, and rounded in another order."""
    scale = reciprocal_scale(amax)
    packed, scales = bytearray(), bytearray()
    for at in range(0, len(weight.values), BLOCK):
        block = weight.values[at:at + BLOCK]
        sixth = f32([max(map(abs, block)) / E2M1_MAX])[0]
        code = nearest(E4M3_BOUNDS, min(f32([scale * sixth])[0], E4M3_MAX)) or nearest(E4M3_BOUNDS, 0.125)
        scales.append(code)
        packed += pack_e2m1(block, f32([E4M3[code] / scale])[0])
    rows, columns = weight.shape
    return {"weight_packed": ("U8", [rows, columns // 2], bytes(packed)),
            "weight_scale": ("F8_E4M3", [rows, columns // BLOCK], bytes(scales)), "weight_global_scale": scalar(scale, [1]),
            "input_global_scale": scalar(reciprocal_scale(input_amax(module)), [1])}


def fp8_tensor(module, weight, amax):
    """ModelOpt divides in bf16."""
    scale = f32([amax / E4M3_MAX])[0]
    codes = e4m3_codes(bf16([value / scale for value in weight.values]))
    return {"weight": ("F8_E4M3", weight.shape, codes), "weight_scale": scalar(scale),
            "input_scale": scalar(input_amax(module) / E4M3_MAX)}


def fp8_rows(_, weight, __):
    """compressed-tensors computes in the model's own type, and has its scales in it."""
    codes, scales, columns = bytearray(), array.array("H"), weight.shape[1]
    for at in range(0, len(weight.values), columns):
        row = weight.values[at:at + columns]
        scale = bf16([max(map(abs, row)) / E4M3_MAX])
        scales.append(array.array("I", scale.tobytes())[0] >> 16)
        codes += e4m3_codes(bf16([value / scale[0] for value in row]))
    return {"weight": ("F8_E4M3", weight.shape, bytes(codes)), "weight_scale": ("BF16", [weight.shape[0], 1], scales.tobytes())}


def fp8_blocks(_, weight, __):
    """weight_scale_inv multiplies, in spite of its name. Blocks at the right and lower edge are what is left."""
    rows, columns = weight.shape
    codes, scales = bytearray(rows * columns), f32([])
    for top in range(0, rows, FP8_BLOCK):
        for left in range(0, columns, FP8_BLOCK):
            lines = [range(row * columns + left, row * columns + min(left + FP8_BLOCK, columns))
                     for row in range(top, min(top + FP8_BLOCK, rows))]
            block, scale = fp8(array.array("f", [x for line in lines for x in weight.values[line.start:line.stop]]))
            scales.append(scale)
            for i, line in enumerate(lines):
                codes[line.start:line.stop] = block[i * len(line):(i + 1) * len(line)]
    return {"weight": ("F8_E4M3", weight.shape, bytes(codes)),
            "weight_scale_inv": ("F32", [-(-rows // FP8_BLOCK), -(-columns // FP8_BLOCK)], scales.tobytes())}


def fp8_static(module, weight, amax):
    """As Mistral releases it: a scale for the tensor and one for its inputs, in bf16. Both multiply, whatever their names."""
    scale, inputs = bf16([amax / E4M3_MAX]), bf16([input_amax(module) / E4M3_MAX])
    return {"weight": ("F8_E4M3", weight.shape, e4m3_codes(f32([value / scale[0] for value in weight.values]))),
            "weight_scale_inv": ("BF16", [], bf16_bytes(scale)), "activation_scale": ("BF16", [], bf16_bytes(inputs))}


def power_above(x, beyond):
    """The exponent of the least power of two that x is not above; `beyond`: that x is below."""
    mantissa, exponent = math.frexp(x)
    return exponent - (mantissa == 0.5 and not beyond)


def mx_blocks(values, largest, beyond):
    """Of each 32 numbers: the byte of their scale, by which `largest` is their largest one's bound, and the numbers in its steps."""
    for at in range(0, len(values), MX_BLOCK):
        block = values[at:at + MX_BLOCK]
        exponent = power_above(max(map(abs, block)) / largest, beyond)
        yield exponent + 127, [x * 2.0**-exponent for x in block]


def mxfp8(weight, beyond):
    blocks = list(mx_blocks(weight.values, E4M3_MAX, beyond))
    rows, columns = weight.shape
    return {"weight": ("F8_E4M3", [rows, columns], e4m3_codes([x for _, block in blocks for x in block])),
            "weight_scale": ("U8", [rows, columns // MX_BLOCK], bytes(scale for scale, _ in blocks))}


def modelopt_mxfp8(_, weight, __):
    return mxfp8(weight, False)


def compressed_mxfp8(_, weight, __):
    """A block whose largest number would be 448 gets the next scale."""
    return mxfp8(weight, True)


def mxfp4(weight, name, largest, beyond, pack):
    blocks = list(mx_blocks(weight.values, largest, beyond))
    rows, columns = weight.shape
    return {name: ("U8", [rows, columns // 2], b"".join(pack(block) for _, block in blocks)),
            "weight_scale": ("U8", [rows, columns // MX_BLOCK], bytes(scale for scale, _ in blocks))}


def pack_rounded_in(block):
    """As ModelOpt has MXFP4: what is half way between two numbers goes to the one nearer to zero, and zero has a sign."""
    codes = [bisect.bisect_left(E2M1_BOUNDS, abs(x)) | (x <= 0) << 3 for x in block]
    return bytes(low | high << 4 for low, high in zip(codes[0::2], codes[1::2]))


def modelopt_mxfp4(_, weight, __):
    return mxfp4(weight, "weight", E2M1_MAX, False, pack_rounded_in)


def compressed_mxfp4(_, weight, __):
    """Blocks are scaled to below 7, and what is above 6 is 6."""
    return mxfp4(weight, "weight_packed", 7, True, lambda block: pack_e2m1(block, 1))


QUANTISE = {"nvfp4-modelopt": modelopt_nvfp4, "nvfp4-awq": modelopt_nvfp4, "nvfp4-compressed": compressed_nvfp4, "fp8-tensor": fp8_tensor, "fp8-rows": fp8_rows,
            "fp8-blocks": fp8_blocks, "fp8-static": fp8_static, "mxfp8-modelopt": modelopt_mxfp8, "mxfp8-compressed": compressed_mxfp8, "mxfp4-modelopt": modelopt_mxfp4,
            "mxfp4-compressed": compressed_mxfp4}


def stacked(tensors):
    """Experts in one again, gate above up, as transformers writes them in FP8: a scale for each expert."""
    out, experts = {}, {}
    for name, tensor in tensors.items():
        place = re.fullmatch(r"(.*\.experts\.)(\d+)\.(gate|up|down)_proj\.(\w+)", name)
        if not place:
            out[name] = tensor
        elif place[3] != "up":
            leaf = {"weight": "", "weight_scale_inv": "_scale_inv", "activation_scale": "_activation_scale"}[place[4]]
            is_down = place[3] == "down"
            (dtype, shape, content), above = tensor, place[4] == "weight" and not is_down
            if above:
                shape, content = [2 * shape[0], shape[1]], content + tensors[name.replace(".gate_proj", ".up_proj")][2]
            elif leaf == "_scale_inv":
                shape = [1, 1]
            experts.setdefault(place[1] + ("down_proj" if is_down else "gate_up_proj") + leaf, []).append((dtype, shape, content))
    for name, parts in experts.items():
        out[name] = parts[0][0], [len(parts), *parts[0][1]], b"".join(content for _, _, content in parts)
    return out


def quantised(tensors, config, recipe):
    """The tensors of the checkpoint, under their names in a text model."""
    tensors, out, weights = unstacked(tensors), {}, {}
    for name, (_, shape, content) in tensors.items():
        module = name[:-len(".weight")]
        if name.endswith(".weight") and len(shape) == 2 and is_quantised(module, config, recipe):
            weights[module] = Weight(shape, content, input_factors(module, recipe, shape[1]))
    for name, tensor in tensors.items():
        module = name[:-len(".weight")] if name.endswith(".weight") else None
        if module not in weights:
            out[name] = widened(tensor) if IN_F32.search(name) else tensor
            continue
        amax = max(weights[one].amax for one in group(module))
        for part, stored in QUANTISE[recipe](module, weights[module], amax).items():
            out[f"{module}.{part}"] = stored
    if (config["model_type"], recipe) in FP8_CACHE:
        # As ModelOpt calls the scales of an FP8 cache, also where no such projection is there.
        for layer in range(config["num_hidden_layers"]):
            for part in ("k_proj.k_scale", "v_proj.v_scale"):
                out[f"model.layers.{layer}.self_attn.{part}"] = scalar(0.0625)
    return stacked(out) if recipe == "fp8-static" else out


def in_wrapper(tensors, config):
    """As a model that sees has its text model."""
    wrapped = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "text_config": config}
    return {"language_model." + name: tensor for name, tensor in tensors.items()}, wrapped


def file_bytes(tensors):
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name in sorted(tensors, key=lambda name: (-{"F32": 4, "BF16": 2}.get(tensors[name][0], 1), name)):
        dtype, shape, content = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_folder(model, out, tensors, config, written):
    """`written`: the configs of the packages, as quantised.json has them."""
    if config["model_type"] == "mistral4":
        tensors, config = in_wrapper(tensors, config)
    data = file_bytes(tensors)
    out.mkdir()
    for path in model.iterdir():
        if path.name not in ("config.json", "model.safetensors"):
            shutil.copyfile(path, out / path.name)
    (out / "config.json").write_text(json.dumps({**config, "quantization_config": written["quantization_config"]}, indent=1))
    if "hf_quant_config" in written:
        (out / "hf_quant_config.json").write_text(json.dumps(written["hf_quant_config"], indent=1))
    (out / "model.safetensors").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


def main(model, out, name):
    written = json.loads((HERE / "quantised.json").read_text())[name]
    config = json.loads((model / "config.json").read_text())
    tensors = quantised(read(model / "model.safetensors"), config, recipe_of(name)[1])
    digest = write_folder(model, out, tensors, config, written)
    if digest != written["digest"]:
        sys.exit(f"{out / 'model.safetensors'}: digest {digest}, not {written['digest']}; this is not the golden model")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
