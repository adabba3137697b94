"""The container image without a container: the options from its environment, and how it signals that it is ready."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from ottla.broker import Embedded
from ottla.broker.config.security.sasl import sasl_settings
from ottla.broker.config.serve_options import ServeOptions
from ottla.tools import image, image_security
from ottla.tools.serve import parse_serve
from ottla_testing import ROOT
from ottla_testing.broker.harness import running
from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
ADVERTISED = "PLAINTEXT://localhost:32768,BROKER://b1:9093"

# The variables of the Kafka modules of Testcontainers: Java's org.testcontainers.kafka, with one more listener.
JAVA = {
    "CLUSTER_ID": CLUSTER,
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094,TC-0://kafka:19092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
        "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TC-0:PLAINTEXT"
    ),
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_ADVERTISED_LISTENERS": f"{ADVERTISED},TC-0://kafka:19092",
}
# Python's, without KRaft.
PYTHON = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
    "KAFKA_ADVERTISED_LISTENERS": ADVERTISED,
}
QUIET_JVM = {
    "KAFKA_OPTS": "-javaagent:x",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
    "KAFKA_JMX_PORT": "9999",
    "KAFKA_JMX_OPTS": "-D",
    "KAFKA_JMX_HOSTNAME": "h",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-server",
    "KAFKA_GC_LOG_OPTS": "-Xlog",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
    "KAFKA_LOG4J_LOGGERS": "a=INFO",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL": "WARN",
    "JAVA_OPTS": "-X",
}


def launched(environ: Mapping[str, str], *assignments: str) -> tuple[image.Launch, ServeOptions]:
    """Returns the broker options for an environment."""
    launch = image.plan(environ, assignments)
    return launch, parse_serve(launch.arguments, launch.environ)[0]


def test_empty_environment_gives_the_defaults_of_the_image() -> None:
    launch, options = launched({})
    assert (launch.cluster_id, launch.serves) == (None, True)
    assert options.config.profile.name == "4.4"
    assert [str(listener) for listener in options.listeners] == ["PLAINTEXT://:9092"]
    assert options.advertised == {"PLAINTEXT": ("localhost", 9092)}
    assert options.data_dirs == (Path("/var/lib/kafka/data"),)
    assert options.config.warnings == ()


def test_environment_of_testcontainers_is_accepted() -> None:
    launch, options = launched(JAVA)
    assert launch.cluster_id == CLUSTER
    assert [str(listener) for listener in options.listeners] == [
        "PLAINTEXT://0.0.0.0:9092",
        "BROKER://0.0.0.0:9093",
        "TC-0://kafka:19092",
    ]
    expected = {"PLAINTEXT": ("localhost", 32768), "BROKER": ("b1", 9093), "TC-0": ("kafka", 19092)}
    assert options.advertised == expected
    assert options.config["node.id"] == 1
    assert options.config["offsets.topic.num.partitions"] == 1
    assert options.config.warnings == ()
    launch, options = launched(PYTHON)
    assert [str(listener) for listener in options.listeners] == ["PLAINTEXT://0.0.0.0:9093", "BROKER://0.0.0.0:9092"]
    assert options.config["node.id"] == 1
    assert options.config.warnings == ()


def test_jvm_variables_are_ignored_silently_and_unknown_ones_with_a_warning() -> None:
    _, options = launched(QUIET_JVM)
    assert options.config.warnings == ()
    assert options.config.not_acted_on() == []
    _, options = launched({"KAFKA_NO_SUCH_THING": "1", "KAFKA_ZOOKEEPER_CONNECT": "z:2181"})
    assert [warning.split("(")[0].strip() for warning in options.config.warnings] == [
        "unknown config no.such.thing",
        "unknown config zookeeper.connect",
    ]


@pytest.mark.parametrize(
    ("environ", "listeners", "advertised"),
    [
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://b:19092"}, "PLAINTEXT://0.0.0.0:19092", ("b", 19092)),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://[::1]:19092"}, "PLAINTEXT://0.0.0.0:19092", ("::1", 19092)),
        ({"KAFKA_LISTENERS": "PLAINTEXT://:1234"}, "PLAINTEXT://:1234", None),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://b:1,"}, "PLAINTEXT://0.0.0.0:1", ("b", 1)),
        ({"KAFKA_LISTENERS": " ", "KAFKA_ADVERTISED_LISTENERS": ""}, "PLAINTEXT://:9092", ("localhost", 9092)),
    ],
)
def test_listeners_are_derived_from_the_advertised_ones(
    environ: dict[str, str], listeners: str, advertised: tuple[str, int] | None
) -> None:
    _, options = launched(environ)
    assert [str(listener) for listener in options.listeners] == [listeners]
    assert options.advertised.get("PLAINTEXT") == advertised


def test_arguments_override_the_environment() -> None:
    _, options = launched({"KAFKA_NUM_PARTITIONS": "2"}, "KAFKA_NUM_PARTITIONS=5", "KAFKA_LOG_DIRS=/a,/b")
    assert options.config["num.partitions"] == 5
    assert options.data_dirs == (Path("/a"), Path("/b"))


def test_mounted_file_has_lower_precedence_than_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://:7000\nadvertised.listeners=PLAINTEXT://f:7000\nlog.dir=/file\n")
    result = {"listeners": "PLAINTEXT://:7000", "advertised.listeners": "PLAINTEXT://f:7000", "log.dir": "/file"}
    launch = image.plan({"KAFKA_NUM_PARTITIONS": "3"}, (), file, result)
    options = parse_serve(launch.arguments, launch.environ)[0]
    assert [str(listener) for listener in options.listeners] == ["PLAINTEXT://:7000"]
    assert options.advertised == {"PLAINTEXT": ("f", 7000)}
    assert (options.data_dirs, options.config["num.partitions"]) == ((Path("/file"),), 3)


@pytest.mark.parametrize(
    ("environ", "arguments"),
    [
        ({}, ("--release", "4.4")),
        ({"OTTLA_RELEASE": "2.8"}, ("--release", "2.8")),
        ({"OTTLA_BROKERS": "3"}, ("--release", "4.4", "--brokers", "3")),
        ({"OTTLA_SECURITY": "sasl_ssl"}, ("--release", "4.4", "--security", "sasl_ssl")),
        ({"OTTLA_NODE_IDS": "0,1,2"}, ("--release", "4.4", "--node-ids", "0,1,2")),
        ({"OTTLA_CONTROL": "0.0.0.0:9644"}, ("--release", "4.4", "--control", "0.0.0.0:9644")),
        ({"OTTLA_CONTROL": "http://0.0.0.0:9644/"}, ("--release", "4.4", "--control", "0.0.0.0:9644")),
        ({"OTTLA_LOG_FORMAT": "json", "OTTLA_CONTROL": ""}, ("--release", "4.4", "--log-format", "json")),
        (
            {"OTTLA_CONTROL": "0.0.0.0:1", "OTTLA_CONTROL_TOKEN": "0123456789abcdef", "OTTLA_CONTROL_WRITE": "True"},
            ("--release", "4.4", "--control", "0.0.0.0:1", "--control-write"),
        ),
        (
            {"OTTLA_CONTROL_TLS_CERT": "c", "OTTLA_CONTROL_TLS_KEY": "k", "OTTLA_CONTROL_OPEN_METRICS": "false"},
            ("--release", "4.4", "--control-tls-cert", "c", "--control-tls-key", "k"),
        ),
        (
            {"OTTLA_LOG_LEVEL": "request_log=DEBUG, WARN"},
            ("--release", "4.4", "--log-level", "request_log=DEBUG", "--log-level", "WARN"),
        ),
    ],
)
def test_ottla_variables_are_flags(environ: dict[str, str], arguments: tuple[str, ...]) -> None:
    assert image.plan(environ).arguments == arguments


def test_security_is_that_of_all_listeners_of_testcontainers(tmp_path: Path) -> None:
    variables = {**JAVA, "OTTLA_SECURITY": "sasl_plaintext", "KAFKA_LOG_DIRS": str(tmp_path)}
    launch = image.plan(variables)
    options = parse_serve(launch.arguments, launch.environ)[0]
    assert {one.name: one.protocol for one in options.listeners} == {
        "PLAINTEXT": "SASL_PLAINTEXT", "BROKER": "SASL_PLAINTEXT", "TC-0": "SASL_PLAINTEXT"
    }  # fmt: skip
    assert set(options.scram_users) == {"admin", "user"} and list(tmp_path.iterdir()) == []


LOGINS = """
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="x"
    user_admin="one; \\"two\\"" user_ann="a=b";
  org.apache.kafka.common.security.scram.ScramLoginModule required;
};
in-side.KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="c"; };
Client { x.Y required z=w; };
"""


@pytest.mark.parametrize("folder", [True, False])
def test_secrets_of_kafka_s_image_are_read(folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compose file that mounts stores, their passwords and a login configuration into /etc/kafka/secrets."""
    authority = Authority(tmp_path)
    authority.issue_pkcs12("broker")
    authority.trusted_pkcs12()
    for name in ("key", "store", "trust"):
        (tmp_path / f"{name}.credentials").write_text(f"{STORE_PASSWORD}\n")
    (tmp_path / "logins.conf").write_text(LOGINS)
    monkeypatch.setattr(image_security, "SECRETS", tmp_path)
    _, options = launched(
        {
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://b:9092,SSL://b:9093,SASL_SSL://b:9094,IN-SIDE://b:9095",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
                "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,IN-SIDE:SASL_PLAINTEXT"
            ),
            "KAFKA_SSL_KEYSTORE_FILENAME": "broker.p12",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "store.credentials",
            "KAFKA_SSL_KEY_CREDENTIALS": "key.credentials",
            "KAFKA_SSL_TRUSTSTORE_FILENAME": "ca.p12",
            "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "trust.credentials",
            "KAFKA_SSL_CLIENT_AUTH": "required" if folder else "none",
            "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
            "KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={tmp_path}/logins.conf -Da=b",
        }
    )
    config = options.config
    assert config.warnings == ()
    assert config["ssl.keystore.location"] == str(tmp_path / "broker.p12")
    assert config["ssl.keystore.password"] == config["ssl.key.password"] == STORE_PASSWORD
    assert config["ssl.truststore.location"] == (str(tmp_path / "ca.p12") if folder else None)
    listeners = {one.name: one for one in options.listeners}
    assert listeners["SSL"].has_tls and not listeners["IN-SIDE"].has_tls
    assert sasl_settings(config, "SASL_SSL").passwords == {"admin": 'one; "two"', "ann": "a=b"}
    assert sasl_settings(config, "IN-SIDE").passwords == {"bob": "c"}


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"KAFKA_SSL_KEYSTORE_CREDENTIALS": "gone"}, "KAFKA_SSL_KEYSTORE_CREDENTIALS: cannot read"),
        ({"KAFKA_OPTS": "-Djava.security.auth.login.config=/gone"}, "KAFKA_OPTS: cannot read /gone"),
        ({"KAFKA_SSL_KEY_CREDENTIALS": "bytes"}, "bytes is not UTF-8"),
        ({"KAFKA_SSL_KEY_CREDENTIALS": "large"}, "large is larger than 1048576 bytes"),
    ],
)
def test_secrets_that_cannot_be_read_are_refused(
    environ: dict[str, str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(bytes(1_048_577))
    monkeypatch.setattr(image_security, "SECRETS", tmp_path)
    with pytest.raises(image.ImageError, match=re.escape(problem)):
        image.plan(environ)


def test_login_that_is_set_otherwise_stays(tmp_path: Path) -> None:
    (tmp_path / "logins.conf").write_text(LOGINS)
    opts = f'-Djava.security.auth.login.config="{tmp_path}/logins.conf"'
    name = "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG"
    environ = {"KAFKA_LISTENERS": "SASL_PLAINTEXT://:9092", "KAFKA_OPTS": opts}
    assert "user_ann" in image.plan(environ).environ[name]
    assert image.plan({**environ, name: "x"}).environ[name] == "x"
    config = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    assert name not in image.plan(environ, settings={config: "x"}).environ


def test_unknown_ottla_variable_is_reported() -> None:
    known = {"OTTLA_RELEASE": "2.8", "OTTLA_READY_FILE": "x", "OTTLA_UMASK": "022", "OTTLA_CONTROL_TOKEN_FILE": "t"}
    assert image.plan({"OTTLA_RELASE": "2.8", **known}).unknown == ("OTTLA_RELASE",)


@pytest.mark.parametrize(
    ("roles", "serves"), [("", True), ("broker", True), ("broker,controller", True), (" controller ", False)]
)
def test_controller_only_role_does_not_serve(roles: str, serves: bool) -> None:
    assert image.plan({"KAFKA_PROCESS_ROLES": roles}).serves is serves
    assert image.plan({}, settings={"process.roles": roles}).serves is serves
    assert image.plan({"KAFKA_PROCESS_ROLES": "broker"}, settings={"process.roles": roles}).serves


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"CLUSTER_ID": "a b"}, "CLUSTER_ID 'a b': expected"),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://x"}, "'PLAINTEXT://x' is not NAME://host:port"),
        ({"KAFKA_ADVERTISED_LISTENERS": "x:1"}, "'x:1' is not NAME://host:port"),
        ({"KAFKA_LISTENERS": "SSL://:9092"}, "listener SSL has TLS, and neither ssl.keystore.location"),
        ({"OTTLA_RELEASE": "9.9"}, "9.9"),
        ({"OTTLA_CONTROL_WRITE": "yes"}, "OTTLA_CONTROL_WRITE 'yes': expected true or false"),
        ({"KAFKA_NUM_PARTITIONS": "many"}, "num.partitions"),
    ],
)
def test_wrong_arguments_are_one_line(
    environ: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Reported by the command that needs the same options and does not serve."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert image.main(["storage", "format", "-t", environ.get("CLUSTER_ID", "x")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


@pytest.mark.parametrize("text", ["novalue", "9A=1", "=1"])
def test_arguments_are_assignments(text: str) -> None:
    with pytest.raises(image.ImageError, match=f"^'{text}' is not NAME=VALUE$"):
        image.plan({}, [text])


@pytest.mark.parametrize("arguments", [[], ["walk"]])
def test_image_has_two_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert image.main(arguments) == 2
    assert capsys.readouterr().err == "ottla image: expected one of: run, storage\n"


# The cluster id


def storage(*arguments: str) -> int:
    return image.main(["storage", *arguments])


async def test_new_directory_takes_the_cluster_id_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    folders = tmp_path / "a", tmp_path / "b"
    launch = image.plan({"KAFKA_LOG_DIRS": ",".join(map(str, folders)), "KAFKA_NODE_ID": "7"})
    options = parse_serve(launch.arguments, launch.environ)[0]
    assert image.format_directory(options, CLUSTER) is None
    assert image.format_directory(options, "another") == CLUSTER
    async with running(*folders, overrides={"node.id": "7"}) as broker:
        assert (broker.state.cluster_id, broker.state.node_id) == (CLUSTER, 7)
        await broker.topic("t")
    assert image.format_directory(options, "another") == CLUSTER
    async with running(*folders) as broker:
        assert (broker.state.cluster_id, broker.state.node_id) == (CLUSTER, 7)
        assert broker.state.topics.partition("t", 0)


def test_kafka_storage_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "data"))
    assert storage("random-uuid") == 0
    made = capsys.readouterr().out.strip()
    assert len(made) == 22
    config = ["-c", "/etc/kafka/kafka.properties"]
    assert storage("format", "--ignore-formatted", "-t", made, *config) == 0
    assert capsys.readouterr().out == f"Formatting {tmp_path / 'data'} with cluster id {made}.\n"
    assert f"cluster.id={made}\n" in (tmp_path / "data/meta.properties").read_text()
    assert storage("format", "--ignore-formatted", "-t", "other", *config) == 0
    assert storage("format", "-t", "other", *config) == 1
    assert f"cluster.id={made}\n" in (tmp_path / "data/meta.properties").read_text()


