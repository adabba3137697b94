"""What groups read of the cluster's topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...protocol.frozen import frozen
from ...protocol.named import NamedTuple


class TopicShape(NamedTuple):
    """A topic as its consumers' assignments depend on it. `racks` has the racks of each partition's replicas, and is
    empty if no node has a rack.
    """

    topic_id: bytes
    name: str
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()


@frozen
class TopicLookup:
    """Topic lookups for groups; topic ids are 16 bytes.

    `name_of`, `id_of` and `shape_of` return None for an unknown topic. `version` increases with every change of the
    cluster's metadata, and `created_version` is the version at which a topic was last created.
    """

    has_partition: Callable[[str, int], bool]
    name_of: Callable[[bytes], str | None]
    id_of: Callable[[str], bytes | None]
    shape_of: Callable[[str], TopicShape | None] = lambda name: None
    names: Callable[[], Iterable[str]] = tuple
    version: Callable[[], int] = int
    created_version: Callable[[], int] = int

    def shapes_of(self, names: Iterable[str]) -> list[TopicShape]:
        """Returns the shapes of those of these topics that exist."""
        return [shape for name in names if (shape := self.shape_of(name)) is not None]
