"""The runs of `ottla replay` and `ottla diff`: reads recordings, plays them to brokers, and compares the pairs.

Owns the composition and the notes for the user. Raises CannotRun, with one line, for an unreadable recording and an
unknown release, and Unreachable for a broker that cannot be reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...broker.config.serve_options import format_address
from ...broker.recording.exchange import Recording
from ...broker.recording.files import NoRecording, read_recording
from ...broker.releases.profiles import PROFILE_NAMES, Profile, UnknownRelease, profile
from ...protocol.narrowing import is_dict, is_list
from .comparison import Comparing, Comparison, Pair, matched
from .expected_differences import ExpectedDifferences, guessed_release
from .player import Player, PlayOptions, node_map, play
from .target import Address

DAMAGE_SHOWN = 5


class CannotRun(Exception):
    """A recording cannot be read, or a release is unknown; the text is one line."""


@dataclass
class Result:
    """The comparison, the names of its sides, and notes for the user."""

    comparison: Comparison
    sides: tuple[str, str]
    notes: list[str] = field(default_factory=list[str])


def read(path: str) -> tuple[Recording, list[str]]:
    """Reads a recording and returns it with notes for the user. Raises CannotRun."""
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
        notes.append(f"{path}: {len(found.damage) - DAMAGE_SHOWN} more unreadable places")
    if found.dropped:
        notes.append(f"{path}: {found.dropped} exchanges were dropped by the recorder")
    if found.meta.get("contents") is False:
        notes.append(f"{path} was recorded without contents: Produce requests are not played")
    return found, notes


async def replay(path: str, bootstrap: Address, options: PlayOptions, releases: Sequence[str] | None = None) -> Result:
    """Plays a recording to a broker and compares the responses. Raises CannotRun, Unreachable."""
    recording, notes = read(path)
    playing = await play(recording.exchanges, bootstrap, options)
    expected, release_note = _expected(_release_of(recording), _guess(playing), releases)
    pairs = [Pair(one.exchange, one.played, one.not_sent, one.expected) for one in playing.steps]
    texts = _texts(recording, playing.nodes, {node: playing.target.address(node) for node in playing.target.nodes})
    found = Comparing(pairs, nodes=playing.nodes, texts=texts, expected=expected).run()
    found.translatable = sum(step.translatable for step in playing.steps)
    return Result(found, (path, format_address(*bootstrap)), [*notes, *playing.notes(), *release_note])


async def diff_live(
    path: str,
    addresses: tuple[Address, Address],
    options: tuple[PlayOptions, PlayOptions],
    releases: Sequence[str] | None = None,
) -> Result:
    """Plays a recording to two brokers and compares their responses. Raises CannotRun, Unreachable."""
    recording, notes = read(path)
    one = await play(recording.exchanges, addresses[0], options[0])
    other = await play(recording.exchanges, addresses[1], options[1])
    pairs: list[Pair] = []
    for first, second in zip(one.steps, other.steps, strict=True):
        if first.played is not None:
            pairs.append(Pair(first.played, second.played, second.not_sent, second.expected))
        elif second.played is not None:
            pairs.append(Pair(second.played, None, first.not_sent, first.expected))
    expected, release_note = _expected(_guess(one), _guess(other), releases)
    nodes = {one.nodes[node]: other.nodes[node] for node in one.nodes if node in other.nodes}
    texts = {
        format_address(*address): format_address(*other.target.address(nodes.get(node, node)))
        for node, address in one.target.nodes.items()
    }
    found = Comparing(pairs, nodes=nodes, texts=texts, expected=expected).run()
    found.translatable = sum(step.translatable for step in (*one.steps, *other.steps))
    sides = format_address(*addresses[0]), format_address(*addresses[1])
    played = [f"{side}: {note}" for side, done in zip(sides, (one, other), strict=True) for note in done.notes()]
    return Result(found, sides, [*notes, *played, *release_note])


def diff_files(left: str, right: str, releases: Sequence[str] | None = None) -> Result:
    """Compares two recordings. Raises CannotRun."""
    (one, notes), (other, more) = read(left), read(right)
    pairs, unmatched = matched(one.exchanges, other.exchanges)
    expected, release_note = _expected(_release_of(one), _release_of(other), releases)
    nodes = node_map([node for node, _ in _nodes(one)], [node for node, _ in _nodes(other)])
    texts = _texts(one, nodes, dict(_nodes(other)))
    found = Comparing(pairs, nodes=nodes, texts=texts, expected=expected, same_times=False).run()
    return Result(found, (left, right), [*notes, *more, *unmatched, *release_note])


def _release_of(recording: Recording) -> Profile | None:
    name = recording.meta.get("release")
    return profile(name) if isinstance(name, str) and name in PROFILE_NAMES else None


def _guess(playing: Player) -> Profile | None:
    return guessed_release(playing.target.versions) if playing.target.has_api_versions else None


def _expected(
    left: Profile | None, right: Profile | None, releases: Sequence[str] | None
) -> tuple[ExpectedDifferences | None, list[str]]:
    """Returns the expected differences, and a note on the releases. Raises CannotRun for an unknown release."""
    if releases is not None:
        try:
            left, right = profile(releases[0]), profile(releases[1])
        except UnknownRelease as error:
            raise CannotRun(str(error)) from None
    if left is None or right is None:
        side = "the first" if left is None else "the second"
        return None, [f"the release of {side} is unknown: no difference is expected (set both with --release X Y)"]
    found = ExpectedDifferences(left, right)
    return found, [f"differences between the releases {found} are expected"]


def _nodes(recording: Recording) -> Iterable[tuple[int, Address]]:
    """Yields (node id, address) of each node in a recording."""
    nodes: Any = recording.meta.get("nodes")
    for one in nodes if is_list(nodes) else ():
        if is_dict(one):
            node_id, host, port = one.get("node_id"), one.get("host"), one.get("port")
            if isinstance(node_id, int) and isinstance(host, str) and isinstance(port, int):
                yield node_id, (host, port)


def _texts(recording: Recording, nodes: Mapping[int, int], right: Mapping[int, Address]) -> dict[str, str]:
    """Returns address texts of the left -> those of the right."""
    pairs = ((address, right.get(nodes.get(node, node))) for node, address in _nodes(recording))
    return {format_address(*address): format_address(*there) for address, there in pairs if there is not None}
