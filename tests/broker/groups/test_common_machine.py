"""What the machines of consumer, share and streams groups have in common, by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.groups.common_events import AssignedSettings
from ottla.broker.groups.common_machine import Step
from ottla_testing.each import each


@each(
    ("assigned_ms", "now_ms", "interval_ms", "early"),
    [
        (0, 500, 1000, False),  # never assigned
        (1000, 1999, 1000, True),
        (1000, 2000, 1000, False),
        (1000, 500, 1000, True),  # the clock has been set back
        (1000, 500, 0, False),  # the default of share groups
    ],
)
def test_assignment_is_early_within_the_interval_only(
    assigned_ms: int, now_ms: int, interval_ms: int, early: bool
) -> None:
    group: Any = SimpleNamespace(assigned_ms=assigned_ms)
    topics: Any = None
    step = Step[Any, Any](group, now_ms, AssignedSettings(assignment_interval_ms=interval_ms), topics)
    assert step.is_early is early
