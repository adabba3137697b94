"""The parameters in the paths of routes, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ....protocol.limits import INT64_MAX
from .parts import ID_MAX, NodeId, TopicName, text, whole
from .steering import SnapshotName

PATH_PARAMETERS: Mapping[str, Any] = {
    "fault": Annotated[int, whole(1, INT64_MAX, "a fault's id")],
    "group": Annotated[str, text(ID_MAX, "a group's id", 1)],
    "node": NodeId,
    "request": Annotated[int, whole(1, INT64_MAX, "a request's number, counted from 1")],
    "snapshot": SnapshotName,
    "topic": TopicName,
}
