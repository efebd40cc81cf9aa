"""Fourfold's kernels inside vLLM: the routed experts of NVFP4 and MXFP4 models on sm_90, sm_120 and sm_121.

vLLM calls register() in each of its processes (entry point vllm.general_plugins). From then on a layer of routed experts is either
ours or vLLM's own, and the log says which and why. FOURFOLD_VLLM is

    on        what can be taken is taken; for the rest one warning per reason (the default)
    off       vLLM as it was
    required  a layer that cannot be taken, or an untested vLLM, ends the start: for measurements
"""

import logging
import os

TESTED = ("0.32.0", "0.33.0")
_SWITCH = ("on", "off", "required")

# vLLM prints what is below its own logger.
log = logging.getLogger("vllm.fourfold")


def switch() -> str:
    word = os.environ.get("FOURFOLD_VLLM", "on")
    if word not in _SWITCH:
        raise ValueError(f"FOURFOLD_VLLM is '{word}'; {', '.join(_SWITCH)} are possible")
    return word


def version_refusal(version: str) -> "str | None":
    """Why this vLLM is left alone; None: it is one the plugin was tested with. Builds of a release (0.33.0+cu129) are that release."""
    if version.split("+")[0] in TESTED:
        return None
    return (f"vLLM {version} was not tested with fourfold-vllm, which takes layers over by names inside of vLLM; tested are "
            f"{' and '.join(TESTED)}: install one of them, or another fourfold-vllm")


def register() -> None:
    """The entry point; vLLM may call it more than once in a process."""
    word = switch()
    if word == "off":
        log.info("fourfold: off (FOURFOLD_VLLM=off)")
        return
    import vllm

    refusal = version_refusal(vllm.__version__)
    if refusal is not None:
        if word == "required":
            raise RuntimeError(refusal)
        log.error("fourfold: off. %s", refusal)
        return
    from fourfold_vllm import experts

    experts.install()
