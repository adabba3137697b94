"""Checks of the member in group requests, by release."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic.state import GroupState
from ottla.broker.groups.offsets import CommittedOffset
from ottla.broker.groups.settings import CoordinatorSettings
from ottla.broker.releases.profiles import profile
from ottla.protocol.errors import ErrorCode

NONE, FENCED = ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID
UNKNOWN, GENERATION = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
RELEASES = ("2.3", "2.4", "2.8", "3.0", "3.2", "3.3", "4.3", "ottla")
BEFORE_3 = ("2.3", "2.4", "2.8")


def harness(make_harness: Any, release: str) -> Any:
    return make_harness(CoordinatorSettings(initial_rebalance_delay_ms=0, member_checks=checks(release)))


def checks(release: str) -> Any:
    return profile(release).behaviour.member_checks


def commit(
    h: Any, member_id: str, generation_id: int, instance_id: str | None = None, transactional: bool = False
) -> ErrorCode:
    return h.coordinator.commit(
        "g",
        member_id=member_id,
        instance_id=instance_id,
        generation_id=generation_id,
        commits=[(("t", 0), CommittedOffset(1, commit_timestamp_ms=0))],
        producer=(9, 0) if transactional else None,
    )


@pytest.mark.parametrize("release", RELEASES)
async def test_unknown_instance_id_is_refused_from_3_0(make_harness: Any, soon: Any, release: str) -> None:
    h = harness(make_harness, release)
    (member_id,) = await h.stable()
    generation = h.group().generation_id
    expected = NONE if release in BEFORE_3 else UNKNOWN
    assert h.heartbeat(member_id, generation, "absent") is expected
    assert (await soon(h.sync(member_id, generation, instance_id="absent"))).error is expected
    assert commit(h, member_id, generation, "absent") is expected
    assert commit(h, member_id, generation, "absent", transactional=True) is expected
    assert (await soon(h.join(member_id, instance_id="absent"))).error is UNKNOWN
    assert [one.error for one in h.leave((member_id, "absent")).members] == [expected]


@pytest.mark.parametrize("release", RELEASES)
async def test_instance_id_of_another_member_is_fenced(make_harness: Any, soon: Any, release: str) -> None:
    h = harness(make_harness, release)
    (member_id,) = await h.stable(instance_id="i")
    generation = h.group().generation_id
    assert h.heartbeat("other", generation, "i0") is FENCED
    assert (await soon(h.sync("other", generation, instance_id="i0"))).error is FENCED
    for transactional in (False, True):
        assert commit(h, "other", generation, "i0", transactional) is FENCED
        assert commit(h, member_id, generation, "i0", transactional) is NONE
    assert [one.error for one in h.leave(("other", "i0"), ("", "i0")).members] == [FENCED, NONE]


@pytest.mark.parametrize("release", RELEASES)
async def test_transactional_commit_before_3_0_checks_member_and_generation_separately(
    make_harness: Any, release: str
) -> None:
    h = harness(make_harness, release)
    (member_id,) = await h.stable()
    generation = h.group().generation_id
    by_given = release in BEFORE_3
    assert commit(h, member_id, -1, transactional=True) is (NONE if by_given else GENERATION)
    assert commit(h, "", generation, transactional=True) is (NONE if by_given else UNKNOWN)
    assert commit(h, "", generation + 1, transactional=True) is (GENERATION if by_given else UNKNOWN)
    assert commit(h, "other", -1, transactional=True) is UNKNOWN
    assert commit(h, member_id, generation + 1, transactional=True) is GENERATION
    assert commit(h, member_id, generation, transactional=True) is NONE
    assert commit(h, "", -1, transactional=True) is NONE


@pytest.mark.parametrize("release", RELEASES)
async def test_a_commit_without_generation_to_an_empty_group(make_harness: Any, release: str) -> None:
    h = harness(make_harness, release)
    assert commit(h, "", -1) is NONE
    assert h.group().state is GroupState.EMPTY
    assert commit(h, "other", -1) is (UNKNOWN if release in ("3.0", "3.2") else NONE)
    transactional = commit(h, "other", -1, transactional=True)
    assert transactional is (UNKNOWN if release in (*BEFORE_3, "3.0", "3.2") else NONE)


@pytest.mark.parametrize("release", RELEASES)
async def test_commit_of_another_member_before_the_assignment(make_harness: Any, soon: Any, release: str) -> None:
    h = harness(make_harness, release)
    joining = h.join()
    await h.advance(0)
    member = await soon(joining)
    assert h.group().state is GroupState.COMPLETING_REBALANCE
    assert commit(h, "other", member.generation_id) is (REBALANCE if release == "2.3" else UNKNOWN)
    assert commit(h, member.member_id, member.generation_id + 1) is (REBALANCE if release == "2.3" else GENERATION)
    assert commit(h, member.member_id, member.generation_id) is REBALANCE
