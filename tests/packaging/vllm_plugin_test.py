"""What fourfold-vllm decides, without vLLM and torch: vllm_plugin_test.py SOURCE. vllm_test.py has the same with vLLM's own classes, in
./dev test --long. FOURFOLD_KERNELS_LIBRARY names the build's library."""
import json
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest
from types import SimpleNamespace as Object

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "python/fourfold-vllm"), str(SOURCE / "tools")]
import fourfold_vllm  # noqa: E402
import vllm_compare  # noqa: E402
from fourfold_vllm import decide  # noqa: E402

H200 = (9, 0)
NVFP4 = "ModelOptNvFp4FusedMoE"


def a_layer(**changes):
    """What decide reads of vLLM's layer: one of Qwen3.5-35B-A3B. `changes` are of the layer, its config or its parallel config."""
    parallel = Object(use_ep=False, ep_size=1, dp_size=1, pcp_size=1, sp_size=1, enable_eplb=False)
    config = Object(activation=Object(value="silu"), has_bias=False, in_dtype="torch.bfloat16", moe_parallel_config=parallel,
                    num_local_experts=256, num_experts=256, is_lora_enabled=False, moe_backend="auto", hidden_dim=2048,
                    intermediate_size_per_partition=512, experts_per_token=8, routing_method=Object(name="RenormalizeNaive"))
    layer = Object(moe_config=config, swiglu_limit=None, swiglu_alpha=None, swiglu_beta=None, apply_router_weight_on_input=False,
                   custom_routing_function=None, routed_scaling_factor=1.0, e_score_correction_bias=None, use_grouped_topk=False,
                   num_expert_group=None, topk_group=None, scoring_func="softmax", renormalize=True)
    for name, value in changes.items():
        owners = [part for part in (layer, config, parallel) if hasattr(part, name)]
        setattr(owners[0] if owners else config, name, value)
    return layer


class Decisions(unittest.TestCase):
    def test_ours(self):
        for method, format in decide.METHODS.items():
            self.assertIn(format, ("nvfp4", "mxfp4"))
            for capability in ((9, 0), (12, 0), (12, 1)):
                self.assertIsNone(decide.refusal(a_layer(), method, capability), (method, capability))

    def test_not_ours_and_why(self):
        cases = [
            (dict(activation=Object(value="swigluoai")), "activation is swigluoai"),
            (dict(swiglu_limit=7.0), "swiglu_limit = 7.0"),
            (dict(has_bias=True), "biases"),
            (dict(apply_router_weight_on_input=True), "multiply the input"),
            (dict(in_dtype="torch.float16"), "float16.*bfloat16"),
            (dict(use_ep=True), "expert parallel"),
            (dict(dp_size=2), "dp_size is 2"),
            (dict(enable_eplb=True), "EPLB"),
            (dict(num_local_experts=128), "128 of 256"),
            (dict(is_lora_enabled=True), "LoRA"),
            (dict(moe_backend="marlin"), "moe_backend = marlin was asked for"),
            (dict(intermediate_size_per_partition=96), "96 must be positive multiples of 64"),
            (dict(num_experts=2000, num_local_experts=2000), "2000 experts; 1 to 1024"),
        ]
        for changes, sentence in cases:
            self.assertRegex(decide.refusal(a_layer(**changes), NVFP4, H200) or "taken", sentence)
        self.assertIn("Fp8MoEMethod", decide.refusal(a_layer(), "Fp8MoEMethod", H200))
        self.assertIn("gpt-oss", decide.refusal(a_layer(), "GptOssMxfp4MoEMethod", H200))
        self.assertIn("sm_100; the kernels are for sm_90", decide.refusal(a_layer(), NVFP4, (10, 0)))
        self.assertIn("no CUDA device", decide.refusal(a_layer(), NVFP4, None))

    def test_routers_that_the_kernels_have(self):
        bias = object()
        deepseek = dict(routing_method=Object(name="DeepSeekV3"), scoring_func="sigmoid", e_score_correction_bias=bias,
                        routed_scaling_factor=2.5, use_grouped_topk=True, num_expert_group=8, topk_group=4)
        minimax = dict(routing_method=Object(name="MiniMax2"), scoring_func="sigmoid", e_score_correction_bias=bias)
        plain = dict(routing_method=Object(name="Default"), renormalize=False)
        self.assertEqual(decide.routing(a_layer(), False), decide.Routing("softmax", True, 1.0))
        self.assertEqual(decide.routing(a_layer(routed_scaling_factor=None), False), decide.Routing("softmax", True, 1.0))
        self.assertEqual(decide.routing(a_layer(**plain), False), decide.Routing("softmax", False, 1.0))
        self.assertEqual(decide.routing(a_layer(**deepseek), False), decide.Routing("sigmoid", True, 2.5, True, 8, 4))
        self.assertEqual(decide.routing(a_layer(**minimax), False), decide.Routing("sigmoid", True, 1.0, True))

    def test_routers_that_stay_vllms(self):
        grouped = dict(use_grouped_topk=True, num_expert_group=8, topk_group=4)  # softmax in groups: DeepSeek-V2
        for changes in (dict(custom_routing_function=len), dict(require_decomposed_backend=True), dict(has_hash_routing=True),
                        dict(routing_method=Object(name="Custom")), dict(routing_method=Object(name="DeepseekV4")), grouped,
                        dict(scoring_func="sigmoid", routing_method=Object(name="DeepSeekV3"), **grouped),
                        dict(scoring_func="sigmoid", routing_method=Object(name="DeepSeekV3"), e_score_correction_bias=object(),
                             renormalize=False, **grouped),
                        dict(routed_scaling_factor=2.5)):
            self.assertIsNone(decide.routing(a_layer(**changes), False), changes)
        self.assertIsNone(decide.routing(a_layer(), True))


