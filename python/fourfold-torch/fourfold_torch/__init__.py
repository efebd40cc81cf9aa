"""torch.ops.fourfold: the kernels of libfourfold_kernels as operators of PyTorch.

    import fourfold_torch

    codes, scales, scale = torch.ops.fourfold.quantize(weights, "nvfp4")           # where they are not FP4 yet
    records = torch.ops.fourfold.pack(codes, scales, None, None, "nvfp4")          # once, at load
    out = torch.ops.fourfold.moe_layer(hidden, logits, gate_up, down, gate_scale, up_scale, down_scale,
                                         intermediate, top_k, "decode")
    rows = torch.ops.fourfold.grouped_gemm(input, records, scale, offsets, out_columns, "decode")

On CUDA tensors they run on the current stream and can be captured in a graph, once called outside of it for the same shape;
CPU tensors run on the simulated GPU, a million times slower, for tests. torch.compile sees shapes through fake tensors.
Weights are NVFP4 or MXFP4, activations bf16 (W4A16).
"""

import functools
from typing import Any, Dict, Optional, Tuple

import fourfold_kernels as ff
import torch
from torch import Tensor

SIMULATED = "sim:sm120"
_FORMATS = {"nvfp4": ff.NVFP4, "mxfp4": ff.MXFP4}
_BLOCKS = {"nvfp4": 16, "mxfp4": 32}
_ROLES = {"decode": ff.DECODE, "prefill": ff.PREFILL}


def _word(table: Dict[str, int], word: str, what: str) -> int:
    if word not in table:
        raise ValueError(f"{what} is '{word}'; {', '.join(table)} are possible")
    return table[word]


@functools.lru_cache(maxsize=None)
def _context(device: str) -> Any:
    return ff.Context(device, 0)


@functools.lru_cache(maxsize=None)
def _prepared(device: str, kind: str, options: Tuple[Tuple[str, int], ...]) -> Any:
    """A layer or a GEMM of this shape; kept, since graphs refer to it."""
    return getattr(_context(device), kind)(**dict(options))


def _name(tensor: Tensor) -> str:
    return f"cuda:{tensor.device.index}" if tensor.is_cuda else SIMULATED


