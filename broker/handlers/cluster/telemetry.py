"""GetTelemetrySubscriptions v0, the metrics that a client is to push, and PushTelemetry v0, these metrics (KIP-714).

Both are served if telemetry is on.
"""

from __future__ import annotations

from ....protocol.messages.cluster.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ....protocol.messages.cluster.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ....protocol.primitives import ZERO_UUID
from ...context import RequestContext, handles
from ...errors import Refused
from ...metrics.client_telemetry import ACCEPTED_CODECS, ClientInfo, Subscription

NOTHING = Subscription(0, (), 0)


@handles(GetTelemetrySubscriptionsRequest)
async def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Returns the client's subscription; a client without an instance id gets one."""
    telemetry = context.broker.telemetry
    try:
        instance_id, wanted = telemetry.subscribe(request.client_instance_id, _client_of(context), context.now_ms())
        code = 0
    except Refused as refused:
        instance_id, wanted, code = ZERO_UUID, NOTHING, refused.code
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=code,
        client_instance_id=instance_id,
        subscription_id=wanted.id,
        accepted_compression_types=[] if code else list(ACCEPTED_CODECS),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=0 if code else telemetry.max_bytes,
        delta_temporality=not code,
        requested_metrics=list(wanted.metrics),
    )


@handles(PushTelemetryRequest)
async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Passes the metrics to `metrics/client_telemetry.py`."""
    try:
        context.broker.telemetry.push(
            request.client_instance_id,
            _client_of(context),
            subscription_id=request.subscription_id,
            is_ending=request.terminating,
            codec=request.compression_type,
            metrics=request.metrics,
            now_ms=context.now_ms(),
        )
    except Refused as refused:
        return PushTelemetryResponse(throttle_time_ms=0, error_code=refused.code)
    return PushTelemetryResponse(throttle_time_ms=0, error_code=0)


def _client_of(context: RequestContext) -> ClientInfo:
    """Returns the client of a request."""
    connection_info = context.connection_info
    library = connection_info.library
    return ClientInfo(
        context.client_id,
        library.software_name,
        library.software_version,
        context.client_host,
        connection_info.client_port,
    )
