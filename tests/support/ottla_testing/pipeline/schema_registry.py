"""A schema registry for tests: the REST paths of Confluent's that readers use, in this process."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class FakeRegistry:
    """Subjects with their versions. `authorization` is the header that requests must have; `broken` are responses
    (status, body) that are sent first; `requests` the paths that were requested."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[int]] = {}
        self.schemas: dict[int, dict[str, Any]] = {}
        self.authorization: str | None = None
        self.broken: list[tuple[int, bytes]] = []
        self.requests: list[str] = []
        self.url = ""

    def add(self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Registers a version of a subject. Returns its id."""
        schema_id = 100_001 + len(self.schemas)
        document: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":  # the registry leaves the default out
            document["schemaType"] = kind
        if references:
            document["references"] = references
        self.schemas[schema_id] = document
        self.subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def response(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        self.requests.append(path)
        if self.broken:
            return self.broken.pop(0)
        if authorization != self.authorization:
            return 401, b'{"error_code":401,"message":"Unauthorized"}'
        parts = [unquote(part) for part in path.split("/")[1:]]
        if parts[:2] == ["schemas", "ids"] and len(parts) == 3 and parts[2].isdecimal():
            found = self.schemas.get(int(parts[2]))
            if found is not None:
                return 200, json.dumps(found).encode()
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        if parts[:1] == ["subjects"] and len(parts) == 4 and parts[2] == "versions":
            ids = self.subjects.get(parts[1], [])
            number = len(ids) if parts[3] == "latest" else int(parts[3])
            if 1 <= number <= len(ids):
                own = {"subject": parts[1], "version": number, "id": ids[number - 1]}
                return 200, json.dumps({**own, **self.schemas[ids[number - 1]]}).encode()
            return 404, b'{"error_code":40401,"message":"Subject not found."}'
        return 404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'


@contextlib.contextmanager
def serving() -> Iterator[FakeRegistry]:
    """Serves a registry on a free port of the loopback address."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = registry.response(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("Location", body.decode())
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
