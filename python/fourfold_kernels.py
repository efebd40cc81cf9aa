"""libfourfold_kernels for Python: the functions of fourfold_kernels.h through ctypes, and nothing to install.

Device pointers are integers, as tensor.data_ptr() gives them. What fails raises KernelError with the library's
sentence. The library is looked for, in this order, at FOURFOLD_KERNELS_LIBRARY, in the wheel or the tree this
file was installed by, and where the loader looks. One thread at a time may use a Context and what is prepared on it.
"""

import ctypes
import os
import pathlib

VERSION = 100

NVFP4, MXFP4 = 1, 2
W4A16, W4A4 = 1, 2
DECODE, PREFILL = 1, 2
PLAIN, GATE_UP = 1, 2
MODELOPT, COMPRESSED_TENSORS = 1, 2
BF16, F32 = 1, 2
SOFTMAX, SIGMOID = 0, 1

_SONAME = "libfourfold_kernels.so.0"


class KernelError(RuntimeError):
    """status is the fourfold_status, name its word: "invalid_request", "unsupported_op" and so on."""

    def __init__(self, status, name, text):
        super().__init__(f"{name}: {text}")
        self.status, self.name = status, name


class _Sized(ctypes.Structure):
    """A struct that begins with struct_size. Members are given by name; unknown names are errors."""

    def __init__(self, **members):
        known = {name for name, _ in self._fields_}
        unknown = sorted(set(members) - known)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no member {', '.join(unknown)}")
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


def _members(text):
    kinds = {"u32": ctypes.c_uint32, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64,
             "size": ctypes.c_size_t, "f32": ctypes.c_float, "ptr": ctypes.c_void_p, "str": ctypes.c_char_p}
    fields = [("struct_size", ctypes.c_uint32)]
    for word in text.split():
        kind, name = word.split(":")
        fields.append((name, ctypes.c_char * int(kind[4:]) if kind.startswith("char") else kinds[kind]))
    return fields


class ContextOptions(_Sized):
    _fields_ = _members("u32:reserved str:device ptr:stream u64:simulator_memory_bytes")


class ContextInfo(_Sized):
    _fields_ = _members("u32:simulated u32:sm_count u32:smem_bytes_per_block char16:arch char128:description")


class LayerOptions(_Sized):
    _fields_ = _members("i32:hidden i32:intermediate i32:experts i32:top_k i32:tokens i32:format "
                        "i32:activations i32:role u32:allow_emulated")


class Choice(_Sized):
    _fields_ = _members("u32:accepted u32:emulated i32:tile_tokens char64:gate_up_row char64:down_row "
                        "char256:refusal char256:notice")


class PackOptions(_Sized):
    _fields_ = _members("i32:format i32:activations i32:row_order i64:rows i64:columns ptr:codes ptr:scales "
                        "ptr:up_codes ptr:up_scales")


class QuantizeOptions(_Sized):
    _fields_ = _members("i32:format i64:rows i64:columns ptr:values f32:amax u32:reserved")


class LayerWeights(_Sized):
    _fields_ = _members("u32:reserved ptr:gate_up ptr:down ptr:gate_scale ptr:up_scale ptr:down_scale "
                        "ptr:gate_up_input_scale ptr:gate_up_input_inverse ptr:down_input_scale "
                        "ptr:down_input_inverse")


class LayerCall(_Sized):
    _fields_ = _members("i32:tokens ptr:logits ptr:input ptr:output ptr:workspace size:workspace_bytes "
                        "u32:keep_softmax u32:reserved i32:score f32:weight_scale ptr:choice_bias i32:groups "
                        "i32:groups_kept")


class GemmOptions(_Sized):
    _fields_ = _members("i32:columns i32:out_columns i32:experts i32:rows i32:format i32:activations i32:role "
                        "i32:result u32:allow_emulated")


class GemmCall(_Sized):
    _fields_ = _members("i32:rows ptr:weights ptr:scale ptr:input_scale ptr:input_inverse ptr:offsets ptr:input "
                        "ptr:output ptr:workspace size:workspace_bytes")


