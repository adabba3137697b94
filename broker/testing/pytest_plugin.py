"""The pytest plugin `ottla`: brokers and topics for tests, as fixtures.

`ottla_broker` is one `Embedded` broker for the whole session (with pytest-xdist one in each worker), `ottla_topic` the
name of a topic on it for this test alone, `ottla_factory` starts brokers that stop with the test. For tests that are
coroutines, with any plugin that runs them on asyncio, `ottla_async_broker` and `ottla_async_factory` are the same with
methods to be awaited.

    @pytest.mark.ottla(configs={"cleanup.policy": "compact"}, partitions=3)
    def test_it(ottla_broker, ottla_topic): ...

The marker's `configs` and `partitions` apply to `ottla_topic`; its `broker_configs`, `release`, `brokers` and
`security` are the defaults of `ottla_factory`, and so are its `configs` in a test without `ottla_topic`. A marker on a
class or a module applies to all tests in it; the nearest marker wins, config by config.

The session's broker has the release of the ini option `ottla_release`, the security of `ottla_security`, and the
configs of `ottla_configs`, one `name=value` a line. After each test that uses it, the test's topic is deleted, all
faults are removed, the clock is set to the machine's, stopped nodes are started and the list of requests is cleared;
other topics, and groups, stay.

Only pytest is imported until a test requests one of the fixtures; `-p no:ottla` disables the plugin.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .embedded import AsyncEmbedded, Embedded

MARKER = (
    "ottla(configs={}, partitions=1, broker_configs={}, release=None, brokers=1, node_ids=None, security='plaintext'): "
    "topics and brokers"
)
MARKED: Mapping[str, Any] = {
    "configs": {},
    "partitions": 1,
    "broker_configs": {},
    "release": None,
    "brokers": None,
    "node_ids": None,
    "security": None,
}
DEFAULT_RELEASE = ""  # the newest
DEFAULT_SECURITY = "plaintext"
MAX_WORDS = 100  # characters of a test's name in the name of its topic; Kafka allows 249 in all
CLOCKS_AGREE_MS = 100  # a clock that differs by less was not moved
NUMBERS = count()
BROKER: pytest.StashKey[Embedded] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    release = "the Kafka release of ottla_broker, such as 3.9; the newest by default"
    parser.addini("ottla_release", release, default=DEFAULT_RELEASE)
    security = (
        "the security of ottla_broker: plaintext, ssl, mtls, sasl_plaintext, sasl_ssl, oauth_plaintext or oauth_ssl"
    )
    parser.addini("ottla_security", security, default=DEFAULT_SECURITY)
    parser.addini("ottla_configs", "configs of ottla_broker, one name=value per line", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Returns the arguments of a test's markers, the nearest ones last. Fails the test for unknown arguments."""
    found: dict[str, Any] = {name: copy(value) for name, value in MARKED.items()}
    for marker in reversed(list(request.node.iter_markers("ottla"))):
        if marker.args or not marker.kwargs.keys() <= MARKED.keys():
            unknown = [*map(repr, marker.args), *sorted(marker.kwargs.keys() - MARKED.keys())]
            pytest.fail(f"the marker ottla takes {', '.join(MARKED)} by name, not {', '.join(unknown)}", pytrace=False)
        for name, value in marker.kwargs.items():
            found[name] = {**found[name], **value} if isinstance(found[name], dict) else value
    return found


def session_configs(lines: list[str]) -> dict[str, str]:
    """Returns the configs of the ini option. Raises UsageError for a line without `=`."""
    configs: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"ottla_configs: {line!r} is not name=value")
        configs[name.strip()] = value.strip()
    return configs


