#!/usr/bin/env python3
"""fourfold-vllm beside vLLM's own kernels, on a machine with a GPU: one layer (error against f64, time) and a whole model (1 to 64
users, greedy tokens compared).

    vllm_compare.py --out DIR [--model DIR] [--backends fourfold,marlin,humming] [--users 1,4,16,64] [--budget 560] [--only PART,PART]
    vllm_compare.py --out DIR --tokens-only [--model DIR] [--text FILE] [--answers 32] [--backends fourfold,marlin,humming]

Needs vLLM, fourfold, fourfold-torch and fourfold-vllm (or this tree: they are put on the path; FOURFOLD_KERNELS_LIBRARY names a library
that was built with CUDA). Each part is a process of its own and leaves DIR/PART.json; a part that is there is not run again, so a
call that ran out of its budget is repeated (DIR/PART.partial is what a stopped one had). The last thing is DIR/compare.txt, of all parts
that are there. Parts share what is compiled through VLLM_CACHE_ROOT, TRITON_CACHE_DIR, HUMMING_CACHE_DIR and CUDA_CACHE_PATH.

The layer is that of Qwen3.5-35B-A3B (256 experts of 2,048 x 512, top 8), random NVFP4 weights. The model has that shape as well, with
made-up weights of unit gain, the same in every run, unless --model names a checkpoint.

--tokens-only compares what a trained model says (models/storyteller, unless --model names another): the text's paragraphs are begun
and continued greedily, twice, and the text itself is read; where backends differ, how far apart the two best tokens were. Nothing is
timed, so the model runs without torch.compile and graphs, and the backends beside each other, each with a log of its own in DIR.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time
import zlib

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PATHS = [str(SOURCE / folder) for folder in ("python", "python/fourfold-torch", "python/fourfold-vllm", "tests/packaging")]
HIDDEN, INNER, EXPERTS, TOP_K = 2048, 512, 256, 8
LAYER_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 8192)
CHECKED_TOKENS = 64
ROUNDS = 16  # calls of a graph, each with other experts: weights come from memory, not from the L2
CACHE_BYTES = 32 << 30  # 64 users of 336 tokens are a third of it
MODEL_REPEATS = 2
TEXT = SOURCE / "tests/golden/storyteller/held_out.txt"
PROMPT_WORDS, NEW_TOKENS, READ_TOKENS = 24, 128, 4095
TOKEN_SEQUENCES = 16  # at once: generated tokens of 16 experts, top 4, are then at fourfold-vllm's limit of four an expert, prompts beyond it
DEVICE = "cuda"
START = time.time()


def say(*words, sep=" "):
    print(f"[{time.time() - START:6.1f} s]", *words, sep=sep, flush=True)


def qwen35_shape():
    """config.json of the shape of Qwen3.5-35B-A3B with NVFP4 experts, bf16 elsewhere."""
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(40)]
    text = dict(model_type="qwen3_5_moe_text", vocab_size=248320, hidden_size=HIDDEN, num_hidden_layers=40, num_attention_heads=16,
                num_key_value_heads=2, head_dim=256, hidden_act="silu", max_position_embeddings=262144, rms_norm_eps=1e-6,
                tie_word_embeddings=False, use_cache=True, attention_bias=False, attention_dropout=0.0, attn_output_gate=True,
                linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_value_head_dim=128, linear_num_key_heads=16,
                linear_num_value_heads=32, moe_intermediate_size=INNER, shared_expert_intermediate_size=INNER, num_experts=EXPERTS,
                num_experts_per_tok=TOP_K, full_attention_interval=4, layer_types=kinds, mlp_only_layers=[],
                mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, router_aux_loss_coef=0.001,
                initializer_range=0.02, eos_token_id=248044, dtype="bfloat16", partial_rotary_factor=0.25,
                rope_parameters=dict(rope_type="default", rope_theta=10000000, partial_rotary_factor=0.25, mrope_interleaved=True,
                                     mrope_section=[11, 11, 10]))
    vision = dict(model_type="qwen3_5_moe", depth=1, hidden_size=1152, hidden_act="gelu_pytorch_tanh", intermediate_size=4304, num_heads=16,
                  in_channels=3, patch_size=16, spatial_merge_size=2, temporal_patch_size=2, out_hidden_size=HIDDEN,
                  num_position_embeddings=2304, deepstack_visual_indexes=[], initializer_range=0.02)
    four = dict(dynamic=False, num_bits=4, type="float", group_size=16)
    left = ["lm_head", "*linear_attn*", "*self_attn*", "*mlp.shared_expert*", "*mlp.shared_expert_gate*", "*mlp.gate", "model.visual*", "mtp*"]
    quantization = dict(quant_method="modelopt", quant_algo="NVFP4", kv_cache_scheme=None, producer=dict(name="modelopt", version="0.44.0"),
                        config_groups=dict(group_0=dict(input_activations=four, weights=four, targets=["Linear"])), group_size=16, ignore=left)
    return dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", dtype="bfloat16", image_token_id=248056,
                video_token_id=248057, vision_start_token_id=248053, vision_end_token_id=248054, tie_word_embeddings=False,
                text_config=text, vision_config=vision, quantization_config=quantization)


# ---- a layer ----


def built_layer(backend):
    """vLLM's runner of the layer with random weights, and the matrices in f64, on the GPU."""
    import moe_reference
    import torch
    from vllm.config import KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.layers.fused_moe import layer as vllm_layer
    from vllm.model_executor.layers.quantization.modelopt import ModelOptNvFp4Config
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    import fourfold_vllm

    fourfold_vllm.register()  # also where the package is only on the path
    config = VllmConfig(kernel_config=KernelConfig(moe_backend="auto" if backend == "fourfold" else backend))
    config.compilation_config.fast_moe_cold_start = False  # it counts the layers of a step; here one is called over and over
    make = getattr(vllm_layer, "FusedMoEFactory", None) or vllm_layer.FusedMoE
    quantised = ModelOptNvFp4Config.from_config(dict(quantization=dict(quant_algo="NVFP4", group_size=16, kv_cache_quant_algo=None,
                                                                       exclude_modules=[])))
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file:///tmp/vllm-compare-{os.getpid()}", 0, "gloo")
        initialize_model_parallel(1, 1)
        with torch.device(DEVICE):
            runner = make(num_experts=EXPERTS, top_k=TOP_K, hidden_size=HIDDEN, intermediate_size=INNER, params_dtype=torch.bfloat16,
                          renormalize=True, quant_config=quantised, prefix="model.layers.0.mlp.experts")
        experts = runner.routed_experts
        make_up(experts)
        w13, scales, matrix = experts.w13_weight.data, experts.w13_weight_scale.data.view(torch.uint8), experts.w13_weight_scale_2.data
        gate = moe_reference.dequantised(w13[:, :INNER], scales[:, :INNER].contiguous(), matrix[:, 0], "nvfp4")
        up = moe_reference.dequantised(w13[:, INNER:], scales[:, INNER:].contiguous(), matrix[:, 1], "nvfp4")
        down = moe_reference.dequantised(experts.w2_weight.data, experts.w2_weight_scale.data.view(torch.uint8), experts.w2_weight_scale_2.data,
                                         "nvfp4")
        experts.quant_method.process_weights_after_loading(experts)
    return config, runner, (gate, up, down)


