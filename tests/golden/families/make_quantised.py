#!/usr/bin/env python3
"""What the makers' packages write for the quantised golden models: make_quantised.py PROGRAM OUT [NAME...]

Makes each model with `fourfold make-model --format bf16 --seed 1`, has nvidia-modelopt or compressed-tensors quantise it, holds the
tensors against those of quantised.py, byte for byte, and writes the folders OUT/NAME and the entries of quantised.json: config and
digest. Needs torch, compressed-tensors, nvidia-modelopt and requests; no GPU. make_reference.py goes on from there.

The packages get a tree of nn.Linear with the checkpoint's names in place of the model, since transformers keeps experts stacked, and
calibration inputs whose maximum quantised.input_amax() says.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch

import quantised
from quantised import group, input_amax, is_quantised, recipe_of, unstacked

NAMES = ["tiny-glm-nvfp4-modelopt", "tiny-glm-nvfp4-compressed", "tiny-glm-fp8-tensor", "tiny-glm-fp8-rows",
         "tiny-minimax-nvfp4-modelopt", "tiny-minimax-fp8-blocks", "tiny-deepseek-nvfp4-modelopt", "tiny-deepseek-fp8-blocks",
         "tiny-mistral-nvfp4-compressed", "tiny-dense-nvfp4-awq", "tiny-mistral-nvfp4-modelopt", "tiny-mistral-fp8-blocks",
         "tiny-mistral-fp8-static", "tiny-glm-mxfp8-modelopt", "tiny-glm-mxfp8-compressed", "tiny-glm-mxfp4-modelopt", "tiny-glm-mxfp4-compressed"]
DTYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.uint8: "U8", torch.float8_e4m3fn: "F8_E4M3"}
# As the releases have it. Mistral's is static; in blocks it is as transformers would write it.
NOT_CONVERTED = ["model.vision_tower", "model.multi_modal_projector", "lm_head"]
BY_DEFINITION = {
    ("deepseek_v3", "fp8-blocks"): {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]},
    ("minimax_m2", "fp8-blocks"): {"activation_scheme": "dynamic", "fmt": "float8_e4m3fn", "quant_method": "fp8",
                                   "weight_block_size": [128, 128], "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]},
    ("mistral4", "fp8-blocks"): {"activation_scheme": "dynamic", "modules_to_not_convert": NOT_CONVERTED, "quant_method": "fp8",
                                 "weight_block_size": [128, 128]},
    ("mistral4", "fp8-static"): {"activation_scheme": "static", "modules_to_not_convert": NOT_CONVERTED, "quant_method": "fp8",
                                 "weight_block_size": None}}


def tree(tensors, dtype):
    """{module: nn.Linear} of all matrices, and a Module that has them under their names."""
    root, linears = torch.nn.Module(), {}
    for name, (_, shape, content) in tensors.items():
        if not name.endswith(".weight") or len(shape) != 2 or "embed_tokens" in name:
            continue
        module = name[:-len(".weight")]
        linear = torch.nn.Linear(shape[1], shape[0], bias=False, dtype=dtype)
        linear.weight.data = torch.frombuffer(bytearray(content), dtype=torch.bfloat16).reshape(shape).to(dtype)
        linears[module] = linear
        at = root
        *path, leaf = module.split(".")
        for part in path:
            if part not in at._modules:
                at.add_module(part, torch.nn.Module())
            at = at._modules[part]
        at.add_module(leaf, linear)
    return root, linears


def calibration(linear, module):
    """Rows whose largest number is the one that is wanted."""
    rows = torch.linspace(-1, 1, 4 * linear.in_features).reshape(4, -1)
    return (rows * input_amax(module)).to(linear.weight.dtype)


def stored(tensor):
    shape = list(tensor.shape)
    return DTYPES[tensor.dtype], shape, bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


@torch.no_grad()
def by_modelopt(tensors, chosen, algorithm, recipe, kv_cache):
    import modelopt.torch.quantization as mtq
    from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
    from modelopt.torch.export.quant_utils import get_quant_config, postprocess_state_dict, preprocess_linear_fusion
    from modelopt.torch.export.unified_export_hf import _export_quantized_weight

    root, linears = tree(tensors, torch.bfloat16)
    factors = {module: quantised.input_factors(module, recipe, linears[module].in_features) for module in chosen}
    for module, factor in factors.items():
        if factor:
            linears[module].weight.data = (linears[module].weight.float() / torch.tensor(factor)).to(torch.bfloat16)

    def calibrate(_):
        for module in chosen:
            linears[module](calibration(linears[module], module))

    mtq.quantize(root, algorithm, forward_loop=calibrate)
    for module, linear in linears.items():
        if module not in chosen:
            mtq.disable_quantizer(linear, lambda _: True)
    for module, factor in factors.items():
        if factor:
            linears[module].input_quantizer.pre_quant_scale = torch.tensor(factor, dtype=torch.bfloat16)
        elif recipe == "nvfp4-awq":
            linears[module].fused_with_prequant = True  # as ModelOpt marks what it multiplied into a norm
    for module in chosen:
        if group(module)[0] == module and len(group(module)) > 1:
            preprocess_linear_fusion([linears[one] for one in group(module)])
    config = get_quant_config(root)
    config["quantization"]["kv_cache_quant_algo"] = kv_cache  # of modules that are not in the tree
    for module in chosen:
        _export_quantized_weight(linears[module], torch.bfloat16)
    state = postprocess_state_dict(root.state_dict(), 448, None)
    return state, {"quantization_config": convert_hf_quant_config_format(config), "hf_quant_config": config}


@torch.no_grad()
def by_compressed_tensors(tensors, chosen, scheme, dtype):
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    root, linears = tree(tensors, dtype)
    ignore = [module for module in linears if module not in chosen]
    apply_quantization_config(root, QuantizationConfig(config_groups={"group_0": QuantizationScheme(targets=["Linear"], **scheme)},
                                                       ignore=ignore, quantization_status="initialized"))
    for module in chosen:
        linear = linears[module]
        weights, blocks, scale = linear.quantization_scheme.weights, linear.weight, None
        if weights.group_size:
            blocks = linear.weight.reshape(linear.weight.shape[0], -1, weights.group_size)
        if hasattr(linear, "weight_global_scale"):
            amax = max(linears[one].weight.abs().max() for one in group(module))
            scale = generate_gparam(-amax, amax)
            linear.weight_global_scale.data = scale
            inputs = calibration(linear, module)
            linear.input_global_scale.data = generate_gparam(inputs.min(), inputs.max())
        local, _ = calculate_qparams(blocks.amin(-1), blocks.amax(-1), weights, global_scale=scale)
        linear.weight_scale.data = local.reshape(linear.weight_scale.shape).to(linear.weight_scale.dtype)
    compressor = ModelCompressor.from_pretrained_model(root)
    compressor.compress_model(root)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text("{}")
        compressor.update_config(folder)
        return root.state_dict(), json.loads((pathlib.Path(folder) / "config.json").read_text())


def by_package(tensors, chosen, family, recipe):
    """(tensors of the chosen modules, configs)."""
    if (family, recipe) in BY_DEFINITION:
        return None, {"quantization_config": BY_DEFINITION[family, recipe]}
    if recipe.endswith("compressed") or recipe == "fp8-rows":
        from compressed_tensors.quantization import quant_scheme
        scheme, dtype = {"fp8-rows": (quant_scheme.FP8_DYNAMIC, torch.bfloat16), "nvfp4-compressed": (quant_scheme.NVFP4, torch.float32),
                         "mxfp8-compressed": (quant_scheme.MXFP8, torch.bfloat16),
                         "mxfp4-compressed": (quant_scheme.MXFP4, torch.bfloat16)}[recipe]
        state, configs = by_compressed_tensors(tensors, chosen, scheme, dtype)
    else:
        import modelopt.torch.quantization as mtq
        algorithm = {"fp8-tensor": mtq.FP8_DEFAULT_CFG, "mxfp8-modelopt": mtq.MXFP8_DEFAULT_CFG,
                     "mxfp4-modelopt": mtq.MXFP4_DEFAULT_CFG}.get(recipe, mtq.NVFP4_DEFAULT_CFG)
        state, configs = by_modelopt(tensors, chosen, algorithm, recipe, "FP8" if (family, recipe) in quantised.FP8_CACHE else None)
    return {name: stored(tensor) for name, tensor in state.items() if name.rsplit(".", 1)[0] in chosen}, configs


def main(program, out, *names):
    path = quantised.HERE / "quantised.json"
    entries = json.loads(path.read_text()) if path.exists() else {}
    for name in names or NAMES:
        shape, recipe = recipe_of(name)
        with tempfile.TemporaryDirectory() as temp:
            model = pathlib.Path(temp) / shape
            subprocess.run([program, "make-model", str(model), "--shape", shape, "--format", "bf16", "--seed", "1"], check=True,
                           stdout=subprocess.DEVNULL)
            config = json.loads((model / "config.json").read_text())
            tensors = quantised.read(model / "model.safetensors")
            plain = quantised.quantised(tensors, config, recipe)
            matrices = [one[:-len(".weight")] for one, (_, shape, _) in unstacked(tensors).items()
                        if one.endswith(".weight") and len(shape) == 2]
            chosen = {module: None for module in matrices if is_quantised(module, config, recipe)}
            written, configs = by_package(unstacked(tensors), chosen, config["model_type"], recipe)
            if written is not None:
                here = {one: tensor for one, tensor in plain.items() if one.rsplit(".", 1)[0] in chosen and not one.endswith(".bias")}
                if here.keys() != written.keys():
                    sys.exit(f"{name}: other tensors: {sorted(here.keys() ^ written.keys())[:8]}")
                other = [f"{one}: {written[one][:2]}, here {here[one][:2]}, {sum(a != b for a, b in zip(written[one][2], here[one][2]))} "
                         f"of {len(here[one][2])} bytes" for one in here if here[one] != written[one]]
                if other:
                    sys.exit(f"{name}: {len(other)} of {len(here)} tensors are other ones:\n" + "\n".join(other[:20]))
            folder = pathlib.Path(out) / name
            digest = quantised.write_folder(model, folder, plain, config, configs)
            entries[name] = {"digest": digest, **configs}
            print(f"{name}: {len(written or chosen)} {'tensors as the package writes them' if written else 'matrices'}, {digest}")
    path.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
