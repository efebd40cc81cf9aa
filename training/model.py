"""Storyteller: a small Qwen3.5-MoE in plain PyTorch, written for training.

Twelve layers, three gated DeltaNet mixers to one gated attention, a mixture of experts in each, an MTP layer behind
them. Layers are functions of (x, weights), so that torch.compile sees one layer of each kind however many there are.
Parameters carry the names of the published checkpoints; gate and up of the experts lie in one tensor.

All experts are computed for every token, the unchosen with weight zero: at this size that is two matrix products and
cheaper than sorting tokens.
"""
import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional

CHUNK = 64


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 8192
    hidden: int = 256
    layers: int = 12
    interval: int = 4  # every fourth mixer is attention
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 256
    key_heads: int = 2
    value_heads: int = 4
    delta_dim: int = 128
    experts: int = 16
    top_k: int = 4
    width: int = 64
    shared_width: int = 128
    rope_theta: float = 1e7
    epsilon: float = 1e-6
    positions: int = 4096

    @property
    def rotary(self):
        return self.head_dim // 4

    @property
    def conv_channels(self):
        return (2 * self.key_heads + self.value_heads) * self.delta_dim

    @property
    def value_dim(self):
        return self.value_heads * self.delta_dim

    def is_attention(self, layer):
        return (layer + 1) % self.interval == 0


TINY = Config(vocab=8192, hidden=64, layers=4, heads=2, head_dim=64, key_heads=1, value_heads=2, delta_dim=32, experts=4,
              top_k=2, width=32, shared_width=32)


def linear(x, weight):
    return functional.linear(x, weight.to(x.dtype))


def rms(x, weight, epsilon):
    """In f32; weight is what multiplies, so callers add the one where the checkpoint leaves it out."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def rope_table(config, length, device):
    exponents = torch.arange(0, config.rotary, 2, dtype=torch.float64, device=device) / config.rotary
    angles = torch.arange(length, dtype=torch.float64, device=device)[:, None] * config.rope_theta ** -exponents
    return angles.cos().float(), angles.sin().float()


def rotate(x, cosine, sine):
    """x [B, heads, T, head_dim]; the first quarter of it turns, halves paired."""
    half = cosine.shape[-1]
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine, rest), -1)


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A [..., 64, 64], in f32.

    Blocks of 16 by the finite series, whose terms stay below 2^13 there, then two merges; the series over all 64 would
    lose every digit where keys repeat.
    """

    @staticmethod
    def forward(ctx, a):
        shape = a.shape
        a = a.reshape(-1, CHUNK, CHUNK)
        blocks = [-a[:, i:i + 16, i:i + 16] for i in range(0, CHUNK, 16)]
        power = torch.stack(blocks, 1)
        inverse = power + torch.eye(16, dtype=a.dtype, device=a.device)
        for _ in range(3):
            power = power @ power
            inverse = inverse + inverse @ power
        parts, size = list(inverse.unbind(1)), 16
        while size < CHUNK:
            merged = []
            for i in range(0, len(parts), 2):
                at = i * size
                corner = -parts[i + 1] @ (a[:, at + size:at + 2 * size, at:at + size] @ parts[i])
                upper = torch.cat((parts[i], torch.zeros_like(parts[i])), -1)
                merged.append(torch.cat((upper, torch.cat((corner, parts[i + 1]), -1)), -2))
            parts, size = merged, 2 * size
        inverse = parts[0].reshape(shape)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, gradient):
        inverse, = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        return -(turned @ (gradient @ turned)).tril(-1)


