"""PushTelemetry v0: a client's metrics (KIP-714). Served if telemetry is on."""

from __future__ import annotations

from ....protocol.messages.cluster.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ...context import RequestContext, handles
from ...errors import Refused
from .get_telemetry_subscriptions import client_of


@handles(PushTelemetryRequest)
async def push_telemetry(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    """Passes the metrics to `metrics/client_telemetry.py`."""
    try:
        context.broker.telemetry.push(
            request.client_instance_id,
            client_of(context),
            subscription_id=request.subscription_id,
            is_ending=request.terminating,
            codec=request.compression_type,
            metrics=request.metrics,
            now_ms=context.now_ms(),
        )
    except Refused as refused:
        return PushTelemetryResponse(throttle_time_ms=0, error_code=refused.code)
    return PushTelemetryResponse(throttle_time_ms=0, error_code=0)
