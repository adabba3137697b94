"""A web server of this process that shows the files of a folder, their lists, and ranges of them: `web_server`."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class WebServer:
    """The server. The requests of `failing`, as method and path, get 503 once each; `refusing`: all are
    with 403."""

    url: str = ""
    failing: set[str] = field(default_factory=set)
    refusing: bool = False


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 64 << 10

    def __init__(self, server: WebServer, *args: Any, **options: Any) -> None:
        self.state = server
        super().__init__(*args, **options)

    def send_head(self) -> Any:
        line = f"{self.command} {self.path}"
        if self.state.refusing or line in self.state.failing:
            self.send_error(403 if self.state.refusing else 503)
            self.state.failing.discard(line)
            return None
        path = self.translate_path(self.path)
        if "Range" not in self.headers or not os.path.isfile(path):
            return super().send_head()
        data = Path(path).read_bytes()
        begin, _, end = self.headers["Range"].removeprefix("bytes=").partition("-")
        part = data[int(begin) : int(end) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{int(begin) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Last-Modified", self.date_time_string(int(os.path.getmtime(path))))
        self.end_headers()
        self.wfile.write(part)
        return None

    def send_header(self, keyword: str, value: str) -> None:
        if (self.command, keyword, value) != ("HEAD", "Content-Length", "0"):  # as Apache httpd
            super().send_header(keyword, value)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def web_server(folder: Path, certificate: Path | None = None) -> Iterator[WebServer]:
    """Serves a folder until the end of the block, over TLS with a certificate and its key in a file."""
    found = WebServer()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, found, directory=str(folder))) as server:
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        found.url = f"http{'' if certificate is None else 's'}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
