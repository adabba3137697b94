"""What is known of a client connection: its addresses, its listener, the client and its library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .metrics.client_ledger import Origin


@dataclass(slots=True)
class ConnectionInfo:
    """Which way a connection came in: the listener's name, our own address that it reached, the client's host and port
    (-1 where it has none), and which of our nodes it talks to.

    `origin` is where its calls are noted; another one as soon as the client tells its software. `client_id` is that of
    its newest request, None before the first.
    """

    listener: str
    local_host: str
    client_host: str
    origin: Origin
    node_id: int
    client_port: int = -1
    client_id: str | None = None

    def log_fields(self) -> dict[str, Any]:
        """The connection in a log line: the client's address, the listener, and the client id and the client library
        with its version as far as requests have named them (KIP-511)."""
        origin = self.origin
        fields = {
            "client": self.client_host,
            "port": self.client_port,
            "listener": self.listener,
            "client_id": self.client_id,
            "library": origin.software_name,
            "library_version": origin.software_version,
        }
        return {name: value for name, value in fields.items() if value is not None}
