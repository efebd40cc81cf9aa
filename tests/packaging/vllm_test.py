"""fourfold-vllm inside of vLLM's own classes, without a GPU: vllm_test.py SOURCE. Layers are built by vLLM for a pretended H200, loaded by
its loader, repacked, and run on the simulated one. Needs vLLM and torch, which are large: a part of ./dev test --long, once for each
tested release. FOURFOLD_KERNELS_LIBRARY names the build's library."""
import logging
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "python/fourfold-torch"), str(SOURCE / "python/fourfold-vllm"),
                str(SOURCE / "tests/packaging"), str(SOURCE / "tests/clients")]
import pretended_gpu  # noqa: E402,I001
import fourfold_torch  # noqa: E402
import fourfold_vllm  # noqa: E402
import kv_events  # noqa: E402
import moe_reference  # noqa: E402
import msgspec  # noqa: E402
import torch  # noqa: E402
import vllm  # noqa: E402
from vllm.config import VllmConfig, set_current_vllm_config  # noqa: E402
from vllm.distributed import init_distributed_environment, initialize_model_parallel  # noqa: E402
from vllm.model_executor.layers.fused_moe import layer as vllm_layer  # noqa: E402
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig  # noqa: E402
from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config  # noqa: E402
from vllm.model_executor.layers.quantization.mxfp4 import Mxfp4Config  # noqa: E402

fourfold_torch.SIMULATED = "sim:sm90"
H, I, E, K, T = 128, 64, 4, 2, 5
FACTORY = getattr(vllm_layer, "FusedMoEFactory", None) or vllm_layer.FusedMoE


def compressed_tensors(name, **weights):
    """As llm-compressor writes it into config.json."""
    weights = dict(num_bits=4, type="float", symmetric=True, dynamic=False, **weights)
    group = dict(targets=["Linear"], weights=weights, input_activations=None, output_activations=None, format=name)
    return CompressedTensorsConfig.from_config(dict(quant_method="compressed-tensors", format=name, quantization_status="compressed", ignore=[],
                                                    config_groups=dict(group_0=group)))


CONFIGS = {
    "modelopt": lambda: ModelOptNvFp4Config.from_config(dict(quantization=dict(quant_algo="NVFP4", group_size=16, kv_cache_quant_algo=None,
                                                                               exclude_modules=[]))),
    "compressed-tensors": lambda: compressed_tensors("nvfp4-pack-quantized", strategy="tensor_group", group_size=16),
    "mxfp4": Mxfp4Config,
    "compressed-tensors mxfp4": lambda: compressed_tensors("mxfp4-pack-quantized", strategy="group", group_size=32, scale_dtype="torch.uint8"),
}


