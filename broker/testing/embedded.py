"""A broker in the process of a test, on an event loop in a thread of its own: `Embedded`, whose methods block, and
`AsyncEmbedded`, whose methods are awaited.

The operations are those of `broker/admin_api/operations.py`. Without a data directory the storage engine keeps
everything in memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from ...storage.io import permissions
from ..admin_api.expectations import Verdict
from ..admin_api.operations import Operations, config_texts
from ..admin_api.seen_requests import SeenRequest
from ..admin_api.snapshots import Snapshot
from ..admin_api.views import (
    AclEntry,
    AlreadyExists,
    BrokerFailed,
    ConfigInfo,
    Group,
    GroupReset,
    NewRecord,
    NotFound,
    OperationError,
    ProducerInfo,
    Record,
    TopicInfo,
    checked_text,
    whole,
)
from ..config.control_access import checked_token
from ..config.definitions import broker_fact
from ..config.record_options import RecordOptions
from ..config.security.words import PLAINTEXT
from ..config.serve_options import ControlOptions, ServeOptions, control_listener, flags_to_configs, serve_options
from ..config.values import Config
from ..errors import ConfigError
from ..faults import disk as _disk  # noqa: F401  # pyright: ignore[reportUnusedImport]  else the first start imports it
from ..record_schemas import schemas as record_schemas
from ..releases.profiles import NEWEST, profile
from . import assertions
from .broker_thread import BrokerThread
from .calls import Awaited, Blocking, operation
from .client_settings import client_settings
from .decoders import Decode, DecodedRecord, Decoder, Undecodable, decoded
from .faults import AsyncFaultsView, FaultsView
from .security import ADMIN, TOKEN_LIFETIME_S, Security, made
from .views import (
    AsyncClockView,
    AsyncRequestsView,
    AsyncTopologyFacade,
    ClockView,
    RequestsView,
    TopologyFacade,
    judged_words,
)

__all__ = [
    "AclEntry",
    "AlreadyExists",
    "AsyncEmbedded",
    "BrokerFailed",
    "ConfigInfo",
    "DecodedRecord",
    "Embedded",
    "Group",
    "GroupReset",
    "NewRecord",
    "NotFound",
    "OperationError",
    "ProducerInfo",
    "Record",
    "Snapshot",
    "TopicInfo",
    "TopologyFacade",
    "Undecodable",
]

MEMORY_DIR = "/ottla"  # the data directory of a broker in memory
# Defaults that differ from those of `ottla serve`: a group does not wait for further members, and the internal topics
# are created in a millisecond or two.
DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # A client that must retry FindCoordinator starts 0.1 s later, librdkafka 1 s.
    "ottla.behaviour.coordinator_awaits_topic": "false",
    "ottla.behaviour.created_topic": "ready",  # as costly to clients
}
R = TypeVar("R")


def embedded_options(
    release: str,
    configs: Mapping[str, Any] | None,
    data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
    brokers: int | None,
    listeners: str | Sequence[str] | None,
    node_ids: Sequence[int] | None,
    security: Security,
) -> ServeOptions:
    """Returns the options of an embedded broker without a control plane. Raises UnknownRelease and ConfigError, which
    are ValueErrors, and TypeError, each with one line."""
    permissions.configured_umask()
    played = profile(checked_text("release", release or NEWEST))
    texts = config_texts({} if configs is None else configs)
    if brokers is not None:
        whole("brokers", brokers)
    if node_ids is not None:
        if isinstance(node_ids, str):
            raise TypeError(f"node_ids is a list of whole numbers, not {node_ids!r}")
        for node_id in node_ids:
            whole("a node id", node_id)
    for name, text in DEFAULTS.items():
        if name not in texts and broker_fact(name, played) is not None:
            texts[name] = text
    if not listeners and "listeners" not in texts:
        listeners = "127.0.0.1:0"
    addresses = [listeners] if isinstance(listeners, str) else list(listeners or ())
    folders: list[str] = []
    if data_dir is not None:
        paths = [data_dir] if isinstance(data_dir, str | os.PathLike) else data_dir
        folders = [os.fspath(path) for path in paths]
    elif "log.dirs" not in texts and "log.dir" not in texts:
        folders = [MEMORY_DIR]
    texts |= flags_to_configs(addresses, [], folders, security.protocol)
    advertised = texts.get("advertised.listeners")
    secured = security.configs(texts["listeners"].split(","), advertised.split(",") if advertised else [], played)
    options = serve_options(
        Config(secured | texts, profile=played), flag_listeners=bool(addresses), brokers=brokers, node_ids=node_ids
    )
    bad_certificate = security.bad_certificate if security.has_tls else None
    return replace(options, scram_users=security.users, bad_certificate=bad_certificate)


def _control(
    control: str | None, write: bool, schemas: Mapping[str, str | os.PathLike[str]] | None, token: str | None
) -> ControlOptions | None:
    """Returns the options of a control plane at HOST:PORT; None if `control` is None. Raises ConfigError."""
    if control is not None:
        checked = None if token is None else checked_token(token, "control_token")
        listener = control_listener(control)
        loaded = record_schemas.load(schemas.items()) if schemas else None
        return ControlOptions(listener, checked, may_write=write, schemas=loaded)
    if token is not None:
        raise ConfigError("control_token needs control: it is the token of the control plane")
    if schemas is not None:
        raise ConfigError("schemas needs control: it is for the web page of the control plane")
    return None


def _selected(verdict: Verdict) -> list[SeenRequest]:
    __tracebackhide__ = True
    if not verdict.passed:
        raise AssertionError(verdict.text)
    return verdict.selected


async def _decoded(
    operations: Operations,
    topic: str,
    partition: int | None = None,
    *,
    decode: Decode = None,
    decode_key: Decode = None,
) -> Any:
    found = await operations.records(topic, partition)
    if decode is None and decode_key is None:
        return found
    return await asyncio.to_thread(decoded, found, decode, decode_key)


class _Calls:
    """The arguments and operations that `Embedded` and `AsyncEmbedded` have in common."""

    _thread: BrokerThread

    def __init__(  # noqa: PLR0913  the public signature, which users call by keyword
        self,
        release: str = NEWEST,
        configs: Mapping[str, Any] | None = {},
        data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        brokers: int | None = None,
        listeners: str | Sequence[str] | None = None,
        control: str | None = None,
        control_write: bool = False,
        record: str | os.PathLike[str] | None = None,
        node_ids: Sequence[int] | None = None,
        schemas: Mapping[str, str | os.PathLike[str]] | None = None,
        control_token: str | None = None,
        security: str = PLAINTEXT,
    ) -> None:
        """Checks the arguments; does not start the broker. Raises ValueError, TypeError."""
        kit = made(checked_text("security", security))
        options = embedded_options(release, configs, data_dir, brokers, listeners, node_ids, kit)
        if record is not None:
            options = replace(options, record=RecordOptions(os.fspath(record)))
        options = replace(options, control=_control(control, control_write, schemas, control_token))
        self._attach(BrokerThread(options, in_memory=data_dir is None, security=kit), release)

    def _attach(self, thread: BrokerThread, release: str) -> None:
        self.options = thread.options
        self.release = release
        self._thread = self.caller = thread

    async def __aenter__(self) -> Self:
        await self._thread.start_awaited()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._thread.stop_awaited()
        except OperationError:
            if error is None:
                raise

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, once the broker is started: HOST:PORT of the first listener of each node."""
        return next(iter(self._thread.bootstraps.values()), "")

    @property
    def bootstraps(self) -> dict[str, str]:
        """The bootstrap servers of each listener, by its name."""
        return self._thread.bootstraps

    @property
    def control_url(self) -> str | None:
        """The URL of the control plane, once the broker is started; None without one."""
        return self._thread.control_url

    @property
    def control_token(self) -> str | None:
        """The token that the control plane needs, once the broker is started; None if it needs none."""
        return self._thread.control_token

    def client_settings(
        self,
        library: str,
        user: str | None = None,
        mechanism: str | None = None,
        *,
        token_lifetime_s: int | None = None,
    ) -> Any:
        """Returns the settings with which a client connects to the first listener, once the broker is started: a dict
        that its constructor takes, or a list of arguments for kcat.

            Producer(broker.client_settings("confluent-kafka"))
            KafkaProducer(**broker.client_settings("kafka-python", mechanism="SCRAM-SHA-256"))

        `library` is `confluent-kafka`, `kafka-python`, `aiokafka`, `ottla`, `java`, `java-pkcs12` (before 2.7), `kcat`,
        `kafkajs` or `values`; `user` is `admin`, the default, or `user`; `mechanism` PLAIN, the default, SCRAM-SHA-256
        or SCRAM-SHA-512, and OAUTHBEARER alone of a broker with tokens. `token_lifetime_s` is that of tokens: by
        default an hour, by the broker's clock, or ten years where a library makes its tokens itself or has one for
        all logins. Raises ValueError for other names.
        """
        if not self._thread.bootstraps:
            raise OperationError("the broker does not run: its address is known once it is started")
        if token_lifetime_s is not None:
            whole("token_lifetime_s", token_lifetime_s)
        security = self._thread.security
        return client_settings(library, self.bootstrap, security, user, mechanism, token_lifetime_s)

    @property
    def users(self) -> Mapping[str, str]:
        """The passwords of the users that can log in, by name; empty without passwords."""
        return dict(self._thread.security.users)

    def oauth_token(self, user: str = ADMIN, lifetime_s: float = TOKEN_LIFETIME_S, **claims: Any) -> str:
        """Returns a token of OAUTHBEARER for a token callback of a test: issued at the time of the broker's clock,
        unsecured, for a user of any name. `claims` are more, or other ones: `scope="orders"`.
        """
        return self._thread.security.token(checked_text("user", user), lifetime_s, **claims)

    # The whole state

    snapshot = operation(Operations.snapshot)
    restore = operation(Operations.restore)
    reset = operation(Operations.reset)

    # Topics

    create_topic = operation(Operations.create_topic)
    delete_topic = operation(Operations.delete_topic)
    topics = operation(Operations.topics)
    topic = operation(Operations.topic)

    # Records

    send = operation(Operations.send)
    send_many = operation(Operations.send_many)
    _records = operation(_decoded)
    assert_produced = operation(assertions.produced, finish=assertions.raise_difference)

    # Requests

    assert_requests = operation(judged_words, finish=_selected)
    """Raises AssertionError with the differences unless the requests of clients meet an expectation, given by `Words`.
    Returns the selected requests.

        broker.assert_requests(api="Produce", client_id="orders", acks=-1, idempotent=True, codec="lz4")

    Missing requests and responses are awaited for `within_ms` of real time. Raises ValueError and TypeError for
    invalid words.
    """

    # Groups and producers

    groups = operation(Operations.groups)
    group = operation(Operations.group)
    producers = operation(Operations.producers)
    delete_group = operation(Operations.delete_group)
    reset_offsets = operation(Operations.reset_offsets)

    # Configs and access control lists

    topic_configs = operation(Operations.topic_configs)
    change_topic_configs = operation(Operations.change_topic_configs)
    broker_configs = operation(Operations.broker_configs)
    change_broker_configs = operation(Operations.change_broker_configs)
    acls = operation(Operations.acls)
    add_acls = operation(Operations.add_acls)
    remove_acls = operation(Operations.remove_acls)


