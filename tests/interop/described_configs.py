"""Descriptions of configs by Apache Kafka and by ours, field by field, and the responses to changes of them.

Expected differences are listed with their reasons; a reason that explains nothing any more fails the check, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from config_calls import Call, described, of_brokers, of_lists, of_others, of_topics
from side_by_side import RELEASES, WITH_ZOOKEEPER, Fence, Pair, RawClient, both

from ottla_testing.broker.configuring import BROKER, TOPIC
from ottla_testing.broker.harness import create_topics
from ottla_testing.interop.checks import Check, Failed

FIELDS = ("value", "read_only", "config_source", "is_sensitive", "config_type", "synonyms")
SETTLING_SECONDS = 1.0
NOTICED_SECONDS = 0.1  # by a broker with ZooKeeper, of what it is to apply to itself
SHOWN = 12  # differences in a report


class Reason(NamedTuple):
    """Why something differs: where a label matches, in these releases (all without any)."""

    pattern: str
    text: str
    releases: tuple[str, ...] = ()


# By "kind name config field".
OF_DESCRIPTIONS = [
    Reason(
        r" (advertised\.listeners|listeners|log\.dirs|listener\.security\.protocol\.map) ",
        "ports and folders are each broker's own",
    ),
    Reason(
        r" (process\.roles|controller\.(listener\.names|quorum\.(voters|bootstrap\.servers))|"
        r"inter\.broker\.listener\.name|zookeeper\.connect) ",
        "there is one node, which needs neither a controller beside it nor a ZooKeeper",
    ),
    Reason(
        r" (offsets\.topic|transaction\.state\.log|share\.coordinator\.state\.topic)\.(replication\.factor|min\.isr) ",
        "internal topics have one replica by default, for one node; a Kafka has three",
    ),
    Reason(r" node\.id synonyms", "releases up to 3.9 report a default -1, which is not ours", ("3.9",)),
    Reason(r" port ", "KAFKA_PORT is what Kubernetes calls a service; the config of that name is left out", ("2.8",)),
]
# By the label of the call.
OF_CALLS = [
    Reason(r" log\.dirs$", "ports and folders are each broker's own"),
    Reason(r"(describe|change|replace) 8 ", "loggers are each broker's own; without a log4j, a Kafka up to 3.9 fails"),
    Reason(r"describe 4 \S+ node\.id$", "releases up to 3.9 report a default -1, which is not ours", ("2.8", "3.9")),
    Reason(
        r"describe 4 \S+ leader\.replication\.throttled\.rate$",
        "up to 4.1 it was reported as read-only although it can be changed",
        ("2.8", "3.9"),
    ),
    Reason(r"change 16 .*interval\.ms', 0, 'x'", "up to 3.9 what is no number failed as unexpected", ("3.9",)),
]


def entries(result: Any) -> dict[str, Any]:
    return {entry.name: entry for entry in result.configs}


def comparable(entry: Any, field: str) -> Any:
    if field == "synonyms":
        return [(one.name, one.value, one.source) for one in entry.synonyms]
    return getattr(entry, field)


def differences(kind: int, name: str, theirs: Any, ours: Any) -> Iterable[tuple[str, Any, Any]]:
    """Yields (label, theirs, ours) of all differences of one resource's description. Order and documentation are not
    compared: Kafka's order is that of a hash table, and our texts are our own."""
    label = f"{kind} {name!r}"
    if (theirs.error_code, theirs.error_message) != (ours.error_code, ours.error_message):
        yield f"{label} response ", theirs.error_message, ours.error_message
    mine, its = entries(ours), entries(theirs)
    for key in sorted(mine.keys() | its.keys()):
        if key not in mine or key not in its:
            yield f"{label} {key} missing", key in its, key in mine
            continue
        for field in FIELDS:
            if comparable(its[key], field) != comparable(mine[key], field):
                yield f"{label} {key} {field}", comparable(its[key], field), comparable(mine[key], field)


