"""Testcontainers for Python, its KafkaContainer on an image: run in `.venv-compose`, prints the results as JSON.

.venv-compose/bin/python tests/containers/python_module.py IMAGE:TAG
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version

from confluent_kafka import Consumer, Producer
from testcontainers.community.kafka import KafkaContainer, kafka_config  # pyright: ignore[reportMissingImports]
from testcontainers.core.network import Network  # pyright: ignore[reportMissingImports]

TOPIC = "test-topic"


def exchange(bootstrap: str) -> None:
    """Sends one message and reads it back."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(TOPIC, b"verification message")
    assert producer.flush(20) == 0
    options = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(options)
    consumer.subscribe([TOPIC])
    message = consumer.poll(20)
    assert message is not None and message.value() == b"verification message", message
    consumer.close()


def main(image: str) -> None:
    ran = {}
    with Network() as network:
        kafka_config.limit_broker_to_first_host = True
        containers = {
            "KafkaContainer()": KafkaContainer(image),
            "with_kraft()": KafkaContainer(image).with_kraft(),
            "port=9888": KafkaContainer(image, port=9888),
            "with_network()": KafkaContainer(image).with_network(network).with_network_aliases("kafka"),
        }
        for name, container in containers.items():
            begun = time.monotonic()
            with container:
                ran[name] = time.monotonic() - begun
                exchange(container.get_bootstrap_server())
    print(json.dumps({"version": version("testcontainers"), "ran": ran}))


if __name__ == "__main__":
    main(sys.argv[1])
