"""Changes of one topic that are requested while another is in progress."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.metadata.topic_changes import TopicChanges
from ottla.protocol.records.steps import Steps
from ottla_testing.patience import PATIENCE_S


@pytest.mark.parametrize("cancelled", ["a", "b"])
async def test_cancelled_change_completes_and_leaves_the_later_ones(cancelled: str) -> None:
    """Such as the create_topic() of an embedded broker that a test no longer awaits."""
    loop = asyncio.get_running_loop()
    changes = TopicChanges()
    changes.attach(loop, CooperativeScheduler(loop))
    made: list[str] = []

    def change(name: str) -> Steps[str]:
        for _ in range(5):
            yield None
        made.append(name)
        return name

    tasks = {name: loop.create_task(changes.make("t", change(name))) for name in "abc"}
    await asyncio.sleep(0)
    tasks[cancelled].cancel()
    found = await asyncio.wait_for(asyncio.gather(*tasks.values(), return_exceptions=True), PATIENCE_S)
    assert [name for name in found if isinstance(name, str)] == [name for name in "abc" if name != cancelled]
    assert made == [name for name in "abc" if name in found or name == "a"], "the change in progress completes"