class Registering(unittest.TestCase):
    def setUp(self):
        self.environment = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(self.environment), sys.modules.pop("vllm", None)))

    def vllm(self, version):
        sys.modules["vllm"] = types.ModuleType("vllm")
        sys.modules["vllm"].__version__ = version

    def test_off(self):
        os.environ["FOURFOLD_VLLM"] = "off"
        sys.modules["vllm"] = None  # importing it would fail
        with self.assertLogs("vllm.fourfold", "INFO") as logged:
            fourfold_vllm.register()
        self.assertIn("off", logged.output[0])

    def test_unknown_version(self):
        self.vllm("0.99.1")
        with self.assertLogs("vllm.fourfold", "ERROR") as logged:
            fourfold_vllm.register()
        for part in ("0.99.1", *fourfold_vllm.TESTED):
            self.assertIn(part, logged.output[0])
        os.environ["FOURFOLD_VLLM"] = "required"
        with self.assertRaisesRegex(RuntimeError, "0.99.1 was not tested"):
            fourfold_vllm.register()

    def test_builds_of_a_release_are_that_release(self):
        self.assertIsNone(fourfold_vllm.version_refusal(fourfold_vllm.TESTED[-1] + "+cu129"))
        self.assertIsNotNone(fourfold_vllm.version_refusal(fourfold_vllm.TESTED[-1] + ".post1"))

    def test_wrong_word(self):
        os.environ["FOURFOLD_VLLM"] = "yes"
        with self.assertRaisesRegex(ValueError, "'yes'; on, off, required are possible"):
            fourfold_vllm.register()

    def test_package(self):
        written = [(SOURCE / "python" / name / "pyproject.toml").read_text() for name in ("fourfold-torch", "fourfold-vllm")]
        versions = [re.search(r'^version = "(.*)"', text, re.MULTILINE).group(1) for text in written]
        self.assertEqual(versions[0], versions[1])
        self.assertIn(f'"fourfold-torch=={versions[0]}"', written[1])
        entry = re.search(r'"vllm.general_plugins"\]\nfourfold = "(.*):(.*)"', written[1])
        self.assertTrue(callable(getattr(sys.modules[entry.group(1)], entry.group(2))))


class Comparison(unittest.TestCase):
    """What tools/vllm_compare.py makes of its parts; the parts themselves need a GPU."""

    def test_where_tokens_part(self):
        ours = [[[1, 0.5], [2, 0.5]], [[1, 0.5], [2, 0.5]]]
        theirs = [[[1, 3.0], [2, 4.0]], [[1, 3.0], [7, 0.01]]]
        self.assertEqual(vllm_compare.parted(ours, theirs), (1, [0.01]))

    def test_table(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            for name, share in (("fourfold", 1.0), ("marlin", 2.0), ("humming", 1.5)):
                error = dict(rms=1e-3, share_of_bound=0.25)
                us = {tokens: dict(median=10 * share) for tokens in vllm_compare.LAYER_TOKENS}
                (out / f"layer-{name}.json").write_text(json.dumps(dict(method="", backend="", errors={64: error}, us=us)))
            model = dict(decode={1: dict(median=100.0)}, prompt_2048=dict(median=9.0), tokens=[[[1, 0.5]]])
            (out / "model-fourfold.json").write_text(json.dumps(model))
            (out / "model-marlin.json").write_text(json.dumps(dict(error="ended with 1")))
            text = vllm_compare.table(out, ["fourfold", "marlin", "humming"], [1])
        self.assertRegex(text, r"8192 +10.0 +20.0 +15.0 +1.50")  # over the better of the others
        self.assertRegex(text, r"\n +1 +100 *\n")  # nobody beside it
        self.assertIn("FAILED model-marlin: ended with 1", text)


if __name__ == "__main__":
    unittest.main()
