"""Configs of client metrics and groups (KIP-714, KIP-848), and of resources with broker names such as 01.

Stores them as Kafka's ConfigRecords in the metadata log, by type and name of the resource; a change is durable before
it is visible. Does not interpret or validate them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.internal_records.metadata_records import ConfigRecord
from ..config.resource_types import BROKER, CLIENT_METRICS, GROUP
from .log import MetadataLog
from .topic_records import apply_config, config_records

KINDS = (BROKER, CLIENT_METRICS, GROUP)


def is_broker(name: str) -> bool:
    """Returns whether a resource of type BROKER is a broker ("" is all brokers).

    KRaft compares names with the decimal form of an id: it accepts and stores configs of "01", which no broker applies.
    """
    return not name or (name.isdecimal() and str(int(name)) == name)


class NamedConfigs:
    """The stored configs of all resources of these types. A resource without configs is not stored."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._kinds: dict[int, dict[str, dict[str, str]]] = {kind: {} for kind in KINDS}

    def of(self, kind: int) -> Mapping[str, Mapping[str, str]]:
        """Returns the configs by resource name, then by config name, for one of KINDS."""
        return self._kinds[kind]

    def configs(self, kind: int, name: str) -> dict[str, str]:
        """Returns a copy of the configs of one resource."""
        return dict(self._kinds[kind].get(name, {}))

    def replay(self, record: ConfigRecord) -> None:
        """Applies a record; ignores resource types outside KINDS."""
        if record.resource_type not in self._kinds:
            return
        resources = self._kinds[record.resource_type]
        apply_config(record, resources.setdefault(record.resource_name, {}))
        if not resources[record.resource_name]:
            del resources[record.resource_name]

    def set(self, kind: int, name: str, configs: Mapping[str, str], now_ms: int) -> None:
        """Replaces the configs of a resource. Raises StorageError; then nothing has changed."""
        records = config_records(kind, name, self._kinds[kind].get(name, {}), configs)
        if records:
            self._metadata.append(records, now_ms)
        for record in records:
            self.replay(record)
