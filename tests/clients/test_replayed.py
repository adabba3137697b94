"""Sessions of real clients, recorded and replayed: the same release gives the same responses, another one differs
exactly as expected from the release table.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.network.router import apis_of
from ottla.broker.recording.exchange import Buffer, Exchange, Peer
from ottla.broker.releases.profiles import api_names, profile
from ottla.tools.main import main
from ottla.tools.release_table import difference
from ottla.tools.replay.comparison import Comparing, Comparison, Pair, Why
from ottla.tools.replay.expected_differences import ExpectedDifferences
from ottla.tools.replay.player import Player, PlayOptions, play
from ottla_testing.clients.recorded_sessions import PARTITIONS, SESSIONS
from ottla_testing.patience import PATIENCE_S

RECORDED = "4.3"


class Kept:
    """A sink that keeps everything, without a file."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        self.exchanges.append(exchange)

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        pass

    def opened(self, peer: Peer) -> None:
        pass

    def closed(self, peer: Peer) -> None:
        pass


def recorded(session: Callable[[str, str], None], release: str = RECORDED) -> list[Exchange]:
    kept = Kept()
    with Embedded(release) as broker:
        listen_to(broker, kept)
        session(broker.bootstrap, "played")
    return kept.exchanges


def listen_to(broker: Embedded, kept: Kept) -> None:
    """Records without the public interface: a file would be read by another test."""
    running: Any = broker._thread.operations.running  # type: ignore[union-attr]
    assert broker._thread.loop is not None
    broker._thread.loop.call_soon_threadsafe(running.connections.listen, kept)


@cache
def recording_of(client: str) -> list[Exchange]:
    """Returns the recording of a session; one for all tests of a process."""
    return recorded(SESSIONS[client])


def played(exchanges: list[Exchange], release: str, *, translate: bool = False) -> tuple[Player, Comparison]:
    with Embedded(release) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        options = PlayOptions(patience_s=PATIENCE_S, translate=translate)
        done = asyncio.run(play(exchanges, (host, int(port)), options))
    pairs = [Pair(step.exchange, step.played, step.not_sent, step.expected) for step in done.steps]
    expected = ExpectedDifferences(profile(RECORDED), profile(release))
    return done, Comparing(pairs, nodes=done.nodes, expected=expected).run()


def unexpected(found: Comparison) -> str:
    """Returns the unexpected differences, for the failure's text."""
    return "\n".join(str(one) for one in found.findings if one.why is not Why.EXPECTED)


@pytest.mark.parametrize("client", SESSIONS)
def test_same_release_gives_the_same_responses(client: str) -> None:
    exchanges = recording_of(client)
    done, found = played(exchanges, RECORDED)
    assert len(exchanges) > 40 and found.exchanges == len(exchanges)
    assert not found.counts and not found.not_sent and not done.notes(), unexpected(found)
    assert found.compared >= len(exchanges) - 3  # the last responses before the client closed may be missing


# In addition to versions and configs: the behaviours that the session meets in that release.
BEHAVIOURS = {
    "3.9": {"consumer_groups", "eligible_leaders", "features of 4.3 and 3.9", "group_configs"},
    "2.8": {"eligible_leaders", "features of 4.3 and 2.8", "group_configs"},
    "0.11": {"features of 4.3 and 0.11", "group_configs", "removes_unsynced"},
}


@pytest.mark.parametrize("client", SESSIONS)
@pytest.mark.parametrize("release", BEHAVIOURS)
def test_other_releases_differ_as_expected(client: str, release: str) -> None:
    """With requests in the versions that a client would have chosen there."""
    _, found = played(recording_of(client), release, translate=True)
    assert not found.counts[Why.UNEXPLAINED] and not found.counts[Why.MOMENT], unexpected(found)
    reasons = {one.reason for one in found.findings if one.why is Why.EXPECTED}
    table = difference(profile(RECORDED), profile(release))
    configs = {f"config {name}" for scope in table["configs"].values() for kind in scope.values() for name in kind}
    left = {reason for reason in reasons if not reason.startswith(("versions of ", "sent as v", "config "))}
    assert left <= BEHAVIOURS[release]
    # A config is new, removed or has another default; or its kind, values or documentation changed.
    assert any(reason in configs for reason in reasons) or release == "0.11"
    ends = [apis_of(profile(name)).advertised for name in (RECORDED, release)]
    moved = {api_names()[key] for key in {**ends[0], **ends[1]} if ends[0].get(key) != ends[1].get(key)}
    assert {f"versions of {name}" for name in moved} == {one for one in reasons if one.startswith("versions of ")}


@pytest.mark.parametrize("client", SESSIONS)
def test_unserved_versions_are_not_sent(client: str) -> None:
    done, found = played(recording_of(client), "2.8")
    assert not found.counts[Why.UNEXPLAINED], unexpected(found)
    served = done.target.versions
    for step in done.steps:
        is_served = step.exchange.api_version in served.get(step.exchange.api_key, ()) or step.exchange.api_key == 18
        assert (step.played is not None) == is_served and step.expected != is_served
    assert sum(found.not_sent.values()) == sum(step.played is None for step in done.steps)


def test_commands_read_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From `record` to `ottla replay` and `ottla diff`, in both kinds of files."""
    paths = [tmp_path / "one.jsonl", tmp_path / "two.pcapng"]
    for path in paths:
        with Embedded(RECORDED, record=path) as broker:
            SESSIONS["aiokafka"](broker.bootstrap, "played")
    with Embedded(RECORDED) as broker:
        assert main(["replay", str(paths[0]), "--bootstrap", broker.bootstrap]) == 0
    out = capsys.readouterr().out
    assert "no difference" in out and f"differences between the releases {RECORDED} and {RECORDED} are expected" in out
    with Embedded("3.9") as broker:
        assert main(["replay", str(paths[1]), "--bootstrap", broker.bootstrap, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["counts"]["foretold"] and not document["counts"]["unexplained"]
    assert {one["why"] for one in document["differences"]} == {"foretold"}
    assert main(["diff", str(paths[0]), str(paths[1])]) == 0
    assert "no difference" in capsys.readouterr().out
    with Embedded(RECORDED) as one, Embedded("3.9") as other:
        both = one.bootstrap, other.bootstrap
        assert main(["diff", *both, "--recording", str(paths[0])]) == 0
    assert "expected" in capsys.readouterr().out


def test_difference_outside_the_table_is_unexpected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker with other defaults than the recorded one."""
    path = tmp_path / "session.jsonl"
    with Embedded(RECORDED, record=path) as broker:
        SESSIONS["aiokafka"](broker.bootstrap, "played")
    with Embedded(RECORDED, {"log.cleanup.policy": "compact"}) as broker:
        assert main(["replay", str(path), "--bootstrap", broker.bootstrap]) == 1
    out = capsys.readouterr().out
    assert ".configs[cleanup.policy].value: delete <> compact" in out
    assert PARTITIONS > 1 and "without an explanation" in out