class _Memory:
    """Addresses of tensors: their own on a GPU, those of copies on the simulator."""

    def __init__(self, like: Tensor) -> None:
        self.name, self.like, self.copies = _name(like), like, []  # type: ignore[var-annotated]
        self.context = _context(self.name)
        if like.is_cuda:
            self.context.set_stream(torch.cuda.current_stream(like.device).cuda_stream)

    def of(self, tensor: Tensor, shape: Tuple[int, ...], dtype: torch.dtype, what: str) -> int:
        if tuple(tensor.shape) != shape:  # the kernels believe in it
            raise ValueError(f"{what} is {tuple(tensor.shape)}; {shape} was expected")
        if tensor.dtype != dtype or tensor.device != self.like.device or not tensor.is_contiguous():
            raise ValueError(f"{what} is {tensor.dtype} on {tensor.device}{'' if tensor.is_contiguous() else ', not contiguous'}; "
                             f"contiguous {dtype} on {self.like.device} was expected")
        if self.like.is_cuda:
            return tensor.data_ptr()
        address: int = self.context.upload(bytes(tensor.flatten().view(torch.uint8).tolist()))
        self.copies.append(address)
        return address

    def room(self, size: int) -> Tuple[int, Optional[Tensor]]:
        """Bytes for a workspace or a result; on a GPU the tensor that holds them."""
        if self.like.is_cuda:
            held = torch.empty(max(size, 1), dtype=torch.uint8, device=self.like.device)
            return held.data_ptr(), held
        self.copies.append(self.context.allocate(max(size, 1)))
        return self.copies[-1], None

    def result(self, address: int, held: Optional[Tensor], shape: Tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if held is not None:
            return held.view(dtype).view(shape)
        size = torch.Size(shape).numel() * dtype.itemsize
        data = torch.frombuffer(bytearray(self.context.download(address, size)), dtype=dtype).view(shape).clone()
        for copy in self.copies:
            self.context.free(copy)
        return data


def _record_shape(experts: int, rows: int, columns: int, gate_up: bool, format: str) -> Tuple[int, int]:
    return experts, ff.packed_bytes(format=_word(_FORMATS, format, "format"), activations=ff.W4A16,
                                    row_order=ff.GATE_UP if gate_up else ff.PLAIN, rows=rows, columns=columns)


def _pack_options(codes: Tensor, up: Optional[Tensor], format: str) -> Dict[str, int]:
    return dict(format=_word(_FORMATS, format, "format"), activations=ff.W4A16,
                row_order=ff.PLAIN if up is None else ff.GATE_UP, rows=codes.shape[-2], columns=codes.shape[-1] * 2)


@torch.library.custom_op("fourfold::quantize", mutates_args=())
def quantize(weights: Tensor, format: str) -> Tuple[Tensor, Tensor, Tensor]:
    """Matrices [experts, rows, columns] as FP4: codes and scales as pack takes them, and their scales, f32 [experts]. Those of
    gate and up of one expert are one when they are quantised together, one above the other. Quantised on the host."""
    experts, rows, columns = weights.shape
    number = _word(_FORMATS, format, "format")
    host = weights.detach().to("cpu", torch.float32).contiguous()
    made = [ff.quantize_host(bytes(memoryview(host[expert].numpy())), format=number, rows=rows, columns=columns)
            for expert in range(experts)]

    def tensor(data: bytes) -> Tensor:
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(experts, rows, -1).to(weights.device)

    return (tensor(b"".join(codes for codes, _, _ in made)), tensor(b"".join(scales for _, scales, _ in made)),
            torch.tensor([scale for _, _, scale in made], dtype=torch.float32, device=weights.device))


@quantize.register_fake
def _(weights: Tensor, format: str) -> Tuple[Tensor, Tensor, Tensor]:
    experts, rows, columns = weights.shape
    return (weights.new_empty((experts, rows, columns // 2), dtype=torch.uint8),
            weights.new_empty((experts, rows, columns // _BLOCKS[format]), dtype=torch.uint8),
            weights.new_empty((experts,), dtype=torch.float32))


@torch.library.custom_op("fourfold::pack", mutates_args=())
def pack(codes: Tensor, scales: Tensor, up_codes: Optional[Tensor], up_scales: Optional[Tensor], format: str) -> Tensor:
    """Records [experts, bytes] of matrices [experts, rows, columns / 2] with scales [experts, rows, columns / block], as a
    checkpoint has them; with up_codes and up_scales gate and up together. Packed on the host."""
    options = _pack_options(codes, up_codes, format)
    if scales.shape != (*codes.shape[:2], options["columns"] // _BLOCKS[format]):
        raise ValueError(f"scales are {tuple(scales.shape)} for codes {tuple(codes.shape)} of {format}")
    host = [None if tensor is None else tensor.cpu().view(torch.uint8) for tensor in (codes, scales, up_codes, up_scales)]

    def piece(tensor: Optional[Tensor], expert: int) -> Optional[bytes]:
        return None if tensor is None else bytes(tensor[expert].flatten().tolist())

    records = [ff.pack_host(*(piece(tensor, expert) for tensor in host), **options) for expert in range(codes.shape[0])]
    packed = torch.frombuffer(bytearray(b"".join(records)), dtype=torch.uint8).view(codes.shape[0], -1)
    return packed.to(codes.device) if codes.is_cuda else packed.clone()


@pack.register_fake
def _(codes: Tensor, scales: Tensor, up_codes: Optional[Tensor], up_scales: Optional[Tensor], format: str) -> Tensor:
    size = ff.packed_bytes(**_pack_options(codes, up_codes, format))
    return codes.new_empty((codes.shape[0], size), dtype=torch.uint8)


@torch.library.custom_op("fourfold::moe_layer", mutates_args=())
def moe_layer(hidden: Tensor, logits: Tensor, gate_up: Tensor, down: Tensor, gate_scale: Tensor, up_scale: Tensor,
              down_scale: Tensor, intermediate: int, top_k: int, role: str, format: str = "nvfp4") -> Tensor:
    """The routed experts of a layer, bf16 [tokens, hidden]: softmax over logits [tokens, experts] (f32), the top_k best, gate
    and up with SwiGLU, down, the weighted sum. gate_up and down are of pack; scales are f32 [experts]."""
    tokens, experts = logits.shape
    memory = _Memory(hidden)
    options = dict(hidden=hidden.shape[1], intermediate=intermediate, experts=experts, top_k=top_k, tokens=tokens,
                   format=_word(_FORMATS, format, "format"), activations=ff.W4A16, role=_word(_ROLES, role, "role"))
    layer = _prepared(memory.name, "layer", tuple(sorted(options.items())))
    width = hidden.shape[1]
    of_gate_up = _record_shape(experts, intermediate, width, True, format)
    of_down = _record_shape(experts, width, intermediate, False, format)
    weights = ff.LayerWeights(gate_up=memory.of(gate_up, of_gate_up, torch.uint8, "gate_up"),
                              down=memory.of(down, of_down, torch.uint8, "down"),
                              gate_scale=memory.of(gate_scale, (experts,), torch.float32, "gate_scale"),
                              up_scale=memory.of(up_scale, (experts,), torch.float32, "up_scale"),
                              down_scale=memory.of(down_scale, (experts,), torch.float32, "down_scale"))
    output, held = memory.room(hidden.numel() * 2)
    workspace, kept = memory.room(layer.workspace_bytes())
    layer.run(weights, tokens=tokens, logits=memory.of(logits, (tokens, experts), torch.float32, "logits"),
              input=memory.of(hidden, (tokens, width), torch.bfloat16, "hidden"), output=output, workspace=workspace,
              workspace_bytes=layer.workspace_bytes())
    del kept  # torch keeps it for the stream
    return memory.result(output, held, tuple(hidden.shape), torch.bfloat16)


@moe_layer.register_fake
def _(hidden: Tensor, logits: Tensor, gate_up: Tensor, down: Tensor, gate_scale: Tensor, up_scale: Tensor, down_scale: Tensor,
      intermediate: int, top_k: int, role: str, format: str = "nvfp4") -> Tensor:
    return torch.empty_like(hidden)


@torch.library.custom_op("fourfold::grouped_gemm", mutates_args=())
def grouped_gemm(input: Tensor, records: Tensor, scale: Tensor, offsets: Tensor, out_columns: int, role: str,
                 format: str = "nvfp4") -> Tensor:
    """Rows [rows, columns] (bf16) times the matrix of their expert, bf16 [rows, out_columns]: expert e has the rows
    offsets[e] up to offsets[e + 1] (int32 [experts + 1])."""
    rows, columns = input.shape
    memory = _Memory(input)
    options = dict(columns=columns, out_columns=out_columns, experts=records.shape[0], rows=rows,
                   format=_word(_FORMATS, format, "format"), activations=ff.W4A16, role=_word(_ROLES, role, "role"),
                   result=ff.BF16)
    gemm = _prepared(memory.name, "gemm", tuple(sorted(options.items())))
    output, held = memory.room(rows * out_columns * 2)
    workspace, kept = memory.room(gemm.workspace_bytes())
    experts = records.shape[0]
    of_records = _record_shape(experts, out_columns, columns, False, format)
    gemm.run(rows=rows, weights=memory.of(records, of_records, torch.uint8, "records"),
             scale=memory.of(scale, (experts,), torch.float32, "scale"),
             offsets=memory.of(offsets, (experts + 1,), torch.int32, "offsets"),
             input=memory.of(input, (rows, columns), torch.bfloat16, "input"), output=output, workspace=workspace, workspace_bytes=gemm.workspace_bytes())
    del kept
    return memory.result(output, held, (rows, out_columns), torch.bfloat16)


@grouped_gemm.register_fake
def _(input: Tensor, records: Tensor, scale: Tensor, offsets: Tensor, out_columns: int, role: str,
      format: str = "nvfp4") -> Tensor:
    return input.new_empty((input.shape[0], out_columns))
