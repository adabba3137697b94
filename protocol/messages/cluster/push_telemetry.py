"""PushTelemetry: request and response of API key 72. KIP-714."""

from __future__ import annotations

from ...primitives import Bool, Bytes, Int8, Int16, Int32, Uuid
from ...schema import message


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    """A client's metrics as OpenTelemetry MetricsData, compressed; the compression type has the numbers of record batch
    codecs."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """The error of the push, or NONE."""

    throttle_time_ms: Int32
    error_code: Int16
