"""LLM: a model in this process, with answers whole, in pieces, and awaited."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import ctypes
import json
import os
import queue
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union, overload

from . import _files, _library

#: A user's message, or the messages of a conversation as OpenAI's chat completions have them.
Messages = Union[str, Sequence[Mapping[str, Any]]]

_CHAT, _TEXT = "/v1/chat/completions", "/v1/completions"

# Streams that may still be running. Python ends daemon threads at its own end, and one that is inside the library then
# would take the process down with it.
_streams: "weakref.WeakSet[Stream]" = weakref.WeakSet()


@atexit.register
def _end_streams() -> None:
    for stream in list(_streams):
        stream.close()


@dataclass
class Answer:
    """What a model answered."""

    text: str
    #: "stop", "length" (cut at max_tokens), or "tool_calls".
    finish_reason: str
    prompt_tokens: int
    answer_tokens: int
    #: What it thought before it spoke.
    thinking: str = ""
    #: As OpenAI's: id, type, function with name and arguments.
    tool_calls: List[Dict[str, Any]] = field(default_factory=list)
    #: With schema=: the answer as JSON, or as the pydantic model that was given. None if it was cut.
    parsed: Any = None


@dataclass
class IdsAnswer:
    """What a model answered, in token ids."""

    ids: List[int]
    #: "stop", "length" (cut at max_tokens), or "cancelled".
    finish_reason: str
    prompt_tokens: int
    #: Of the prompt, not run again.
    cached_tokens: int


def _schema_fields(schema: Any) -> Dict[str, Any]:
    if schema is None:
        return {}
    if hasattr(schema, "model_json_schema"):  # a pydantic model
        schema = schema.model_json_schema()
    if not isinstance(schema, Mapping):
        raise TypeError(f"schema is a {type(schema).__name__}; a JSON schema as a dict, or a pydantic model, was expected")
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema)}}}


def _parsed(answer: Answer, schema: Any) -> Answer:
    if schema is not None and answer.finish_reason == "stop":
        answer.parsed = (schema.model_validate_json(answer.text) if hasattr(schema, "model_validate_json")
                         else json.loads(answer.text))
    return answer


def _body(prompt: Messages, chat: bool, schema: Any, options: Mapping[str, Any]) -> Dict[str, Any]:
    given = {name: value for name, value in options.items() if value is not None}
    if chat:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(each) for each in prompt]
        return {"messages": messages, **_schema_fields(schema), **given}
    if not isinstance(prompt, str):
        raise TypeError(f"the prompt is a {type(prompt).__name__}; a text was expected (chat takes messages)")
    return {"prompt": prompt, **_schema_fields(schema), **given}


def _answer(reply: Mapping[str, Any]) -> Answer:
    choice, usage = reply["choices"][0], reply["usage"]
    message = choice.get("message") or {"content": choice.get("text")}
    return Answer(message.get("content") or "", choice["finish_reason"], usage["prompt_tokens"], usage["completion_tokens"],
                  message.get("reasoning_content") or "", list(message.get("tool_calls") or []))


def _events(text: str) -> Iterator[Dict[str, Any]]:
    """Of whole server-sent events their objects; one that is an error is raised."""
    for line in text.split("\n"):
        if line.startswith("data: {"):
            event = json.loads(line[len("data: "):])
            if "error" in event:
                raise _library.FourfoldError(str(event["error"].get("type")), str(event["error"].get("message")))
            yield event


class Stream(Iterator[str]):
    """An answer as it comes, a piece of text at a time. `answer` is there after the last piece; close() ends it early."""

    def __init__(self, run: Callable[[Callable[[str], bool]], None], schema: Any = None) -> None:
        self._pieces: "queue.Queue[Optional[str]]" = queue.Queue()
        self._schema, self._closed = schema, threading.Event()
        self._error: Optional[BaseException] = None
        self._text: List[str] = []
        self._thinking: List[str] = []
        self._calls: Dict[int, Dict[str, Any]] = {}
        self._end, self._usage, self._left = "", {"prompt_tokens": 0, "completion_tokens": 0}, ""
        self.answer: Optional[Answer] = None
        self._thread = threading.Thread(target=self._work, args=(run,), name="fourfold-stream", daemon=True)
        _streams.add(self)
        self._thread.start()

    def _work(self, run: Callable[[Callable[[str], bool]], None]) -> None:
        try:
            run(self._take)
        except BaseException as error:  # it is the reader's
            self._error = error
        self._pieces.put(None)

    def _take(self, events: str) -> bool:
        for event in _events(events):
            self._take_event(event)
        return not self._closed.is_set()

    def _take_event(self, event: Mapping[str, Any]) -> None:
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices", []):
            self._end = choice.get("finish_reason") or self._end
            delta = choice.get("delta") or {"content": choice.get("text")}
            self._thinking.append(delta.get("reasoning_content") or "")
            for call in delta.get("tool_calls") or []:
                kept = self._calls.setdefault(call["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
                kept.update({key: call[key] for key in ("id", "type") if key in call})
                for key, value in call.get("function", {}).items():
                    kept["function"][key] += value or ""
            if delta.get("content"):
                self._text.append(delta["content"])
                self._pieces.put(delta["content"])

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> str:
        if self.answer is None and not self._closed.is_set():
            piece = self._pieces.get()
            if piece is not None:
                return piece
            self._finish()
        raise StopIteration

    def _finish(self) -> None:
        self._thread.join()
        self._closed.set()
        if self._error is not None:
            raise self._error
        self.answer = _parsed(Answer("".join(self._text), self._end, self._usage["prompt_tokens"],
                                     self._usage["completion_tokens"], "".join(self._thinking),
                                     [self._calls[index] for index in sorted(self._calls)]), self._schema)

    def close(self) -> None:
        """No more is wanted: the engine stops at its next step."""
        self._closed.set()
        self._thread.join()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class LLM:
    """A model, loaded into this process.

    model: a folder with a checkpoint, or a name of the hub, ORG/NAME or ORG/NAME@REVISION, which is fetched first where the
    cache does not have it (docs/pull.md); nothing is Storyteller, the small model that comes with the package. The options are
    those of `fourfold serve` and mean the same (docs/embedding.md): backend "cpu" or "cuda", tp ranks, kv "bf16" or "fp8",
    and so on. What the backend or the model does not have is refused; notices go to `on_text`.

    Any number of threads and tasks may ask at once: their answers share the engine's steps, and each is what it would be
    alone. Sampling options are the fields of OpenAI's API: max_tokens, temperature, top_p, top_k, seed, stop,
    presence_penalty, logit_bias, ...; one that nobody knows is refused.
    """

    def __init__(self, model: Union[str, "os.PathLike[str]", None] = None, *, backend: str = "cpu", threads: int = 0,
                 tp: int = 1, experts: Optional[str] = None, activations: Optional[str] = None, kv: Optional[str] = None,
                 dense: Optional[str] = None, cache: Optional[str] = None, rebuild_cache: bool = False,
                 tuned: Optional[str] = None, memory_fraction: float = 0.0, max_context: int = 0, max_sequences: int = 0,
                 kv_tokens: int = 0, step_rows: int = 0, max_queue: int = 0, mtp: Optional[int] = None,
                 prefix_cache: bool = True, prefix_cache_bytes: int = 0, strict: bool = False,
                 kv_events: Optional[str] = None, kv_events_replay: Optional[str] = None,
                 kv_events_topic: Optional[str] = None,
                 on_text: Optional[Callable[[str], None]] = None,
                 on_progress: Optional[Callable[[int, int], None]] = None) -> None:
        self._handle = ctypes.c_void_p()
        self._lock = threading.Lock()  # of _handle and _running
        self._running = 0
        self._streams: "weakref.WeakSet[Stream]" = weakref.WeakSet()
        self.model = _files.model_folder(None if model is None else os.fspath(model))

        def word(value: Optional[str]) -> Optional[bytes]:
            return None if value is None else os.fspath(value).encode()

        failed: List[BaseException] = []  # no exception may pass through the library

        def told(_user: Any, text: int, size: int) -> int:
            try:
                if on_text is not None and not failed:
                    on_text(ctypes.string_at(text, size).decode())
            except BaseException as error:
                failed.append(error)
            return 0

        def progress(_user: Any, done: int, total: int) -> int:
            try:
                if on_progress is not None and not failed:
                    on_progress(done, total)
            except BaseException as error:
                failed.append(error)
            return 1 if failed else 0  # 1: the load is given up

        options = _library.ModelOptions(
            struct_size=ctypes.sizeof(_library.ModelOptions), threads=threads, backend=word(backend), max_context=max_context,
            max_sequences=max_sequences, mtp_plus_one=0 if mtp is None else mtp + 1, no_prefix_cache=int(not prefix_cache),
            experts=word(experts), activations=word(activations), kv=word(kv), dense=word(dense), cache=word(cache),
            tuned=word(tuned), memory_fraction=memory_fraction, kv_tokens=kv_tokens, step_rows=step_rows,
            max_queue=max_queue, tp=tp, strict=int(strict), rebuild_cache=int(rebuild_cache),
            prefix_cache_bytes=prefix_cache_bytes, on_text=_library.ON_TEXT(told),
            on_progress=_library.ON_PROGRESS(progress), kv_events=word(kv_events),
            kv_events_replay=word(kv_events_replay), kv_events_topic=word(kv_events_topic))
        status = _library.library.fourfold_model_open(self.model.encode(), ctypes.byref(options),
                                                      ctypes.byref(self._handle))
        if failed:
            raise failed[0]
        _library.check(status)

    def request(self, route: str, body: Mapping[str, Any], on_answer: Callable[[str], bool]) -> None:
        """A request of the server's protocols ("/v1/responses", "/v1/messages", ...) without a server: on_answer gets the
        answer's JSON, or with "stream": true events as they come, and ends it by returning False."""
        failed: List[BaseException] = []

        def answered(_user: Any, text: int, size: int) -> int:
            try:
                return 0 if on_answer(ctypes.string_at(text, size).decode()) else 1
            except BaseException as error:  # no exception may pass through the library
                failed.append(error)
                return 1

        options = _library.RequestOptions(struct_size=ctypes.sizeof(_library.RequestOptions),
                                          on_answer=_library.ON_TEXT(answered))
        with self._in_use() as handle:
            status = _library.library.fourfold_request(handle, route.encode(), json.dumps(body).encode(),
                                                       ctypes.byref(options))
            if failed:
                raise failed[0]
            _library.check(status)

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[ctypes.c_void_p]:
        """The model's handle, which stays until the block ends."""
        with self._lock:
            if not self._handle:
                raise ValueError("this LLM was closed")
            self._running += 1
        try:
            yield self._handle
        finally:
            with self._lock:
                self._running -= 1

    def status(self) -> Dict[str, Any]:
        """How it is doing: sequences, pages, tokens, prefix cache, and where its events are."""
        texts: List[str] = []

        def told(_user: Any, text: int, size: int) -> int:
            texts.append(ctypes.string_at(text, size).decode())
            return 0

        with self._in_use() as handle:
            _library.check(_library.library.fourfold_model_status(handle, _library.ON_TEXT(told), None))
        return dict(json.loads(texts[0]))

    def generate_ids(self, ids: Sequence[int], on_ids: Optional[Callable[[List[int]], bool]] = None,
                     **options: Any) -> IdsAnswer:
        """Goes on with token ids. on_ids gets the answer's as they come, and ends it by returning False. Where the model ended
        it, the token that says so is the last."""
        answer = IdsAnswer([], "", len(ids), 0)

        def take(events: str) -> bool:
            wanted = True
            for event in _events(events):
                details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
                answer.cached_tokens = details.get("cached_tokens") or answer.cached_tokens
                for choice in event.get("choices", []):
                    answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
                    new = choice.get("token_ids") or []
                    answer.ids += new
                    if new and on_ids is not None and wanted:
                        wanted = bool(on_ids(new))
            if not wanted:
                answer.finish_reason = answer.finish_reason or "cancelled"
            return wanted

        given = {name: value for name, value in options.items() if value is not None}
        self.request(_TEXT, {"prompt": list(ids), **given, "stream": True, "return_token_ids": True,
                             "stream_options": {"include_usage": True}}, take)
        return answer

    def _ask(self, prompt: Messages, chat: bool, schema: Any, options: Mapping[str, Any]) -> Answer:
        replies: List[str] = []

        def keep(text: str) -> bool:
            replies.append(text)
            return True

        self.request(_CHAT if chat else _TEXT, _body(prompt, chat, schema, options), keep)
        return _parsed(_answer(json.loads("".join(replies))), schema)

    @overload
    def generate(self, prompt: str, *, schema: Any = None, **options: Any) -> Answer: ...
    @overload
    def generate(self, prompt: List[str], *, schema: Any = None, **options: Any) -> List[Answer]: ...

    def generate(self, prompt: Union[str, List[str]], *, schema: Any = None, **options: Any) -> Union[Answer, List[Answer]]:
        """Goes on with a text, or with each of a list of texts at once. schema: the answer is JSON of it."""
        if isinstance(prompt, str):
            return self._ask(prompt, False, schema, options)
        with concurrent.futures.ThreadPoolExecutor(max_workers=max(len(prompt), 1)) as pool:
            return list(pool.map(lambda each: self._ask(each, False, schema, options), prompt))

    def chat(self, messages: Messages, *, schema: Any = None, **options: Any) -> Answer:
        """Answers a user's message, or the messages of a conversation, through the model's template; tools= as OpenAI's."""
        return self._ask(messages, True, schema, options)

    def stream(self, prompt: Messages, *, schema: Any = None, **options: Any) -> Stream:
        """As generate for a text, as chat for messages, a piece of text at a time."""
        chat = not isinstance(prompt, str)
        body = {**_body(prompt, chat, schema, options), "stream": True, "stream_options": {"include_usage": True}}
        stream = Stream(lambda take: self.request(_CHAT if chat else _TEXT, body, take), schema)
        self._streams.add(stream)
        return stream

    async def agenerate(self, prompt: str, *, schema: Any = None, **options: Any) -> Answer:
        """generate, awaited."""
        return await self._awaited(prompt, False, schema, options)

    async def achat(self, messages: Messages, *, schema: Any = None, **options: Any) -> Answer:
        """chat, awaited; a task that is cancelled ends its answer."""
        return await self._awaited(messages, True, schema, options)

    async def _awaited(self, prompt: Messages, chat: bool, schema: Any, options: Mapping[str, Any]) -> Answer:
        as_messages: Messages = [{"role": "user", "content": prompt}] if chat and isinstance(prompt, str) else prompt
        if not chat and not isinstance(as_messages, str):
            raise TypeError(f"the prompt is a {type(as_messages).__name__}; a text was expected (achat takes messages)")
        stream = self.stream(as_messages, schema=schema, **options)
        async for _ in _pieces(stream):
            pass
        assert stream.answer is not None
        return stream.answer

    def astream(self, prompt: Messages, *, schema: Any = None, **options: Any) -> AsyncIterator[str]:
        """stream, for `async for`."""
        return _pieces(self.stream(prompt, schema=schema, **options))

    def close(self) -> None:
        """Lets go of the model. Not while it answers."""
        with self._lock:
            if self._running:
                raise RuntimeError(f"{self._running} answers are still running; close the streams first")
            handle, self._handle = self._handle, ctypes.c_void_p()
        _library.library.fourfold_model_close(handle)

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *exception: object) -> None:
        for stream in list(self._streams):  # left early, by a break or an exception
            stream.close()
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) and not self._running:
            self.close()


async def _pieces(stream: Stream) -> AsyncIterator[str]:
    """What a stream gives, waited for in a thread of its own; whoever stops listening ends the answer."""
    loop = asyncio.get_running_loop()
    waiting = concurrent.futures.ThreadPoolExecutor(max_workers=1)
    try:
        while (piece := await loop.run_in_executor(waiting, next, stream, None)) is not None:
            yield piece
    finally:  # the event loop must not wait for the engine's next step
        stream._closed.set()
        stream._pieces.put(None)
        waiting.shutdown(wait=False)
