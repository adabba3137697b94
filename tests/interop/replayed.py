"""Sessions of real clients, recorded with ours and replayed to Apache Kafka: the responses are equal.

Expected differences are in `REPLAY_REASONS`; every other one is a failure, and is written to
out/interop/replayed-X-Y.txt.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from reasons import Reasons
from side_by_side import RELEASES, SETTINGS, apache

from ottla.broker import Embedded
from ottla.tools.replay.comparison import Finding, Why
from ottla.tools.replay.output import text
from ottla.tools.replay.player import PlayOptions
from ottla.tools.replay.runner import Result, replay
from ottla_testing.clients.recorded_sessions import SESSIONS
from ottla_testing.interop.checks import OUT, Check, Failed

PATIENCE_SECONDS = 30.0
# (recorded as, played to): the same release, and an older one.
PAIRS = [("3.9", "3.9"), ("4.3", "4.3"), ("4.3", "3.9")]
REPLAY_REASONS = Reasons([])


def unexplained(result: Result, release: str, reasons: Counter[str]) -> list[Finding]:
    """Returns the differences that neither the table of releases nor a reason explains."""
    left = []
    for one in result.comparison.findings:
        if one.why is not Why.UNEXPLAINED:
            continue
        reason = REPLAY_REASONS.of(release, one.api, one.path, one.right, one.left)  # "theirs" is Kafka's
        if reason is None:
            left.append(one)
        else:
            reasons[reason] += one.times
    return left


def run(recorded: str, played: str) -> str:
    """Replays the sessions of all clients one after another to one Kafka."""
    reasons: Counter[str] = Counter()
    failures: list[str] = []
    requests = compared = 0
    explained: Counter[str] = Counter()
    with apache(played, SETTINGS) as kafka:
        for client, session in SESSIONS.items():
            path = OUT / f"replayed-{client}-{recorded}.jsonl"
            path.unlink(missing_ok=True)
            record(session, recorded, str(path))
            host, _, port = kafka.address.rpartition(":")
            options = PlayOptions(patience_s=PATIENCE_SECONDS, translate=True)
            result = asyncio.run(replay(str(path), (host, int(port)), options, (recorded, played)))
            requests += result.comparison.exchanges
            compared += result.comparison.compared
            counts = result.comparison.counts
            explained.update({why.value: count for why, count in counts.items() if why is not Why.UNEXPLAINED})
            reported = "".join(text(result.comparison, result.sides, result.notes, everything=True))
            (OUT / f"replayed-{client}-{recorded}-{played}.txt").write_text(reported)
            failures += [
                f"{client} #{one.number} {one.api} v{one.version}{one.path}: {one.left!r} <> {one.right!r}"
                for one in unexplained(result, played, reasons)
            ]
    counted = ", ".join(f"{count} {why}" for why, count in sorted(explained.items()))
    reported = f"{requests} requests, {compared} compared; {counted or 'no difference'}"
    if reasons:
        reported += "; for a reason: " + "; ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
    if failures:
        raise Failed(f"{reported}; {len(failures)} without:\n" + "\n".join(one[:400] for one in failures[:20]))
    return reported


def record(session: Callable[[str, str], None], release: str, path: str) -> None:
    """Records one session with a broker of ours."""
    with Embedded(release, dict(SETTINGS), record=path) as broker:
        session(broker.bootstrap, f"played-{session.__name__}")


CHECKS = [
    Check(
        f"sessions recorded as {recorded}, played to Kafka {RELEASES[played]}",
        lambda recorded=recorded, played=played: run(recorded, played),
    )
    for recorded, played in PAIRS
]