class Embedded(_Calls, Blocking):
    """A broker in a thread of this process, for tests: starts in milliseconds, and stops at the end of its context.

    `release` is the Kafka release whose behaviour it has, by default the newest; "ottla" is Ottla's own profile.
    `configs` are a broker's, by Kafka's names; an unknown name is refused. Five defaults differ from Kafka's:
    `group.initial.rebalance.delay.ms` is 0, `offsets.topic.num.partitions` and `transaction.state.log.num.partitions`
    are 4, `ottla.behaviour.coordinator_awaits_topic` is false, so that the first FindCoordinator returns the node, and
    `ottla.behaviour.created_topic` is `ready`, so that a Metadata request returns the topic that it creates.
    Without `data_dir` (a folder, or several) everything is kept in memory and lost with the object. `brokers` is the
    number of nodes that clients see, with ids from the config `node.id` or 1 upwards; `node_ids` sets the ids instead,
    such as `[0, 1, 2]`. `listeners` are `[NAME=]HOST:PORT`, by default one on a free port of 127.0.0.1. `control`,
    HOST:PORT, adds a control plane for other processes, as `ottla serve --control` does (it needs the extra `http`);
    it needs `control_token`, by default a generated one, unless the host is a loopback address and no token is given;
    with `control_write` its web page may change the broker, and with `schemas` it decodes keys and values:
    `{"orders": "order.avsc", "orders:key": "key.desc#shop.Key"}`. `record` is a file for all requests and responses:
    `.jsonl` is JSON lines, `.pcapng` is for Wireshark; it is complete when the broker has stopped. `security` is
    `plaintext`, `ssl` (TLS), `mtls` (TLS, also with certificates of clients), `sasl_plaintext` (logins), `sasl_ssl`
    (TLS and logins), `oauth_plaintext` (logins with tokens) or `oauth_ssl` (TLS and tokens); `client_settings` returns
    what a client then needs. Of its users `admin` is a super user.

    Used as `with Embedded() as broker:` or `async with Embedded() as broker:`, or by `start` and `stop`. All methods
    may be called from any thread. They block a running event loop; `broker.aio` has the same methods to be awaited.
    The broker refuses an operation with an OperationError.
    """

    def _attach(self, thread: BrokerThread, release: str) -> None:
        super()._attach(thread, release)
        self.faults = FaultsView(thread.faults, self._with_faults)
        """Fault injection: errors, delays, lost responses, failures of the disk. Rules that are added before the start,
        or after a stop, are in force from the next start on."""
        self.requests = RequestsView(thread)
        """The requests of clients with their responses: `requests(api="Produce", client_id="orders")` lists the newest
        10,000 at most, `requests.clear()` removes them, `requests.mark()` is for `since=`."""
        self.clock = ClockView(thread)
        """The broker's clock: freeze, run, set, advance."""
        self.topology = TopologyFacade(thread)
        """The nodes and leaders: move leaders, take partitions offline, stop and start nodes."""

    @property
    def aio(self) -> AsyncEmbedded:
        """The same broker with methods that are awaited, by coroutines of any loop."""
        return AsyncEmbedded.of(self)

    def _with_faults(self, work: Callable[[], R]) -> R:
        return work() if self._thread.operations is None else self._thread.call(partial(_done, work))

    def start(self) -> Self:
        """Starts the broker, and returns when clients can connect. A restarted broker keeps its data. Raises
        StartupError, or OperationError if it runs already."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops the broker, and returns when its thread has ended; does nothing if it does not run. Raises
        OperationError if not everything could be written."""
        self._thread.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except OperationError:
            if error is None:
                raise

    @overload
    def records(
        self, topic: str, partition: int | None = None, *, decode: None = None, decode_key: None = None
    ) -> list[Record]: ...
    @overload
    def records(
        self, topic: str, partition: int | None = None, *, decode: Decoder, decode_key: Decode = None
    ) -> list[DecodedRecord]: ...
    @overload
    def records(
        self, topic: str, partition: int | None = None, *, decode: None = None, decode_key: Decoder
    ) -> list[DecodedRecord]: ...
    def records(
        self, topic: str, partition: int | None = None, *, decode: Decode = None, decode_key: Decode = None
    ) -> Any:
        """Returns all committed records of a topic, or of one of its partitions, by partition and offset.

        With `decode`, "json" or a function of the bytes, the values are decoded, with `decode_key` the keys. Raises
        NotFound, and Undecodable for the first record that cannot be decoded.
        """
        return self._records(topic, partition, decode=decode, decode_key=decode_key)


