"""The committer of an export to a folder, or to an object store, whose library only that one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .commit import Committer

if TYPE_CHECKING:
    from ...objects.places import Place


def committer_of(place: Place | None) -> type[Committer]:
    """Returns the class for exports to a folder, or to a place of objects."""
    if place is None:
        return Committer
    from .object_commit import ObjectCommitter

    return ObjectCommitter