class WithVllm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.config = VllmConfig()
        cls.scope = set_current_vllm_config(cls.config)
        cls.scope.__enter__()
        if not torch.distributed.is_initialized():
            init_distributed_environment(1, 0, f"file:///tmp/fourfold-vllm-{os.getpid()}", 0, "gloo")
            initialize_model_parallel(1, 1, backend="gloo")
        fourfold_vllm.register()
        fourfold_vllm.register()  # vLLM may
        cls.number = 0

    @classmethod
    def tearDownClass(cls):
        cls.scope.__exit__(None, None, None)

    def setUp(self):
        from fourfold_vllm import experts

        self.experts = experts
        experts._say.cache_clear()
        self.addCleanup(setattr, fourfold_torch, "device_refusal", fourfold_torch.device_refusal)
        fourfold_torch.device_refusal = lambda device: None
        self.addCleanup(os.environ.pop, "FOURFOLD_VLLM", None)
        self.addCleanup(pretended_gpu.CAPABILITY.__setitem__, slice(None), [9, 0])

    def build(self, kind, **changes):
        WithVllm.number += 1
        arguments = dict(num_experts=E, top_k=K, hidden_size=H, intermediate_size=I, params_dtype=torch.bfloat16, renormalize=True,
                         quant_config=CONFIGS[kind](), prefix=f"model.layers.{WithVllm.number}.mlp.experts")
        return FACTORY(**{**arguments, **changes})

    def load(self, layer, format, inverted):
        """Random experts, by vLLM's loader; the matrices that they are, f64."""
        generator = torch.Generator().manual_seed(11)
        block = 16 if format == "nvfp4" else 32
        names = dict(layer.named_parameters())
        codes_name = "weight_packed" if "w13_weight_packed" in names else "weight"
        matrices = {}
        for shard, rows, columns in (("w1", I, H), ("w3", I, H), ("w2", H, I)):
            part = "w2" if shard == "w2" else "w13"
            codes = torch.randint(0, 256, (E, rows, columns // 2), dtype=torch.uint8, generator=generator)
            low, high = (0x28, 0x50) if format == "nvfp4" else (118, 124)
            scales = torch.randint(low, high, (E, rows, columns // block), dtype=torch.uint8, generator=generator)
            matrix_scale = torch.rand(E, generator=generator) * 0.03 + 0.01 if format == "nvfp4" else torch.ones(E)
            stored = 1.0 / matrix_scale if inverted else matrix_scale
            if inverted:
                matrix_scale = 1.0 / stored
            for expert in range(E):
                given = [(f"{part}_{codes_name}", codes[expert]),
                         (f"{part}_weight_scale", scales[expert].view(names[f"{part}_weight_scale"].dtype))]
                if format == "nvfp4":
                    given.append((f"{part}_weight_global_scale" if inverted else f"{part}_weight_scale_2", stored[expert]))
                for name, tensor in given:
                    layer.weight_loader(names[name], tensor, "experts." + name, shard_id=shard, expert_id=expert)
            matrices[shard] = moe_reference.dequantised(codes, scales, matrix_scale, format)
        return matrices["w1"], matrices["w3"], matrices["w2"]

    def inputs(self):
        generator = torch.Generator().manual_seed(3)
        return torch.randn(T, H, generator=generator).bfloat16(), torch.randn(T, E, generator=generator) * 2

    def run_layer(self, runner, hidden, logits):
        runner.routed_experts._ensure_moe_quant_config_init()
        return runner._apply_quant_method(hidden, logits, None)[1]

    def test_formats_against_f64(self):
        for kind, format, inverted in (("modelopt", "nvfp4", False), ("compressed-tensors", "nvfp4", True), ("mxfp4", "mxfp4", False),
                                       ("compressed-tensors mxfp4", "mxfp4", False)):
            with self.subTest(kind):
                runner = self.build(kind)
                layer = runner.routed_experts
                self.assertIsInstance(layer.quant_method, self.experts.FourfoldMethod)
                self.assertTrue(runner.is_monolithic)
                matrices = self.load(layer, format, inverted)
                before = sum(p.numel() * p.element_size() for p in layer.parameters())
                layer.quant_method.process_weights_after_loading(layer)
                left = {name for name, _ in layer.named_parameters()}
                self.assertEqual(left, {"w13_weight", "w2_weight", "fourfold_gate_scale", "fourfold_up_scale", "fourfold_down_scale"})
                after = sum(p.numel() * p.element_size() for p in layer.parameters())
                self.assertLessEqual(after, before + 3 * 4 * E)
                hidden, logits = self.inputs()
                output = self.run_layer(runner, hidden, logits)
                weights, ids = torch.softmax(logits.double(), -1).topk(K)
                weights = weights / weights.sum(-1, keepdim=True)
                self.assertEqual((output.dtype, tuple(output.shape)), (torch.bfloat16, (T, H)))
                self.assertLessEqual(moe_reference.worst_share(output, hidden, ids, weights, *matrices), 1.0)

    def test_compiled(self):
        """As vLLM compiles a model: the layer is one operator to torch.compile, and runs ours."""
        from vllm.forward_context import set_forward_context
        from vllm.model_executor.layers.fused_moe.runner import moe_runner

        library = torch.library.Library("vllm", "IMPL")  # vLLM has it for GPUs
        library.impl("moe_forward", moe_runner._moe_forward, "CPU")
        runner = self.build("modelopt")
        matrices = self.load(runner.routed_experts, "nvfp4", False)
        runner.routed_experts.quant_method.process_weights_after_loading(runner.routed_experts)
        hidden, logits = self.inputs()
        self.addCleanup(setattr, torch.cuda, "is_available", torch.cuda.is_available)
        torch.cuda.is_available = lambda: False  # the compiler would look for its random state
        with torch.inference_mode(), set_forward_context(None, self.config, num_tokens=T):
            output = torch.compile(lambda x, y: runner(x, y) * 2, backend="eager", fullgraph=True)(hidden.clone(), logits)
        weights, ids = torch.softmax(logits.double(), -1).topk(K)
        weights = weights / weights.sum(-1, keepdim=True)
        self.assertLessEqual(moe_reference.worst_share(output / 2, hidden, ids, weights, *matrices), 1.0)

    def test_a_router_of_vllms(self):
        def lowest(hidden_states, gating_output, topk, renormalize):  # no router of ours
            weights, ids = (-gating_output).softmax(-1).topk(topk)
            return weights.float(), ids.int()

        runner = self.build("modelopt", custom_routing_function=lowest)
        self.assertFalse(runner.is_monolithic)
        matrices = self.load(runner.routed_experts, "nvfp4", False)
        runner.routed_experts.quant_method.process_weights_after_loading(runner.routed_experts)
        hidden, logits = self.inputs()
        output = self.run_layer(runner, hidden, logits)
        weights, ids = lowest(None, logits.double(), K, None)
        self.assertLessEqual(moe_reference.worst_share(output, hidden, ids, weights, *matrices), 1.0)

    def test_deepseeks_router(self):
        bias = torch.nn.Parameter(torch.tensor([0.3, -0.2, 0.1, 0.0]), requires_grad=False)
        runner = self.build("modelopt", use_grouped_topk=True, num_expert_group=2, topk_group=1, scoring_func="sigmoid",
                            e_score_correction_bias=bias, routed_scaling_factor=2.5)
        self.assertEqual(runner.routed_experts.quant_method.fourfold_routing.groups, 2)
        matrices = self.load(runner.routed_experts, "nvfp4", False)
        runner.routed_experts.quant_method.process_weights_after_loading(runner.routed_experts)
        hidden, logits = self.inputs()
        output = self.run_layer(runner, hidden, logits)
        scores = torch.sigmoid(logits.double())
        by = (scores + bias.double()).view(T, 2, 2)
        ids = by.sum(-1).argmax(-1, keepdim=True) * 2 + torch.arange(2)  # both experts of the better pair
        weights = scores.gather(1, ids)
        weights = 2.5 * weights / weights.sum(-1, keepdim=True)
        self.assertLessEqual(moe_reference.worst_share(output, hidden, ids, weights, *matrices), 1.0)

    def reasons(self, build):
        with self.assertLogs("vllm.fourfold", "WARNING") as logged:
            build()
        return [record.getMessage() for record in logged.records]

    def test_a_foreign_layer_is_said_once(self):
        from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod

        def two():
            for _ in range(2):
                runner = self.build("modelopt", quant_config=None)
                self.assertIs(type(runner.routed_experts.quant_method), UnquantizedFusedMoEMethod)

        lines = self.reasons(two)
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("model.layers.*.mlp.experts", lines[0])
        self.assertIn("UnquantizedFusedMoEMethod", lines[0])

    def test_a_chip_without_kernels(self):
        pretended_gpu.CAPABILITY[:] = [8, 0]
        self.assertIn("sm_80", self.reasons(lambda: self.build("modelopt"))[0])

    def test_a_library_without_kernels_for_gpus(self):
        fourfold_torch.device_refusal = type(self).real_refusal
        self.assertIn("vLLM's own kernels run", self.reasons(lambda: self.build("modelopt"))[0])

    def test_required(self):
        os.environ["FOURFOLD_VLLM"] = "required"
        with self.assertRaisesRegex(RuntimeError, "cannot be taken over: its activation is gelu"):
            self.build("modelopt", activation="gelu")

    def test_taken_is_said(self):
        with self.assertLogs("vllm.fourfold", "INFO") as logged:
            self.build("modelopt")
        self.assertIn("nvfp4 experts of ModelOptNvFp4FusedMoE, 4 x 128 x 64, top 2, routing too", logged.output[-1])


WithVllm.real_refusal = staticmethod(fourfold_torch.device_refusal)


class KvEvents(unittest.TestCase):
    """tests/clients/kv_events.py reads our events by vLLM's structs, declared there again: here are vLLM's own."""

    def test_what_the_clients_suite_declares_is_vllms(self):
        from vllm.distributed import kv_events as theirs
        is_array = theirs.BlockStored.__struct_config__.array_like
        reads = kv_events.DECODERS["array" if is_array else "map"]
        stored = {"block_hashes": [1, b"two"], "parent_block_hash": 7, "token_ids": [3] * 8, "block_size": 4, "lora_id": None, "medium": "GPU",
                  "lora_name": None, "extra_keys": [("salt",), None], "group_idx": 1, "kv_cache_spec_kind": "full", "kv_cache_spec_sliding_window": 9,
                  "locality": "LOCAL", "ownership": "tier", "session_id": "s", "lookahead_token_ids": [[5], [6]]}
        known = theirs.BlockStored.__struct_fields__
        self.assertLessEqual(set(known), set(stored), "vLLM has a field more")
        batch = theirs.KVEventBatch(ts=1.5, data_parallel_rank=0, events=[
            theirs.BlockStored(**{name: value for name, value in stored.items() if name in known}),
            theirs.BlockRemoved(block_hashes=[1], medium="GPU", **({"group_idx": 1} if "group_idx" in theirs.BlockRemoved.__struct_fields__ else {})),
            theirs.AllBlocksCleared()])
        sent = msgspec.msgpack.encode(batch)
        read = reads.decode(sent)
        self.assertEqual([read.ts, read.data_parallel_rank], [1.5, 0])
        self.assertEqual([type(event).__name__ for event in read.events], ["BlockStored", "BlockRemoved", "AllBlocksCleared"])
        for event, wanted in zip(read.events, batch.events):
            for name in wanted.__struct_fields__:
                self.assertEqual(getattr(event, name), getattr(wanted, name), name)
        # And the other way round: what the suite's structs are written as, which is what it holds our bytes against.
        again = msgspec.msgpack.Decoder(type=theirs.KVEventBatch).decode(msgspec.msgpack.encode(read))
        self.assertEqual(again, batch)


class Tested(unittest.TestCase):
    def test_version(self):
        self.assertIn(vllm.__version__.split("+")[0], fourfold_vllm.TESTED)


if __name__ == "__main__":
    logging.getLogger("vllm").setLevel(logging.WARNING)
    unittest.main()
