"""torch.ops.fourfold: the kernels of libfourfold_kernels as operators of PyTorch.

    import fourfold_torch

    codes, scales, scale = torch.ops.fourfold.quantize(weights, "nvfp4")           # where they are not FP4 yet
    records = torch.ops.fourfold.pack(codes, scales, None, None, "nvfp4")          # once, at load
    out = torch.ops.fourfold.moe_layer(hidden, logits, gate_up, down, gate_scale, up_scale, down_scale,
                                         intermediate, top_k, "decode")
    out = torch.ops.fourfold.moe_layer_chosen(hidden, ids, weights, gate_up, down, gate_scale, up_scale, down_scale,
                                                intermediate, "decode")            # the caller has routed
    rows = torch.ops.fourfold.grouped_gemm(input, records, scale, offsets, out_columns, "decode")

On CUDA tensors they run on the current stream and can be captured in a graph, once called outside of it for the same shape;
CPU tensors run on the simulated GPU, a million times slower, for tests. torch.compile sees shapes through fake tensors.
Weights are NVFP4 or MXFP4, activations bf16 (W4A16).
"""

import ctypes
import functools
from typing import Any, Dict, List, Optional, Tuple

import fourfold_kernels as ff
import torch
from torch import Tensor

SIMULATED = "sim:sm120"
_FORMATS = {"nvfp4": ff.NVFP4, "mxfp4": ff.MXFP4}
_BLOCKS = {"nvfp4": 16, "mxfp4": 32}
_ROLES = {"decode": ff.DECODE, "prefill": ff.PREFILL}
_SCORES = {"softmax": ff.SOFTMAX, "sigmoid": ff.SIGMOID}
MOST_WEIGHT = 1024.0  # of a pair that the caller has routed


def _word(table: Dict[str, int], word: str, what: str) -> int:
    if word not in table:
        raise ValueError(f"{what} is '{word}'; {', '.join(table)} are possible")
    return table[word]


@functools.lru_cache(maxsize=None)
def _context(device: str) -> Any:
    return ff.Context(device, 0)


@functools.lru_cache(maxsize=None)
def _prepared(device: str, kind: str, options: Tuple[Tuple[str, int], ...]) -> Tuple[Any, int]:
    """A layer or a GEMM of this shape, and its workspace; kept, since graphs refer to it."""
    prepared = getattr(_context(device), kind)(**dict(options))
    return prepared, prepared.workspace_bytes()


def _prepared_for(count: int) -> int:
    """What to prepare for so many tokens or rows: each number up to 64 has its kernels, above powers of two share them."""
    return count if count <= 64 else 1 << (count - 1).bit_length()


def device_refusal(device: torch.device) -> Optional[str]:
    """Why the kernels do not run on a device, in the library's words; None: they do."""
    try:
        _context(f"cuda:{device.index or 0}" if device.type == "cuda" else SIMULATED)
    except ff.KernelError as error:
        return str(error)
    return None


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


