"""Statements on how Apache Kafka 4.0 treats stored data and configs (KIP-724, KIP-896).

Pure: the arguments are record counts and the topic's configs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from ...protocol.named import NamedTuple
from ...protocol.records.compression import Codec

# Configs that 4.0 removed: of topics, and of the broker.
REMOVED_TOPIC_CONFIGS = (
    "message.format.version message.downconversion.enable message.timestamp.difference.max.ms"
).split()
REMOVED_BROKER_CONFIGS = [f"log.{name}" for name in REMOVED_TOPIC_CONFIGS]


class Amount(NamedTuple):
    """The data of a topic in one format and codec. `records` counts only entries that could be decoded."""

    magic: int
    codec: int
    records: int
    bytes: int


def _old_formats(amounts: Iterable[Amount]) -> list[int]:
    return sorted({amount.magic for amount in amounts if amount.magic < 2 and amount.bytes})


def _count(number: int) -> str:
    return f"{number} record{'' if number == 1 else 's'}"


def of_topic(amounts: Iterable[Amount], configs: Mapping[str, str] | None) -> list[str]:
    """Returns statements on a topic. `configs` are those set for it; None if unknown."""
    amounts = list(amounts)
    out: list[str] = []
    old = _old_formats(amounts)
    if old:
        formats = " and ".join(f"v{magic}" for magic in old)
        records = sum(amount.records for amount in amounts if amount.magic < 2)
        out.append(
            f"{_count(records)} in {formats}: returned as stored, to Fetch v4 and later only; nothing is converted."
        )
        out.append(_fate(configs))
    elif any(amount.bytes for amount in amounts):
        out.append("All in v2: returned as stored, to Fetch v4 and later only.")
    if any((amount.magic, amount.codec) == (0, Codec.LZ4) for amount in amounts):
        out.append("lz4 in v0 has the wrong header checksum of KIP-57; it is returned with it.")
    if any(amount.codec == Codec.ZSTD for amount in amounts):
        out.append("zstd is returned to every Fetch version, to v4-v9 as well, whose clients may not know it.")
    for name in REMOVED_TOPIC_CONFIGS:
        if name in (configs or {}):
            out.append(
                f"{name}={(configs or {})[name]}: not known any more; it has no effect, and setting it is refused."
            )
    return out


def _fate(configs: Mapping[str, str] | None) -> str:
    if configs is None:
        return (
            "If the topic is compacted, its cleaner rewrites them as v2; else they stay until retention deletes them."
        )
    policy = configs.get("cleanup.policy")
    if policy is None:
        return (
            "If log.cleanup.policy is compact, the cleaner rewrites them as v2; else they stay until they are deleted."
        )
    if "compact" in [word.strip() for word in policy.split(",")]:
        return "The topic is compacted: its cleaner rewrites as v2 what it keeps of them."
    return "They stay as they are until retention deletes them: only compaction rewrites them as v2."


def of_all(old_in: Sequence[str], *, old_in_stores: bool = False, configs_known: bool) -> list[str]:
    """Returns statements that hold for any topic. `old_in` are the directories in which v0 or v1 may have been found;
    with `old_in_stores`, object stores, too."""
    out = [
        "Fetch v0-v3 closes the connection: clients that know no later version (before Kafka 0.11) are cut off.",
        "Produce v0-v2 closes the connection; v0 and v1 in a later version are refused with INVALID_RECORD (87).",
        f"Not known any more in server.properties: {', '.join(REMOVED_BROKER_CONFIGS)}.",
    ]
    if not configs_known:
        names = ", ".join(REMOVED_TOPIC_CONFIGS)
        out.append(f"Topic configs are not in this directory; not known any more of them: {names}.")
    if old_in:
        named = " ".join(map(shlex.quote, old_in))
        out.append(
            f"`ottla pipeline upgrade {named}` rewrites the old formats as v2 while no broker runs (extra: pipeline);"
            " `ottla serve --override log.record.version.force.upgrade=2` does so at its start."
        )
    if old_in_stores:
        out.append("`ottla pipeline upgrade` rewrites old formats only in directories of this machine.")
    return out
