"""From what the command line names to what is compared: recordings read, brokers played against, pairs made.

Owns this composing, and the lines that tell of it. Raises CannotRun, one line, for whatever cannot be read or reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...broker.recording.exchange import Exchange, Recording
from ...broker.recording.files import NoRecording, read_recording
from ...broker.releases.profiles import PROFILE_NAMES, Profile, UnknownRelease, profile
from ...protocol.narrowing import is_dict, is_list
from .comparison import Comparison, Pair, compare, matched
from .expected_differences import Foretelling, guessed_release
from .player import Playing, PlayOptions, node_map, play
from .target import Address, Unreachable

DAMAGE_SHOWN = 5


class CannotRun(Exception):
    """A recording cannot be read, or a broker not be reached; one line."""


@dataclass
class Result:
    """What was compared, between which sides, and lines that the user should know."""

    comparison: Comparison
    sides: tuple[str, str]
    notes: list[str] = field(default_factory=list[str])


def read(path: str) -> tuple[Recording, list[str]]:
    """A recording, and what is to be said of it. Raises CannotRun."""
    try:
        found = read_recording(path)
    except NoRecording as error:
        raise CannotRun(str(error)) from None
    except OSError as error:
        raise CannotRun(f"{path} cannot be read: {error.strerror or error}") from None
    except (MemoryError, RecursionError):
        raise CannotRun(f"{path} is too large") from None
    notes = found.damage[:DAMAGE_SHOWN]
    if len(found.damage) > DAMAGE_SHOWN:
        notes.append(f"{path}: {len(found.damage) - DAMAGE_SHOWN} more places that cannot be read")
    if found.dropped:
        notes.append(f"{path}: {found.dropped} exchanges came too fast to be recorded")
    if found.meta.get("contents") is False:
        notes.append(f"{path} was recorded without contents: what was produced is not played")
    return found, notes


async def replay(
    path: str, bootstrap: Address, options: PlayOptions, releases: tuple[str, str] | None = None
) -> Result:
    """A recording against a broker. Raises CannotRun."""
    recording, notes = read(path)
    playing = await _play(recording.exchanges, bootstrap, options)
    foretelling, told = _foretelling(_release_of(recording), _guess(playing), releases)
    pairs = [Pair(one.exchange, one.played, one.not_sent, one.foretold) for one in playing.steps]
    texts = _texts(recording, playing.nodes, {node: playing.target.address(node) for node in playing.target.nodes})
    found = compare(pairs, nodes=playing.nodes, texts=texts, foretelling=foretelling)
    found.translatable = sum(step.translatable for step in playing.steps)
    return Result(found, (path, _shown(bootstrap)), [*notes, *playing.notes, *told])


async def diff_live(
    path: str, addresses: tuple[Address, Address], options: PlayOptions, releases: tuple[str, str] | None = None
) -> Result:
    """Two brokers under one recording. Raises CannotRun."""
    recording, notes = read(path)
    one = await _play(recording.exchanges, addresses[0], options)
    other = await _play(recording.exchanges, addresses[1], options)
    pairs: list[Pair] = []
    for first, second in zip(one.steps, other.steps, strict=True):
        if first.played is not None:
            pairs.append(Pair(first.played, second.played, second.not_sent, second.foretold))
        elif second.played is not None:
            pairs.append(Pair(second.played, None, first.not_sent, first.foretold))
    foretelling, told = _foretelling(_guess(one), _guess(other), releases)
    nodes = {one.nodes[node]: other.nodes[node] for node in one.nodes if node in other.nodes}
    texts = {
        _shown(address): _shown(other.target.address(nodes.get(node, node)))
        for node, address in one.target.nodes.items()
    }
    found = compare(pairs, nodes=nodes, texts=texts, foretelling=foretelling)
    found.translatable = sum(step.translatable for step in (*one.steps, *other.steps))
    sides = _shown(addresses[0]), _shown(addresses[1])
    played = [f"{side}: {note}" for side, done in zip(sides, (one, other), strict=True) for note in done.notes]
    return Result(found, sides, [*notes, *played, *told])


def diff_files(left: str, right: str, releases: tuple[str, str] | None = None) -> Result:
    """Two recordings. Raises CannotRun."""
    (one, notes), (other, more) = read(left), read(right)
    pairs, unmatched = matched(one.exchanges, other.exchanges)
    foretelling, told = _foretelling(_release_of(one), _release_of(other), releases)
    nodes = node_map([node for node, _ in _nodes(one)], [node for node, _ in _nodes(other)])
    texts = _texts(one, nodes, dict(_nodes(other)))
    found = compare(pairs, nodes=nodes, texts=texts, foretelling=foretelling, same_times=False)
    return Result(found, (left, right), [*notes, *more, *unmatched, *told])


async def _play(exchanges: Sequence[Exchange], bootstrap: Address, options: PlayOptions) -> Playing:
    try:
        return await play(exchanges, bootstrap, options)
    except Unreachable as error:
        raise CannotRun(str(error)) from None


def _release_of(recording: Recording) -> Profile | None:
    name = recording.meta.get("release")
    return profile(name) if isinstance(name, str) and name in PROFILE_NAMES else None


def _guess(playing: Playing) -> Profile | None:
    return guessed_release(playing.target.versions) if playing.target.told_versions else None


def _foretelling(
    left: Profile | None, right: Profile | None, releases: tuple[str, str] | None
) -> tuple[Foretelling | None, list[str]]:
    """What foretells, and which releases it goes by. Raises CannotRun for a release that there is not."""
    if releases is not None:
        try:
            found = Foretelling(profile(releases[0]), profile(releases[1]))
        except UnknownRelease as error:
            raise CannotRun(str(error)) from None
        return found, [f"as the table of releases has {found}"]
    if left is None or right is None:
        side = "the first" if left is None else "the second"
        return None, [f"which release {side} is does not show: nothing is foretold (--release X Y says so)"]
    found = Foretelling(left, right)
    return found, [f"as the table of releases has {found}"]


def _nodes(recording: Recording) -> Iterable[tuple[int, Address]]:
    """(number, address) of each node that a recording tells of."""
    nodes: Any = recording.meta.get("nodes")
    for one in nodes if is_list(nodes) else ():
        if is_dict(one):
            told = one.get("node_id"), one.get("host"), one.get("port")
            if isinstance(told[0], int) and isinstance(told[1], str) and isinstance(told[2], int):
                yield told[0], (told[1], told[2])


def _texts(recording: Recording, nodes: Mapping[int, int], right: Mapping[int, Address]) -> dict[str, str]:
    """The left's addresses and the right's, as they stand in texts."""
    found: dict[str, str] = {}
    for node, address in _nodes(recording):
        there = right.get(nodes.get(node, node))
        if there is not None:
            found[_shown(address)] = _shown(there)
    return found


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
