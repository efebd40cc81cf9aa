"""serve: `fourfold serve` as a process of its own, for as long as it is wanted."""

import os
import signal
import subprocess
import tempfile
import time
from typing import IO, List, Optional, Union

from . import _files, _library

Value = Union[str, int, float, bool, "os.PathLike[str]", None]


def _words(name: str, value: Union[Value, List[str]]) -> List[str]:
    option = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, list):
        return [word for each in value for word in (option, each)]
    return [option, str(value)]


class Server:
    """A server that runs. `url` is where its APIs and its chat page are."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: IO[bytes], timeout: float) -> None:
        self._process, self._log = process, log
        self.url = ""
        until = time.monotonic() + timeout
        while not self.url:
            ended = process.poll() is not None
            for line in self.log().splitlines():
                if line.startswith("  chat page"):
                    self.url = line.split()[-1].rstrip("/")
            if self.url:
                break
            if ended or time.monotonic() > until:
                self.close()
                why = f"ended with {process.returncode}" if ended else f"did not start within {timeout:g} s"
                raise _library.FourfoldError("io", f"fourfold serve {why}:\n{self.log()[-2000:]}")
            time.sleep(0.02)

    def log(self) -> str:
        """What it has printed until now."""
        with open(self._log.name, "rb") as file:
            return file.read().decode(errors="replace")

    def wait(self) -> int:
        """Until it ends; its exit code."""
        return self._process.wait()

    def close(self) -> None:
        """Ends it as Ctrl-C does: running answers have `grace` seconds."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        self._log.close()


def serve(model: Optional[str] = None, *, port: int = 8000, host: str = "127.0.0.1", timeout: float = 600.0,
          **options: Union[Value, List[str]]) -> Server:
    """Starts `fourfold serve` and returns when it listens; port 0 is one that is free.

    Other options are those of the program, with _ for -: serve(model, backend="cuda", max_sequences=32, log_requests=True).
    """
    words = [_files.program(), "serve"] + ([] if model is None else [os.fspath(model)])
    for name, value in {"host": host, "port": port, **options}.items():
        words += _words(name, value)
    log = tempfile.NamedTemporaryFile(prefix="fourfold-serve-", suffix=".log")
    return Server(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT), log, timeout)
