"""Whether a layer of routed experts is ours, and how its router chooses. Reads attributes of vLLM's RoutedExperts and FusedMoEConfig;
imports neither vLLM nor torch."""

import dataclasses
from typing import Any, Optional

import fourfold_kernels as ff

# The format, by the class of vLLM's method. repack.py knows how their parameters are called.
METHODS = {
    "ModelOptNvFp4FusedMoE": "nvfp4",
    "CompressedTensorsW4A4Nvfp4MoEMethod": "nvfp4",
    "Mxfp4MoEMethod": "mxfp4",
    "CompressedTensorsW4A4Mxfp4MoEMethod": "mxfp4",
}
ARCHITECTURES = {(9, 0): "sm90", (12, 0): "sm120", (12, 1): "sm121"}
_FORMATS = {"nvfp4": ff.NVFP4, "mxfp4": ff.MXFP4}


def _model_refusal(layer: Any, config: Any) -> Optional[str]:
    """What the kernels do not compute."""
    if config.activation.value != "silu":
        return f"its activation is {config.activation.value}; the kernels have SwiGLU (silu)"
    for name in ("swiglu_limit", "swiglu_alpha", "swiglu_beta"):
        if getattr(layer, name, None) is not None:
            return f"its SwiGLU has {name} = {getattr(layer, name)}; the kernels have none"
    if config.has_bias:
        return "its experts have biases; the kernels have none"
    if layer.apply_router_weight_on_input:
        return "its routing weights multiply the input; the kernels weigh the output"
    if str(config.in_dtype) != "torch.bfloat16":
        return f"its activations are {config.in_dtype}; the kernels take bfloat16 (--dtype bfloat16)"
    return None


def _deployment_refusal(config: Any) -> Optional[str]:
    parallel = config.moe_parallel_config
    if parallel.use_ep or parallel.ep_size > 1:
        return "experts are spread over ranks (expert parallel); the kernels have all of a layer's experts (tensor parallel)"
    for name in ("dp_size", "pcp_size", "sp_size"):
        if getattr(parallel, name, 1) > 1:
            return f"{name} is {getattr(parallel, name)}; only tensor parallel layers are taken"
    if parallel.enable_eplb:
        return "experts move between ranks (EPLB)"
    if config.num_local_experts != config.num_experts:
        return f"{config.num_local_experts} of {config.num_experts} experts are on this rank; the kernels have all"
    if config.is_lora_enabled:
        return "LoRA adapters are on; they need vLLM's own kernels"
    if config.moe_backend != "auto":
        return f"moe_backend = {config.moe_backend} was asked for"
    return None


def _kernel_refusal(config: Any, format: str, arch: str) -> Optional[str]:
    for role in (ff.DECODE, ff.PREFILL):
        try:
            choice = ff.choose(arch, hidden=config.hidden_dim, intermediate=config.intermediate_size_per_partition,
                               experts=config.num_experts, top_k=config.experts_per_token, tokens=1,
                               format=_FORMATS[format], activations=ff.W4A16, role=role)
        except ff.KernelError as error:
            return str(error)
        if not choice.accepted:
            return str(choice.refusal.decode())
    return None


def refusal(layer: Any, method: str, capability: "tuple[int, int] | None") -> Optional[str]:
    """Why vLLM keeps the layer whose method is of this class; None: it is ours."""
    config = layer.moe_config
    if method == "GptOssMxfp4MoEMethod":
        return "gpt-oss's experts have biases, interleaved rows and a SwiGLU of their own; the kernels have none of them"
    if method not in METHODS:
        return f"its weights are not NVFP4 or MXFP4 as we know them ({method})"
    if capability not in ARCHITECTURES:
        found = "no CUDA device" if capability is None else f"sm_{capability[0]}{capability[1]}"
        return f"{found}; the kernels are for sm_90, sm_120 and sm_121"
    assert capability is not None
    return (_model_refusal(layer, config) or _deployment_refusal(config)
            or _kernel_refusal(config, METHODS[method], ARCHITECTURES[capability]))


@dataclasses.dataclass(frozen=True)
class Routing:
    """What torch.ops.fourfold.moe_layer is told; the bias stays in the layer, where loading puts it."""

    score: str
    renormalise: bool
    weight_scale: float
    biased: bool = False
    groups: int = 0
    groups_kept: int = 0


def routing(layer: Any, captured: bool) -> Optional[Routing]:
    """How the kernels choose as the layer's router does; None: vLLM routes, and gives ids and weights. `captured`: somebody wants
    to see the ids."""
    config = layer.moe_config
    if (captured or getattr(config, "require_decomposed_backend", False) or getattr(config, "has_hash_routing", False)
            or layer.custom_routing_function is not None):
        return None
    factor = layer.routed_scaling_factor
    name, scale = config.routing_method.name, 1.0 if factor is None else float(factor)
    biased = layer.e_score_correction_bias is not None
    grouped = bool(layer.use_grouped_topk) and (layer.num_expert_group or 1) > 1
    if not biased and not grouped and scale == 1.0:  # vLLM's plain router has no scale
        if name in ("Default", "RenormalizeNaive", "Renormalize") and layer.scoring_func == "softmax":
            return Routing("softmax", bool(layer.renormalize), 1.0)
        if name in ("Sigmoid", "SigmoidRenorm") and layer.scoring_func == "sigmoid":
            return Routing("sigmoid", bool(layer.renormalize), 1.0)
    if biased and layer.renormalize and layer.scoring_func == "sigmoid" and name in ("DeepSeekV3", "MiniMax2"):
        if not grouped:
            return Routing("sigmoid", True, scale, True)
        experts, groups = config.num_experts, layer.num_expert_group
        if groups <= 32 and experts % groups == 0 and experts // groups >= 2 and 1 <= layer.topk_group <= groups:
            return Routing("sigmoid", True, scale, True, groups, layer.topk_group)
    return None
