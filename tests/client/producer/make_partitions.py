"""Generates `partitions.json`: the partitions chosen by librdkafka and by two generations of Apache's producers.

Run by hand, with Maven and Java installed: `python tests/client/producer/make_partitions.py`. A row has a key (hex)
and, for each partitioner, the partition for each of the counts in the first row. librdkafka runs as confluent-kafka's
producer against a broker, with a topic for each count; a random choice (consistent_random with an empty key) is null.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE / "partitions.json"
COUNTS = [1, 2, 3, 7, 64, 1000]
JAVA_RELEASES = ("4.3.1", "2.8.2")
LIBRDKAFKA = ("consistent_random", "murmur2_random")


def keys() -> list[bytes]:
    """Returns keys of all lengths up to 40 (two of each), with high bytes, and text."""
    rng = random.Random(5494)
    found = [rng.randbytes(size) for size in range(41) for _ in range(2)]
    found += [bytes([n]) for n in (0, 1, 127, 128, 255)] + [b"\xff" * 8, b"\0" * 8, b"key", "größe".encode()]
    return list(dict.fromkeys(found))


def of_java(release: str, chosen: list[bytes]) -> list[list[int | None]]:
    from ottla_testing.interop.checks import jars, java

    folder = jars(f"kafka-clients-{release}", [f"org.apache.kafka:kafka-clients:{release}"])
    arguments = [",".join(map(str, COUNTS)), *(f"x{key.hex()}" for key in chosen)]
    done = subprocess.run(
        java(folder, HERE / "Partitions.java", *arguments), capture_output=True, text=True, check=True
    )
    return [[int(number) for number in line.split()] for line in done.stdout.splitlines()]


def of_librdkafka(address: str, partitioner: str, chosen: list[bytes]) -> list[list[int | None]]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "partitioner": partitioner, "linger.ms": 5})
    table: list[list[int | None]] = [[None] * len(COUNTS) for _ in chosen]

    def arrived(error: object, message: object, row: list[int | None], column: int) -> None:
        assert error is None, error
        row[column] = message.partition()  # type: ignore[attr-defined]

    for key, row in zip(chosen, table, strict=True):
        if key or partitioner != "consistent_random":
            for column, count in enumerate(COUNTS):
                callback = lambda error, message, row=row, column=column: arrived(error, message, row, column)  # noqa: E731
                producer.produce(f"of-{count}", b"", key, on_delivery=callback)
    assert producer.flush(60) == 0
    return table


def main() -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    from ottla_testing.interop.checks import broker

    chosen = keys()
    columns = {f"java {release}": of_java(release, chosen) for release in JAVA_RELEASES}
    with broker() as address:
        topics = [NewTopic(f"of-{count}", count, 1) for count in COUNTS]
        admin = AdminClient({"bootstrap.servers": address})  # its output ends with it
        for made in admin.create_topics(topics).values():
            made.result(30)
        columns |= {name: of_librdkafka(address, name, chosen) for name in LIBRDKAFKA}
    rows = [json.dumps({"counts": COUNTS, "by": list(columns)})]
    for index, key in enumerate(chosen):
        rows.append(json.dumps([key.hex(), *(column[index] for column in columns.values())], separators=(",", ":")))
    TABLE.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
