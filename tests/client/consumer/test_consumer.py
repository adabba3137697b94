"""The consumer as applications use it: records of every format from many releases, positions, the end."""

from __future__ import annotations

from pathlib import Path

from ottla_testing.broker import harness
from ottla_testing.client.reading import NOW_MS, RELEASES, consumer_of, read, values, write
from ottla_testing.each import each


@each("release", RELEASES, strided=True)
async def test_assigned_partitions_are_read_in_every_release(release: str, tmp_path: Path) -> None:
    async with harness.running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        write(broker, b"a", None)
        write(broker, b"b", codec=1)
        write(broker, b"elsewhere", partition=1)
        async with consumer_of(broker, assign=[("t", 0)]) as consumer:
            found = await read(consumer, 3)
            assert [(r.topic, r.partition, r.offset, r.key, r.value) for r in found] == [
                ("t", 0, 0, b"k0", b"a"),
                ("t", 0, 1, b"k1", None),
                ("t", 0, 2, b"k0", b"b"),
            ]
            oldest = release in ("0.8.2", "0.9")
            assert [(r.timestamp_ms, r.timestamp_type) for r in found] == (
                [(-1, -1)] * 3 if oldest else [(NOW_MS, 0), (NOW_MS + 1, 0), (NOW_MS, 0)]
            )
            assert await consumer.position("t", 0) == 3
            write(broker, b"c")
            assert await values(consumer, 1) == [b"c"]
            assert await consumer.getmany() == {}
            assert consumer.assignment() == [("t", 0)]
