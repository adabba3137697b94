"""The quotas of a broker: configured values, and the throttle that enforces them.

Owns how a change is written to the metadata log and put into force. `throttle` is None while there are no quotas, so
requests then only check that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...protocol.internal_records.metadata_records import ClientQuotaRecord
from ...protocol.limits import INT64_MAX
from ..errors import Refused
from ..logs import get_logger
from . import throttle as throttling
from .rates import Windows
from .stored import FETCH, MUTATION, PRODUCE, REQUEST, Alteration, StoredQuotas, literal_address, look_up

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config.values import Config
    from ..cooperative import CooperativeScheduler
    from ..metadata.log import MetadataLog

UNLIMITED = INT64_MAX
WINDOWS, WINDOW_SECONDS = 11, 1  # defaults for releases without these configs
Results = list[tuple[Mapping[str, str | None], Refused | None]]


class ClientQuotas:
    """Created at startup; quotas take effect after `begin`."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        timer: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`timer` is the clock of handler times, in ns."""
        self._config = config
        self._clock = clock
        self._loop = loop
        self._timer = timer
        self._log: MetadataLog | None = None
        self._addresses: dict[str, str] = {}  # host name -> address
        self.stored = StoredQuotas(config.profile.behaviour.quota_checks)
        self.throttle: throttling.Throttle | None = None

    def begin(self, log: MetadataLog, records: Iterable[Any]) -> None:
        """Loads quotas from the records of the metadata log (other records are ignored); changes are
        written to `log`.
        """
        self._log = log
        for record in records:
            if isinstance(record, ClientQuotaRecord):
                self.stored.replay(record)
        self._changed()
        for name in self.stored.host_names():  # resolved in a thread: it may take seconds
            looked_up = self._loop.run_in_executor(None, look_up, name)
            looked_up.add_done_callback(partial(self._resolved, name))

    def _resolved(self, name: str, looked_up: asyncio.Future[str | None]) -> None:
        if looked_up.cancelled() or looked_up.exception() is not None:
            return
        address = looked_up.result()
        if address is None:
            get_logger().warning("address quota ignored", reason=f"host name {name} cannot be resolved")
            return
        self._addresses[name] = address
        self._changed()

    async def alter(
        self, alterations: Sequence[Alteration], scheduler: CooperativeScheduler, *, validate_only: bool
    ) -> Results:
        """Changes quotas, or with `validate_only` only validates them; returns the result for each entity. Raises
        Refused for too many changes, and StorageError.
        """
        for name in dict.fromkeys(name for one in alterations if (name := one.entity.get("ip"))):
            if literal_address(name) is None and name not in self._addresses:
                address = await self._loop.run_in_executor(None, look_up, name)
                if address is not None:
                    self._addresses[name] = address
        records, results = await scheduler.run(self.stored.alter(alterations, self._addresses.__contains__))
        if records and not validate_only:
            assert self._log is not None
            await scheduler.run(self._log.append_steps(records, self._clock.now_ms()))
            for record in records:
                self.stored.replay(record)
            self._changed()
        return results

    def _default(self, name: str) -> float | None:
        """Returns the limit for client ids without a quota of their own, a broker config of old releases."""
        if self._config.fact(name) is None:
            return None
        rate = self._config[name]
        return None if rate == UNLIMITED else float(rate)

    def _changed(self) -> None:
        defaults = {PRODUCE: self._default("quota.producer.default"), FETCH: self._default("quota.consumer.default")}
        if not self.stored and not any(defaults.values()):
            self.close()
            self.throttle = None
            return
        if self.throttle is None:
            self.throttle = throttling.Throttle(
                self._clock,
                self._windows("quota"),
                self._windows("controller.quota"),
                mutes=self._config.profile.behaviour.mutes_throttled,
                timer=self._timer,
            )
        stored, made = self.stored, self.throttle
        made.produce.limits = stored.limits(PRODUCE, defaults[PRODUCE])
        made.fetch.limits = stored.limits(FETCH, defaults[FETCH])
        made.request.limits = stored.limits(REQUEST)
        made.mutations.limits = stored.limits(MUTATION)
        made.addresses = stored.address_limits(self._addresses)

    def _windows(self, prefix: str) -> Windows:
        config = self._config
        count = config.get(f"{prefix}.window.num", WINDOWS)
        return Windows(count, config.get(f"{prefix}.window.size.seconds", WINDOW_SECONDS) * 1000)

    def forget(self, node_id: int) -> None:
        if self.throttle is not None:
            self.throttle.forget(node_id)

    def close(self) -> None:
        if self.throttle is not None:
            self.throttle.close()
