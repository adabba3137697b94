"""The sample of a recording: a recording of today has the same fields at each level."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.broker import Embedded
from ottla_testing.patience import PATIENCE_S
from ottla_testing.snippets import snippet

SAMPLE = "samples/recorded_exchange.json"


def shape(value: Any) -> Any:
    """The fields of a JSON value in their order, at all levels; of a list those of its first element."""
    if isinstance(value, dict):
        return {name: shape(field) for name, field in value.items()}
    return [shape(one) for one in value[:1]] if isinstance(value, list) else None


def recorded_produce(folder: Path) -> Any:
    """The line of a Produce request, as confluent-kafka sends it."""
    path = folder / "session.jsonl"
    with Embedded(record=path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "shop"})
        producer.produce("orders", key="4711", value="paid", headers={"source": "web"})
        assert producer.flush(PATIENCE_S) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return next(line for line in lines if line.get("api") == "Produce" and line["response_bytes"])


@pytest.mark.clients
def test_recorded_exchange_has_the_fields_of_the_sample_on_the_page(tmp_path: Path) -> None:
    found, sample = recorded_produce(tmp_path), json.loads(snippet(SAMPLE))
    assert json.dumps(shape(found)) == json.dumps(shape(sample))
    assert (found["client_id"], found["ending"]) == (sample["client_id"], sample["ending"]) == ("shop", "responded")