class AsyncEmbedded(_Calls, Awaited):
    """`Embedded` for coroutines: it has the same arguments, runs in a thread of its own as well, and all its methods
    are awaited, by coroutines of any loop.

        async with AsyncEmbedded() as broker:
            topic = await broker.create_topic()
            async with broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=1):
                ...
            await broker.assert_produced(topic, [b"bread"], within_ms=5000)
    """

    def _attach(self, thread: BrokerThread, release: str) -> None:
        super()._attach(thread, release)
        self.faults = AsyncFaultsView(thread.faults, self._with_faults)
        """Like `Embedded.faults`; each is awaited, or used with `async with`."""
        self.requests = AsyncRequestsView(thread)
        """Like `Embedded.requests`."""
        self.clock = AsyncClockView(thread)
        """Like `Embedded.clock`; `(await clock.state()).now_ms` is the time."""
        self.topology = AsyncTopologyFacade(thread)
        """Like `Embedded.topology`."""

    @classmethod
    def of(cls, broker: Embedded) -> Self:
        """Returns `broker` with methods that are awaited."""
        found = cls.__new__(cls)
        found._attach(broker._thread, broker.release)
        return found

    async def _with_faults(self, work: Callable[[], R]) -> R:
        return work() if self._thread.operations is None else await self._thread.call_awaited(partial(_done, work))

    async def start(self) -> Self:
        """Like `Embedded.start`."""
        await self._thread.start_awaited()
        return self

    async def stop(self) -> None:
        """Like `Embedded.stop`."""
        await self._thread.stop_awaited()

    @overload
    async def records(
        self, topic: str, partition: int | None = None, *, decode: None = None, decode_key: None = None
    ) -> list[Record]: ...
    @overload
    async def records(
        self, topic: str, partition: int | None = None, *, decode: Decoder, decode_key: Decode = None
    ) -> list[DecodedRecord]: ...
    @overload
    async def records(
        self, topic: str, partition: int | None = None, *, decode: None = None, decode_key: Decoder
    ) -> list[DecodedRecord]: ...
    async def records(
        self, topic: str, partition: int | None = None, *, decode: Decode = None, decode_key: Decode = None
    ) -> Any:
        """Like `Embedded.records`."""
        return await self._records(topic, partition, decode=decode, decode_key=decode_key)


async def _done(work: Callable[[], R], operations: Operations) -> R:
    return work()
