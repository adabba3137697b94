"""Records through each client and codec: read back equal and in order, and stored with the requested codec."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.protocol.records.compression import Codec
from ottla_testing.clients.four_clients import CODECS, KCAT_HEADERS, READERS, WRITERS, delete_topic
from ottla_testing.clients.mixed_records import Message, difference, mixed
from ottla_testing.clients.running_broker import RunningBroker

pytestmark = [pytest.mark.slow, pytest.mark.soak]

RECORDS, MOST_RECORDS = 2500, 10_000
# Clients send a batch uncompressed if compression does not make it smaller; one of this size always becomes smaller.
COMPRESSIBLE_BYTES = 4096


# These two require a key or a value; the others send records with neither.
NEEDS_KEY_OR_VALUE = ("kafka-python", "aiokafka")


def messages_for(client: str, count: int, *, plain: bool = False, seed: int = 1) -> list[Message]:
    made = mixed(count, plain=plain or client == "kcat", seed=seed)
    if client in NEEDS_KEY_OR_VALUE:
        made = [m._replace(key=b"no value") if m.key is None and m.value is None else m for m in made]
    if client == "kafka-python":  # and this one for header values
        made = [m._replace(headers=tuple((name, value or b"") for name, value in m.headers)) for m in made]
    return made


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", WRITERS)
def test_records_are_read_back_in_order_and_stored_with_the_requested_codec(
    client: str, codec: str, broker: RunningBroker, name: str, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    requested = Codec[codec.upper()]
    for seed in range(scaled(1)):  # a larger scale is more rounds: one has up to some 25 MB in memory
        topic = create(broker.address, f"{name}-{seed}")
        sent = messages_for(client, min(scaled(RECORDS), MOST_RECORDS), seed=seed)
        WRITERS[client](broker.address, topic, sent, codec)
        assert difference(sent, READERS[client](broker.address, topic, len(sent))) is None
        stored = list(broker.stored(topic))
        assert sum(header.record_count for header in stored) == len(sent)
        assert {header.codec for header in stored} <= {requested, Codec.NONE}
        assert {header.codec for header in stored if header.size_bytes >= COMPRESSIBLE_BYTES} == {requested}
        delete_topic(broker.address, topic)


@pytest.mark.parametrize("writer", WRITERS)
def test_each_client_reads_the_records_of_another(
    writer: str, broker: RunningBroker, topic: str, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    """In every codec; kcat gives all messages of a run the same headers, so here all do."""
    plain = messages_for(writer, scaled(600), plain=True, seed=2)
    sent = [message._replace(headers=KCAT_HEADERS) for message in plain]
    for codec in CODECS:
        create(broker.address, f"{topic}-{codec}")
        WRITERS[writer](broker.address, f"{topic}-{codec}", sent, codec)
        for reader, read in READERS.items():
            found = read(broker.address, f"{topic}-{codec}", len(sent))
            assert difference(sent, found) is None, f"{codec}, read by {reader}"
