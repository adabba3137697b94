"""GetTelemetrySubscriptions: request and response of API key 71. KIP-714."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Text, Uuid
from ...schema import message


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    """Requests the subscription to a client's metrics. The zero id requests a client instance id as well."""

    client_instance_id: Uuid


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """Prefixes of the metrics to push, the push interval, and the accepted compression."""

    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Bool
    requested_metrics: list[Text]
