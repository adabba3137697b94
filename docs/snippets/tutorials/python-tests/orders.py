"""The program under test: it publishes orders to a topic."""

import json

from kafka import KafkaProducer


class Orders:
    def __init__(self, bootstrap, topic, **settings):
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
        self.topic = topic

    def publish(self, number, item):
        value = json.dumps({"number": number, "item": item}).encode()
        key = str(number).encode()
        self.producer.send(self.topic, value, key).get(timeout=10)

    def close(self):
        self.producer.close()