def make_up(model):
    """Weights of unit gain, the same for a name in every run: codes of all values, positive scales, routing that is spread."""
    import torch

    for name, p in model.named_parameters():
        if p.device.type == "meta":
            continue
        torch.manual_seed(zlib.crc32(name.encode()))
        leaf, data = name.rsplit(".", 1)[-1], p.data
        if data.dtype == torch.uint8:
            data.random_(0, 256)
        elif data.dtype == torch.float8_e4m3fn:
            data.view(torch.uint8).random_(0x30, 0x40)  # 0.5 to 2
        elif leaf.endswith("weight_scale_2"):
            data.fill_(0.0142 if leaf.startswith("w2") else 0.0071)  # weights of deviation 1 / sqrt(columns)
        elif leaf.endswith("_scale"):
            data.fill_(1.0)
        elif leaf == "A_log":
            data.uniform_(0.0, 2.77)
        elif leaf == "dt_bias":
            data.uniform_(-5.0, -2.0)
        elif not torch.is_floating_point(data):
            continue
        elif name.endswith("linear_attn.norm.weight"):
            data.fill_(1.0)
        elif name.endswith("norm.weight"):
            data.zero_()  # 1 + w
        elif "conv1d" in name:
            data.normal_(0.0, 0.5)
        elif "embed_tokens" in name:
            data.normal_(0.0, 1.0)
        elif data.dim() >= 2:
            data.normal_(0.0, data.shape[-1] ** -0.5)


