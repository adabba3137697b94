import unittest

from confluent_kafka import Producer
from ottla.broker.testing.unittest_case import OttlaMixin


class TestOrders(OttlaMixin, unittest.TestCase):
    ottla_topic_configs = {"cleanup.policy": "compact"}

    def test_orders_are_published(self):
        producer = Producer({"bootstrap.servers": self.ottla_broker.bootstrap})
        producer.produce(self.ottla_topic, b"bread", b"order 1")
        producer.flush(10)
        self.ottla_broker.assert_produced(self.ottla_topic, [("order 1", "bread")])


if __name__ == "__main__":
    unittest.main()
