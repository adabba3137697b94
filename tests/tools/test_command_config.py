"""`--command-config`: every command that connects to a broker logs in, and shows no password when it cannot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.broker import Embedded
from ottla.client import Admin, Producer
from ottla.client.admin.admin import NewTopic
from ottla.client.net.options import security_values
from ottla.tools.kafka import broker_api_versions
from ottla.tools.main import main, names
from ottla_testing.certificates import Authority
from ottla_testing.clients.securing import LISTENER, PASSWORD, broker_configs, client_file, client_settings, encrypted
from ottla_testing.each import each

BROKER = ["--bootstrap-server", "{broker}"]
COMMANDS: dict[str, list[str]] = {
    "topics": ["topics", *BROKER, "--describe", "--topic", "made"],
    "configs": ["configs", *BROKER, "--describe", "--topic", "made"],
    "groups": ["groups", *BROKER, "--list"],
    "records": ["records", *BROKER, "--offsets", "--topic", "made"],
    "acls": ["acls", *BROKER, "--list"],
    "producers": ["producers", *BROKER, "--topic", "made"],
    "transactions": ["explain", *BROKER, "--transactions", "--topic", "made"],
    "group": ["explain", *BROKER, "--group", "none"],
    "mirror": ["mirror", *BROKER, "--topics", "made", "--data-dir", "{folder}/copy"],
    "replay": ["replay", "{folder}/session.jsonl", *BROKER],
    "diff": ["diff", "{broker}", "{broker}", "--recording", "{folder}/session.jsonl"],
}
OWN = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ann"}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A recording of a client that logs in, makes a topic and sends a record."""
    folder = tmp_path_factory.mktemp("session")
    path = folder / "session.jsonl"
    with Embedded(listeners=LISTENER, configs=broker_configs(), record=path) as broker:
        asyncio.run(fill(broker.bootstrap, client_file(folder)))
    return path.read_bytes()


class Secured(NamedTuple):
    """A broker whose listener has TLS and a login, with the options of its clients."""

    bootstrap: str
    settings: dict[str, str]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    configs, settings = encrypted(Authority(folder))
    with Embedded(listeners=LISTENER, configs=configs | OWN) as broker:
        asyncio.run(fill(broker.bootstrap, client_file(folder, settings)))
        yield Secured(broker.bootstrap, settings)


async def fill(address: str, file: str) -> None:
    security = security_values(file)
    async with Admin(address, **security) as admin:
        await admin.create_topics([NewTopic("made", 1)])
    async with Producer(address, **security) as producer:
        await producer.send_and_wait("made", b"x")


def run(name: str, broker: str, folder: Path, *more: str) -> int:
    arguments = [word.format(broker=broker, folder=folder) for word in COMMANDS[name]]
    try:
        return main([*arguments, *more])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_logs_in(
    name: str, secured: Secured, session: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "session.jsonl").write_bytes(session)
    code = run(name, secured.bootstrap, tmp_path, "--command-config", client_file(tmp_path, secured.settings))
    printed = capsys.readouterr()
    if name == "group":
        assert (code, printed.err) == (2, "ottla explain: GROUP_ID_NOT_FOUND (69): Group none not found.\n")
    elif name == "replay":  # the topic exists
        assert code == 1 and "a recording has no passwords" in printed.out
    else:
        assert code == 0, printed.err
        assert "made" in printed.out or name in ("groups", "acls", "diff", "producers", "transactions")
    assert PASSWORD not in printed.out + printed.err

    guessed = client_settings("SASL_SSL", password="guess")
    untrusted = secured.settings | {"ssl.ca.location": str(Authority(tmp_path / "other").trusted)}
    for settings, words in (
        (secured.settings | guessed, "Invalid username or password"),
        (untrusted, "is not trusted: unable to get local issuer certificate"),
    ):
        wrong = client_file(tmp_path, settings, "wrong.properties")
        code = run(name, secured.bootstrap, tmp_path, "--command-config", wrong)
        printed = capsys.readouterr()
        assert code in (1, 2) and printed.err.count("\n") == 1
        assert words in printed.err and "guess" not in printed.out + printed.err


@each("protocol", ["SASL_PLAINTEXT", "SSL"])
@each("name", ["topics", "replay"])
def test_command_without_a_file_is_one_line_about_it(
    name: str, protocol: str, session: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "session.jsonl").write_bytes(session)
    configs, _ = encrypted(Authority(tmp_path))
    configs["listener.security.protocol.map"] = f"SECURED:{protocol}"
    with Embedded(listeners=LISTENER, configs=configs) as broker:
        assert run(name, broker.bootstrap, tmp_path) in (1, 2)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    if name == "replay":
        assert "a listener with TLS or a login needs --command-config" in error
    else:
        other = "TLS" if protocol == "SSL" else "a login"
        assert f"a listener with {other} does so: check security.protocol" in error


def test_each_broker_of_diff_has_its_own_file(
    session: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sides are a broker with a login and one without."""
    recording = tmp_path / "session.jsonl"
    recording.write_bytes(session)
    plain = client_file(tmp_path, {"security.protocol": "PLAINTEXT"}, "plain.properties")
    with Embedded(listeners=LISTENER, configs=broker_configs()) as left, Embedded() as right:
        arguments = ["diff", left.bootstrap, right.bootstrap, "--recording", str(recording)]
        code = main([*arguments, "--command-config", client_file(tmp_path), "--command-config-b", plain])
    printed = capsys.readouterr()
    assert code == 0 and "no difference" in printed.out, printed


def test_tool_of_the_image_logs_in(secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--bootstrap-server", secured.bootstrap, "--command-config", client_file(tmp_path, secured.settings)]
    assert broker_api_versions.main(given) == 0
    assert "SaslAuthenticate(36): 0 to 2" in capsys.readouterr().out


@each(
    ("arguments", "text"),
    [
        (["producers", "{folder}"], "--command-config needs --bootstrap-server"),
        (["explain", "{folder}", "--topic", "t", "--partition", "0"], "--command-config needs --bootstrap-server"),
        (["diff", "{folder}/a", "{folder}/b"], "--command-config needs two brokers"),
        (["pipeline", "import", "{folder}", "--data-dir", "{folder}"], "need --bootstrap-server"),
        (["pipeline", "export", "{folder}", "--to", "{folder}/x"], "need --bootstrap-server"),
    ],
)
def test_file_without_a_broker_is_refused(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(folder=tmp_path) for word in arguments]
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([*given, "--command-config", client_file(tmp_path)]))
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and text in printed and printed.count("\n") == 1


def test_each_command_with_a_broker_has_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [[name] for name in names()] + [["pipeline", job] for job in ("export", "import", "replay")]
    connects: list[str] = []
    for command in commands:
        with contextlib.suppress(SystemExit):
            main([*command, "--help"])
        text = capsys.readouterr().out
        if "--bootstrap" in text:
            connects.append(command[-1])
            assert "--command-config" in text, command
    assert {"topics", "mirror", "replay", "producers", "explain", "import"} <= set(connects)