def layer_part(backend, keep):
    import moe_reference
    import torch
    from vllm.forward_context import set_forward_context

    torch.cuda.set_device(0)
    try:
        from vllm.v1.worker.workspace import init_workspace_manager

        init_workspace_manager(torch.device("cuda", 0))
    except ImportError:
        pass
    config, runner, matrices = built_layer(backend)
    method = runner.routed_experts.quant_method
    # What vLLM chose says nothing of a layer that is ours.
    chosen = "" if backend == "fourfold" else ", " + str(getattr(method, "nvfp4_backend", ""))
    result = dict(method=type(method).__name__, backend=chosen, errors={}, us={})
    say(result["method"], result["backend"])
    generator = torch.Generator("cuda").manual_seed(5)

    def inputs(tokens):
        hidden = torch.randn(tokens, HIDDEN, generator=generator, device="cuda").bfloat16()
        return hidden, torch.randn(tokens, EXPERTS, generator=generator, device="cuda").bfloat16()

    hidden, logits = inputs(CHECKED_TOKENS)
    weights, ids = torch.softmax(logits.double(), -1).topk(TOP_K)  # ties of bf16 logits go to either expert: such tokens are left out
    ordered = logits.float().sort(-1, descending=True).values
    sure = ordered[:, TOP_K - 1] > ordered[:, TOP_K]
    wanted, bound = moe_reference.layer(hidden, ids, weights / weights.sum(-1, keepdim=True), *matrices)
    with torch.inference_mode(), set_forward_context(None, config, num_tokens=CHECKED_TOKENS):
        for step in (1, 16, CHECKED_TOKENS):
            parts = [runner(hidden[at:at + step].clone(), logits[at:at + step]) for at in range(0, CHECKED_TOKENS, step)]
            error = (torch.cat(parts).double() - wanted)[sure]
            result["errors"][step] = dict(rms=float(error.norm() / wanted[sure].norm()), largest=float(error.abs().max() / wanted[sure].abs().max()),
                                          share_of_bound=float((error.abs() / bound[sure]).max()))
            say(f"{step} tokens a step:", result["errors"][step])
            keep(result)
    del wanted, bound, matrices

    def timed(tokens):
        sets = [inputs(tokens) for _ in range(ROUNDS)]
        with torch.inference_mode(), set_forward_context(None, config, num_tokens=tokens):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())  # the inputs are being made there
            with torch.cuda.stream(side):
                for pair in sets[:3]:
                    runner(*pair)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for pair in sets:
                    runner(*pair)
        times = []
        for _ in range(12):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1000 / ROUNDS)
        say(f"{tokens} tokens: {statistics.median(times[2:]):.1f} us (least {min(times[2:]):.1f})")
        return dict(median=statistics.median(times[2:]), least=min(times[2:]))

    for tokens in LAYER_TOKENS:
        result["us"][tokens] = timed(tokens)
        keep(result)
    if backend == "fourfold":  # where the two kinds of sums cross, for the plugin's limit between them
        from fourfold_vllm import experts

        for role, mean in (("prefill", 0.0), ("decode", float("inf"))):
            say(f"as {role}")
            experts.MOST_DECODE_MEAN = mean
            result["us as " + role] = {tokens: timed(tokens) for tokens in LAYER_TOKENS if 64 <= tokens <= 512}
    return result


# ---- a model ----


def compile_together():
    """Triton compiles the variants of a kernel that it tries one after the other, a good part of a model's start; here they are
    compiled side by side first. What is tried, and what is chosen, stays as it is."""
    from concurrent.futures import ThreadPoolExecutor

    from triton.runtime import autotuner
    from triton.runtime._async_compile import AsyncCompileMode

    run, seen = autotuner.Autotuner.run, set()

    def side_by_side(self, *args, **named):
        if len(self.configs) > 1 and id(self) not in seen:
            seen.add(id(self))
            begin = time.time()
            try:
                with ThreadPoolExecutor(os.cpu_count()) as pool, AsyncCompileMode(pool, ignore_errors=True):
                    self.warmup(*args, **{name: value for name, value in named.items() if name != "warmup"})
                say(f"{len(self.configs)} variants of {self.base_fn.__name__} in {time.time() - begin:.1f} s")
            except Exception as error:  # then one after the other
                say(f"variants of {self.base_fn.__name__}: {error!r}")
        return run(self, *args, **named)

    autotuner.Autotuner.run = side_by_side


