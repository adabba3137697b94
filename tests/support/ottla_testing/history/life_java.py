"""Apache Kafka's Java client with the interface of `ports`: `tests/interop/HistoryClient.java`."""

from __future__ import annotations

from ottla_testing.history.life_lines import LineReceiving, LineSending


class Sending(LineSending):
    library = "java"


class Receiving(LineReceiving):
    library = "java"
