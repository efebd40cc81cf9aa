"""Fourfold on Ray Serve: each replica runs a `fourfold serve` of its own and hands requests on to it.

    pip install 'ray[serve]' httpx
    FOURFOLD_MODEL=models/storyteller serve run examples.python.ray_serve:app
    curl localhost:8000/v1/chat/completions -H 'Content-Type: application/json' \
      -d '{"model": "storyteller", "messages": [{"role": "user", "content": "Hello"}]}'

FOURFOLD_PROGRAM is the program (fourfold), FOURFOLD_OPTIONS more options for it, FOURFOLD_REPLICAS how many (2). Ray starts,
counts and restarts replicas, and spreads requests by what is under way. A server that dies is started again by its replica, which
asks it once more what it had not begun to answer.
"""
import asyncio
import os
import shlex
import socket
import subprocess

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve

PASSED = ("content-type", "retry-after", "x-request-id", "x-fourfold-ignored", "x-fourfold-changed")
RETRIES = 3
web = FastAPI()


@serve.deployment(num_replicas=int(os.environ.get("FOURFOLD_REPLICAS", "2")), max_ongoing_requests=256)
@serve.ingress(web)
class Fourfold:
    def __init__(self, program, model, options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.command = [program, "serve", model, "--port", str(port), *options]
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=None)
        self.process = None
        self.starting = asyncio.Lock()

    async def started(self):
        """Runs the server where it does not, and waits until it takes requests."""
        async with self.starting:
            while True:
                if self.process is None or self.process.poll() is not None:
                    self.process = subprocess.Popen(self.command)
                try:
                    if (await self.client.get("/ready")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.1)

    async def check_health(self):
        await asyncio.wait_for(self.started(), 600)

    @web.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
    async def hand_on(self, path: str, request: Request):
        body = await request.body()
        for attempt in range(RETRIES + 1):
            await self.started()
            try:
                asked = self.client.build_request(request.method, "/" + path, content=body, headers={
                    name: value for name, value in request.headers.items() if name not in ("host", "content-length")})
                answer = await self.client.send(asked, stream=True)
                break
            except httpx.TransportError:  # no answer had begun
                if attempt == RETRIES:
                    raise
        headers = {name: answer.headers[name] for name in PASSED if name in answer.headers}
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            whole = await answer.aread()
            await answer.aclose()
            return StreamingResponse(iter([whole]), answer.status_code, headers)

        async def events():
            try:
                async for piece in answer.aiter_raw():
                    yield piece
            finally:  # a client that leaves ends its answer
                await answer.aclose()

        return StreamingResponse(events(), answer.status_code, headers)

    def __del__(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()


def place(name, default):
    """A file's full path, since replicas have a folder of their own; other names as they are."""
    value = os.environ.get(name, default)
    return os.path.abspath(value) if os.path.exists(value) else value


app = Fourfold.bind(place("FOURFOLD_PROGRAM", "fourfold"), place("FOURFOLD_MODEL", "storyteller"),
                    shlex.split(os.environ.get("FOURFOLD_OPTIONS", "")))
