"""FourfoldEngine: dynamo.common.backend's LLMEngine over fourfold.LLM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import threading
from typing import Any, AsyncGenerator, Dict, List, Optional, Tuple

import fourfold
from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.health_check import build_health_check_payload
from dynamo.common.backend.publisher import ComponentSnapshot, KvEventSource, ZmqSource
from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup, DynamoRuntimeConfig
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument

logger = logging.getLogger(__name__)

SNAPSHOT_SECONDS = 1.0
# What of a request's sampling_options and stop_conditions goes to the engine, by the same name.
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty")
STOPPING = ("min_tokens", "ignore_eos")
GUIDED = {"json": "guided_json", "regex": "guided_regex", "choice": "guided_choice"}


def engine_options(request: Dict[str, Any], context: int) -> Dict[str, Any]:
    """A request of Dynamo's as fields of the engine's. Raises InvalidArgument for what the engine does not do."""
    sampling = {name: value for name, value in (request.get("sampling_options") or {}).items() if value is not None}
    stopping = {name: value for name, value in (request.get("stop_conditions") or {}).items() if value is not None}
    output = request.get("output_options") or {}
    if sampling.get("n", 1) != 1:
        raise InvalidArgument(f"n is {sampling['n']}; the Fourfold worker gives one answer a request")
    if output.get("logprobs") is not None or output.get("prompt_logprobs") is not None:
        raise InvalidArgument("log-probabilities are not handed to Dynamo; ask `fourfold serve` for them")
    options = {name: sampling[name] for name in SAMPLING if name in sampling}
    options.update({name: stopping[name] for name in STOPPING if stopping.get(name)})
    room = context - len(request["token_ids"])
    if room < 1:
        raise InvalidArgument(f"a prompt of {len(request['token_ids'])} tokens leaves no room in a context of {context}")
    options["max_tokens"] = min(stopping.get("max_tokens") or room, room)
    # Stop strings are the frontend's business, which has the text.
    ids = [*(stopping.get("stop_token_ids") or []), *(stopping.get("stop_token_ids_hidden") or [])]
    if ids:
        options["stop_token_ids"] = sorted(set(ids))
    for name, value in (sampling.get("guided_decoding") or {}).items():
        if value is None:
            continue
        if name not in GUIDED:
            raise InvalidArgument(f"guided_decoding.{name}: the engine takes {', '.join(GUIDED)}")
        options[GUIDED[name]] = value
        options.pop("stop_token_ids", None)  # a form ends where it ends
    return options


class FourfoldEngine(LLMEngine):
    """One model in this process. Requests run on threads of their own inside the library; each task waits for its tokens."""

    def __init__(self, model: str, options: Dict[str, Any], served_name: Optional[str] = None,
                 kv_events: Optional[str] = "@tcp://127.0.0.1:0") -> None:
        self.model, self.options, self.served_name, self.kv_events = model, options, served_name, kv_events
        self.llm: Optional[fourfold.LLM] = None
        self._context = 0
        self._running: Dict[str, threading.Event] = {}  # by request: set when nobody reads any more
        self._ending = threading.Event()
        self._snapshots: Optional[Any] = None
        self._thread: Optional[threading.Thread] = None

    @classmethod
    async def from_args(cls, argv: Optional[List[str]] = None) -> Tuple["FourfoldEngine", WorkerConfig]:
        parser = argparse.ArgumentParser(prog="fourfold-dynamo", description="Fourfold as a worker of NVIDIA Dynamo")
        DynamoRuntimeArgGroup().add_arguments(parser)
        own = parser.add_argument_group("Fourfold", "as `fourfold serve` has them")
        own.add_argument("model", metavar="MODEL", help="a folder with a checkpoint")
        own.add_argument("--served-model-name", help="what requests call the model (the folder's name)")
        own.add_argument("--component", default="backend")
        own.add_argument("--backend", default="cpu", help="cpu or cuda")
        for name, kind in (("threads", int), ("tp", int), ("max-context", int), ("max-sequences", int), ("kv-tokens", int),
                           ("step-rows", int), ("max-queue", int), ("mtp", int), ("kv", str), ("activations", str),
                           ("experts", str), ("dense", str), ("cache", str), ("memory-fraction", float)):
            own.add_argument(f"--{name}", type=kind, default=argparse.SUPPRESS)
        own.add_argument("--kv-events", default="@tcp://127.0.0.1:0",
                         help="where block events are published; this worker reads them itself (%(default)s). none: no events")
        args = parser.parse_args(argv)
        runtime = DynamoRuntimeConfig.from_cli_args(args)
        given = vars(args)
        names = ("backend", "threads", "tp", "max_context", "max_sequences", "kv_tokens", "step_rows", "max_queue", "mtp", "kv",
                 "activations", "experts", "dense", "cache", "memory_fraction")
        options = {name: given[name] for name in names if name in given}
        served = args.served_model_name or os.path.basename(os.path.normpath(args.model))
        engine = cls(args.model, options, served, None if args.kv_events == "none" else args.kv_events)
        config = WorkerConfig.from_runtime_config(runtime, model_name=args.model, served_model_name=served,
                                                  component=args.component, endpoint=runtime.endpoint or "generate")
        return engine, config

    async def start(self, worker_id: int) -> EngineConfig:
        self.llm = await asyncio.to_thread(
            lambda: fourfold.LLM(self.model, kv_events=self.kv_events, on_text=logger.info, **self.options))
        status = self.llm.status()
        self._context = status["context"]
        return EngineConfig(model=self.model, served_model_name=self.served_name, llm=LlmRegistration(
            context_length=self._context, kv_cache_block_size=status["pages"]["tokens"],
            total_kv_blocks=status["pages"]["all"], max_num_seqs=status["sequences"]["running_max"]))

    async def generate(self, request: Any, context: Any) -> AsyncGenerator[Any, None]:
        if self.llm is None:
            raise EngineShutdown("the engine is not running")
        ids, name = list(request["token_ids"]), context.id()
        options = engine_options(request, self._context)
        loop = asyncio.get_running_loop()
        pieces: "asyncio.Queue[Any]" = asyncio.Queue()
        ended = self._running[name] = threading.Event()

        def take(new: List[int]) -> bool:
            loop.call_soon_threadsafe(pieces.put_nowait, list(new))
            return not ended.is_set() and not self._ending.is_set()

        def work(llm: fourfold.LLM) -> None:
            try:
                end: Any = llm.generate_ids(ids, take, **options)
            except Exception as error:  # it is the task's
                end = error
            loop.call_soon_threadsafe(pieces.put_nowait, end)

        # Not a pool's: as many as the engine runs and lets wait.
        threading.Thread(target=work, args=(self.llm,), name=f"fourfold-{name}", daemon=True).start()
        try:
            while isinstance(piece := await pieces.get(), list):
                yield {"token_ids": piece, "index": 0}
            if isinstance(piece, Exception):
                raise translated(piece)
            yield {"token_ids": [], "index": 0, "finish_reason": piece.finish_reason, "completion_usage": {
                "prompt_tokens": len(ids), "completion_tokens": len(piece.ids), "total_tokens": len(ids) + len(piece.ids),
                "prompt_tokens_details": {"cached_tokens": piece.cached_tokens}}}
        finally:  # also of a task that is cancelled, or a generator that is closed
            ended.set()
            if self._running.get(name) is ended:
                del self._running[name]

    async def abort(self, context: Any) -> None:
        """Ends it with its next token."""
        if (ended := self._running.get(context.id())) is not None:
            ended.set()

    async def kv_event_sources(self) -> List[KvEventSource]:
        events = self.llm.status()["kv_events"] if self.llm is not None else None
        if events is None:
            return []
        return [ZmqSource(endpoint=events["endpoint"].replace("*", "127.0.0.1"))]

    def component_metrics_dp_ranks(self) -> List[int]:
        return [0]

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        self._snapshots = publisher
        self._thread = threading.Thread(target=self._publish_snapshots, name="fourfold-snapshots", daemon=True)
        self._thread.start()

    def _publish_snapshots(self) -> None:
        while not self._ending.wait(SNAPSHOT_SECONDS):
            try:
                self._snapshots.publish(0, snapshot(self.llm.status()))  # type: ignore[union-attr]
            except Exception:
                logger.exception("the load was not published")

    async def register_prometheus(self, metrics: Any) -> None:
        labels = ",".join(f'{name}="{value}"' for name, value in dict(metrics.auto_labels).items())
        metrics.register_prometheus_expfmt_callback(
            lambda: prometheus_text(self.llm.status(), labels) if self.llm is not None else "")

    async def health_check_payload(self) -> Optional[Dict[str, Any]]:
        return build_health_check_payload(1)

    async def cleanup(self) -> None:
        self._ending.set()  # answers end with their next token
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 5)
        llm, self.llm = self.llm, None
        while llm is not None:
            try:
                await asyncio.to_thread(llm.close)
                break
            except RuntimeError:  # some are still ending
                await asyncio.sleep(0.05)


def translated(error: Exception) -> Exception:
    """The engine's refusals in Dynamo's words."""
    if isinstance(error, fourfold.FourfoldError) and error.name == "invalid_request":
        return InvalidArgument(str(error))
    return error


def snapshot(status: Dict[str, Any]) -> ComponentSnapshot:
    pages, lookups = status["pages"], status["prefix_cache"]["lookups"]
    return ComponentSnapshot(
        kv_used_blocks=pages["used"], kv_total_blocks=pages["all"], gpu_cache_usage=pages["used"] / max(pages["all"], 1),
        dp_rank=0, kv_cache_hit_rate=status["tokens"]["cached"] / max(status["tokens"]["prompt"], 1) if lookups else None)


def prometheus_text(status: Dict[str, Any], labels: str) -> str:
    values = {("fourfold_sequences_running", "gauge"): status["sequences"]["running"],
              ("fourfold_sequences_waiting", "gauge"): status["sequences"]["waiting"],
              ("fourfold_pages_used", "gauge"): status["pages"]["used"],
              ("fourfold_pages_cached", "gauge"): status["pages"]["cached"],
              ("fourfold_pages_max", "gauge"): status["pages"]["all"],
              ("fourfold_prompt_tokens_total", "counter"): status["tokens"]["prompt"],
              ("fourfold_cached_tokens_total", "counter"): status["tokens"]["cached"],
              ("fourfold_answer_tokens_total", "counter"): status["tokens"]["answer"],
              ("fourfold_requests_failed_total", "counter"): status["requests"]["failed"]}
    return "".join(f"# TYPE {name} {kind}\n{name}{{{labels}}} {value}\n" for (name, kind), value in values.items())
