"""A server for the page's tests: the page from the sources, and answers that the last message chooses.

    mock_server.py [--port N] [--key KEY]

It speaks the API as the page uses it. What it received can be read at /mock/requests.
"""
import argparse
import http.server
import json
import pathlib
import re
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "src/server/page"
CONTEXT = 4096
TOKENIZED = 100_000  # characters that are counted at most

CODE_ANSWER = """## A short program

Here is **bold**, *leaning*, `code` and a [link](https://example.org/).

```python
# prints a number
def main(n):
    return "value: %d" % (n * 41 + 1)
```

| a | b |
|---|---|
| 1 | 2 |

1. one
2. two
   - inner
"""
SHOWCASE = r"""### The normal distribution

A random variable $X$ with mean $\mu$ and variance $\sigma^2$ has the density

$$
f(x) = \frac{1}{\sigma\sqrt{2\pi}} \exp\left(-\frac{(x-\mu)^2}{2\sigma^2}\right), \qquad \int_{-\infty}^{\infty} f(x)\,dx = 1.
$$

For a sample $x_1, \dots, x_n$ the estimates are \(\hat\mu = \bar{x}\) and

\[
\begin{aligned}
\hat\sigma^2 &= \frac{1}{n}\sum_{i=1}^{n} (x_i - \bar{x})^2 \\
              &= \overline{x^2} - \bar{x}^2 .
\end{aligned}
\]

| Interval | Share | Outside, one in |
|:---------|:-----:|----------------:|
| $\mu \pm \sigma$ | 68.27 % | 3 |
| $\mu \pm 2\sigma$ | 95.45 % | 22 |
| $\mu \pm 3\sigma$ | 99.73 % | 370 |

```python
# the share within k standard deviations
def share(k: float) -> float:
    return math.erf(k / math.sqrt(2))
```

- [x] density and estimates
- [ ] a proof that it integrates to one[^1]

A standard table costs $5, a good one $60; this one is free.

[^1]: By polar coordinates: $\left(\int e^{-x^2}dx\right)^2 = \pi$.
"""
WIDE_ANSWER = r"""What is wide:

| Method | Complexity | Memory | Notes about the method | Year | Authors |
|:--|:-:|--:|---|--:|---|
| Quicksort | $O(n \log n)$ | $O(\log n)$ | in place, not stable, with a rather long note | 1961 | Hoare |
| Mergesort | $O(n \log n)$ | $O(n)$ | stable | 1945 | von Neumann |

1. `std::unordered_map<std::string,std::vector<int>>::const_iterator` and `a_function_with_a_rather_long_name_of_words`
2. https://example.org/a/long/path/to/some/page_with_a_name/and-some-more.html?with=a&query=too
   - [x] done
   - [ ] open

```cpp
template <class T> std::size_t count_of(const std::vector<T>& values, std::function<bool(const T&)> predicate) {
  return std::count_if(values.begin(), values.end(), predicate);
}
```

$$ \mathcal{L}(\theta) = \sum_{i=1}^N \log p_\theta(x_i) - \lambda \lVert\theta\rVert_2^2,\quad f(x) = \begin{cases} x^2 & x \ge 0 \\ -x & \text{otherwise} \end{cases} $$
"""
ATTACK_ANSWER = """<img src=x onerror="window.attacked=1"> <script>window.attacked=2</script>
[press](javascript:window.attacked=3) ![x](data:text/html,1) <b onclick=1>b</b>

```html
<script>window.attacked=4</script>
```
"""


def static_files():
    """{target: (type, bytes)}, from the list that the build reads."""
    text = (ROOT / "cmake/page.cmake").read_text()
    return {target: (kind, (PAGE / name).read_bytes())
            for target, name, kind in re.findall(r'^  "([^|"]+)\|([^|"]+)\|([^|"]+)"$', text, re.M)}


def security_policy():
    header = (PAGE / "static_files.h").read_text()
    parts = re.search(r"kPageSecurityPolicy =(.*?);\s*\n(?!\s*\")", header, re.S).group(1)
    return "".join(re.findall(r'"([^"]*)"', parts))


def flood(kind, count):
    """That many tokens as fast as they go: paragraphs with some of everything, or one block of code."""
    paragraph = pieces(
        "Some **bold** words, `code`, a formula $x_i^2$ and a [link](https://example.org/) follow here.\n\n- one\n- two\n\n"
    )
    code = ["```python\n", *pieces("def name(value):\n    return value + 41  # 'text'\n" * 5000)]
    for at in range(int(count)):
        yield {"content": paragraph[at % len(paragraph)] if kind == "prose" else code[at]}, 0