def gated_delta(q, k, v, beta, g):
    """The gated delta rule over whole chunks.

    q, k [B, key heads, T, d], normalised; v [B, value heads, T, d]; beta, g [B, value heads, T] in f32.
    State and decays in f32, products in the type of v.
    """
    batch, heads, length, size = v.shape
    group, count, kind = heads // q.shape[1], length // CHUNK, v.dtype
    q, k = (t.reshape(batch, q.shape[1], count, CHUNK, size) for t in (q, k))
    v = v.reshape(batch, heads, count, CHUNK, size)
    beta, g = (t.reshape(batch, heads, count, CHUNK) for t in (beta, g))
    total = g.cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, -math.inf).exp()
    key_products = (k @ k.transpose(-1, -2)).float().repeat_interleave(group, 1)
    query_products = (q @ k.transpose(-1, -2)).float().repeat_interleave(group, 1)
    inverse = UnitLowerInverse.apply((key_products * beta[..., None] * decay).tril(-1)).to(kind)
    q, k = q.repeat_interleave(group, 1), k.repeat_interleave(group, 1)
    new_values = inverse @ (v * beta[..., None]).to(kind)
    seen_keys = inverse @ (k * (beta * total.exp())[..., None]).to(kind)
    last_keys = (k * (total[..., -1:] - total).exp()[..., None]).to(kind).transpose(-1, -2)
    kept = total[..., -1].exp()[..., None, None]
    state = torch.zeros(batch, heads, size, size, dtype=torch.float32, device=v.device)
    states, changes = [], []
    for i in range(count):
        rounded = state.to(kind)
        change = new_values[:, :, i] - seen_keys[:, :, i] @ rounded
        states.append(rounded)
        changes.append(change)
        state = state * kept[:, :, i] + (last_keys[:, :, i] @ change).float()
    states, changes = torch.stack(states, 2), torch.stack(changes, 2)
    out = (q * total.exp()[..., None]).to(kind) @ states + (query_products * decay).to(kind) @ changes
    return out.reshape(batch, heads, length, size)


def delta_mixer(c, x, w, see):
    batch, length, _ = x.shape
    seen = see("in_proj", x)
    mixed, z = linear(seen, torch.cat((w["in_proj_qkv"], w["in_proj_z"]))).split([c.conv_channels, c.value_dim], -1)
    b, a = linear(x, torch.cat((w["in_proj_b"], w["in_proj_a"]))).float().chunk(2, -1)
    padded, taps = functional.pad(mixed, (0, 0, 3, 0)).float(), w["conv1d"][:, 0]
    mixed = functional.silu(sum(padded[:, j:j + length] * taps[:, j] for j in range(4)))
    keys = c.key_heads * c.delta_dim
    q, k, v = (t.unflatten(-1, (-1, c.delta_dim)).transpose(1, 2) for t in mixed.split([keys, keys, c.value_dim], -1))
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * c.delta_dim ** -0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    g = -w["A_log"].exp() * functional.softplus(a + w["dt_bias"])
    out = gated_delta(q.to(x.dtype), k.to(x.dtype), v.to(x.dtype), b.sigmoid().transpose(1, 2), g.transpose(1, 2))
    out = rms(out.transpose(1, 2), w["norm"], c.epsilon)
    out = (out * functional.silu(z.float()).unflatten(-1, (-1, c.delta_dim))).flatten(2).to(x.dtype)
    return linear(see("out_proj", out), w["out_proj"])


