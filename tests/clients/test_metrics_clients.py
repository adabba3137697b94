"""The metrics for real clients: each of them writes, reads in a group and commits, and the metrics show it."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker import Embedded
from ottla_testing.clients.quick_clients import CLIENTS, consuming, producing
from ottla_testing.patience import PATIENCE_S

RECORDS, LATER = 7, 4
SOFTWARE = {"kafka-python": "kafka-python", "confluent-kafka": "confluent-kafka-python", "aiokafka": ""}


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded(control="127.0.0.1:0") as started:
        yield started


def metric_values(broker: Embedded) -> Callable[..., float]:
    """Returns the value of a series; 0 without one."""
    with urllib.request.urlopen(f"{broker.control_url}/metrics", timeout=PATIENCE_S) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    return lambda name, **labels: found.get((name, tuple(sorted((k, str(v)) for k, v in labels.items()))), 0)


@pytest.mark.parametrize("client", CLIENTS)
def test_metrics_show_what_a_client_did(client: str, broker: Embedded) -> None:
    topic, group = broker.create_topic(), f"group of {client}"
    errors = "kafka_network_requestmetrics_errors_total"
    with producing(client, broker.bootstrap) as producer:
        for number in range(RECORDS):
            assert producer.send(topic, b"%d" % number) == number
    value = metric_values(broker)
    topics = "kafka_server_brokertopicmetrics_"
    assert value(f"{topics}messagesin_total", topic=topic) == RECORDS
    assert value(f"{topics}totalproducerequests_total", topic=topic) == RECORDS
    assert value(f"{topics}bytesin_total", topic=topic) == value("kafka_log_log_size", topic=topic, partition=0)
    assert value(f"{topics}bytesout_total", topic=topic) == 0
    assert value(errors, request="Produce", error="NONE") >= RECORDS
    with consuming(client, broker.bootstrap, topic, group) as consumer:
        assert [one.value for one in consumer.read(RECORDS)] == [b"%d" % number for number in range(RECORDS)]
        assert metric_values(broker)("kafka_consumergroup_members", consumergroup=group) == 1
        consumer.commit()
        value = metric_values(broker)
        assert value("kafka_consumergroup_lag", consumergroup=group, topic=topic, partition=0) == 0
        assert value("kafka_consumergroup_current_offset", consumergroup=group, topic=topic, partition=0) == RECORDS
        assert value(f"{topics}bytesout_total", topic=topic) >= value(f"{topics}bytesin_total", topic=topic)
        broker.send_many(topic, [b"later"] * LATER)
        value = metric_values(broker)
        assert value("kafka_consumergroup_lag", consumergroup=group, topic=topic, partition=0) == LATER
        assert _connected(broker, SOFTWARE[client]) >= 1


def _connected(broker: Embedded, software: str) -> float:
    """Returns the open connections of a client software, whatever its version."""
    with urllib.request.urlopen(f"{broker.control_url}/metrics", timeout=PATIENCE_S) as response:
        families = {family.name: family for family in text_string_to_metric_families(response.read().decode())}
    found = families["kafka_server_socket_server_metrics_connections"].samples
    return sum(sample.value for sample in found if sample.labels["software"] == software)
