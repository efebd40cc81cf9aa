#!/usr/bin/env python3
"""A mixture-of-experts layer through libfourfold_kernels from Python, checked against the same layer in plain floats.

With PyTorch and a GPU the layer reads and writes torch tensors on torch's stream, once directly and once
replayed from a CUDA graph. Without them it runs on the built-in simulator with plain bytes; nothing has to be
installed.

  PYTHONPATH=<prefix>/share/fourfold/python python3 moe_layer.py [device]
"""

import math
import random
import struct
import sys

import fourfold_kernels as ff

HIDDEN, INNER, EXPERTS, TOP_K, TOKENS = 128, 64, 4, 2, 5
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def e4m3(byte):
    exponent, fraction = byte >> 3, byte & 7
    return math.ldexp(8 + fraction, exponent - 10) if exponent else math.ldexp(fraction, -9)


def to_bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def to_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Matrix:
    """An NVFP4 matrix as a checkpoint stores it."""

    def __init__(self, rng, rows, columns):
        self.rows, self.columns = rows, columns
        self.codes = bytes(rng.randrange(256) for _ in range(rows * columns // 2))
        self.scales = bytes(rng.randrange(0x28, 0x50) for _ in range(rows * columns // 16))
        # compressed-tensors stores 6 * 448 / amax; ModelOpt its inverse.
        self.scale = ff.weight_scale(ff.COMPRESSED_TENSORS, rng.uniform(25.0, 100.0))

    def row(self, index):
        """Dequantised."""
        values = []
        for k in range(self.columns):
            pair = self.codes[(index * self.columns + k) // 2]
            scale = e4m3(self.scales[(index * self.columns + k) // 16])
            values.append(E2M1[pair >> 4 if k % 2 else pair & 15] * scale * self.scale)
        return values


# ---- the layer in plain floats, each value with the error the kernels' roundings allow ----


def dot(row, values):
    """Each addition of the tensor cores is off by at most 2^-22 of what has been added."""
    total = sum(w * value for w, (value, _) in zip(row, values))
    size = sum(abs(w) * (abs(value) + bound) for w, (value, bound) in zip(row, values))
    return total, sum(abs(w) * bound for w, (_, bound) in zip(row, values)) + size * len(row) * 2.0**-22


def rounded(value, bound):
    """To bf16: eight significant bits."""
    return value, bound + (abs(value) + bound) * 2.0**-8


def swiglu(gate, up):
    silu = gate[0] / (1.0 + math.exp(-gate[0]))
    value = silu * up[0]
    return rounded(value, 1.1 * gate[1] * (abs(up[0]) + up[1]) + abs(silu) * up[1] + abs(value) * 2.0**-20)


def reference(experts, logits, token):
    chosen = sorted(range(EXPERTS), key=lambda e: (-logits[e], e))[:TOP_K]
    weights = [math.exp(logits[e] - logits[chosen[0]]) for e in chosen]
    out = [(0.0, 0.0)] * HIDDEN
    for expert, weight in zip(chosen, (w / sum(weights) for w in weights)):
        gate, up, down = experts[expert]
        values = [(x, 0.0) for x in token]
        inner = [swiglu(dot(gate.row(j), values), dot(up.row(j), values)) for j in range(INNER)]
        for i in range(HIDDEN):
            # The prefill kernels round each expert's row to bf16 before the sum; the weight is an f32.
            value, bound = rounded(*dot(down.row(i), inner))
            out[i] = (out[i][0] + weight * value, out[i][1] + weight * (bound + abs(value) * 2.0**-19))
    return [rounded(value, bound) for value, bound in out]


def worst_share(experts, logits, tokens, output):
    worst = 0.0
    for t in range(TOKENS):
        expected = reference(experts, logits[t * EXPERTS:(t + 1) * EXPERTS], tokens[t * HIDDEN:(t + 1) * HIDDEN])
        for actual, (value, bound) in zip(output[t * HIDDEN:(t + 1) * HIDDEN], expected):
            error = abs(actual - value)
            worst = max(worst, error / bound if math.isfinite(error) else math.inf)
    return worst


# ---- the layer on a device ----


class SimulatorMemory:
    """Plain bytes, copied to memory of the context."""

    def __init__(self, context):
        self.context = context

    def upload(self, data):
        return self.context.upload(data)

    def empty(self, size):
        return self.context.allocate(size)

    def download(self, address, size):
        return self.context.download(address, size)


class TorchMemory:
    """torch tensors; the library sees their data_ptr()."""

    def __init__(self, torch):
        self.torch, self.tensors = torch, {}

    def _keep(self, tensor):
        self.tensors[tensor.data_ptr()] = tensor
        return tensor.data_ptr()

    def upload(self, data):
        return self._keep(self.torch.frombuffer(bytearray(data), dtype=self.torch.uint8).cuda())

    def empty(self, size):
        return self._keep(self.torch.empty(size, dtype=self.torch.uint8, device="cuda"))

    def download(self, address, size):
        self.torch.cuda.synchronize()
        return bytes(self.tensors[address][:size].cpu().tolist())


def upload_weights(memory, experts):
    shape = dict(format=ff.NVFP4, activations=ff.W4A16)
    gate_up = b"".join(ff.pack_host(gate.codes, gate.scales, up.codes, up.scales, row_order=ff.GATE_UP, rows=INNER,
                                    columns=HIDDEN, **shape) for gate, up, _ in experts)
    down = b"".join(ff.pack_host(m.codes, m.scales, row_order=ff.PLAIN, rows=HIDDEN, columns=INNER, **shape)
                    for _, _, m in experts)
    scales = [memory.upload(struct.pack(f"<{EXPERTS}f", *(expert[i].scale for expert in experts))) for i in range(3)]
    return ff.LayerWeights(gate_up=memory.upload(gate_up), down=memory.upload(down), gate_scale=scales[0],
                           up_scale=scales[1], down_scale=scales[2])


def run_layer(context, memory, weights, role, logits, tokens, torch):
    with context.layer(hidden=HIDDEN, intermediate=INNER, experts=EXPERTS, top_k=TOP_K, tokens=TOKENS, format=ff.NVFP4,
                       activations=ff.W4A16, role=role) as layer:
        print(f"{'decode' if role == ff.DECODE else 'prefill'}: {layer.choice().gate_up_row.decode()}")
        size = TOKENS * HIDDEN * 2
        output = memory.empty(size)
        call = dict(tokens=TOKENS, logits=memory.upload(struct.pack(f"<{len(logits)}f", *logits)),
                    input=memory.upload(struct.pack(f"<{len(tokens)}H", *(to_bf16(x) for x in tokens))), output=output,
                    workspace=memory.empty(layer.workspace_bytes()), workspace_bytes=layer.workspace_bytes())
        layer.run(weights, **call)
        first = memory.download(output, size)
        if torch is not None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                context.set_stream(torch.cuda.current_stream().cuda_stream)
                layer.run(weights, **call)
            context.set_stream(torch.cuda.current_stream().cuda_stream)
            memory.tensors[output].zero_()
            graph.replay()
            if memory.download(output, size) != first:
                raise SystemExit("failed: the graph's replay differs from the direct run")
            print("  a CUDA graph of the run gives the same bits")
    return [from_bf16(bits) for bits in struct.unpack(f"<{TOKENS * HIDDEN}H", first)]


def main():
    torch = None
    device = sys.argv[1] if len(sys.argv) > 1 else None
    if device is None or device.startswith("cuda"):
        try:
            import torch
            if not torch.cuda.is_available():
                torch = None
        except ImportError:
            pass
    if device is None:
        device = "cuda" if torch is not None else "sim:sm120"
    stream = torch.cuda.current_stream().cuda_stream if torch is not None else 0
    rng = random.Random(7)
    experts = [(Matrix(rng, INNER, HIDDEN), Matrix(rng, INNER, HIDDEN), Matrix(rng, HIDDEN, INNER))
               for _ in range(EXPERTS)]
    logits = [to_f32(rng.uniform(-3.0, 3.0)) for _ in range(TOKENS * EXPERTS)]
    tokens = [from_bf16(to_bf16(rng.uniform(-1.0, 1.0))) for _ in range(TOKENS * HIDDEN)]
    failed = False
    with ff.Context(device, stream) as context:
        print(f"{context.info().description.decode()}, {'torch tensors' if torch is not None else 'plain bytes'}")
        memory = TorchMemory(torch) if torch is not None else SimulatorMemory(context)
        weights = upload_weights(memory, experts)
        for role in (ff.DECODE, ff.PREFILL):
            output = run_layer(context, memory, weights, role, logits, tokens, torch)
            worst = worst_share(experts, logits, tokens, output)
            failed |= not worst <= 1.0
            print(f"  {'ok' if worst <= 1.0 else 'WRONG'}: largest error is {worst:.3f} of its bound, "
                  f"{TOKENS * HIDDEN} values")
    print("failed" if failed else "ok")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
