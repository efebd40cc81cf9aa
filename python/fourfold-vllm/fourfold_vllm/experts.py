"""Where vLLM is entered: RoutedExperts, a layer that may be replaced from outside (PluggableLayer.register_oot), asks the model's
quantisation for a method; ours looks at the answer and keeps it, or makes it run on torch.ops.fourfold."""

import functools
from typing import Any, Optional

import fourfold_torch
import torch
from vllm.config import get_current_vllm_config
from vllm.model_executor.custom_op import PluggableLayer, op_registry_oot
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.utils import is_weights_pre_processed
from vllm.platforms import current_platform

from fourfold_vllm import decide, log, switch
from fourfold_vllm.repack import repack

# Tokens an expert has on average, up to which a step's sums are those of generated tokens: vLLM mixes both kinds of rows in a batch.
# Up to there the kernels stream the weights with their narrowest pass; more tokens are the prompt kernels' business.
MOST_DECODE_MEAN = 4.0


@functools.lru_cache(maxsize=None)
def _say(level: str, text: str) -> None:
    """A line once, however many layers have the reason."""
    getattr(log, level)("fourfold: %s", text)


def _capability() -> "tuple[int, int] | None":
    found = current_platform.get_device_capability() if current_platform.is_cuda() else None
    return None if found is None else (found.major, found.minor)


def _role(tokens: int, config: Any) -> str:
    return "decode" if tokens * config.experts_per_token <= MOST_DECODE_MEAN * config.num_experts else "prefill"


class FourfoldMethod(FusedMoEMethodBase):
    """Comes before vLLM's method of the layer in the order of classes: loading stays as it is there, the rest is ours."""

    fourfold_of: str  # the name of vLLM's class
    fourfold_format: str
    fourfold_routing: Optional[decide.Routing]

    def maybe_roundup_sizes(self, hidden_size: int, intermediate_size_per_partition: int, *rest: Any, **named: Any) -> "tuple[int, int]":
        return hidden_size, intermediate_size_per_partition

    @property
    def skip_forward_padding(self) -> bool:
        return False

    @property
    def has_unpadded_output(self) -> bool:
        return False

    @property
    def supports_eplb(self) -> bool:
        return False

    @property
    def is_monolithic(self) -> bool:
        """Whether apply_monolithic gets logits; else apply gets ids and weights."""
        return self.fourfold_routing is not None

    @property
    def topk_indices_dtype(self) -> Optional[torch.dtype]:
        return torch.int32

    def process_weights_after_loading(self, layer: Any) -> None:
        if is_weights_pre_processed():
            raise RuntimeError("weights that vLLM has processed for another kernel cannot be packed for Fourfold's; "
                               "load the checkpoint, or set FOURFOLD_VLLM=off")
        repack(layer, self.fourfold_of, self.fourfold_format)

    def get_fused_moe_quant_config(self, layer: Any) -> None:
        return None  # of vLLM's kernels

    def _weights(self, layer: Any) -> "tuple[torch.Tensor, ...]":
        return (layer.w13_weight, layer.w2_weight, layer.fourfold_gate_scale, layer.fourfold_up_scale, layer.fourfold_down_scale)

    def apply(self, layer: Any, x: torch.Tensor, topk_weights: torch.Tensor, topk_ids: torch.Tensor, shared_experts: Any = None,
              shared_experts_input: Any = None) -> torch.Tensor:
        return torch.ops.fourfold.moe_layer_chosen(x.contiguous(), topk_ids, topk_weights, *self._weights(layer),
                                                   self.moe.intermediate_size_per_partition, _role(x.shape[0], self.moe),
                                                   self.fourfold_format)

    def apply_monolithic(self, layer: Any, x: torch.Tensor, router_logits: torch.Tensor,
                         input_ids: Optional[torch.Tensor] = None) -> torch.Tensor:
        rule = self.fourfold_routing
        assert rule is not None
        bias = layer.e_score_correction_bias.float().contiguous() if rule.biased else None
        return torch.ops.fourfold.moe_layer(x.contiguous(), router_logits.float().contiguous(), *self._weights(layer),
                                            self.moe.intermediate_size_per_partition, self.moe.experts_per_token,
                                            _role(x.shape[0], self.moe), self.fourfold_format, rule.score, rule.renormalise,
                                            rule.weight_scale, bias, rule.groups, rule.groups_kept)


@functools.lru_cache(maxsize=None)
def _class_over(own: type) -> type:
    # vLLM's loader looks for parts of the name ("ModelOpt", "compressed").
    return type("Fourfold" + own.__name__, (FourfoldMethod, own),
                {"__module__": __name__, "fourfold_of": own.__name__, "fourfold_format": decide.METHODS[own.__name__]})


def _wants_choices() -> bool:
    config = get_current_vllm_config().model_config
    return bool(getattr(config, "enable_return_routed_experts", False))


def take_over(layer: Any, method: Any, prefix: str) -> Any:
    """The method that runs the layer: `method` itself, with the reason in the log, or `method` made ours."""
    own = type(method)
    reason = decide.refusal(layer, own.__name__, _capability())
    if reason is None:
        reason = fourfold_torch.device_refusal(torch.device("cuda", torch.cuda.current_device()))
    if reason is not None:
        if switch() == "required":
            raise RuntimeError(f"FOURFOLD_VLLM=required, and {prefix} cannot be taken over: {reason}")
        _say("warning", f"vLLM's own kernels run layers like {_numberless(prefix)}: {reason}")
        return method
    method.__class__ = _class_over(own)
    method.fourfold_routing = decide.routing(layer, _wants_choices())
    config = layer.moe_config
    router = "routing too" if method.is_monolithic else f"vLLM routes ({config.routing_method.name})"
    _say("info", f"runs layers like {_numberless(prefix)}: {decide.METHODS[own.__name__]} experts of {own.__name__}, {config.num_experts} x "
         f"{config.hidden_dim} x {config.intermediate_size_per_partition}, top {config.experts_per_token}, {router}")
    return method


def _numberless(prefix: str) -> str:
    return ".".join("*" if part.isdecimal() else part for part in prefix.split("."))


class FourfoldRoutedExperts(RoutedExperts):
    def _get_quant_method(self, prefix: str, quant_config: Any, moe_config: Any) -> Any:
        return take_over(self, super()._get_quant_method(prefix, quant_config, moe_config), prefix)


def install() -> None:
    there = op_registry_oot.get("RoutedExperts")
    if there is FourfoldRoutedExperts:
        return
    if there is not None:
        text = f"another plugin has replaced RoutedExperts already ({there.__module__}.{there.__name__})"
        if switch() == "required":
            raise RuntimeError(text)
        log.error("fourfold: off. %s", text)
        return
    PluggableLayer.register_oot(name="RoutedExperts")(FourfoldRoutedExperts)
    log.info("fourfold: ready; each kind of expert layer is reported as it is built")
