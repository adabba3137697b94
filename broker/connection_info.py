"""The facts of a client connection: its addresses, its listener, the client and its library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..protocol.frozen import slotted
from .metrics.client_ledger import ClientLibrary
from .security.authorizer import ANONYMOUS

if TYPE_CHECKING:
    from .security.sasl.session import SaslSession


@slotted
class ConnectionInfo:
    """A client connection: the listener's name, the local address that the client reached, the client's host and port
    (-1 if it has none), and the node id of the listener.

    `library` is the client library; the client ledger counts requests under it. It changes when an ApiVersions request
    names the library (KIP-511). `client_id` is that of the newest request, None before the first one. `on_lost` is
    called when the connection is closed. `principal` is "Type:name"; `sasl` is the authentication on a listener with
    SASL. `token_authenticated`: the client has logged in with a delegation token, as its owner (KIP-48).
    """

    listener: str
    local_host: str
    client_host: str
    library: ClientLibrary
    node_id: int
    client_port: int = -1
    client_id: str | None = None
    principal: str = ANONYMOUS
    token_authenticated: bool = False
    sasl: SaslSession | None = field(default=None, compare=False, repr=False)
    on_lost: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    @property
    def known_principal(self) -> str | None:
        """The principal; None for a client that is anonymous, or not authenticated yet."""
        return None if self.principal == ANONYMOUS else self.principal

    def log_fields(self) -> dict[str, Any]:
        """Returns the connection's fields for a log line: the client's address, the listener, the principal once there
        is one, the client id and the client library with its version as far as requests have named them (KIP-511).
        """
        library = self.library
        fields = {
            "client": self.client_host,
            "port": self.client_port,
            "listener": self.listener,
            "principal": self.known_principal,
            "client_id": self.client_id,
            "library": library.software_name,
            "library_version": library.software_version,
        }
        return {name: value for name, value in fields.items() if value is not None}