def clean_up(broker: Embedded) -> None:
    """Undoes a test's changes to the session's broker, for the next test; resets a broker whose disk failed."""
    from ..admin_api.views import BrokerFailed

    broker.faults.clear()
    broker.requests.clear()
    try:
        clock = broker.clock.state()
    except BrokerFailed:
        broker.reset()
        return
    if clock.is_frozen or abs(clock.offset_ms) > CLOCKS_AGREE_MS:
        broker.clock.set(clock.now_ms - clock.offset_ms)
        broker.clock.run()
    for node in broker.topology.describe().nodes:
        if not node.running:
            broker.topology.start_node(node.id)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Cleans the session's broker up after the fixtures of a test that used it."""
    try:
        return (yield)
    finally:
        broker = item.config.stash.get(BROKER, None)
        if broker is not None and "ottla_broker" in getattr(item, "fixturenames", ()):
            clean_up(broker)


@pytest.fixture(scope="session")
def ottla_broker(pytestconfig: pytest.Config) -> Iterator[Embedded]:
    """A Kafka broker for the whole session; tests share it, and use topics and groups of their own.

    Clients connect to `ottla_broker.bootstrap`.
    """
    from .embedded import Embedded

    configs = session_configs(pytestconfig.getini("ottla_configs"))
    release, security = pytestconfig.getini("ottla_release"), pytestconfig.getini("ottla_security")
    with Embedded(release=release, configs=configs, security=security) as broker:
        pytestconfig.stash[BROKER] = broker
        yield broker
        del pytestconfig.stash[BROKER]


@pytest.fixture
def ottla_topic(request: pytest.FixtureRequest, ottla_broker: Embedded) -> Iterator[str]:
    """The name of a topic on `ottla_broker` for this test alone; the marker `ottla` configures it."""
    from ..admin_api.views import OperationError

    wanted = marked(request)
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name)[:MAX_WORDS].strip("-")
    name = ottla_broker.create_topic(f"{words}-{next(NUMBERS)}", wanted["partitions"], wanted["configs"])
    yield name
    with contextlib.suppress(OperationError):  # the test has deleted it
        ottla_broker.delete_topic(name)


@pytest.fixture
def ottla_async_broker(ottla_broker: Embedded) -> AsyncEmbedded:
    """`ottla_broker` for a coroutine: `await ottla_async_broker.assert_produced(ottla_topic, [b"bread"])`."""
    return ottla_broker.aio


@pytest.fixture
def ottla_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Embedded]]:
    """`ottla_factory(release=None, configs={}, brokers=1, node_ids=None, security="plaintext", **more)` starts a broker
    for this test.

    Omitted arguments come from the marker `ottla`; `more` are further arguments of `Embedded`. The brokers stop with
    the test.
    """
    from .embedded import Embedded

    wanted = marked(request)
    has_topic = "ottla_topic" in request.fixturenames
    defaults: dict[str, Any] = {**({} if has_topic else wanted["configs"]), **wanted["broker_configs"]}

    with contextlib.ExitStack() as running:

        def make(
            release: str | None = None,
            configs: Mapping[str, Any] = {},
            brokers: int | None = None,
            node_ids: Sequence[int] | None = None,
            security: str | None = None,
            **more: Any,
        ) -> Embedded:
            broker = Embedded(
                release=release or wanted["release"] or request.config.getini("ottla_release"),
                configs={**defaults, **configs},
                brokers=wanted["brokers"] if brokers is None and node_ids is None else brokers,
                node_ids=wanted["node_ids"] if brokers is None and node_ids is None else node_ids,
                security=security or wanted["security"] or request.config.getini("ottla_security"),
                **more,
            )
            return running.enter_context(broker)

        yield make


@pytest.fixture
def ottla_async_factory(ottla_factory: Callable[..., Embedded]) -> Callable[..., Awaitable[AsyncEmbedded]]:
    """`await ottla_async_factory(...)` starts a broker for this test, as `ottla_factory` does, with methods to be
    awaited."""

    async def make(**more: Any) -> AsyncEmbedded:
        import asyncio  # not at the top: tests without a broker do not need it

        return (await asyncio.to_thread(partial(ottla_factory, **more))).aio

    return make
