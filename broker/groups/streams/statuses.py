"""What a heartbeat reports about a streams group beside the assignment (KIP-1071)."""

from __future__ import annotations

from .events import RACK_TAGS, Heartbeat, StatusText
from .moves import Step
from .state import Member
from .topology import Configured
from .values import Status

TAGS_SINCE = 1
"""The version of StreamsGroupHeartbeat from which on missing client tags are reported."""


def statuses_of(
    step: Step, event: Heartbeat, member: Member, configured: Configured, delay: str | None
) -> tuple[StatusText, ...]:
    """Returns the statuses of a heartbeat, in Kafka's order. `delay` is why no assignment was computed, or None."""
    found: list[StatusText] = []
    topology, sent = step.group.topology, member.info.topology_epoch
    if topology is not None and sent < topology.epoch:
        follows = "is behind the group's topology epoch"  # words: quoted
        text = f"The member's topology epoch {sent} {follows} {topology.epoch}."
        found.append(StatusText(Status.STALE_TOPOLOGY, text))
    if delay is not None:
        found.append(StatusText(Status.ASSIGNMENT_DELAYED, delay))
    if configured.problem is not None:
        found.append(StatusText(configured.problem.status, configured.problem.text))
    shutdown_by = step.group.shutdown_by or (event.member_id if event.shuts_down else None)
    if shutdown_by is not None:
        text = (
            f"Streams group member {shutdown_by} encountered a fatal error and requested a shutdown for the entire "
            "application."
        )
        found.append(StatusText(Status.SHUTDOWN_APPLICATION, text))
    required = step.settings.assignment_configs.get(RACK_TAGS, "").split(",")
    missing = [tag for tag in required if tag and tag not in member.info.tags]
    if missing and event.api_version >= TAGS_SINCE:
        text = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure them "
            "via 'client.tag.<tagKey>' in your Streams config."
        )
        found.append(StatusText(Status.MISSING_CLIENT_TAGS, text))
    return tuple(found)
