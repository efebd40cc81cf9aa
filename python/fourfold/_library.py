"""The functions of fourfold/fourfold.h through ctypes. A test compares the structs with the header."""

import ctypes
from typing import Any, Dict, List, Tuple

from . import _files

VERSION = 100  # FOURFOLD_VERSION of the header these structs are of
SONAME = "libfourfold_engine.so.0"

# fourfold_status, from 1 on.
STATUS_NAMES = ("invalid_request", "bad_checkpoint", "unsupported_model", "unsupported_device", "unsupported_op",
                "out_of_memory", "over_capacity", "cancelled", "device_lost", "io", "internal")

ON_TEXT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
ON_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)


class FourfoldError(RuntimeError):
    """What the engine refused or could not do; `name` is the kind of it: "invalid_request", "io", "out_of_memory"..."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class ModelOptions(ctypes.Structure):
    """fourfold_model_options."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("threads", ctypes.c_int32),
        ("backend", ctypes.c_char_p),
        ("max_context", ctypes.c_int64),
        ("max_sequences", ctypes.c_int64),
        ("mtp_plus_one", ctypes.c_int32),
        ("no_prefix_cache", ctypes.c_int32),
        ("experts", ctypes.c_char_p),
        ("activations", ctypes.c_char_p),
        ("kv", ctypes.c_char_p),
        ("dense", ctypes.c_char_p),
        ("cache", ctypes.c_char_p),
        ("tuned", ctypes.c_char_p),
        ("memory_fraction", ctypes.c_double),
        ("kv_tokens", ctypes.c_int64),
        ("step_rows", ctypes.c_int64),
        ("max_queue", ctypes.c_int64),
        ("tp", ctypes.c_int32),
        ("strict", ctypes.c_int32),
        ("rebuild_cache", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("prefix_cache_bytes", ctypes.c_int64),
        ("on_text", ON_TEXT),
        ("on_progress", ON_PROGRESS),
        ("user", ctypes.c_void_p),
        ("kv_events", ctypes.c_char_p),
        ("kv_events_replay", ctypes.c_char_p),
        ("kv_events_topic", ctypes.c_char_p),
    ]


class RequestOptions(ctypes.Structure):
    """fourfold_request_options."""

    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_int32),
        ("on_answer", ON_TEXT),
        ("on_note", ON_TEXT),
        ("user", ctypes.c_void_p),
    ]


def _declare(library: ctypes.CDLL) -> None:
    pointer = ctypes.c_void_p
    functions: Dict[str, Tuple[Any, List[Any]]] = {
        "fourfold_version": (ctypes.c_uint32, []),
        "fourfold_last_error": (ctypes.c_char_p, []),
        "fourfold_model_open": (ctypes.c_int32, [ctypes.c_char_p, ctypes.POINTER(ModelOptions), pointer]),
        "fourfold_model_close": (None, [pointer]),
        "fourfold_model_status": (ctypes.c_int32, [pointer, ON_TEXT, pointer]),
        "fourfold_request": (ctypes.c_int32, [pointer, ctypes.c_char_p, ctypes.c_char_p, pointer]),
    }
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments


def load(name: str = SONAME, variable: str = "FOURFOLD_ENGINE_LIBRARY") -> ctypes.CDLL:
    """The library, from FOURFOLD_ENGINE_LIBRARY, beside this package, or where the loader looks."""
    problems = []
    for candidate in _files.library_candidates(name, variable):
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            problems.append(str(error))
            continue
        _declare(library)
        loaded = library.fourfold_version()
        if loaded // 100 != VERSION // 100:
            raise ImportError(f"this package is for version {VERSION} of libfourfold_engine; {candidate} is {loaded}")
        return library
    raise ImportError(f"{name} was not found ({'; '.join(problems)}); set {variable} to its path")


library = load()


def version() -> str:
    """The library's version, "1.2.3", say."""
    number = library.fourfold_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def check(status: int) -> None:
    """Raises FourfoldError with the library's sentence where a function did not return FOURFOLD_OK."""
    if status != 0:
        raise FourfoldError(STATUS_NAMES[status - 1] if status <= len(STATUS_NAMES) else "internal", library.fourfold_last_error().decode())
