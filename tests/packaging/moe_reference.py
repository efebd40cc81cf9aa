"""A layer of routed experts in f64, with the error that the kernels' roundings allow: what examples/python/moe_layer.py has in plain
floats, for tensors."""
import torch

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def dequantised(codes, scales, matrix_scale, format):
    """f64 [experts, rows, columns] of codes u8 [experts, rows, columns / 2], block scales (bytes) and f32 [experts]."""
    values = torch.tensor(E2M1, dtype=torch.float64, device=codes.device)
    pairs = torch.stack((values[(codes & 15).long()], values[(codes >> 4).long()]), dim=-1).flatten(-2)
    if format == "nvfp4":
        blocks = scales.view(torch.float8_e4m3fn).to(torch.float32).double().repeat_interleave(16, -1)
    else:
        blocks = torch.exp2(scales.double() - 127.0).repeat_interleave(32, -1)
    return pairs * blocks * matrix_scale.double().view(-1, 1, 1)


def _dot(matrix, value, bound):
    """Each addition of the tensor cores is off by at most 2^-22 of what has been added."""
    size = matrix.abs() @ (value.abs() + bound)
    return matrix @ value, matrix.abs() @ bound + size * matrix.shape[-1] * 2.0**-22


def _rounded(value, bound):
    """To bf16: eight significant bits."""
    return value, bound + (value.abs() + bound) * 2.0**-8


def _swiglu(gate, up):
    silu = gate[0] * torch.sigmoid(gate[0])
    value = silu * up[0]
    return _rounded(value, 1.1 * gate[1] * (up[0].abs() + up[1]) + silu.abs() * up[1] + value.abs() * 2.0**-20)


def layer(hidden, ids, weights, gate, up, down):
    """(value, bound), f64 [tokens, hidden]; matrices f64 [experts, rows, columns]. Routing weights are off by 2^-19 of themselves at
    most."""
    value, bound = (torch.zeros(hidden.shape, dtype=torch.float64, device=hidden.device) for _ in range(2))
    for t in range(hidden.shape[0]):
        token = hidden[t].double()
        none = torch.zeros_like(token)
        for rank in range(ids.shape[1]):
            expert, weight = int(ids[t, rank]), float(weights[t, rank])
            inner = _swiglu(_dot(gate[expert], token, none), _dot(up[expert], token, none))
            out, error = _rounded(*_dot(down[expert], *inner))  # the prefill kernels round each expert's row
            value[t] += weight * out
            bound[t] += weight * (error + out.abs() * 2.0**-19)
    return _rounded(value, bound)


def worst_share(output, hidden, ids, weights, gate, up, down):
    """The largest error as a share of its bound; infinite where something is not finite."""
    value, bound = layer(hidden, ids, weights, gate, up, down)
    error = (output.double() - value).abs()
    return float("inf") if not bool(torch.isfinite(error).all()) else float((error / bound).max())
