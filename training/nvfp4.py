"""NVFP4 as the program rounds it: E2M1 codes, one E4M3 scale per 16 columns, one f32 per matrix.

src/base/nvfp4.h is the same in C++; `fourfold quantize` on the 16-bit export gives the same bytes, and a check of
export.py says so.
"""
import torch

BLOCK, LARGEST, SCALE_LARGEST = 16, 6.0, 448.0
# Matrices that kernels multiply by together share the f32 scale.
GROUPS = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("in_proj_qkv", "in_proj_z"), ("out_proj",),
          ("shared_expert_gate_up",), ("shared_expert_down",), ("experts_gate_up",), ("experts_down",), ("fc",))


def magnitudes(x):
    """Nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6; ties to the even code."""
    x = x.abs()
    step = torch.where(x < 2, 0.5, torch.where(x < 4, 1.0, 2.0))
    return (torch.round(x / step) * step).clamp(max=LARGEST)


def scales(w, amax):
    """Block scales (E4M3, as f32) and the matrix scale. w [..., rows, columns], amax [...] of each matrix."""
    matrix = amax / (LARGEST * SCALE_LARGEST)
    blocks = w.unflatten(-1, (-1, BLOCK))
    ratio = blocks.abs().amax(-1) / (LARGEST * matrix[..., None, None])
    ratio = torch.where(ratio == 0, 1.0, ratio.clamp(2.0 ** -9, SCALE_LARGEST))
    return ratio.to(torch.float8_e4m3fn).float(), matrix


def rounded(w, amax):
    """w as NVFP4 would give it back."""
    block, matrix = scales(w, amax)
    scale = (block * matrix[..., None, None])[..., None]
    blocks = w.unflatten(-1, (-1, BLOCK))
    return (torch.sign(blocks) * magnitudes(blocks / scale) * scale).flatten(-2)


def rounded_inputs(x, amax):
    """x as NVFP4 activations with an input scale for `amax` would give it back."""
    scale = amax / (LARGEST * SCALE_LARGEST)
    blocks = x.float().unflatten(-1, (-1, BLOCK))
    block = (blocks.abs().amax(-1, keepdim=True) / (LARGEST * scale)).clamp(max=SCALE_LARGEST).to(torch.float8_e4m3fn).float()
    unit = block * scale
    codes = torch.sign(blocks) * magnitudes(blocks / torch.where(unit == 0, 1.0, unit))
    return (codes * unit).flatten(-2).to(x.dtype)


def round_inputs(name, x, used=None):
    """Inputs of a matrix in training, rounded by their own largest; gradients pass straight through. Routed and shared
    experts have scales of their own in a checkpoint; here one serves both."""
    return x + (rounded_inputs(x, x.abs().amax().float()) - x).detach()


def groups_of(layer):
    """The layer's quantised parameters, group by group."""
    return [[layer[name] for name in names] for names in GROUPS if names[0] in layer]


def all_groups(model):
    return [group for layer in [*model.layers, model.mtp, model.mtp_layer] for group in groups_of(layer)]


def amax_of(group):
    amax = [w.abs().amax((-1, -2)) for w in group]
    return torch.stack(amax).amax(0)


class FakeQuantisation:
    """Straight-through rounding: forward and backward see the rounded weights, the optimiser the exact ones."""

    def __init__(self, model):
        self.groups = all_groups(model)
        self.exact = [[w.detach().clone() for w in group] for group in self.groups]
        self.run = rounded

    def compile(self):
        self.run = torch.compile(rounded, dynamic=False)

    @torch.no_grad()
    def round(self):
        for group, exact in zip(self.groups, self.exact):
            amax = amax_of(group)
            for w, kept in zip(group, exact):
                kept.copy_(w)
                w.copy_(self.run(kept, amax))

    @torch.no_grad()
    def restore(self):
        for group, exact in zip(self.groups, self.exact):
            for w, kept in zip(group, exact):
                w.copy_(kept)