def _candidates():
    named = os.environ.get("FOURFOLD_KERNELS_LIBRARY")
    if named:
        return [named]
    here = pathlib.Path(__file__).resolve().parent  # <prefix>/share/fourfold/python once installed
    installed = [str(path) for path in [here / "fourfold" / "lib" / _SONAME] if path.exists()]  # of a wheel
    if here.parts[-3:] == ("share", "fourfold", "python"):
        installed += sorted(str(path) for path in here.parents[2].glob("lib*/**/" + _SONAME))
    return installed + [_SONAME]


def _load():
    problems = []
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as error:
            problems.append(str(error))
    else:
        raise ImportError(f"{_SONAME} was not found ({'; '.join(problems)}); "
                          "set FOURFOLD_KERNELS_LIBRARY to its path")
    library.fourfold_kernels_version.restype = ctypes.c_uint32
    for name in ("fourfold_kernels_last_error", "fourfold_status_name", "fourfold_gemm_row"):
        getattr(library, name).restype = ctypes.c_char_p
    loaded = library.fourfold_kernels_version()
    if loaded // 100 != VERSION // 100:
        raise ImportError(f"this wrapper is for version {VERSION} of libfourfold_kernels; "
                          f"version {loaded} was loaded")
    return library


_library = _load()


def _call(name, *arguments):
    status = getattr(_library, name)(*arguments)
    if status != 0:
        raise KernelError(status, _library.fourfold_status_name(status).decode(),
                          _library.fourfold_kernels_last_error().decode())


def _pointer(address):
    return ctypes.c_void_p(address)


def version():
    return _library.fourfold_kernels_version()


def choose(arch, **options):
    """The Choice of a layer on an architecture; accepted == 0 comes with a refusal."""
    choice = Choice()
    _call("fourfold_choose", arch.encode(), ctypes.byref(LayerOptions(**options)), ctypes.byref(choice))
    return choice


def weight_scale(convention, stored):
    scale = ctypes.c_float()
    _call("fourfold_weight_scale", ctypes.c_int32(convention), ctypes.c_float(stored), ctypes.byref(scale))
    return scale.value


def input_scale(convention, stored):
    """(scale, inverse) of an input scale, for W4A4."""
    scale, inverse = ctypes.c_float(), ctypes.c_float()
    _call("fourfold_input_scale", ctypes.c_int32(convention), ctypes.c_float(stored), ctypes.byref(scale),
          ctypes.byref(inverse))
    return scale.value, inverse.value