def pieces(text):
    return re.findall(r"\s*\S+\s*?|\s+", text) or [""]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def answer(self, status, kind, body, headers=()):
        if self.server.stopped:
            self.close_connection = True
            return
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, message, code=None):
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        self.answer(status, "application/json", json.dumps({"error": error}))

    def has_key(self):
        wanted = self.server.key
        if not wanted or self.headers.get("Authorization") == f"Bearer {wanted}":
            return True
        self.refuse(401, "This server wants an API key: Authorization: Bearer KEY.", "invalid_api_key")
        return False

    def do_GET(self):
        if self.path in self.server.files:
            kind, body = self.server.files[self.path]
            # The program has a browser ask each time; here it need not, for a page is loaded hundreds of times.
            self.answer(200, kind + "; charset=utf-8", body,
                        [("Content-Security-Policy", self.server.policy), ("Cache-Control", "max-age=3600")])
        elif self.path == "/mock/requests":
            self.answer(200, "application/json", json.dumps(self.server.requests))
        elif not self.has_key():
            return
        elif self.path == "/v1/models":
            model = {"id": "mock-model", "object": "model", "max_model_len": CONTEXT}
            self.answer(200, "application/json", json.dumps({"object": "list", "data": [model]}))
        elif self.path == "/status.json":
            self.answer(200, "application/json", (pathlib.Path(__file__).parent / "status.json").read_bytes())
        elif self.path == "/metrics":
            self.answer(200, "text/plain", "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n")
        else:
            self.refuse(404, f"There is no {self.path}.")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.stopped:
            self.close_connection = True
            return
        if not self.has_key():
            return
        if self.path == "/tokenize":
            self.tokenize(body)
            return
        self.server.requests.append(body)
        last = body["messages"][-1]["content"]
        if self.refused(last):
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self.stream(body, last)
        except (BrokenPipeError, ConnectionResetError):
            body["mock_cancelled"] = True
        self.close_connection = True

    def tokenize(self, body):
        texts = [body["prompt"]] if "prompt" in body else [message["content"] or "" for message in body["messages"]]
        if sum(map(len, texts)) > TOKENIZED:
            self.refuse(400, f"the text has {sum(map(len, texts))} bytes; at most {TOKENIZED}")
            return
        count = sum(len(pieces(text)) for text in texts)
        on = self.server.thinks and body.get("chat_template_kwargs", {}).get("enable_thinking")
        tokens = list(range(count + (2 if on else 0)))
        self.answer(
            200, "application/json", json.dumps({"count": len(tokens), "max_model_len": CONTEXT, "tokens": tokens})
        )

    def refused(self, last):
        if last.startswith("error"):
            self.refuse(400, "max_completion_tokens is 9; at most 8 fit. <b>Ask for fewer.</b>")
        elif last.startswith("full"):
            self.refuse(
                400,
                f"the prompt has 5000 tokens; the context is {CONTEXT} for prompt and answer together. Shorten the prompt",
                "context_length_exceeded",
            )
        elif last.startswith("large"):
            self.refuse(413, "the body has 40000000 bytes; at most 33554432")
        elif last.startswith("busy") and len(self.server.requests) < 2:
            error = {"error": {"message": "The queue is full.", "type": "overloaded", "code": "overloaded"}}
            self.answer(503, "application/json", json.dumps(error), [("Retry-After", "1")])
        elif last.startswith("proxy"):
            self.answer(502, "text/html", "<h1>Bad Gateway</h1>")
        else:
            return False
        return True

    def stream(self, body, last):
        self.count = 0
        self.crumbs = last.startswith("crumbs")
        self.prompt_count = sum(len(pieces(message["content"] or "")) for message in body["messages"])
        for delta, pause in self.deltas(last, body):
            self.count += 1
            self.piece({"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": self.usage()})
            if pause:
                time.sleep(pause)
        if last.startswith("break"):
            self.event(json.dumps({"error": {"message": "The backend has failed; see the server's log."}}))
            return
        if last.startswith("cut"):
            return
        finish = "tool_calls" if last.startswith("tool") else "length" if last.startswith("long") else "stop"
        self.piece({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": self.usage()})
        self.piece({"choices": [], "usage": self.usage()})
        self.event("[DONE]")

    def deltas(self, last, body):
        if last.startswith("silent"):
            time.sleep(30)
        yield {"role": "assistant", "content": ""}, 0
        if last.startswith("think"):
            for piece in pieces("First I weigh it. Then I decide."):
                yield {"reasoning_content": piece}, .02
        if last.startswith("tool"):
            call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
            yield {"tool_calls": [call]}, 0
            for piece in ('{"city": ', '"Bern"}'):
                yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}, .01
            return
        if last.startswith("slow"):
            for at in range(400):
                yield {"content": f"word{at} "}, .05
            return
        if last.startswith("stream"):
            yield from flood(*last.split()[1:3])
            return
        answers = {"code": CODE_ANSWER, "attack": ATTACK_ANSWER, "crumbs": "é € 😀", "show": SHOWCASE, "wide": WIDE_ANSWER,
                   "count": f"Answer {len(self.server.requests)}"}
        text = answers.get(last.split()[0], f"You said: {last} ({len(body['messages'])} messages)")
        for piece in pieces(text):
            yield {"content": piece}, .005

    def usage(self):
        return {"prompt_tokens": self.prompt_count, "completion_tokens": self.count,
                "total_tokens": self.prompt_count + self.count}

    def piece(self, fields):
        self.event(json.dumps({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "mock-model", **fields},
                              ensure_ascii=False))

    def event(self, data):
        if not self.crumbs:
            self.wfile.write(f"data: {data}\n\n".encode())
            self.wfile.flush()
            return
        # As a bad network may bring it: other line ends, comments, and every character cut.
        for byte in f": still here\r\n\r\ndata:{data}\r\n\r\n".encode():
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            time.sleep(.0002)


class MockServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0, key=""):
        super().__init__(("127.0.0.1", port), Handler)
        self.key = key
        self.requests = []
        self.stopped = False
        self.thinks = True
        self.files = static_files()
        self.policy = security_policy()
        self.address = f"http://127.0.0.1:{self.server_address[1]}"

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def stop(self):
        """Also for connections that are kept open."""
        self.stopped = True
        self.shutdown()
        self.server_close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    server = MockServer(options.port, options.key)
    print(server.address, flush=True)
    server.serve_forever()