@functools.lru_cache(maxsize=None)
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
    # By its address: torch comes without numpy, too.
    made = [ff.quantize_host(ctypes.string_at(host[expert].data_ptr(), 4 * rows * columns), format=number, rows=rows, columns=columns)
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


def _by_expert(tensor: Tensor) -> Tensor:
    """Each expert's matrix in one piece; halves of a larger tensor are, and need no copy."""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()


def _pack_on_device(given: List[Optional[Tensor]], options: Dict[str, int]) -> Tensor:
    codes = given[0]
    assert codes is not None
    memory, size = _Memory(codes), ff.packed_bytes(**options)
    packed = torch.empty((codes.shape[0], size), dtype=torch.uint8, device=codes.device)
    for expert in range(codes.shape[0]):
        codes_at, scales_at, up_codes_at, up_scales_at = (None if tensor is None else tensor[expert].data_ptr() for tensor in given)
        memory.context.pack(packed[expert].data_ptr(), size, codes=codes_at, scales=scales_at, up_codes=up_codes_at,
                            up_scales=up_scales_at, **options)
    return packed


@torch.library.custom_op("fourfold::pack", mutates_args=())
def pack(codes: Tensor, scales: Tensor, up_codes: Optional[Tensor], up_scales: Optional[Tensor], format: str) -> Tensor:
    """Records [experts, bytes] of matrices [experts, rows, columns / 2] with scales [experts, rows, columns / block], as a
    checkpoint has them; with up_codes and up_scales gate and up together. Packed where they are."""
    options = _pack_options(codes, up_codes, format)
    if scales.shape != (*codes.shape[:2], options["columns"] // _BLOCKS[format]):
        raise ValueError(f"scales are {tuple(scales.shape)} for codes {tuple(codes.shape)} of {format}")
    given = [None if tensor is None else _by_expert(tensor).view(torch.uint8) for tensor in (codes, scales, up_codes, up_scales)]
    if codes.is_cuda:
        return _pack_on_device(given, options)

    def piece(tensor: Optional[Tensor], expert: int) -> Optional[bytes]:
        return None if tensor is None else bytes(tensor[expert].flatten().tolist())

    records = [ff.pack_host(*(piece(tensor, expert) for tensor in given), **options) for expert in range(codes.shape[0])]
    packed = torch.frombuffer(bytearray(b"".join(records)), dtype=torch.uint8).view(codes.shape[0], -1)
    return packed.clone()


@pack.register_fake
def _(codes: Tensor, scales: Tensor, up_codes: Optional[Tensor], up_scales: Optional[Tensor], format: str) -> Tensor:
    size = ff.packed_bytes(**_pack_options(codes, up_codes, format))
    return codes.new_empty((codes.shape[0], size), dtype=torch.uint8)


@torch.library.custom_op("fourfold::moe_layer", mutates_args=())
def moe_layer(hidden: Tensor, logits: Tensor, gate_up: Tensor, down: Tensor, gate_scale: Tensor, up_scale: Tensor,
              down_scale: Tensor, intermediate: int, top_k: int, role: str, format: str = "nvfp4", score: str = "softmax",
              renormalise: bool = True, weight_scale: float = 1.0, choice_bias: Optional[Tensor] = None, groups: int = 0,
              groups_kept: int = 0) -> Tensor:
    """The routed experts of a layer, bf16 [tokens, hidden]: softmax over logits [tokens, experts] (f32), the top_k best, gate
    and up with SwiGLU, down, the weighted sum. gate_up and down are of pack; scales are f32 [experts]. Other routers: score,
    renormalise, weight_scale, and with sigmoid scores choice_bias (f32 [experts]) and groups (fourfold_layer_call says what
    they mean)."""
    tokens, experts = logits.shape
    memory = _Memory(hidden)
    options = dict(hidden=hidden.shape[1], intermediate=intermediate, experts=experts, top_k=top_k, tokens=_prepared_for(tokens),
                   format=_word(_FORMATS, format, "format"), activations=ff.W4A16, role=_word(_ROLES, role, "role"))
    layer, workspace_bytes = _prepared(memory.name, "layer", tuple(sorted(options.items())))
    width = hidden.shape[1]
    of_gate_up = _record_shape(experts, intermediate, width, True, format)
    of_down = _record_shape(experts, width, intermediate, False, format)
    weights = ff.LayerWeights(gate_up=memory.of(gate_up, of_gate_up, torch.uint8, "gate_up"),
                              down=memory.of(down, of_down, torch.uint8, "down"),
                              gate_scale=memory.of(gate_scale, (experts,), torch.float32, "gate_scale"),
                              up_scale=memory.of(up_scale, (experts,), torch.float32, "up_scale"),
                              down_scale=memory.of(down_scale, (experts,), torch.float32, "down_scale"))
    bias = None if choice_bias is None else memory.of(choice_bias, (experts,), torch.float32, "choice_bias")
    output, held = memory.room(hidden.numel() * 2)
    workspace, kept = memory.room(workspace_bytes)
    layer.run(weights, tokens=tokens, logits=memory.of(logits, (tokens, experts), torch.float32, "logits"),
              input=memory.of(hidden, (tokens, width), torch.bfloat16, "hidden"), output=output, workspace=workspace,
              workspace_bytes=workspace_bytes, keep_softmax=0 if renormalise else 1, score=_word(_SCORES, score, "score"),
              weight_scale=weight_scale, choice_bias=bias, groups=groups, groups_kept=groups_kept)
    del kept  # torch keeps it for the stream
    return memory.result(output, held, tuple(hidden.shape), torch.bfloat16)


@moe_layer.register_fake
def _(hidden: Tensor, logits: Tensor, gate_up: Tensor, down: Tensor, gate_scale: Tensor, up_scale: Tensor, down_scale: Tensor,
      intermediate: int, top_k: int, role: str, format: str = "nvfp4", score: str = "softmax", renormalise: bool = True,
      weight_scale: float = 1.0, choice_bias: Optional[Tensor] = None, groups: int = 0, groups_kept: int = 0) -> Tensor:
    return torch.empty_like(hidden)


@torch.library.custom_op("fourfold::moe_layer_chosen", mutates_args=())
def moe_layer_chosen(hidden: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, gate_scale: Tensor,
                     up_scale: Tensor, down_scale: Tensor, intermediate: int, role: str, format: str = "nvfp4") -> Tensor:
    """moe_layer where somebody else has routed: token t goes to the experts ids[t] with weights[t], both [tokens, top_k]. Weights
    are from 0 to below MOST_WEIGHT; a negative id is no expert, and an expert named twice has the sum of its weights."""
    if ids.dim() != 2 or ids.shape != weights.shape:
        raise ValueError(f"ids are {tuple(ids.shape)}, weights {tuple(weights.shape)}; both are [tokens, top_k]")
    # The kernels route by scores. A sigmoid is undone by a logit, to a few of f32's roundings; others have weight 0, the score
    # of nobody.
    of_pairs = torch.where(ids < 0, 0.0, weights.float()) * (1.0 / MOST_WEIGHT)
    dense = torch.zeros((ids.shape[0], gate_up.shape[0]), dtype=torch.float32, device=ids.device)
    dense.scatter_add_(1, ids.clamp(min=0).long(), of_pairs)
    return moe_layer(hidden, torch.logit(dense), gate_up, down, gate_scale, up_scale, down_scale, intermediate, ids.shape[1],
                     role, format, "sigmoid", False, MOST_WEIGHT)


@moe_layer_chosen.register_fake
def _(hidden: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, gate_scale: Tensor, up_scale: Tensor,
      down_scale: Tensor, intermediate: int, role: str, format: str = "nvfp4") -> Tensor:
    return torch.empty_like(hidden)


@torch.library.custom_op("fourfold::grouped_gemm", mutates_args=())
def grouped_gemm(input: Tensor, records: Tensor, scale: Tensor, offsets: Tensor, out_columns: int, role: str,
                 format: str = "nvfp4") -> Tensor:
    """Rows [rows, columns] (bf16) times the matrix of their expert, bf16 [rows, out_columns]: expert e has the rows
    offsets[e] up to offsets[e + 1] (int32 [experts + 1])."""
    rows, columns = input.shape
    memory = _Memory(input)
    options = dict(columns=columns, out_columns=out_columns, experts=records.shape[0], rows=_prepared_for(rows),
                   format=_word(_FORMATS, format, "format"), activations=ff.W4A16, role=_word(_ROLES, role, "role"),
                   result=ff.BF16)
    gemm, workspace_bytes = _prepared(memory.name, "gemm", tuple(sorted(options.items())))
    output, held = memory.room(rows * out_columns * 2)
    workspace, kept = memory.room(workspace_bytes)
    experts = records.shape[0]
    of_records = _record_shape(experts, out_columns, columns, False, format)
    gemm.run(rows=rows, weights=memory.of(records, of_records, torch.uint8, "records"),
             scale=memory.of(scale, (experts,), torch.float32, "scale"),
             offsets=memory.of(offsets, (experts + 1,), torch.int32, "offsets"),
             input=memory.of(input, (rows, columns), torch.bfloat16, "input"), output=output, workspace=workspace,
             workspace_bytes=workspace_bytes)
    del kept
    return memory.result(output, held, (rows, out_columns), torch.bfloat16)


@grouped_gemm.register_fake
def _(input: Tensor, records: Tensor, scale: Tensor, offsets: Tensor, out_columns: int, role: str,
      format: str = "nvfp4") -> Tensor:
    return input.new_empty((input.shape[0], out_columns))
