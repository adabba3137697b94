"""The admin client: describes and changes topics, configs, logs, groups and the cluster.

Owns start and stop. The calls are in `topics.py`, `groups.py` and so on, routing and retries in `calls.py`, parameters
and results in `types.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from ..consumer.group_offsets import OffsetAndMetadata as OffsetAndMetadata
from ..consumer.list_offsets import EARLIEST as EARLIEST
from ..consumer.list_offsets import LATEST as LATEST
from ..consumer.list_offsets import FoundOffset as FoundOffset
from ..net.cluster import Cluster
from ..net.errors import ClientError
from ..net.options import ClientOptions, field_values
from .calls import Calls
from .calls import checked as checked
from .cluster import ClusterCalls
from .configs import ConfigCalls
from .configs import quota_entity as quota_entity
from .groups import GroupCalls
from .logs import EARLIEST_LOCAL as EARLIEST_LOCAL
from .logs import HIGH_WATERMARK as HIGH_WATERMARK
from .logs import LATEST_TIERED as LATEST_TIERED
from .logs import MAX_TIMESTAMP as MAX_TIMESTAMP
from .logs import LogCalls
from .security import DelegationToken as DelegationToken
from .security import SecurityCalls
from .topics import TopicCalls
from .transactions import TransactionCalls
from .types import *  # noqa: F403  # the parameters and results, which applications import from here


class Admin(
    TopicCalls,
    ConfigCalls,
    LogCalls,
    GroupCalls,
    TransactionCalls,
    SecurityCalls,
    ClusterCalls,
):
    """Describes and changes a cluster.

        async with Admin("127.0.0.1:9092") as admin:
            checked(await admin.create_topics([NewTopic("orders", 3)]))
            print(await admin.list_topics())

    A call on several items returns a dict with a result or a ClientError for each: a KafkaError for an error response,
    UnsupportedVersion if the broker is too old. Success without a result is None. `checked` raises the first error
    instead. A call on one item (the cluster, one group, a whole list) raises its error. Every call is sent to the
    responsible controller, leader or coordinator, and retried while that moves, until `default_api_timeout_ms` or its
    own `timeout_s`.

    Options are those of `ClientOptions`; `from_config` accepts Kafka's names. `random` is for back-off.
    """

    def __init__(
        self, bootstrap: str | Iterable[str] = "127.0.0.1:9092", *, random: Random | None = None, **options: Any
    ) -> None:
        self.options = ClientOptions(bootstrap=bootstrap, **field_values(ClientOptions, options))
        self._cluster = Cluster(self.options, rng=random)
        self._calls = Calls(self._cluster)
        self._was_started = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, random: Random | None = None) -> Admin:
        """Creates an admin client from Kafka's option names: `{"bootstrap.servers": ...}`. Raises ConfigError."""
        return cls(random=random, **field_values(ClientOptions, config))

    async def start(self) -> None:
        """Connects to the cluster. Raises ConnectionLost if no broker is reachable; it may then be called again."""
        if self._was_started:
            raise ClientError("an admin client can be started only once")
        await self._cluster.start()
        self._was_started = True

    async def stop(self) -> None:
        """Closes the client; running calls fail with ClientClosed. May be called again."""
        await self._cluster.close()

    async def __aenter__(self) -> Admin:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()