class Found:
    """The differences found, checked against a table of reasons."""

    def __init__(self, release: str, reasons: list[Reason]) -> None:
        self._release = release
        self._reasons = [one for one in reasons if not one.releases or release in one.releases]
        self.compared = 0
        self.explained: dict[str, int] = {}
        self.unexplained: list[str] = []

    def differs(self, label: str, theirs: Any, ours: Any) -> None:
        for reason in self._reasons:
            if re.search(reason.pattern, label):
                self.explained[reason.text] = self.explained.get(reason.text, 0) + 1
                return
        self.unexplained.append(f"{label}: Kafka {str(theirs)[:400]}, ours {str(ours)[:400]}")

    def report(self, what: str) -> str:
        """Returns one line. Raises Failed."""
        if self.unexplained:
            shown = "\n  ".join(self.unexplained[:SHOWN])
            raise Failed(f"{len(self.unexplained)} of {self.compared} {what} differ:\n  {shown}")
        unused = [one.text for one in self._reasons if one.releases and one.text not in self.explained]
        if unused:
            raise Failed(f"these reasons explain nothing any more: {unused}")
        listed = "; ".join(f"{text} ({count})" for text, count in sorted(self.explained.items()))
        return f"{self.compared} {what}; differing for a reason: {listed or 'none'}"


def make_topic(pair: Pair) -> None:
    for side in (pair.theirs, pair.ours):
        (made,) = side.client.call(create_topics("t", timeout_ms=10_000), 5).topics
        if made.error_code:
            raise Failed(f"{side.name}: {made.error_message}")


def descriptions(release: str) -> str:
    """Returns the descriptions of a broker, of all brokers and of a topic."""
    found = Found(release, OF_DESCRIPTIONS)
    with both(release) as pair:
        make_topic(pair)
        Fence(pair.theirs.client).wait()
        for kind, name in ((BROKER, "1"), (BROKER, ""), (TOPIC, "t")):
            requested = described(kind, name)
            (theirs,), (ours,) = (
                side.client.call(requested.request, requested.version).results for side in (pair.theirs, pair.ours)
            )
            found.compared += len(theirs.configs)
            for label, its, mine in differences(kind, name, theirs, ours):
                found.differs(label, its, mine)
    return found.report("configs, each with value, source, synonyms, type, read only and sensitive")


def comparable_response(client: RawClient, call: Call) -> Any:
    """Returns the part of a response that is compared."""
    try:
        response = client.call(call.request, call.version)
    except TimeoutError:
        return "no response"
    except OSError:
        return "closed"
    if call.label.startswith("describe"):
        (result,) = response.results
        shown = {entry.name: {field: comparable(entry, field) for field in FIELDS} for entry in result.configs}
        return result.error_code, result.error_message, shown
    if call.label.startswith("list"):
        return response.error_code, {(one.resource_type, one.resource_name) for one in response.config_resources}
    return [(one.error_code, one.error_message, one.resource_type, one.resource_name) for one in response.responses]


def changes(release: str) -> str:
    """Sends the calls of `config_calls.py`, one after another."""
    found = Found(release, OF_CALLS)
    calls = [*of_topics(), *of_brokers(), *of_others()]
    calls += of_lists() if release == "4.3" else ()
    with both(release) as pair:
        make_topic(pair)
        fence = Fence(pair.theirs.client)
        for call in calls:
            found.compared += 1
            if release not in WITH_ZOOKEEPER and call.label.startswith("change 4"):
                fence.wait()  # what was set before decides
            ours, end = comparable_response(pair.ours.client, call), time.monotonic() + SETTLING_SECONDS
            while (theirs := comparable_response(pair.theirs.client, call)) != ours:
                is_look = call.label.startswith(("describe", "list"))
                if not is_look or time.monotonic() > end:  # a broker applies changes after their response
                    found.differs(call.label, theirs, ours)
                    break
                time.sleep(0.01)
            if release in WITH_ZOOKEEPER and call.label.startswith("change 4"):
                time.sleep(NOTICED_SECONDS)
    return found.report("calls about configs")


CHECKS = [
    Check(f"configs described by Kafka {version} and by ours", lambda release=release: descriptions(release))
    for release, version in RELEASES.items()
] + [
    Check(f"configs changed in Kafka {version} and in ours", lambda release=release: changes(release))
    for release, version in RELEASES.items()
]
