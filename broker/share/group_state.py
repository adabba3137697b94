"""Initializes and deletes the state of share partitions for their groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ..errors import code_of
from .values import SharePartitionKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..groups.share_groups import StatePartition
    from .state_coordinator import StateCoordinator, Submitted


class GroupState:
    """The share coordinator, as groups use it."""

    def __init__(self, coordinator: StateCoordinator) -> None:
        self._coordinator = coordinator

    async def initialize(self, of: StatePartition, state_epoch: int, start_offset: int) -> ErrorCode:
        """Begins a new state of a share partition."""
        key = SharePartitionKey(*of)
        return await _written(lambda: self._coordinator.initialize(key, state_epoch, start_offset))

    async def delete(self, of: StatePartition) -> ErrorCode:
        """Removes the state of a share partition, if there is any."""
        key = SharePartitionKey(*of)
        return await _written(lambda: self._coordinator.delete(key))


async def _written(write: Callable[[], Submitted | None]) -> ErrorCode:
    try:
        submitted = write()
        if isinstance(submitted, asyncio.Future):
            await submitted
    except Exception as error:
        return code_of(error)
    return ErrorCode.NONE
