"""Transactions in the newest versions of each release, and the errors of writes outside a transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.releases.profiles import PROFILE_NAMES, profile
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.harness import running
from ottla_testing.broker.transacting import Owner, committed, described, read_committed
from ottla_testing.each import each

INIT, ADD, ADD_OFFSETS, END, COMMIT, PRODUCE, FETCH, DESCRIBE = 22, 24, 25, 26, 28, 0, 1, 65
WITH_TRANSACTIONS = [name for name in PROFILE_NAMES if END in profile(name).served]
T0, T1 = ("t", 0), ("t", 1)
# Errors of a write to a partition that was not added, in Produce v9, v11 and the newest version without topic ids.
WRITE_ERRORS: dict[str, dict[int, int]] = {
    "2.8": {9: 0},
    "3.5": {9: 0},
    "3.6": {9: 48},
    "3.7": {9: 48},
    "3.8": {9: 48, 11: 120},
    "3.9": {9: 48, 11: 120},
    "4.0.0": {9: 48, 11: 120, 12: 0},
    "4.3": {9: 48, 11: 120, 12: 0},
    "ottla": {9: 48, 11: 120, 12: 0},
}
# Errors of an offset commit of a group that was not added, by version of TxnOffsetCommit.
OFFSET_ERRORS = {
    "2.8": {0: 0, 3: 0},
    "3.5": {0: 0, 3: 0},
    "3.6": {0: 0, 3: 0},
    "3.7": {0: 48, 3: 48},
    "3.8": {0: 48, 3: 48, 4: 120},
    "3.9": {0: 48, 3: 48, 4: 120},
    "4.3": {0: 48, 3: 48, 4: 120, 5: 0},
    "ottla": {0: 48, 3: 48, 4: 120, 5: 0},
}


def newest(release: str, key: int, limit: int = 99) -> int:
    return min(profile(release).served[key].last, limit)


def test_transactions_are_served_from_0_11_on() -> None:
    assert WITH_TRANSACTIONS[0] == "0.11" and len(WITH_TRANSACTIONS) == len(PROFILE_NAMES) - 5
    own_epochs = [name for name in WITH_TRANSACTIONS if newest(name, END) >= 5]
    assert own_epochs == "4.0.0 4.0 4.1 4.2 4.3 4.4 ottla".split()


@each("release", WITH_TRANSACTIONS, strided=True)
async def test_a_release_commits_and_aborts(release: str, tmp_path: Path) -> None:
    end, commit = newest(release, END), newest(release, COMMIT, 5)  # v6 has topic ids
    own_epochs = end >= 5
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        owner = Owner(await broker.client())
        assert await owner.init(newest(release, INIT, 5)) == 0
        for number, decided in enumerate((True, False, True)):
            if not own_epochs:
                assert await owner.add(T0, version=newest(release, ADD, 3)) == {T0: 0}
                assert await owner.add_offsets(version=newest(release, ADD_OFFSETS)) == 0
            assert await owner.send(b"%d" % number, version=newest(release, PRODUCE, 12)) == 0
            assert await owner.commit_offset(number, version=commit) == 0
            assert await owner.end(decided, end) == 0
        assert owner.epoch == (3 if own_epochs else 0)
        assert await read_committed(owner.client, version=newest(release, FETCH, 11)) == [b"0", b"2"]
        offsets = broker.state.groups.offsets("g")
        assert [found.offset for found in offsets.values()] == [2]
        if DESCRIBE in profile(release).served:
            assert await described(owner.client) == (0, "CompleteCommit", {})


@pytest.mark.parametrize(("release", "responses"), WRITE_ERRORS.items(), ids=WRITE_ERRORS)
async def test_write_to_a_partition_outside_the_transaction(
    release: str, responses: dict[int, int], tmp_path: Path
) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        for version, error in responses.items():
            owner = Owner(await broker.client(), f"x{version}")
            assert await owner.init(4) == 0
            assert await owner.add(T0) == {T0: 0}
            assert await owner.send(b"added", version=version) == 0
            assert await owner.send(b"unverified", partition=1, version=version) == error
            _, _, held = await described(owner.client, owner.name) if release != "2.8" else (0, "", {"t": [0]})
            assert held == {"t": [0, 1] if version == 12 else [0]}
            assert (broker.log("t", 1).last_stable_offset < broker.log("t", 1).log_end_offset) == (error == 0)


@pytest.mark.parametrize(("release", "responses"), OFFSET_ERRORS.items(), ids=OFFSET_ERRORS)
async def test_offset_commit_of_a_group_outside_the_transaction(
    release: str, responses: dict[int, int], tmp_path: Path
) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        for version, error in responses.items():
            owner = Owner(await broker.client(), f"x{version}")
            assert await owner.init(4) == 0
            group = f"g{version}"
            assert await owner.commit_offset(1, version=version, group=group) == error
            unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT if error == 0 else 0
            assert await committed(owner.client, group, stable=True) == (unstable, -1)


@pytest.mark.parametrize(("release", "code"), [("2.6", 47), ("2.7", 90), ("ottla", 90)])
async def test_fenced_owner_gets_the_error_of_its_request_version(release: str, code: int, tmp_path: Path) -> None:
    """PRODUCER_FENCED exists since 2.7 (KIP-588)."""
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        owner, next_owner = Owner(await broker.client()), Owner(await broker.client())
        init = newest(release, INIT, 5)
        assert await owner.init(init) == await next_owner.init(init) == await next_owner.init(init) == 0
        assert await owner.add(T0, version=newest(release, ADD, 3)) == {T0: code}
        assert await owner.add_offsets(version=newest(release, ADD_OFFSETS)) == code
        assert await owner.end(True, newest(release, END)) == code
        assert await owner.init(init, keep=True) == code


@pytest.mark.parametrize(("release", "code"), [("3.5", 25), ("3.9", 25), ("4.0.0", 22), ("ottla", 22)])
async def test_transactional_commit_to_an_unknown_group(release: str, code: int, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        owner = Owner(await broker.client())
        assert await owner.init() == await owner.add_offsets() == 0
        assert await owner.commit_offset(1, generation_id_or_member_epoch=5) == code
        assert await owner.commit_offset(1, generation_id_or_member_epoch=5, member_id="nobody") == code
        assert await owner.commit_offset(1, member_id="nobody") == 0


@pytest.mark.parametrize(("release", "code"), [("3.6", 48), ("3.7", 48), ("3.8", 120), ("4.3", 120)])
async def test_verification_error_depends_on_the_release(release: str, code: int, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", 2)
        owner = Owner(await broker.client())
        assert await owner.init() == 0
        assert await owner.add(T0) == {T0: 0}
        assert await owner.add(T0, T1, version=4, verify_only=True) == {T0: 0, T1: code}
