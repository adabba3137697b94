"""The pytest plugin and the unittest mixin, in test runs of their own: imports, sharing, isolation, clean-up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_testing.patience import PATIENCE_S

Run = Callable[..., "Outcome"]
BROUGHT = ("ottla", "uvloop", "construct", "structlog", "crc32c", "cramjam")


class Outcome:
    """A finished test run: its output, and the notes of its tests, in order."""

    def __init__(self, run: subprocess.CompletedProcess[str], notes: Path) -> None:
        self.code = run.returncode
        self.text = run.stdout + run.stderr
        self.notes = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Returns `run(test_file, *arguments)`, which starts pytest outside this checkout. Its tests `note(...)` values."""
    notes = tmp_path / "notes"
    (tmp_path / "noting.py").write_text(
        "import json\n"
        "def note(*values):\n"
        f"    with open({str(notes)!r}, 'a') as file:\n"
        "        file.write(json.dumps(values) + '\\n')\n"
    )

    def run(source: str, *arguments: str, module: str = "pytest", ini: str = "") -> Outcome:
        (tmp_path / "test_it.py").write_text("from noting import note\n" + source)
        (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = -q --strict-markers -W error\n{ini}")
        command = [sys.executable, "-m", module, *arguments]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
        # Only this plugin and those of pytest itself are loaded: other plugins change the output.
        quiet = [] if "-p" in arguments else ["-p", "no:randomly"]
        quiet += ["-p", "no:asyncio", "-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
        command += quiet if module == "pytest" else []
        outcome = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return Outcome(outcome, notes)

    return run


@pytest.mark.process
def test_plugin_imports_nothing_until_a_test_requests_a_broker(run: Run) -> None:
    outcome = run(
        f"""
import sys

def brought():
    return sorted(name for name in sys.modules if name.split('.')[0] in {BROUGHT!r})

def test_without():
    note(brought())

def test_with(ottla_broker):
    note(brought())
"""
    )
    assert outcome.code == 0, outcome.text
    (without,), (brought,) = outcome.notes
    assert without == ["ottla", "ottla.broker", "ottla.broker.testing", "ottla.broker.testing.pytest_plugin"]
    assert {"ottla.broker.testing.embedded", "ottla.protocol.records.batch"} <= set(brought)


@pytest.mark.smoke
def test_each_test_has_a_topic_of_its_own_on_one_broker(run: Run) -> None:
    outcome = run(
        """
import pytest

pytestmark = pytest.mark.ottla(configs={"retention.ms": 1000, "segment.ms": 5000})

@pytest.mark.parametrize("word", ["a/b c", "ä" * 300])
def test_it(ottla_broker, ottla_topic, word):
    assert ottla_broker.send(ottla_topic, "hello") == 0
    ottla_broker.assert_produced(ottla_topic, [b"hello"])
    note(ottla_broker.bootstrap, ottla_topic, [topic.name for topic in ottla_broker.topics()])

@pytest.mark.ottla(partitions=3, configs={"retention.ms": 2000})
def test_marked(ottla_broker, ottla_topic):
    topic = ottla_broker.topic(ottla_topic)
    note(ottla_broker.bootstrap, len(topic.partitions), topic.configs)
"""
    )
    assert outcome.code == 0, outcome.text
    one, other, marked = outcome.notes
    assert one[0] == other[0] == marked[0]
    assert one[1] != other[1]
    assert one[1].startswith("test_it-a-b-c")
    assert other[2] == [other[1]]  # the topic of the first test was deleted
    assert marked[1:] == [3, {"retention.ms": "2000", "segment.ms": "5000"}]


@pytest.mark.process
def test_workers_of_xdist_have_a_broker_each_and_tests_any_order(run: Run) -> None:
    outcome = run(
        """
import pytest

@pytest.mark.parametrize("number", range(24))
def test_it(ottla_broker, ottla_topic, worker_id, number):
    assert ottla_broker.send(ottla_topic, str(number)) == 0
    note(worker_id, ottla_broker.bootstrap, number)
""",
        *("-n", "2", "-p", "randomly"),
    )
    assert outcome.code == 0, outcome.text
    assert "24 passed" in outcome.text
    pairs = {(worker, address) for worker, address, _ in outcome.notes}
    assert len(pairs) == len({worker for worker, _ in pairs}) == len({address for _, address in pairs})
    orders = [[number for one, _, number in outcome.notes if one == worker] for worker, _ in pairs]
    assert (most := max(orders, key=len)) != sorted(most)


@pytest.mark.process
def test_brokers_of_the_factory_stop_with_their_test(run: Run) -> None:
    outcome = run(
        """
import pytest

@pytest.mark.ottla(configs={"num.partitions": 2}, release="2.8")
def test_defaults(ottla_factory):
    one, other = ottla_factory(), ottla_factory(release="3.9", configs={"num.partitions": 5})
    assert one.release == "2.8" and other.release == "3.9"
    note(one.bootstrap, other.bootstrap)

@pytest.mark.ottla(configs={"retention.ms": 1}, broker_configs={"num.partitions": 2}, brokers=3)
def test_beside_a_topic(ottla_topic, ottla_factory):
    assert ottla_factory().options.brokers == 3
    assert ottla_factory(brokers=1).options.brokers == 1
    assert ottla_factory(node_ids=[0, 1]).topology.describe().nodes[0].id == 0

def test_on_disk(ottla_factory, tmp_path):
    broker = ottla_factory(data_dir=tmp_path / "data")
    broker.send(broker.create_topic("kept"), "v")
    assert (tmp_path / "data" / "kept-0").is_dir()
"""
    )
    assert outcome.code == 0, outcome.text
    for address in outcome.notes[0]:
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


@pytest.mark.process
def test_changes_of_a_test_are_undone_for_the_next(run: Run) -> None:
    outcome = run(
        """
import pytest, socket, time

@pytest.fixture
def untidy():
    yield
    raise RuntimeError("in a teardown")

def test_careless(ottla_broker, ottla_topic, untidy):
    ottla_broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    ottla_broker.clock.freeze()
    ottla_broker.clock.advance(86_400_000)
    with socket.create_connection(ottla_broker.bootstrap.split(":")) as client:
        client.sendall(bytes.fromhex("0000000a 00120000 00000001 ffff"))
        client.recv(4)
    assert len(ottla_broker.requests(api="ApiVersions")) == 1
    ottla_broker.topology.stop_node(1)

def test_next(ottla_broker):
    check(ottla_broker)
    with ottla_broker.faults.disk_error(), pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
        ottla_broker.send(ottla_broker.create_topic("lost"), "v")

def test_last(ottla_broker):
    check(ottla_broker)
    assert ottla_broker.topics() == []

def check(ottla_broker):
    assert not ottla_broker.faults.list() and not ottla_broker.requests()
    assert not ottla_broker.clock.is_frozen
    assert abs(ottla_broker.clock.now_ms - time.time() * 1000) < 60_000
    assert [node.running for node in ottla_broker.topology.describe().nodes] == [True]
"""
    )
    assert "3 passed, 1 error" in outcome.text, outcome.text


@pytest.mark.process
def test_ini_options_configure_the_session_broker(run: Run) -> None:
    outcome = run(
        """
def test_it(ottla_broker, ottla_factory):
    assert (ottla_broker.release, ottla_factory().release) == ("2.8", "2.8")
    note({name: str(ottla_broker.options.config[name]) for name in ("num.partitions", "log.retention.ms")})
""",
        ini="ottla_release = 2.8\nottla_configs =\n    num.partitions = 7\n    log.retention.ms=60000\n",
    )
    assert outcome.code == 0, outcome.text
    assert outcome.notes == [[{"num.partitions": "7", "log.retention.ms": "60000"}]]


@pytest.mark.process
def test_security_is_that_of_the_option_or_of_the_marker(run: Run) -> None:
    outcome = run(
        """
import unittest
import pytest
from ottla.broker.testing.unittest_case import OttlaMixin

def protocols(*brokers):
    note(*(broker.client_settings("java")["security.protocol"] for broker in brokers))

def test_option(ottla_broker, ottla_factory):
    protocols(ottla_broker, ottla_factory(), ottla_factory(security="ssl"))

@pytest.mark.ottla(security="sasl_ssl")
def test_marker(ottla_broker, ottla_factory):
    protocols(ottla_broker, ottla_factory(), ottla_factory(security="plaintext"))

class TestMixin(OttlaMixin, unittest.TestCase):
    ottla_security = "mtls"

    def test_it(self):
        protocols(self.ottla_broker, self.ottla_factory(), self.ottla_factory(security="plaintext"))
""",
        ini="ottla_security = sasl_plaintext\n",
    )
    assert outcome.code == 0, outcome.text
    assert sorted(outcome.notes) == [
        ["SASL_PLAINTEXT", "SASL_PLAINTEXT", "SSL"],
        ["SASL_PLAINTEXT", "SASL_SSL", "PLAINTEXT"],
        ["SSL", "SSL", "PLAINTEXT"],
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("marker", "result"),
    [
        (
            "config={}",
            "ottla takes configs, partitions, broker_configs, release, brokers, node_ids, security by name, not config",
        ),
        ("{'retention.ms': 1}", "by name, not {'retention.ms': 1}"),
        ("configs={'retention.of.ms': 1}", "retention.of.ms"),
    ],
)
def test_marker_with_unknown_arguments_fails_its_test(run: Run, marker: str, result: str) -> None:
    outcome = run(
        f"import pytest\n@pytest.mark.ottla({marker})\ndef test_it(ottla_topic): ...\ndef test_next(ottla_topic): ...\n"
    )
    assert outcome.code == 1
    assert result in outcome.text, outcome.text
    assert "1 passed, 1 error" in outcome.text


@pytest.mark.process
def test_invalid_ini_option_is_refused(run: Run) -> None:
    outcome = run("def test_it(ottla_broker): ...\n", ini="ottla_configs = num.partitions\n")
    assert outcome.code != 0
    assert "ottla_configs: 'num.partitions' is not name=value" in outcome.text


CASES = """
import unittest
from ottla.broker.testing.unittest_case import OttlaMixin

class TestOne(OttlaMixin, unittest.TestCase):
    ottla_topic_configs = {"cleanup.policy": "compact"}
    ottla_topic_partitions = 2

    def test_topic(self):
        self.assertEqual(self.ottla_topic, self.ottla_topic)
        topic = self.ottla_broker.topic(self.ottla_topic)
        self.assertEqual((len(topic.partitions), topic.configs), (2, {"cleanup.policy": "compact"}))
        self.ottla_broker.send(self.ottla_topic, b"v", "k", partition=1)
        self.ottla_broker.assert_produced(self.ottla_topic, [("k", "v")])
        note(self.ottla_broker.bootstrap, self.ottla_topic)

    def test_topic_again(self):
        self.assertEqual(self.ottla_broker.records(self.ottla_topic), [])
        note(self.ottla_broker.bootstrap, self.ottla_topic)

class TestTwo(OttlaMixin, unittest.TestCase):
    ottla_release = "3.9"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.name = cls.ottla_broker.create_topic()

    def test_factory(self):
        self.assertEqual(self.ottla_broker.release, "3.9")
        self.assertEqual(self.ottla_factory(release="2.8", configs={"num.partitions": 2}).release, "2.8")
        note(self.ottla_broker.bootstrap, self.name)
"""


@pytest.mark.process
@pytest.mark.parametrize("module", ["unittest", "pytest"])
def test_cases_of_unittest_have_a_broker_for_each_class(run: Run, module: str) -> None:
    outcome = run(CASES, module=module)
    assert outcome.code == 0, outcome.text
    assert "ResourceWarning" not in outcome.text
    one, again, two = outcome.notes
    assert one[0] == again[0] != two[0]
    assert one[1] != again[1]


@pytest.mark.process
def test_async_fixtures_share_the_broker_and_stop_with_the_test(run: Run) -> None:
    outcome = run(
        """
import asyncio
import socket

def test_shared(ottla_broker, ottla_async_broker, ottla_topic):
    async def use():
        await ottla_async_broker.send(ottla_topic, '{"bread": 1}')
        await ottla_async_broker.assert_produced(ottla_topic, [{"bread": 1}], within_ms=5000, decode="json")
    asyncio.run(use())
    assert ottla_async_broker.bootstrap == ottla_broker.bootstrap
    assert len(ottla_broker.records(ottla_topic)) == 1

def test_own(ottla_async_factory):
    async def use():
        broker = await ottla_async_factory(release="3.9", brokers=2)
        note(broker.bootstrap.count(","), broker.bootstrap.split(",")[0].rpartition(":")[2])
        return await broker.create_topic()
    asyncio.run(use())
"""
    )
    assert outcome.code == 0, outcome.text
    ((commas, port),) = outcome.notes
    assert commas == 1
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(port)), 1)


@pytest.mark.process
def test_async_broker_of_the_mixin_is_that_of_the_class(run: Run) -> None:
    outcome = run(
        """
import unittest
from ottla.broker.testing.unittest_case import OttlaMixin

class TestIt(OttlaMixin, unittest.IsolatedAsyncioTestCase):
    async def test_it(self):
        await self.ottla_async_broker.send(self.ottla_topic, "x")
        await self.ottla_async_broker.assert_produced(self.ottla_topic, ["x"])
        self.assertEqual(len(self.ottla_broker.records(self.ottla_topic)), 1)
""",
        "test_it",
        module="unittest",
    )
    assert outcome.code == 0, outcome.text
