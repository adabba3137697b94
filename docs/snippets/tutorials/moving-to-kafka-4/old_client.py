"""Acts as a client library of the time of Kafka 0.9, with Produce v1 and Fetch v1.

With the argument `new` it is the same program after an update of its library.
"""

import sys

from confluent_kafka import Consumer, Producer

settings = {
    "bootstrap.servers": "127.0.0.1:9092",
    "client.id": "billing",
    "log_level": 3,
}
if sys.argv[1:] != ["new"]:
    settings["api.version.request"] = False
    settings["broker.version.fallback"] = "0.9.0"


def delivered(error, message):
    print("written" if error is None else f"not written: {error.str()}")


producer = Producer(settings | {"message.timeout.ms": 3000})
producer.produce("old-v1", b"an invoice", on_delivery=delivered)
producer.flush(10)

settings |= {"auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer(settings | {"group.id": "billing"})
consumer.subscribe(["old-v0"])
messages = consumer.consume(32, timeout=5)
print("read", sum(not message.error() for message in messages), "records")
consumer.close()
