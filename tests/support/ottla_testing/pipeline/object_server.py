"""A server of S3's protocol in this process, whose requests can fail.

The server is moto's. A process that is killed is one whose requests do not arrive any more: from the chosen request on
all are refused, and that one may have been carried out before. A lost response is a request that was carried out, while
its client gets an error and tries again.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.request import Request, urlopen

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from ottla.pipeline.objects.files import ObjectFiles
from ottla.pipeline.objects.lock import Timing
from ottla.pipeline.objects.places import Place
from ottla_testing import SUPPORT

BUCKET = "lake"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDOFTESTS", "AWS_SECRET_ACCESS_KEY": "the-secret-of-tests"}
Fault = Literal["refused", "busy", "lost", "killed before", "killed after"]
"""`refused`: a permanent error without effect. `busy`: an error once, without effect. `lost`: carried out, but the
response is an error once. The others are described above."""


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


@dataclass
class ObjectServer:
    """The server; `log` has the requests since `reset`, as method, path and query, with the condition of a put.
    `meanwhile` is called while the chosen request waits, and that is carried out then."""

    url: str = ""
    log: list[str] = field(default_factory=list)
    at: int | None = None
    fault: Fault = "refused"
    meanwhile: Callable[[], object] | None = None
    _dead: bool = False
    _lock: Any = field(default_factory=threading.Lock)

    def reset(self, at: int | None = None, fault: Fault = "refused") -> list[str]:
        """Empties the log and returns it; the request with this number, from 0, gets the fault."""
        with self._lock:
            log, self.log = self.log, []
            self.at, self.fault, self._dead, self.meanwhile = at, fault, False, None
        return log

    @property
    def conf(self) -> dict[str, str]:
        return {"endpoint": self.url, "region": "us-east-1", "max_retries": "2"}

    def place(self, prefix: str) -> Place:
        return Place.of(f"s3://{BUCKET}/{prefix}", self.conf)

    def files(self, prefix: str, clock: FakeClock | None = None) -> ObjectFiles:
        """Returns the objects below a prefix, with locks that only the test renews."""
        files = self.place(prefix).files()
        clock = clock or FakeClock()
        files._timing = Timing(clock=clock, sleep=clock.sleep, renews=False)
        return files

    def _next(self, line: str) -> tuple[bool, bytes | None]:
        """Returns whether a request is carried out, and the status of its error, if it gets one."""
        with self._lock:
            number = len(self.log)
            self.log.append(line)
            if self._dead:
                return False, b"403 Killed"
            if number != self.at:
                return True, None
            meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
            return True, None
        with self._lock:
            if self.fault.startswith("killed"):
                self._dead = True
                return self.fault == "killed after", b"403 Killed"
            status = b"403 Refused" if self.fault == "refused" else b"503 Slow Down"
            return self.fault == "lost", status


class ObjectServerProcess(ObjectServer):
    """The server in a process of its own: for libraries that hold Python's lock while they wait for a response."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__()
        assert process.stdin is not None and process.stdout is not None
        self._to, self._from = process.stdin, process.stdout
        self.url = self._from.readline().strip()

    def reset(self, at: int | None = None, fault: Fault = "refused") -> list[str]:
        self._to.write(json.dumps([at, fault]) + "\n")
        self._to.flush()
        return json.loads(self._from.readline())


@contextmanager
def object_server_process() -> Iterator[ObjectServerProcess]:
    """Starts a server in a process of its own."""
    child = [sys.executable, "-m", __name__]
    environ = {**os.environ, "PYTHONPATH": str(SUPPORT.parent)}
    with subprocess.Popen(
        child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environ
    ) as process:
        try:
            yield ObjectServerProcess(process)
        finally:
            process.kill()


class FakeClock:
    """A clock in seconds, which only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """Starts a server with an empty bucket."""
    application = DomainDispatcherApplication(create_backend_app)
    made = ObjectServer()

    def serve(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ.get('QUERY_STRING', '')}"
        for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH", "HTTP_X_AMZ_COPY_SOURCE"):
            line += f" {name}" * (name in environ)
        is_done, error = made._next(line)
        environ.setdefault("HTTP_AUTHORIZATION", "")  # the bucket is public
        chunked = environ.pop("HTTP_TRANSFER_ENCODING", "") == "chunked"  # as the C++ library of pyarrow sends objects
        body = environ["wsgi.input"].read(*(() if chunked else (int(environ.get("CONTENT_LENGTH") or 0),)))
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(body), str(len(body))
        result: Iterable[bytes] = ()
        if is_done:
            result = application(environ, start if error is None else lambda *_: None)
        if error is None:
            return result
        list(result)
        start(error.decode(), [("Content-Length", "0")])
        return []

    server = make_server("127.0.0.1", 0, serve, threaded=True, request_handler=_Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.port}"
    try:
        urlopen(Request(f"{made.url}/{BUCKET}", method="PUT")).read()
        made.reset()
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _serve() -> None:
    """Serves until the end of the input; each of its lines is a `reset`."""
    with object_server() as server:
        print(server.url, flush=True)
        for line in sys.stdin:
            print(json.dumps(server.reset(*json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve()