def compile_cache(backend):
    """A folder for vLLM's compiled graphs of this backend. Inductor's own cache in it, which goes by content, is one for all backends."""
    from vllm import envs

    root = pathlib.Path(envs.VLLM_CACHE_ROOT) / "vllm_compare"
    (root / "inductor").mkdir(parents=True, exist_ok=True)
    (root / backend / "rank_0_0").mkdir(parents=True, exist_ok=True)
    link = root / backend / "rank_0_0/inductor_cache"
    if not link.exists():
        link.symlink_to(root / "inductor")
    return str(root / backend)


def model_part(backend, model, made_up, users, compile_threads, keep):
    import torch
    from vllm import LLM, SamplingParams

    try:
        compile_together()
    except ImportError as error:
        say("one variant after the other:", error)
    if compile_threads > 1:  # vLLM has one
        import torch._inductor.config

        torch._inductor.config.compile_threads = compile_threads
    if made_up:
        from vllm.model_executor.model_loader import dummy_loader

        dummy_loader.DummyModelLoader.load_weights = lambda self, model, model_config: make_up(model)
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    import fourfold_vllm

    fourfold_vllm.register()
    # Graphs for what is measured alone, and a cache whose size is said: vLLM then captures once, not first to see what graphs take.
    compared = min(16, max(users))
    options = dict(model=str(model), max_model_len=4096, max_num_seqs=max(users), max_num_batched_tokens=4096, gpu_memory_utilization=0.85,
                   kv_cache_memory_bytes=CACHE_BYTES, enable_prefix_caching=False, seed=0, disable_log_stats=True,
                   compilation_config=dict(cudagraph_capture_sizes=sorted({*users, compared}), cache_dir=compile_cache(backend)),
                   moe_backend="auto" if backend == "fourfold" else backend)
    if made_up:
        options.update(skip_tokenizer_init=True, load_format="dummy", language_model_only=True, gdn_prefill_backend="triton")
    llm = LLM(**options)
    result = dict(startup_s=round(time.time() - START, 1), decode={}, methods=sorted(set(llm.apply_model(methods_of)[0])))
    say("engine up", result["methods"])
    keep(result)
    vocabulary = llm.llm_engine.vllm_config.model_config.get_vocab_size()

    def generate(seed, count, length, new, logprobs=None):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(1000, vocabulary - 1000, (count, length), generator=generator).tolist()
        params = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True, detokenize=False, logprobs=logprobs)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        done = llm.generate([dict(prompt_token_ids=row) for row in ids], params, use_tqdm=False)
        torch.cuda.synchronize()
        return time.perf_counter() - begin, done

    for count in users:
        generate(1, count, 16, 16)
    tokens = []
    for answer in generate(99, compared, 64, 64, logprobs=2)[1]:
        output, steps = answer.outputs[0], []
        for chosen, found in zip(output.token_ids, output.logprobs):
            best = sorted((entry.logprob for entry in found.values()), reverse=True)[:2]
            steps.append([int(chosen), best[0] - best[1]])
        tokens.append(steps)
    result["tokens"] = tokens
    for count in users:
        steps = []
        for repeat in range(MODEL_REPEATS):
            short, long = generate(7 + repeat, count, 16, 64)[0], generate(7 + repeat, count, 16, 320)[0]
            steps.append((long - short) / 256)
        result["decode"][count] = dict(median=count / statistics.median(steps), best=count / min(steps))
        say(f"{count} users: {result['decode'][count]['median']:.0f} tokens/s (best {result['decode'][count]['best']:.0f})")
        keep(result)
    prompts = [generate(50 + i, 1, 2048, 1)[0] for i in range(8)][2:]
    result["prompt_2048"] = dict(median=2048 / statistics.median(prompts), best=2048 / min(prompts))
    say(f"prompt of 2,048: {result['prompt_2048']['median']:.0f} tokens/s")
    return result


def methods_of(model):
    return [type(module.quant_method).__name__ for module in model.modules()
            if type(module).__name__.endswith("RoutedExperts") and hasattr(module, "quant_method")]


# ---- what a trained model says ----


def fused_overrides(model):
    """What is not quantised may be named by patterns; vLLM 0.32 looks for the name of its own fused layer among them."""
    quantization = json.loads((model / "config.json").read_text()).get("quantization_config", {})
    ignored = [name for name in quantization.get("ignore", []) if name.endswith(".in_proj_a") and "*" in name]
    if not ignored:
        return {}
    fused = [name.removesuffix("in_proj_a") + "in_proj_ba" for name in ignored]
    return dict(quantization_config=dict(quantization, ignore=quantization["ignore"] + fused))


