"""Muon for the matrices, AdamW for everything else.

Muon (Jordan 2024): momentum, then the nearest orthogonal matrix by five Newton-Schulz steps; scaled to the size of an
AdamW update (Liu et al. 2025), so that both follow one learning rate.
"""
import torch

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_z", "out_proj", "experts_gate_up", "experts_down",
            "shared_expert_gate_up", "shared_expert_down", "fc")


def orthogonal(g):
    """Newton-Schulz over a batch of matrices [..., rows, columns]."""
    x = g.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.transpose(-1, -2) if tall else x


class Muon:
    def __init__(self, parameters, momentum=0.95, decay=0.1):
        self.momentum, self.decay = momentum, decay
        self.shapes = {}
        for p in parameters:
            self.shapes.setdefault(tuple(p.shape), []).append(p)
        self.buffers = {shape: torch.zeros(len(group), *shape, device=group[0].device)
                        for shape, group in self.shapes.items()}

    @torch.no_grad()
    def step(self, rate):
        for shape, group in self.shapes.items():
            buffer = self.buffers[shape]
            gradient = torch.stack([p.grad for p in group])
            buffer.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(gradient.lerp(buffer, self.momentum))
            update = update.float() * (0.2 * max(shape[-2:]) ** 0.5)
            torch._foreach_mul_(group, 1 - rate * self.decay)
            torch._foreach_add_(group, list(update.unbind(0)), alpha=-rate)

    def state(self):
        return list(self.buffers.values())

    def load(self, state):
        for buffer, kept in zip(self.buffers.values(), state):
            buffer.copy_(kept)


class Optimiser:
    def __init__(self, model, rate):
        self.rate = rate
        matrices, table, others = [], [], []
        for name, p in model.named_parameters():
            leaf = name.rsplit(".", 1)[-1]
            (matrices if leaf in MATRICES else table if leaf == "embedding" else others).append(p)
        self.muon = Muon(matrices)
        fused = matrices[0].is_cuda
        self.adam = torch.optim.AdamW([{"params": table, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.0}],
                                      lr=rate, betas=(0.9, 0.95), eps=1e-10, fused=fused)
        self.parameters = matrices + table + others

    def step(self, share):
        """`share` of the full learning rate."""
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.muon.step(self.rate * share)
        for group in self.adam.param_groups:
            group["lr"] = self.rate * share
        self.adam.step()
        return norm

    def forget_gradients(self):
        for p in self.parameters:
            p.grad = None

    def state(self):
        return {"muon": self.muon.state(), "adam": self.adam.state_dict()}

    def load(self, state):
        self.muon.load(state["muon"])
        self.adam.load_state_dict(state["adam"])
