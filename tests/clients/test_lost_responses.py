"""Lost responses: the broker has appended, and the client retries without knowing that.

With idempotence each record is in the log once and in order, with every client; without it, the same run has
duplicates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla_testing.clients.idempotent_writers import PRODUCERS, Progress, numbers_in, ottla
from ottla_testing.clients.losing_proxy import LosingProxy
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LOST = 10  # responses per client


@contextmanager
def with_a_losing_proxy(folder: Path, every: int) -> Iterator[tuple[RunningBroker, LosingProxy]]:
    """A broker that clients reach only through the proxy."""
    proxy = LosingProxy(every)
    running = RunningBroker(folder, advertised_listeners=f"PLAINTEXT://{proxy.address}")
    proxy.target = running.port
    try:
        yield running, proxy
    finally:
        running.close()
        proxy.close()


def write_until_lost(
    write: Callable[[str, str, Progress], None], proxy: LosingProxy, count: int, restart: Callable[[], object] | None
) -> Progress:
    """Returns the acknowledged records after this many lost responses; `restart` is called halfway."""
    progress = Progress()
    thread = threading.Thread(target=write, args=(proxy.address, "t", progress))
    thread.start()
    try:
        while proxy.lost < count:
            progress.wait_for(len(progress.offsets) + 1)
            if restart is not None and proxy.lost >= count // 2:
                restart()
                restart = None
    finally:
        progress.stop.set()
        thread.join(PATIENCE_S)
    assert not progress.failures, progress.failures[0]
    return progress


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
@pytest.mark.parametrize("client", PRODUCERS)
def test_lost_response_causes_no_duplicate(
    client: str, killed: bool, tmp_path: Path, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    """The broker detects the batch by its sequence, also after a kill -9 in between."""
    with with_a_losing_proxy(tmp_path, 4) as (running, proxy):
        create(proxy.address, "t")
        restart = (lambda: running.restart("kill")) if killed else None
        progress = write_until_lost(PRODUCERS[client], proxy, scaled(LOST), restart)
        found = numbers_in(running, "t")
        assert found == list(range(len(found)))
        assert all(offset < 0 or found[offset] == number for number, offset in progress.offsets.items())
        assert len(progress.offsets) <= len(found)


def test_without_idempotence_the_same_run_has_duplicates(
    tmp_path: Path, create: Callable[..., str], scaled: Callable[[int], int]
) -> None:
    with with_a_losing_proxy(tmp_path, 4) as (running, proxy):
        create(proxy.address, "t")
        progress = write_until_lost(ottla(5, "off"), proxy, scaled(LOST), None)
        found = numbers_in(running, "t")
        assert set(progress.offsets) <= set(found)
        assert len(found) > len(set(found))
