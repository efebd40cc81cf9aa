"""A model hub of the tests' own, with the two requests that a download needs, and everything that may go wrong with them.

`with FakeHub(files) as hub`: files are {name: bytes}; hub.url is its address, hub.cdn.url that of another server, to
which it sends whoever wants a large file. Attributes switch faults on; hub.requests is what was asked of either.
"""
import base64
import functools
import hashlib
import http.server
import json
import os
import re
import socket
import ssl
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 100_000  # bytes from which a file is kept as a large one


@functools.cache  # asked for with every piece of a large file
def etag_of(content):
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.server.hub, urllib.parse.unquote(self.path)
        with hub.mutex:
            hub.requests.append({"server": self.server.name, "path": path, "method": self.command,
                                 "token": self.headers.get("Authorization"), "range": self.headers.get("Range"),
                                 "time": time.time()})
            limited = hub.rate_limited > 0
            hub.rate_limited -= limited
        if limited:
            return self.answer(429, b"slow down", {"Retry-After": hub.retry_after})
        if hub.status:
            return self.answer(hub.status, b"no", {"X-Error-Code": hub.error_code, "X-Error-Message": "said the hub"})
        if path.startswith("/api/models/"):
            return self.list_files(hub, path)
        name = path.split("?")[0].rsplit("/", 1)[-1]
        if name not in hub.files:
            return self.answer(404, b"no such file", {"X-Error-Code": "EntryNotFound"})
        if self.server.name == "hub" and len(hub.files[name]) >= LARGE and hub.redirects:
            return self.redirect(hub, name)
        if self.server.name == "cdn" and hub.links_expire and f"link={hub.link}" not in path:
            return self.answer(403, b"expired", {})
        self.send_file(hub, name)

    def answer(self, status, body, fields):
        self.send_response(status)
        for key, value in fields.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def list_files(self, hub, path):
        if path.startswith(f"/api/models/{hub.model}/tree/"):  # the same for the hub's own package
            tree = [{"type": "file", "path": name, "oid": etag_of(content)[:40], "size": len(content),
                     **({"lfs": {"oid": etag_of(content), "size": len(content), "pointerSize": 130}}
                        if len(content) >= LARGE else {})} for name, content in hub.files.items()]
            return self.answer(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
        if path.split("?")[0] not in [f"/api/models/{hub.model}/revision/{revision}" for revision in hub.revisions]:
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound" if hub.model in path else "RepoNotFound"})
        siblings = []
        for name, content in hub.files.items():
            entry = {"rfilename": name, "size": len(content), "blobId": etag_of(content)[:40]}
            if len(content) >= LARGE:
                entry["lfs"] = {"sha256": etag_of(content), "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        for change in hub.listing_changes:
            change(siblings)
        self.answer(200, json.dumps({"id": hub.model, "modelId": hub.model, "sha": COMMIT, "private": False, "tags": [],
                                     "downloads": 0, "likes": 0, "siblings": siblings}).encode(),
                    {"Content-Type": "application/json"})

    def redirect(self, hub, name):
        content = hub.files[name]
        self.answer(302, b"", {"Location": hub.redirect_to or f"{hub.cdn.url}/blobs/{name}?link={hub.link}",
                               "X-Linked-Etag": f'"{etag_of(content)}"', "X-Linked-Size": str(len(content)),
                               "X-Repo-Commit": COMMIT, "ETag": '"of the redirect"'})

    def send_file(self, hub, name):
        content = hub.served.get(name, hub.files[name])
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        begin = int(asked[1]) if asked else 0
        end = min(int(asked[2]) + 1 if asked and asked[2] else len(content), len(content))
        if asked and begin >= len(content):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
        partial = asked and hub.serves_ranges
        if not partial:
            begin, end = 0, len(content)
        self.send_response(206 if partial else 200)
        if partial:
            first, last = hub.range_lies.pop(0) if hub.range_lies and self.server.name == "cdn" else (0, 0)
            self.send_header("Content-Range", f"bytes {begin + first}-{end - 1 + last}/{len(content) + hub.size_lie}")
        self.send_header("ETag", f'"{etag_of(hub.files[name])}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if self.command != "HEAD":
            self.send_bytes(hub, content, begin, end)

    def send_bytes(self, hub, content, begin, end):
        with hub.mutex:
            cut = begin + hub.cut_after if hub.cuts > 0 and end - begin > hub.cut_after else None
            hub.cuts -= cut is not None
            hub.sending += 1
            hub.most_at_once = max(hub.most_at_once, hub.sending)
        step = 1 << 16 if hub.pause else 1 << 20
        try:
            for at in range(begin, end if cut is None else cut, step):
                piece = content[at:min(at + step, end if cut is None else cut)]
                self.wfile.write(piece)
                with hub.mutex:
                    hub.sent += len(piece)
                time.sleep(hub.pause * (1 + begin / (16 << 20)))
            if cut is not None:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with hub.mutex:
                hub.sending -= 1


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub, name, certificate):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.name = hub, name
        host = "127.0.0.1"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            host = "localhost"
        self.url = f"{'https' if certificate else 'http'}://{host}:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def handle_error(self, *_):
        pass  # clients that hang up are what the tests are about


class FakeHub:
    def __init__(self, files, model="org/name", certificate=None):
        self.files, self.model = files, model
        self.revisions = ["main", COMMIT]
        self.served = {}  # other bytes than were promised
        self.listing_changes = []
        self.redirects, self.redirect_to = True, None
        self.links_expire, self.link = False, 1
        self.rate_limited, self.retry_after = 0, "1"
        self.status, self.error_code = None, ""
        self.size_lie, self.serves_ranges = 0, True
        self.range_lies = []  # of the cdn's next answers: how far the ends of Content-Range are off
        self.cuts, self.cut_after = 0, 0
        self.pause = 0.0  # seconds after every 64 KB of a part, the longer the later the part: the first arrives first
        self.requests, self.sent, self.sending, self.most_at_once = [], 0, 0, 0
        self.mutex = threading.Lock()
        self.certificate = certificate

    def __enter__(self):
        self.hub, self.cdn = Server(self, "hub", self.certificate), Server(self, "cdn", self.certificate)
        self.url = self.hub.url
        return self

    def __exit__(self, *_):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def asked(self, server=None, part=""):
        """The requests to a server whose path has this part."""
        with self.mutex:
            return [r for r in self.requests if server in (None, r["server"]) and part in r["path"]]


class FakeProxy:
    """An http proxy: passes bytes between whoever asks with CONNECT and whom it asks for, and keeps a list of them."""

    def __init__(self, user=None, status=None):
        self.user, self.status, self.connects = user, status, []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1) or b"\r\n\r\n"
        target = head.split()[1].decode()
        self.connects.append(target)
        wanted = self.user and base64.b64encode(self.user.encode())
        if self.status or (wanted and b"Proxy-Authorization: Basic " + wanted not in head):
            client.sendall(f"HTTP/1.1 {self.status or '407 Who are you'}\r\n\r\n".encode())
            return client.close()
        host, port = target.rsplit(":", 1)
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=self.pump, args=(one, other), daemon=True).start()

    @staticmethod
    def pump(source, target):
        try:
            while piece := source.recv(1 << 16):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()


def random_bytes(count):
    """Not compressible, and cheap: parts of it differ from each other by their number."""
    block = os.urandom(1 << 20)
    return b"".join(i.to_bytes(4, "big") + block[4:] for i in range(-(-count // len(block))))[:count]
