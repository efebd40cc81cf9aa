"""Makes vLLM believe in a GPU that is not there, as far as building layers goes: import before anything else of vLLM. CAPABILITY may be
changed afterwards. Tensors stay on the CPU."""
import os
import types

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_HOST_IP="127.0.0.1",
                  GLOO_SOCKET_IFNAME="lo")
import torch  # noqa: E402

CAPABILITY = [9, 0]


class _Nothing:
    """A stream or an event."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        return lambda *_, **__: None


_PROPERTIES = types.SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=150754820096, multi_processor_count=132, warp_size=32,
                                    L2_cache_size=62914560, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
                                    shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, gcnArchName="")
for _name, _value in (("is_available", True), ("device_count", 1), ("get_device_properties", _PROPERTIES), ("get_device_name", "NVIDIA H200"),
                      ("current_device", 0), ("mem_get_info", (150000000000, 150754820096)), ("synchronize", None),
                      ("current_stream", _Nothing())):
    setattr(torch.cuda, _name, lambda *_, _value=_value, **__: _value)
torch.cuda.get_device_capability = lambda *_, **__: tuple(CAPABILITY)
torch.cuda.Stream = torch.cuda.Event = _Nothing
import vllm.platforms  # noqa: E402
from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402


class _Platform(NonNvmlCudaPlatform):
    @classmethod
    def get_device_capability(cls, device_id=0):
        return DeviceCapability(major=CAPABILITY[0], minor=CAPABILITY[1])


vllm.platforms._current_platform = _Platform()
