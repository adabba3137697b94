"""Numbers of the resource types that have configs (ConfigResource.Type)."""

from __future__ import annotations

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
CLIENT_METRICS, GROUP = 16, 32  # KIP-714, KIP-848
