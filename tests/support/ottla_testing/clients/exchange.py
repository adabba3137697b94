"""Records that clients of different ages exchange, and what remains of them in each format."""

from __future__ import annotations

from collections.abc import Sequence

from ottla_testing.clients.line_clients import Row, Seen

BASE_MS = 1_700_000_000_000


def rows(seed: int, *, headers: bool) -> list[Row]:
    """Returns thirty records with every kind of key and value; the timestamps are not in order."""
    text = b"the leader of a partition has its log, and all others follow it; "
    made = []
    for i in range(30):
        key = (None, b"", b"key %d" % i, b"\x00\xff")[i % 4]
        value = (b"%d of %d" % (i, seed), text * (i + 1), None if key is not None else b"-", bytes([i]) * 900)[
            i // 3 % 4
        ]
        pairs = (("n", b"%d" % i), ("n", b"again"), ("empty", b"")) if headers and i % 2 else ()
        made.append(Row(key, value, BASE_MS + 1000 * seed + (i * 7) % 30, pairs))
    return made


def expected(sent: Sequence[Row], first: int, magic: int) -> list[tuple[object, ...]]:
    """Returns what remains of rows in a format."""
    return [
        (first + i, row.timestamp if magic else -1, row.key, row.value, row.headers if magic == 2 else ())
        for i, row in enumerate(sent)
    ]


def comparable(seen: Sequence[Seen]) -> list[tuple[object, ...]]:
    """Returns the records of a client in a comparable form: clients express a missing timestamp in several ways."""
    return [
        (r.offset, -1 if r.kind == "NoTimestampType" or r.timestamp < 0 else r.timestamp, r.key, r.value, r.headers)
        for r in seen
    ]


def compare(who: str, found: Sequence[Seen], wanted: Sequence[tuple[object, ...]]) -> None:
    """Fails with the first difference, not with all records."""
    for one, other in zip(comparable(found), wanted, strict=False):
        assert one == other, f"{who}: {str(one)[:300]} instead of {str(other)[:300]}"
    assert len(found) == len(wanted), f"{who}: {len(found)} records instead of {len(wanted)}"
