"""From the parameters vLLM has loaded to the records the kernels read, one projection after the other: what was packed is freed before
the next is begun."""

import dataclasses
from typing import Any, Optional

import fourfold_torch  # noqa: F401  (torch.ops.fourfold)
import torch


@dataclasses.dataclass(frozen=True)
class Names:
    """The parameters of w13 (gate rows, then up rows) and w2, without these prefixes."""

    codes: str
    scales: str = "_weight_scale"
    matrix_scale: Optional[str] = None  # NVFP4: f32, of w13 [experts, 2], of w2 [experts]
    inverted: bool = False  # compressed-tensors stores what divides
    unused: tuple = ()


NAMES = {
    "ModelOptNvFp4FusedMoE": Names("_weight", matrix_scale="_weight_scale_2", unused=("_input_scale",)),
    "CompressedTensorsW4A4Nvfp4MoEMethod": Names("_weight_packed", matrix_scale="_weight_global_scale", inverted=True,
                                                 unused=("_input_global_scale",)),
    "Mxfp4MoEMethod": Names("_weight"),
    "CompressedTensorsW4A4Mxfp4MoEMethod": Names("_weight_packed"),
}


def _matrix_scales(layer: Any, names: Names, experts: int, device: Any) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Of gate, up and down, f32 [experts]: what multiplies."""
    if names.matrix_scale is None:
        return tuple(torch.ones(experts, dtype=torch.float32, device=device) for _ in range(3))  # type: ignore[return-value]
    w13 = getattr(layer, "w13" + names.matrix_scale).data.float()
    w2 = getattr(layer, "w2" + names.matrix_scale).data.float()
    made = []
    for name, stored in (("gate", w13[:, 0]), ("up", w13[:, 1]), ("down", w2.view(-1))):
        scale = (1.0 / stored if names.inverted else stored).contiguous().clone()
        wrong = torch.nonzero(~torch.isfinite(scale)).view(-1)
        if wrong.numel() > 0:
            expert = int(wrong[0])
            raise ValueError(f"{getattr(layer, 'layer_name', 'experts')}: the {name} scale of expert {expert} is {float(stored[expert])}")
        made.append(scale)
    return made[0], made[1], made[2]


def repack(layer: Any, method: str, format: str) -> None:
    """Replaces what the checkpoint filled by w13_weight and w2_weight (records, u8 [experts, bytes]) and fourfold_gate_scale,
    fourfold_up_scale, fourfold_down_scale (f32 [experts])."""
    names = NAMES[method]
    w13, w2 = getattr(layer, "w13" + names.codes).data, getattr(layer, "w2" + names.codes).data
    experts, hidden, inner = w13.shape[0], w13.shape[2] * 2, w13.shape[1] // 2
    if tuple(w2.shape) != (experts, hidden, inner // 2):
        raise ValueError(f"{getattr(layer, 'layer_name', 'experts')}: w13 is {tuple(w13.shape)} and w2 {tuple(w2.shape)}; "
                         f"w2 should be {(experts, hidden, inner // 2)}")
    scales = _matrix_scales(layer, names, experts, w13.device)
    w13_scale, w2_scale = (getattr(layer, part + names.scales).data.view(torch.uint8) for part in ("w13", "w2"))
    pack = torch.ops.fourfold.pack
    gate_up = pack(w13[:, :inner], w13_scale[:, :inner], w13[:, inner:], w13_scale[:, inner:], format)
    _drop(layer, "w13", names)
    del w13, w13_scale
    layer.register_parameter("w13_weight", torch.nn.Parameter(gate_up, requires_grad=False))
    down = pack(w2, w2_scale, None, None, format)
    _drop(layer, "w2", names)
    del w2, w2_scale
    layer.register_parameter("w2_weight", torch.nn.Parameter(down, requires_grad=False))
    for name, scale in zip(("gate", "up", "down"), scales):
        layer.register_parameter(f"fourfold_{name}_scale", torch.nn.Parameter(scale, requires_grad=False))


def _drop(layer: Any, part: str, names: Names) -> None:
    for name in (names.codes, names.scales, names.matrix_scale, *names.unused):
        if name is not None and hasattr(layer, part + name):
            delattr(layer, part + name)
