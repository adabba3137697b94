"""A broker whose syncs of logs wait until a test releases them, and checks of pending responses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla_testing.broker.harness import Broker, Client, running
from ottla_testing.patience import PATIENCE_S
from ottla_testing.storage.failing_files import FailingFiles


class Syncs:
    """The syncs of `.log` files whose folder begins with `prefix`: each waits for `let`, and fails with `code` unless
    that is 0.
    """

    def __init__(self, files: FailingFiles) -> None:
        self.begun: list[str] = []
        self.code = 0
        self.prefix = "t-"
        self._may_end = threading.Semaphore(0)
        self._open = False
        files.fails = self._step

    def _step(self, operation: str, path: str) -> int:
        folder, _, name = path.rpartition("/")
        if operation != "sync" or not name.endswith(".log") or not Path(folder).name.startswith(self.prefix):
            return 0
        self.begun.append(path)
        if not self._open:
            assert self._may_end.acquire(timeout=PATIENCE_S)
        return self.code

    def let(self, number: int = 1) -> None:
        """Releases this many syncs."""
        self._may_end.release(number)

    def let_all(self) -> None:
        """Releases all syncs, including later ones."""
        self._open = True
        self._may_end.release(1000)

    def hold(self, prefix: str) -> None:
        """From now on the syncs of these folders wait, and are counted."""
        self.prefix, self._open = prefix, False
        self._may_end = threading.Semaphore(0)
        self.begun.clear()

    async def until(self, number: int) -> None:
        """Returns when this many syncs have begun."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.begun) < number:
                await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def holding(*folders: Path, **more: Any) -> AsyncIterator[tuple[Broker, Syncs]]:
    """A broker whose syncs of logs wait for `let`."""
    files = FailingFiles()
    async with running(*folders, files=files, **more) as broker:
        syncs = Syncs(files)
        try:
            yield broker, syncs
        finally:
            syncs.let_all()


class Held(Exception):
    """A response arrived too early."""


async def still_waits(broker: Broker, *tasks: asyncio.Task[Any]) -> None:
    """Lets the broker handle everything, and checks that none of these is done."""
    await broker.settle()
    for task in tasks:
        if task.done():
            raise Held(task.result())


def begun(call: Awaitable[Any]) -> asyncio.Task[Any]:
    return asyncio.ensure_future(call)  # type: ignore[return-value]


async def set_config(client: Client, kind: int, name: str, key: str, value: str | None) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
    requested = resource(resource_type=kind, resource_name=name, configs=[config])
    response = await client.call(IncrementalAlterConfigsRequest(resources=[requested], validate_only=False), 1)
    assert response.responses[0].error_code == 0
