"""UnregisterController: request and response of API key 94."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text
from ...schema import message


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    """Removes the registration of a controller from the cluster."""

    controller_id: Int32


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    """The error of the request, or NONE."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: Text | None
