"""UnregisterBroker: request and response of API key 64. KIP-500, KIP-631."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import message


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """Removes the registration of a broker from the cluster."""

    broker_id: Int32


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """The error of the request, or NONE."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: Text | None