def attention_mixer(c, x, w, cosine, sine, see):
    x = see("qkv_proj", x)
    sizes = [2 * c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
    q, k, v = linear(x, torch.cat((w["q_proj"], w["k_proj"], w["v_proj"]))).split(sizes, -1)
    q, gate = q.unflatten(-1, (c.heads, 2 * c.head_dim)).chunk(2, -1)
    k, v = (t.unflatten(-1, (c.kv_heads, c.head_dim)) for t in (k, v))
    q = rotate(rms(q, 1 + w["q_norm"], c.epsilon).transpose(1, 2), cosine, sine).to(x.dtype)
    k = rotate(rms(k, 1 + w["k_norm"], c.epsilon).transpose(1, 2), cosine, sine).to(x.dtype)
    group = c.heads // c.kv_heads
    k, v = k.repeat_interleave(group, 1), v.transpose(1, 2).repeat_interleave(group, 1)
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    out = (out * gate.sigmoid()).flatten(2)
    return linear(see("o_proj", out), w["o_proj"])


def experts(c, x, w, see):
    """The layer's output and its load-balance loss, which is 1 when all experts are chosen alike."""
    chances = linear(x.float(), w["gate"]).softmax(-1)
    chosen = chances >= chances.topk(c.top_k, -1).values[..., -1:]
    weights = chances * chosen
    weights = weights / weights.sum(-1, keepdim=True)
    balance = c.experts * (chosen.float().mean((0, 1)) / c.top_k * chances.mean((0, 1))).sum()
    shared = linear(x.float(), w["shared_expert_gate"]).sigmoid()
    gate, up = w["experts_gate_up"].chunk(2, 1)
    shared_gate, shared_up = w["shared_expert_gate_up"].chunk(2)
    rows = torch.cat((gate.flatten(0, 1), shared_gate, up.flatten(0, 1), shared_up))
    gate, up = linear(see("gate_up", x), rows).chunk(2, -1)
    inner = functional.silu(gate.float()) * up.float()
    scale = torch.cat((weights.repeat_interleave(c.width, -1), shared.expand(*shared.shape[:-1], c.shared_width)), -1)
    inner = see("down", inner, scale)
    down = torch.cat((w["experts_down"].transpose(0, 1).flatten(1), w["shared_expert_down"]), 1)
    return linear((inner * scale).to(x.dtype), down), balance


def unchanged(name, x, used=None):
    """What happens to the inputs of a quantised matrix: nothing. Others measure or round them; `used` is zero for what
    nobody asked an expert."""
    return x


def delta_layer(c, kind, x, w, see=unchanged):
    x = x + delta_mixer(c, rms(x, 1 + w["input_norm"], c.epsilon).to(kind), w, see)
    y, balance = experts(c, rms(x, 1 + w["post_norm"], c.epsilon).to(kind), w, see)
    return x + y, balance


def attention_layer(c, kind, x, w, cosine, sine, see=unchanged):
    x = x + attention_mixer(c, rms(x, 1 + w["input_norm"], c.epsilon).to(kind), w, cosine, sine, see)
    y, balance = experts(c, rms(x, 1 + w["post_norm"], c.epsilon).to(kind), w, see)
    return x + y, balance


def mtp_input(c, kind, following, hidden, w, see=unchanged):
    both = torch.cat((rms(following, 1 + w["embedding_norm"], c.epsilon), rms(hidden, 1 + w["hidden_norm"], c.epsilon)), -1)
    return linear(see("fc", both.to(kind)), w["fc"]).float()


def language_loss(hidden, drafted, table, targets):
    """Cross entropy of the next token, and the MTP layer's against what the model itself says one token later: the
    draft is right when it is the model's own choice, whatever the book says."""
    logits = linear(hidden, table).float()
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    drafts = linear(drafted[:, :-1], table).float().log_softmax(-1)
    wanted = logits[:, 1:].detach().softmax(-1)
    return loss, -(wanted * drafts).sum(-1).mean()


class Storyteller(nn.Module):
    def __init__(self, config, seed=0):
        super().__init__()
        self.config = c = config
        source = torch.Generator().manual_seed(seed)

        def matrix(*shape, deviation=None):
            deviation = deviation or shape[-1] ** -0.5
            return nn.Parameter(torch.randn(*shape, generator=source) * deviation)

        def zeros(size):
            return nn.Parameter(torch.zeros(size))

        depth = (2 * c.layers) ** -0.5  # of what is added to the stream

        def layer(attends):
            w = {"input_norm": zeros(c.hidden), "post_norm": zeros(c.hidden)}
            if attends:
                w.update(q_proj=matrix(2 * c.heads * c.head_dim, c.hidden), k_proj=matrix(c.kv_heads * c.head_dim, c.hidden),
                         v_proj=matrix(c.kv_heads * c.head_dim, c.hidden), q_norm=zeros(c.head_dim),
                         k_norm=zeros(c.head_dim))
                width = c.heads * c.head_dim
                w["o_proj"] = matrix(c.hidden, width, deviation=depth * width ** -0.5)
            else:
                w.update(in_proj_qkv=matrix(c.conv_channels, c.hidden), in_proj_z=matrix(c.value_dim, c.hidden),
                         in_proj_b=matrix(c.value_heads, c.hidden), in_proj_a=matrix(c.value_heads, c.hidden),
                         conv1d=matrix(c.conv_channels, 1, 4, deviation=0.3),
                         norm=nn.Parameter(torch.ones(c.delta_dim)),
                         out_proj=matrix(c.hidden, c.value_dim, deviation=depth * c.value_dim ** -0.5))
                # Half-lives from a few tokens to a few hundred.
                w["A_log"] = nn.Parameter(torch.linspace(math.log(1), math.log(8), c.value_heads))
                rates = torch.exp(torch.linspace(math.log(0.002), math.log(0.1), c.value_heads))
                w["dt_bias"] = nn.Parameter(torch.log(torch.expm1(rates)))
            w.update(gate=matrix(c.experts, c.hidden, deviation=0.02),
                     shared_expert_gate=matrix(1, c.hidden, deviation=0.02),
                     experts_gate_up=matrix(c.experts, 2 * c.width, c.hidden),
                     experts_down=matrix(c.experts, c.hidden, c.width, deviation=depth * c.width ** -0.5),
                     shared_expert_gate_up=matrix(2 * c.shared_width, c.hidden),
                     shared_expert_down=matrix(c.hidden, c.shared_width, deviation=depth * c.shared_width ** -0.5))
            return nn.ParameterDict(w)

        self.embedding = matrix(c.vocab, c.hidden, deviation=0.02)
        self.layers = nn.ModuleList(layer(c.is_attention(i)) for i in range(c.layers))
        self.final_norm = zeros(c.hidden)
        self.mtp = nn.ParameterDict({"embedding_norm": zeros(c.hidden), "hidden_norm": zeros(c.hidden),
                                     "fc": matrix(c.hidden, 2 * c.hidden), "final_norm": zeros(c.hidden)})
        self.mtp_layer = layer(True)
        self.kind, self.watch = torch.float32, None
        self.run_delta, self.run_attention, self.run_loss, self.run_mtp = delta_layer, attention_layer, language_loss, mtp_input

    def compile(self):
        self.run_delta = torch.compile(delta_layer, fullgraph=True, dynamic=False)
        self.run_attention = torch.compile(attention_layer, fullgraph=True, dynamic=False)
        self.run_loss = torch.compile(language_loss, fullgraph=True, dynamic=False)
        self.run_mtp = torch.compile(mtp_input, fullgraph=True, dynamic=False)

    def hidden(self, tokens, watch=None):
        """The stream after the final norm, and the sum of the layers' balance losses. `watch` makes of a layer's number what
        becomes of its matrices' inputs."""
        c, table = self.config, rope_table(self.config, tokens.shape[1], tokens.device)
        x, balance = functional.embedding(tokens, self.embedding), 0.0
        for i, layer in enumerate(self.layers):
            see = (watch(i),) if watch else (self.watch,) if self.watch else ()
            if c.is_attention(i):
                x, part = self.run_attention(c, self.kind, x, dict(layer.items()), *table, *see)
            else:
                x, part = self.run_delta(c, self.kind, x, dict(layer.items()), *see)
            balance = balance + part
        return rms(x, 1 + self.final_norm, c.epsilon), balance

    def drafted(self, following, hidden, watch=None):
        """The MTP layer's stream after its norm: `following` is the token behind each position."""
        c, table = self.config, rope_table(self.config, following.shape[1], following.device)
        see = (watch("mtp"),) if watch else (self.watch,) if self.watch else ()
        x = self.run_mtp(c, self.kind, functional.embedding(following, self.embedding), hidden, dict(self.mtp.items()), *see)
        x, balance = self.run_attention(c, self.kind, x, dict(self.mtp_layer.items()), *table, *see)
        return rms(x, 1 + self.mtp["final_norm"], c.epsilon), balance

    def losses(self, rows):
        """rows [B, T + 1] -> cross entropy, MTP loss, balance loss per layer."""
        tokens, targets = rows[:, :-1], rows[:, 1:]
        hidden, balance = self.hidden(tokens)
        drafted, more = self.drafted(targets, hidden)
        loss, draft_loss = self.run_loss(hidden.to(self.kind), drafted.to(self.kind), self.embedding, targets)
        return loss, draft_loss, (balance + more) / (self.config.layers + 1)

    def logits(self, hidden):
        return linear(hidden.to(self.kind), self.embedding).float()
