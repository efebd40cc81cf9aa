"""What serving costs beside the model: runs `fourfold serve` with so many users and says which threads took the time.

    tools/serve_overhead.py PROGRAM [--users 64] [--tokens 200] [--model MODEL] [--threads 1]

Every user asks for one streamed answer. Shown are the CPU time of the socket thread and of the threads that read requests
against that of the model, and the engine's own time for scheduling and sampling against that of its steps. Plain Python 3.9,
no packages.
"""
import argparse
import json
import os
import pathlib
import re
import selectors
import socket
import subprocess
import time
import urllib.request


def thread_seconds(pid):
    """CPU seconds of the socket thread (the first), of the request threads, and of all others."""
    tick = os.sysconf("SC_CLK_TCK")
    sums = {"http": 0.0, "requests": 0.0, "model": 0.0}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        seconds = (int(fields[11]) + int(fields[12])) / tick
        name = (task / "comm").read_text().strip()
        sums["http" if int(task.name) == pid else "requests" if name == "ff-requests" else "model"] += seconds
    return sums


def status(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status.json") as answer:
        return json.load(answer)


def load(port, users, tokens, temperature):
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me a long story about the sea."}], "stream": True,
                       "max_tokens": tokens, "ignore_eos": True, "temperature": temperature}).encode()
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode()
    selector = selectors.DefaultSelector()
    for _ in range(users):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(head + body)
        selector.register(client, selectors.EVENT_READ)
    received = 0
    while selector.get_map():
        for key, _ in selector.select():
            data = key.fileobj.recv(1 << 16)
            received += len(data)
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
    return received


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--model", default="")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0, help="above 0 the host also draws (0)")
    options = parser.parse_args()
    line = [options.program, "serve", *([options.model] if options.model else []), "--port", "0", "--max-sequences",
            str(options.users), "--threads", str(options.threads), "--max-context", "1024"]
    server = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        port = None
        for text in server.stdout:
            port = port or re.search(r"http://127\.0\.0\.1:(\d+)/", text)
            if "Ctrl-C" in text:
                break
        port = int(port[1])
        load(port, options.users, 8, options.temperature)  # warm
        before, cpu_before, start = status(port), thread_seconds(server.pid), time.monotonic()
        received = load(port, options.users, options.tokens, options.temperature)
        seconds = time.monotonic() - start
        after, cpu_after = status(port), thread_seconds(server.pid)
    finally:
        server.terminate()
        server.wait()
    step = after["steps"]["seconds"] - before["steps"]["seconds"]
    engine = after["steps"]["overhead_seconds"] - before["steps"]["overhead_seconds"]
    cpu = {name: cpu_after[name] - cpu_before[name] for name in cpu_after}
    tokens = after["tokens"]["answer"] - before["tokens"]["answer"]
    steps = after["steps"]["count"] - before["steps"]["count"]
    print(f"{options.users} users, {tokens} tokens in {seconds:.2f} s: {tokens / seconds:.0f} tok/s, {steps} steps, "
          f"{received} bytes sent")
    print(f"steps in the backend {step:.3f} s, scheduling and sampling {engine:.3f} s by the clock; CPU time: model "
          f"{cpu['model']:.2f} s, sockets {cpu['http']:.2f} s, reading requests {cpu['requests']:.2f} s")
    # Each by its own measure: a machine that is shared stretches clocks, and clocks alone.
    http = (cpu["http"] + cpu["requests"]) / cpu["model"]
    print(f"HTTP and tokenising {100 * http:.1f} %, scheduling and sampling {100 * engine / (step + engine):.1f} % of a step")
    print(f"sockets alone: {1e6 * cpu['http'] / max(tokens, 1):.1f} microseconds a token")


if __name__ == "__main__":
    main()