def beginnings(text, count):
    """Of `count` paragraphs, evenly spread over the text, the first words."""
    paragraphs = [words for words in (part.split() for part in text.split("\n\n")) if len(words) > PROMPT_WORDS]
    chosen = [paragraphs[i * len(paragraphs) // count] for i in range(min(count, len(paragraphs)))]
    return [" ".join(words[:PROMPT_WORDS]) for words in chosen]


def best_two(found):
    """[the best token, how much less the second's log-probability is, the second token]"""
    ordered = sorted(found.items(), key=lambda item: -item[1].logprob)
    return [int(ordered[0][0]), ordered[0][1].logprob - ordered[1][1].logprob, int(ordered[1][0])]


def tokens_part(backend, model, text, answers, keep):
    from tokenizers import Tokenizer
    from vllm import LLM, SamplingParams

    try:
        compile_together()
    except ImportError as error:
        say("one variant after the other:", error)
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    import fourfold_vllm

    fourfold_vllm.register()
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    words = text.read_text()
    prompts = [tokenizer.encode(begun).ids for begun in beginnings(words, answers)]
    read = tokenizer.encode(words).ids[:READ_TOKENS]
    # Dense layers of NVFP4 run on one kernel in all: what is compared is the experts'.
    llm = LLM(model=str(model), skip_tokenizer_init=True, language_model_only=True, enforce_eager=True, max_model_len=READ_TOKENS + 1,
              max_num_seqs=TOKEN_SEQUENCES, max_num_batched_tokens=READ_TOKENS + 1, gpu_memory_utilization=0.2,
              kv_cache_memory_bytes=4 << 30, enable_prefix_caching=False, seed=0, disable_log_stats=True, gdn_prefill_backend="triton",
              linear_backend="marlin", moe_backend="auto" if backend == "fourfold" else backend, hf_overrides=fused_overrides(model))
    result = dict(startup_s=round(time.time() - START, 1), methods=sorted(set(llm.apply_model(methods_of)[0])), prompts=prompts)
    say("engine up", result["methods"])

    def answer():
        params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False, logprobs=2)
        done = llm.generate([dict(prompt_token_ids=ids) for ids in prompts], params, use_tqdm=False)
        return [[[int(chosen), *best_two(found)[1:]] for chosen, found in zip(one.outputs[0].token_ids, one.outputs[0].logprobs)]
                for one in done]

    result["answers"] = answer()
    result["said"] = [tokenizer.decode([step[0] for step in one]) for one in result["answers"]]
    say("answered; the first:", repr(result["said"][0]))
    keep(result)
    again = answer()
    result["same_again"] = sum(one == two for one, two in zip(result["answers"], again))
    params = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, prompt_logprobs=2)
    found = llm.generate([dict(prompt_token_ids=read)], params, use_tqdm=False)[0].prompt_logprobs[1:]
    result["read"] = [best_two(at) for at in found]
    result["perplexity"] = math.exp(-statistics.fmean(at[token].logprob for token, at in zip(read[1:], found)))
    say(f"perplexity of {len(found)} tokens: {result['perplexity']:.3f}; {result['same_again']} of {len(prompts)} answers the same again")
    return result


def gaps_line(gaps):
    ordered = sorted(gaps)
    return f"median {statistics.median(gaps):.3f}, 9 of 10 below {ordered[len(ordered) * 9 // 10]:.3f}, most {ordered[-1]:.3f}"


