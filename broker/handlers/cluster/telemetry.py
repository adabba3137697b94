"""GetTelemetrySubscriptions v0, the metrics that a client is to push, and PushTelemetry v0, these metrics (KIP-714).

Both are served if telemetry is on.
"""

from __future__ import annotations

from ....protocol.messages.cluster.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ....protocol.messages.cluster.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ...context import RequestContext, handles
from ...metrics.client_telemetry import ACCEPTED_CODECS, ClientInfo


@handles(GetTelemetrySubscriptionsRequest)
async def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Returns the client's subscription; a client without an instance id gets one."""
    telemetry = context.broker.telemetry
    instance_id, wanted = telemetry.subscribe(request.client_instance_id, _client_of(context), context.now_ms())
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=0,
        client_instance_id=instance_id,
        subscription_id=wanted.id,
        accepted_compression_types=list(ACCEPTED_CODECS),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )


@handles(PushTelemetryRequest)
async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Passes the metrics to `metrics/client_telemetry.py`."""
    context.broker.telemetry.push(
        request.client_instance_id,
        _client_of(context),
        subscription_id=request.subscription_id,
        is_ending=request.terminating,
        codec=request.compression_type,
        metrics=request.metrics,
        now_ms=context.now_ms(),
    )
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