# Readiness


def script(name: str) -> ModuleType:
    """Loads a script of the image as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / f"docker/{name}.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("0.0.0.0:9092", "127.0.0.1:9092"),
        ("[::]:9092", "127.0.0.1:9092"),
        ("kafka:19092", "kafka:19092"),
        ("[::1]:5", "[::1]:5"),
    ],
)
def test_wildcard_listener_is_checked_on_the_loopback(address: str, reached: str) -> None:
    assert image.ready_addresses([address]) == [reached]
    assert image.ready_addresses([address, address], [True, False]) == [f"tls://{reached}", reached]


async def test_health_check_requests_versions_of_a_ready_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ready"
    monkeypatch.setenv("OTTLA_READY_FILE", str(file))
    check = script("health")
    assert check.main(str(file)) == 1
    assert capsys.readouterr().out == "not ready yet\n"
    async with running(tmp_path / "data") as broker:
        image.announce(broker.running)
        assert capsys.readouterr().out.splitlines() == list(image.started_lines(broker.state.node_id))
        assert await asyncio.to_thread(check.main, str(file)) == 0
        file.write_text("127.0.0.1:1\n" + file.read_text())  # a listener that refuses does not matter
        assert await asyncio.to_thread(check.main, str(file)) == 0
    assert await asyncio.to_thread(check.main, str(file)) == 1
    assert "no response from 127.0.0.1:1 127.0.0.1:" in capsys.readouterr().out


@each("word", ["ssl", "mtls", "sasl_plaintext", "sasl_ssl", "oauth_ssl"])
def test_broker_with_security_is_healthy(word: str, tmp_path: Path) -> None:
    with Embedded(security=word) as broker:
        (encrypted,) = [one.has_tls for one in broker.options.listeners]
        (tmp_path / "ready").write_text(f"{image.ready_addresses([broker.bootstrap], [encrypted])[0]}\n")
        assert script("health").main(str(tmp_path / "ready")) == 0
        (tmp_path / "ready").write_text(f"tls://{broker.bootstrap}\n")
        assert script("health").main(str(tmp_path / "ready")) == (0 if encrypted else 1)
    assert script("health").main(str(tmp_path / "ready")) == 1


async def test_error_or_missing_response_is_unhealthy() -> None:
    check = script("health")
    responses = [b"", b"\0\0\0\6\0\0\0\x07\0\x23", b"\0\0\0\6\0\0\0\x08\0\0", b"\0\0\0\6\0\0\0\x07\0\0"]

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(len(check.API_VERSIONS)) == check.API_VERSIONS
        writer.write(responses.pop(0))
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = [await asyncio.to_thread(check.responds, "127.0.0.1", port) for _ in range(4)]
    server.close()
    await server.wait_closed()
    assert found == [False, False, False, True]


async def test_unwritable_ready_file_does_not_prevent_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_READY_FILE", str(tmp_path / "missing/ready"))
    async with running(tmp_path / "data") as broker:
        image.announce(broker.running)
    assert "Kafka Server started" in capsys.readouterr().out


# As a process


def started(folder: Path, environ: Mapping[str, str], arguments: Sequence[str] = ()) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "OTTLA_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "ottla.tools.image", "run", *arguments],
        cwd=folder,
        env={**clean, "OTTLA_READY_FILE": str(folder / "ready"), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.smoke
def test_image_process_starts_logs_its_readiness_and_stops(tmp_path: Path) -> None:
    (tmp_path / "ready").write_text("of the start before\n")
    listener = "KAFKA_LISTENERS=PLAINTEXT://127.0.0.1:0"
    environ = {"CLUSTER_ID": CLUSTER, "KAFKA_LOG_DIRS": str(tmp_path / "data"), "KAFKA_NODE_ID": "3"}
    with started(tmp_path, {**environ, "KAFKA_LISTENERS": "SSL://:1"}, [listener]) as process:
        assert process.stdout
        result = [process.stdout.readline().strip() for _ in range(4)]
        address = result[0].removeprefix("ottla ready on ")
        assert (tmp_path / "ready").read_text() == f"{address}\n"
        assert result[1:] == list(image.started_lines(3))
        assert script("health").main(str(tmp_path / "ready")) == 0
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
        assert "config ignored" not in errors
    assert f"cluster.id={CLUSTER}\n" in (tmp_path / "data/meta.properties").read_text()


@pytest.mark.process
def test_image_process_reports_ignored_variables(tmp_path: Path) -> None:
    environ = {"KAFKA_LOG_DIRS": str(tmp_path / "data"), "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0"}
    with started(tmp_path, {**environ, "CLUSTER_ID": CLUSTER}) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("ottla ready on ")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert f"cluster.id={CLUSTER}\n" in (tmp_path / "data/meta.properties").read_text()
    environ["CLUSTER_ID"] = "other"
    with started(tmp_path, {**environ, "OTTLA_RELASE": "2.8"}) as process:
        assert process.stdout
        assert process.stdout.readline().startswith("ottla ready on ")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
        assert "CLUSTER_ID ignored" in errors
        assert "unknown variable OTTLA_RELASE" in errors


@pytest.mark.process
def test_controller_waits_until_it_is_stopped(tmp_path: Path) -> None:
    with started(tmp_path, {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_LOG_DIRS": str(tmp_path / "data")}) as process:
        assert process.stdout
        assert "needs no controller" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, errors) == (0, "")
    assert not (tmp_path / "data").exists()


def test_zookeeper_stand_in_listens_on_its_port() -> None:
    port_of = script("zookeeper").port_of
    assert port_of("dataDir=/x\nclientPort=2222\n") == 2222
    assert port_of("") == 2181


def test_guide_names_every_variable_of_the_image() -> None:
    guide = (ROOT / "docs" / "guides" / "image.md").read_text()
    assert [name for name in image.FLAGS if f"`{name}`" not in guide] == []
    for script_name in ("kafka-topics.sh", "kafka-broker-api-versions.sh"):
        assert f"`{script_name}`" in guide
        assert (ROOT / "docker/rootfs/opt/kafka/bin" / script_name).stat().st_mode & 0o111