def tokens_table(of):
    lines = ["Greedy tokens of a trained model; gap: how far apart the two best tokens' log-probabilities were"]
    for name, found in of.items():
        gaps = [step[1] for one in found["answers"] for step in one]
        lines.append(f"  {name:10s} {len(found['answers'])} answers of {NEW_TOKENS}, {found['same_again']} of them the same again; "
                     f"perplexity of the text {found['perplexity']:.3f} ({len(found['read']) + 1} tokens; {', '.join(found['methods'])})")
        lines.append(f"             gaps of all tokens: {gaps_line(gaps)}; below 0.1: {sum(gap < 0.1 for gap in gaps) / len(gaps):.1%}")
    names = list(of)
    for i, one in enumerate(names):
        for other in names[i + 1:]:
            places, seconds, agreed = [], 0, 0
            for mine, theirs in zip(of[one]["answers"], of[other]["answers"]):
                at = next((at for at, (a, b) in enumerate(zip(mine, theirs)) if a[0] != b[0]), None)
                agreed += len(mine) if at is None else at
                if at is not None:
                    places.append((at + 1, mine[at][1], theirs[at][1]))
                    seconds += mine[at][2] == theirs[at][0] and theirs[at][2] == mine[at][0]
            lines.append(f"  {one} and {other}: {len(places)} of {len(of[one]['answers'])} answers part, after {agreed} tokens in common; "
                         f"each's token is the other's second best in {seconds}")
            if places:
                lines.append("    at token " + ", ".join(str(at) for at, _, _ in sorted(places)))
                lines.append(f"    gaps there, {one}'s: {gaps_line([gap for _, gap, _ in places])}")
                lines.append(f"    gaps there, {other}'s: {gaps_line([gap for _, _, gap in places])}")
            differ = [(a[1], b[1]) for a, b in zip(of[one]["read"], of[other]["read"]) if a[0] != b[0]]
            tail = f"; gaps there, {one}'s: {gaps_line([a for a, _ in differ])}; {other}'s: {gaps_line([b for _, b in differ])}" if differ else ""
            lines.append(f"    of the text's {len(of[one]['read'])} tokens the best differs in {len(differ)}{tail}")
    return lines


# ---- all of it ----


def parted(ours, theirs):
    """(prompts whose tokens part, the gaps of theirs between the two best tokens where they do)."""
    gaps = []
    for mine, other in zip(ours, theirs):
        for (a, _), (b, gap) in zip(mine, other):
            if a != b:
                gaps.append(gap)
                break
    return len(gaps), gaps


