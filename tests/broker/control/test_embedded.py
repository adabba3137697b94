"""An embedded broker with a control plane: Python and HTTP see the same state."""

from __future__ import annotations

import gc
import json
import socket
import sys
import urllib.request
import weakref

import pytest

from ottla.broker import Embedded
from ottla.broker.config.serve_options import StartupError
from ottla.broker.testing.embedded import AclEntry, NotFound, OperationError
from ottla.tools.ctl.command import ctl
from ottla_testing.broker.administering_broker import AUTHORIZER
from ottla_testing.patience import PATIENCE_S


def test_http_and_python_share_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    with Embedded(control="127.0.0.1:0") as broker:
        assert broker.control_url
        with urllib.request.urlopen(f"{broker.control_url}/v1/health", timeout=PATIENCE_S) as response:
            assert json.loads(response.read())["bootstrap"] == broker.bootstrap
        topic = broker.create_topic()
        assert ctl(["records", "send", topic, "a"], {"OTTLA_CONTROL": broker.control_url}) == 0
        broker.assert_produced(topic, ["a"])
        fault = broker.faults.delay("Fetch", 500)
        assert ctl(["faults", "remove", str(fault.id)], {"OTTLA_CONTROL": broker.control_url}) == 0
        assert broker.faults.list() == []
        assert ctl(["state", "reset"], {"OTTLA_CONTROL": broker.control_url}) == 0
        assert broker.topics() == []
        url = broker.control_url
    capsys.readouterr()
    assert ctl(["health"], {"OTTLA_CONTROL": url}) == 1
    assert "no control plane at" in capsys.readouterr().err


def test_stopped_broker_with_a_control_plane_is_garbage_collected() -> None:
    with (
        Embedded(control="127.0.0.1:0") as broker,
        urllib.request.urlopen(f"{broker.control_url}/v1/health") as response,
    ):
        response.read()
    kept = weakref.ref(broker)
    del broker
    gc.collect()
    assert kept() is None


def test_embedded_broker_has_no_control_plane_by_default() -> None:
    with Embedded() as broker:
        assert broker.control_url is None


def test_used_port_and_invalid_address_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartupError, match=f"cannot listen on {address}"):
            Embedded(control=address).start()
    with pytest.raises(ValueError, match="the host is missing"):
        Embedded(control=":0")


def test_missing_extra_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(ValueError, match=r"a control plane needs aiohttp: pip install 'ottla\[http\]'"):
        Embedded(control="127.0.0.1:0")


def test_embedded_broker_has_the_administration_methods() -> None:
    with Embedded(configs=AUTHORIZER) as broker:
        broker.create_topic("orders", 2)
        broker.send_many("orders", ["a", "b", "c", "d"])
        done = broker.reset_offsets("readers", "latest", of=[("orders", None)])
        assert [(one.before, one.after, one.end_offset) for one in done.offsets] == [(None, 2, 2)] * 2
        assert broker.reset_offsets("readers", "shift", -1, dry_run=True).offsets[0].after == 1
        assert broker.group("readers").committed == {("orders", 0): 2, ("orders", 1): 2}
        with pytest.raises(OperationError, match="one of earliest, latest"):
            broker.reset_offsets("readers", "nowhere")
        with pytest.raises(NotFound, match="UNKNOWN_TOPIC_OR_PARTITION"):
            broker.reset_offsets("readers", "latest", of=[("none", 0)])
        broker.delete_group("readers")
        assert broker.group("readers").state == "Dead"
        broker.change_topic_configs("orders", {"retention.ms": 1000}, append={"cleanup.policy": "compact"})
        assert broker.topic("orders").configs == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
        broker.change_broker_configs({"message.max.bytes": 2_000_000})
        (found,) = [one for one in broker.broker_configs() if one.name == "message.max.bytes"]
        assert (found.value, found.source) == ("2000000", "DYNAMIC_BROKER_CONFIG")
        with pytest.raises(OperationError, match="INVALID_CONFIG"):
            broker.change_topic_configs("orders", {"retention.ms": "soon"})
        with pytest.raises(TypeError, match="list of names"):
            broker.change_topic_configs("orders", delete="retention.ms")
        entry = AclEntry("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW")
        broker.add_acls([entry])
        assert broker.acls() == broker.remove_acls(AclEntry(principal="User:alice")) == [entry]
        assert broker.acls() == []
