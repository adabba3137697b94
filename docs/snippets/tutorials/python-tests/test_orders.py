# --8<-- [start:fixture]
import pytest
from orders import Orders


@pytest.fixture
def orders(ottla_broker, ottla_topic):
    orders = Orders(ottla_broker.bootstrap, ottla_topic)
    yield orders
    orders.close()


# --8<-- [end:fixture]
# --8<-- [start:first]
def test_an_order_is_published(orders, ottla_broker, ottla_topic):
    orders.publish(1, "bread")
    expected = [("1", {"number": 1, "item": "bread"})]
    ottla_broker.assert_produced(ottla_topic, expected, decode="json")


# --8<-- [end:first]
# --8<-- [start:fault]
def test_lost_response_stores_the_order_once(orders, ottla_broker, ottla_topic):
    orders.publish(1, "bread")
    with ottla_broker.faults.disconnect("Produce", "after", times=1) as fault:
        orders.publish(2, "milk")
    assert fault.fired == 1
    keys = [record.key for record in ottla_broker.records(ottla_topic)]
    assert keys == [b"1", b"2"]


# --8<-- [end:fault]
# --8<-- [start:clock]
DAY_MS = 24 * 60 * 60 * 1000


@pytest.mark.ottla(configs={"retention.ms": 7 * DAY_MS})
def test_orders_are_deleted_after_a_week(orders, ottla_broker, ottla_topic):
    orders.publish(1, "bread")
    ottla_broker.clock.advance(6 * DAY_MS)
    assert len(ottla_broker.records(ottla_topic)) == 1
    ottla_broker.clock.advance(2 * DAY_MS)
    assert ottla_broker.records(ottla_topic) == []


# --8<-- [end:clock]
# --8<-- [start:requests]
def test_orders_are_sent_safely(orders, ottla_broker, ottla_topic):
    orders.publish(1, "bread")
    ottla_broker.assert_requests(topic=ottla_topic, acks="all", idempotent=True)


# --8<-- [end:requests]