def table(out, backends, users):
    lines, found = [], {}
    for path in sorted(out.glob("*-*.json")):
        found[path.stem] = json.loads(path.read_text())
    layers = {name: found["layer-" + name] for name in backends if "us" in found.get("layer-" + name, {})}
    if layers:
        lines.append("A layer, 256 experts of 2,048 x 512, top 8, NVFP4: error against f64 (rms, of 64 tokens a step), then us")
        for name, of in layers.items():
            error = of["errors"]["64"]
            lines.append(f"  {name:10s} rms {error['rms']:.2e}, share of our bound {error['share_of_bound']:.2f}  "
                         f"({of['method']}{of['backend']})")
        lines.append("  tokens     " + "".join(f"{name:>12s}" for name in layers) + "   ours over the better")
        for tokens in LAYER_TOKENS:
            row = {name: of["us"][str(tokens)]["median"] for name, of in layers.items() if str(tokens) in of["us"]}
            others = [us for name, us in row.items() if name != "fourfold"]
            ratio = f"{min(others) / row['fourfold']:.2f}" if others and "fourfold" in row else ""
            lines.append(f"  {tokens:9d}  " + "".join(f"{row.get(name, float('nan')):12.1f}" for name in layers) + f"   {ratio}")
    models = {name: found["model-" + name] for name in backends if "decode" in found.get("model-" + name, {})}
    if models:
        lines.append("A whole model, tokens/s")
        lines.append("  users      " + "".join(f"{name:>12s}" for name in models) + "   ours over the better")
        for label, get in [(str(count), lambda of, c=str(count): of["decode"][c]["median"]) for count in users] + [
                ("prompt", lambda of: of["prompt_2048"]["median"])]:
            row = {name: get(of) for name, of in models.items()}
            others = [speed for name, speed in row.items() if name != "fourfold"]
            ratio = f"{row['fourfold'] / max(others):.2f}" if others and "fourfold" in row else ""
            lines.append(f"  {label:>9s}  " + "".join(f"{row[name]:12.0f}" for name in models) + f"   {ratio}")
        names = list(models)
        for i, one in enumerate(names):
            for other in names[i + 1:]:
                count, gaps = parted(models[one]["tokens"], models[other]["tokens"])
                tail = f", where {other}'s two best were {statistics.median(gaps):.3f} apart (median; most {max(gaps):.3f})" if gaps else ""
                lines.append(f"  greedy tokens of {one} and {other} part in {count} of {len(models[one]['tokens'])} answers of 64{tail}")
    said = {name: found["tokens-" + name] for name in backends if "read" in found.get("tokens-" + name, {})}
    if said:
        lines += tokens_table(said)
    for name, of in found.items():
        if "error" in of:
            lines.append(f"FAILED {name}: {of['error']}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--backends", default="fourfold,marlin,humming")
    parser.add_argument("--users", default="1,4,16,64")
    parser.add_argument("--budget", type=float, default=560.0, help="seconds; a part that has not begun by then is left for the next call")
    parser.add_argument("--only", default="", help="layer-fourfold,model-marlin,... instead of all")
    parser.add_argument("--tokens-only", action="store_true", help="what a trained model says, and nothing else")
    parser.add_argument("--text", type=pathlib.Path, default=TEXT, help="--tokens-only: what is read and continued")
    parser.add_argument("--answers", type=int, default=32, help="--tokens-only: paragraphs that are continued")
    parser.add_argument("--compile-threads", type=int, default=8, help="of Inductor, while a model starts; 1: as vLLM has it")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    with_tokens = {part.startswith("tokens-") for part in args.only.split(",") if part}
    if len(with_tokens) == 2:
        parser.error("--only: tokens-... have a model of their own; ask for them in a call of their own")
    if args.model is None and (args.tokens_only or True in with_tokens):
        args.model = SOURCE / "models/storyteller"
    backends, users = args.backends.split(","), [int(count) for count in args.users.split(",")]
    args.out.mkdir(parents=True, exist_ok=True)
    model = args.model or args.out / "shape"
    if args.part:
        sys.path[:0] = PATHS
        kind, backend = args.part.split("-", 1)
        begun = args.out / f"{args.part}.partial"  # what there is of a part that is stopped

        def keep(result):
            begun.write_text(json.dumps(result))

        if kind == "layer":
            result = layer_part(backend, keep)
        elif kind == "tokens":
            result = tokens_part(backend, model, args.text, args.answers, keep)
        else:
            result = model_part(backend, model, args.model is None, users, args.compile_threads, keep)
        (args.out / f"{args.part}.json").write_text(json.dumps(result))
        begun.unlink(missing_ok=True)
        sys.stdout.flush()
        os._exit(0)  # vLLM's threads
    if args.model is None:
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(qwen35_shape()))
        (model / "generation_config.json").write_text(json.dumps(dict(do_sample=True, eos_token_id=[248046, 248044])))
    kinds = ("tokens",) if args.tokens_only else ("layer", "model")
    wanted = [part for part in args.only.split(",") if part] or [f"{kind}-{name}" for kind in kinds for name in backends]
    beside = []
    for part in wanted:
        if (args.out / f"{part}.json").exists() and "error" not in json.loads((args.out / f"{part}.json").read_text()):
            continue
        if time.time() - START > args.budget:
            say(f"left for the next call: {part}")
            continue
        say(f"== {part}")
        environment = dict(os.environ, FOURFOLD_VLLM="required" if part.endswith("-fourfold") else "off", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                           VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1", VLLM_HOST_IP="127.0.0.1",
                           VLLM_USE_FLASHINFER_SAMPLER="0",
                           PYTHONPATH=os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH")] + PATHS)))
        command = [sys.executable, __file__, "--out", str(args.out), "--users", args.users, "--compile-threads", str(args.compile_threads),
                   "--text", str(args.text), "--answers", str(args.answers), "--part", part]
        command += ["--model", str(args.model)] if args.model else []
        if part.startswith("tokens-"):
            log = args.out / f"{part}.log"
            with open(log, "w", encoding="utf-8") as file:
                beside.append((part, log, subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)))
            continue
        done = subprocess.run(command, env=environment)
        if done.returncode != 0:
            (args.out / f"{part}.json").write_text(json.dumps(dict(error=f"ended with {done.returncode}; see above")))
    for part, log, process in beside:
        try:
            code = process.wait(timeout=max(1.0, args.budget - (time.time() - START)))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        said = log.read_text(encoding="utf-8").splitlines()
        say(f"== {part}", *(line for line in said[-40 if code else -400:] if code or line.startswith("[") and " s] " in line[:12]), sep="\n")
        if code != 0:
            (args.out / f"{part}.json").write_text(json.dumps(dict(error=f"ended with {code}; see {log.name}")))
    text = table(args.out, backends, users)
    (args.out / "compare.txt").write_text(text)
    print(text)
    return 1 if "FAILED" in text else 0


if __name__ == "__main__":
    sys.exit(main())
