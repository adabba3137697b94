"""Acts as a client library of the time of Kafka 0.9: it sends Produce v1 and Fetch v1, and no ApiVersions.

With the argument `new` it acts as the same program after an update of its library.
"""

import sys

from confluent_kafka import Consumer, Producer

settings = {"bootstrap.servers": "127.0.0.1:9092", "client.id": "billing", "log_level": 3}
if sys.argv[1:] != ["new"]:
    settings |= {"api.version.request": False, "broker.version.fallback": "0.9.0"}

errors = []
producer = Producer(settings | {"message.timeout.ms": 3000})
producer.produce("old-v1", b"an invoice", on_delivery=lambda error, message: errors.append(error))
producer.flush(10)
print("written" if errors[0] is None else f"not written: {errors[0].str()}")

consumer = Consumer(settings | {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False})
consumer.subscribe(["old-v0"])
messages = consumer.consume(32, timeout=5)
print("read", sum(not message.error() for message in messages), "records")
consumer.close()