def quantize_host(values, *, format, rows, columns, amax=0.0):
    """(codes, scales, global scale) of a matrix of f32, given as bytes; codes and scales as pack_host takes them."""
    if len(values) != rows * columns * 4:
        raise ValueError(f"values has {len(values)} bytes; {rows} x {columns} of f32 has {rows * columns * 4}")
    held = ctypes.create_string_buffer(bytes(values), len(values))
    asked = QuantizeOptions(format=format, rows=rows, columns=columns, values=ctypes.addressof(held), amax=amax)
    codes = ctypes.create_string_buffer(max(rows * columns // 2, 1))
    scales = ctypes.create_string_buffer(max(rows * columns // (16 if format == NVFP4 else 32), 1))
    scale = ctypes.c_float()
    _call("fourfold_quantize_host", ctypes.byref(asked), codes, scales, ctypes.byref(scale))
    return codes.raw, scales.raw, scale.value


def packed_bytes(**options):
    size = ctypes.c_size_t()
    _call("fourfold_packed_bytes", ctypes.byref(PackOptions(**options)), ctypes.byref(size))
    return size.value


def pack_host(codes, scales, up_codes=None, up_scales=None, **options):
    """Records as bytes, from codes and scales as bytes."""
    columns, rows = options["columns"], options["rows"]
    block = 16 if options["format"] == NVFP4 else 32
    halves, blocks = rows * columns // 2, rows * columns // block
    for name, data, want in (("codes", codes, halves), ("scales", scales, blocks), ("up_codes", up_codes, halves),
                             ("up_scales", up_scales, blocks)):
        if data is not None and len(data) != want:
            raise ValueError(f"{name} has {len(data)} bytes; {rows} x {columns} has {want}")
    held = [None if data is None else ctypes.create_string_buffer(bytes(data), len(data))
            for data in (codes, scales, up_codes, up_scales)]
    address = [None if data is None else ctypes.addressof(data) for data in held]
    asked = PackOptions(codes=address[0], scales=address[1], up_codes=address[2], up_scales=address[3], **options)
    records = ctypes.create_string_buffer(packed_bytes(**options))
    _call("fourfold_pack_host", ctypes.byref(asked), records, ctypes.c_size_t(len(records)))
    return records.raw


class Context:
    """A device and a stream: Context("cuda:0", torch.cuda.current_stream().cuda_stream), or Context("sim:sm120")."""

    def __init__(self, device, stream=0, simulator_memory_bytes=0):
        self._handle = ctypes.c_void_p()
        options = ContextOptions(device=device.encode(), stream=stream,
                                 simulator_memory_bytes=simulator_memory_bytes)
        _call("fourfold_context_open", ctypes.byref(options), ctypes.byref(self._handle))

    def close(self):
        handle, self._handle = self._handle, ctypes.c_void_p()
        _library.fourfold_context_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def info(self):
        info = ContextInfo()
        _call("fourfold_context_describe", self._handle, ctypes.byref(info))
        return info

    def plan_json(self):
        needed = ctypes.c_size_t()
        _call("fourfold_plan_json", self._handle, None, ctypes.c_size_t(0), ctypes.byref(needed))
        text = ctypes.create_string_buffer(needed.value)
        _call("fourfold_plan_json", self._handle, text, needed, ctypes.byref(needed))
        return text.value.decode()

    def set_stream(self, stream):
        _call("fourfold_context_set_stream", self._handle, _pointer(stream))

    def synchronize(self):
        _call("fourfold_context_synchronize", self._handle)

    def allocate(self, size):
        """The address of `size` bytes of device memory; it goes back with free() or with the context."""
        memory = ctypes.c_void_p()
        _call("fourfold_allocate", self._handle, ctypes.c_size_t(size), ctypes.byref(memory))
        return memory.value

    def free(self, address):
        _call("fourfold_free", self._handle, _pointer(address))

    def upload(self, data):
        """Device memory with these bytes in it; its address."""
        address = self.allocate(max(len(data), 1))
        _call("fourfold_copy_to_device", self._handle, _pointer(address), bytes(data), ctypes.c_size_t(len(data)))
        return address

    def download(self, address, size):
        data = ctypes.create_string_buffer(size)
        _call("fourfold_copy_from_device", self._handle, data, _pointer(address), ctypes.c_size_t(size))
        return data.raw

    def pack(self, records, records_bytes, **options):
        """On the device: records, codes, scales, up_codes and up_scales are device addresses."""
        _call("fourfold_pack_device", self._handle, ctypes.byref(PackOptions(**options)), _pointer(records),
              ctypes.c_size_t(records_bytes))

    def layer(self, **options):
        return Layer(self, LayerOptions(**options))

    def gemm(self, **options):
        return Gemm(self, GemmOptions(**options))


class _Prepared:
    """A handle of a context; it keeps the context alive."""

    _kind = ""

    def __init__(self, context, options):
        self._context, self._handle = context, ctypes.c_void_p()
        _call(f"fourfold_{self._kind}_prepare", context._handle, ctypes.byref(options), ctypes.byref(self._handle))

    def release(self):
        handle, self._handle = self._handle, ctypes.c_void_p()
        getattr(_library, f"fourfold_{self._kind}_release")(handle)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.release()

    def workspace_bytes(self):
        size = ctypes.c_size_t()
        _call(f"fourfold_{self._kind}_workspace_bytes", self._handle, ctypes.byref(size))
        return size.value


class Layer(_Prepared):
    _kind = "layer"

    def choice(self):
        choice = Choice()
        _call("fourfold_layer_choice", self._handle, ctypes.byref(choice))
        return choice

    def run(self, weights, **call):
        """weights: LayerWeights. Returns as soon as the kernels are on the stream."""
        _call("fourfold_layer_run", self._handle, ctypes.byref(weights), ctypes.byref(LayerCall(**call)))


class Gemm(_Prepared):
    _kind = "gemm"

    def row(self):
        return _library.fourfold_gemm_row(self._handle).decode()

    def run(self, **call):
        _call("fourfold_gemm_run", self._handle, ctypes.byref(GemmCall(**call)))
