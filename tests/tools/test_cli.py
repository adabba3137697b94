"""The command line: subcommands, the meaning of flags, and one line with exit code 2 for each wrong argument."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.config.record_options import RecordOptions
from ottla.broker.config.serve_options import (
    Listener,
    ServeOptions,
    flags_to_configs,
    format_address,
    parse_address,
    serve_options,
)
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import profile
from ottla.tools import main, serve
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S


def parse(*arguments: str, environ: dict[str, str] | None = None) -> ServeOptions:
    return serve.parse_serve(arguments, environ or {})[0]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        (":0", ("", 0)),
        ("kafka.example.org", ("kafka.example.org", None)),
    ],
)
def test_bootstrap_addresses_are_parsed(text: str, address: tuple[str, int | None]) -> None:
    assert parse_address(text) == address
    if address[1] is not None:
        assert format_address(address[0], address[1]) == text


@pytest.mark.parametrize("text", ["", "::1:9092", "a:b", "a:65536", "a:999999", "a b:1", "[::1", "http://a:1", "a:1:2"])
def test_invalid_address_raises_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_address(text)


def test_flags_repeat_and_take_names() -> None:
    options = parse(
        *("--listen", "127.0.0.1:0", "--listen", "external=[::1]:9093", "--listen", "127.0.0.2:9094"),
        *("--advertise", "here.example.org", "--advertise", "EXTERNAL=there.example.org:19093"),
        *("--data-dir", "a", "--data-dir", "b"),
    )
    assert options.listeners == (
        Listener("PLAINTEXT", "127.0.0.1", 0),
        Listener("EXTERNAL", "::1", 9093),
        Listener("PLAINTEXT_2", "127.0.0.2", 9094),
    )
    assert options.advertised == {"PLAINTEXT": ("here.example.org", None), "EXTERNAL": ("there.example.org", 19093)}
    assert options.data_dirs == (Path("a").absolute(), Path("b").absolute())
    assert options.advertised_address("PLAINTEXT", 4711, "10.0.0.1", 1) == ("here.example.org", 4711)
    assert options.advertised_address("EXTERNAL", 9093, "10.0.0.1", 1) == ("there.example.org", 19093)
    assert options.advertised_address("PLAINTEXT_2", 9094, "10.0.0.1", 1) == ("127.0.0.2", 9094)


def test_default_listeners_are_local_only() -> None:
    options = parse("--data-dir", "d")
    assert options.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert options.advertised == {}


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_listener_on_all_interfaces_advertises_the_clients_address(host: str) -> None:
    options = parse("--data-dir", "d", "--listen", f"{host}:9092")
    assert options.advertised_address("PLAINTEXT", 9092, "10.1.2.3", 1) == ("10.1.2.3", 9092)


KRAFT = """
process.roles=broker,controller
node.id=5
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
log.dirs=/tmp/kraft-combined-logs
num.partitions=3
"""


def test_kraft_server_properties_are_accepted_without_the_controller(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KRAFT)
    options = parse("--config", str(file))
    assert options.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert options.advertised == {"PLAINTEXT": ("localhost", 9092)}
    assert options.data_dirs == (Path("/tmp/kraft-combined-logs"),)
    assert options.config["node.id"] == 5 and options.config.warnings == ()


def test_flags_override_environment_and_file_and_overrides_override_flags(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://file:1\nlog.dirs=file\n")
    environ = {"KAFKA_LISTENERS": "PLAINTEXT://environment:2"}
    arguments = ["--config", str(file)]
    assert parse(*arguments).listeners[0].host == "file"
    assert parse(*arguments, environ=environ).listeners[0].host == "environment"
    arguments += ["--listen", "flag:3"]
    assert parse(*arguments, environ=environ).listeners[0].host == "flag"
    arguments += ["--override", "listeners=PLAINTEXT://override:4"]
    assert parse(*arguments, environ=environ).listeners[0].host == "override"


@each(
    ("arguments", "message"),
    [
        ([], "no data directory"),
        (["--data-dir", "d", "--data-dir", "./d"], "the same data directory is given twice"),
        (["--data-dir", "a,b"], "a path with a comma"),
        (["--listen", "localhost"], "the port is missing"),
        (["--listen", "a-b=h:1"], "letters, digits and underscores"),
        (["--listen", "A=h:1", "--listen", "a=h:2"], "listeners has A twice"),
        (["--advertise", ":9092"], "clients need a host"),
        (["--advertise", "0.0.0.0:9092"], "cannot use 0.0.0.0"),
        (["--advertise", "X=h:1"], "has X, which is not in listeners"),
        (["--override", "num.partitions"], "expected KEY=VALUE"),
        (["--override", "num.partitions=0"], "Invalid value 0 for configuration num.partitions"),
        (["--override", "num.partition=1"], "did you mean num.partitions"),
        (["--override", "listeners=SSL://:9093"], "listener SSL has TLS, and neither ssl.keystore.location nor"),
        (["--override", "listeners=INSIDE://:9093"], "INSIDE has no entry in listener.security.protocol.map"),
        (["--override", "listeners=9093"], "is not NAME://host:port"),
        (["--override", "listener.security.protocol.map=A:B"], "is not NAME:PROTOCOL"),
        (["--config", "/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_config_errors_come_before_any_change(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(*([] if not arguments or arguments[0] == "--data-dir" else ["--data-dir", "d"]), *arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_number_of_nodes_is_parsed() -> None:
    assert parse("--data-dir", "d").brokers == 1
    assert parse("--data-dir", "d", "--brokers", "3", "--listen", ":9092").brokers == 3
    with pytest.raises(ConfigError, match="expected 1 to 100"):
        parse("--data-dir", "d", "--brokers", "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--record", "x.txt"), "--record: x.txt: expected a file name that ends with .jsonl"),
        (("--record", "jsonl"), "--record: jsonl: expected a file name that ends"),
        (
            ("--record", "x.jsonl", "--record-max-bytes", "65535"),
            "a recording of 65535 bytes is too small: the minimum is 65536",
        ),
        (("--record-ring",), "--record-ring needs --record FILE"),
        (("--record-max-bytes", "70000"), "--record-max-bytes needs --record FILE"),
        (("--record-without-contents",), "--record-without-contents needs --record FILE"),
    ],
)
def test_invalid_recording_options_are_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("--data-dir", "d", *arguments)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_recording_options_are_parsed() -> None:
    assert parse("--data-dir", "d").record is None
    assert parse("--data-dir", "d", "--record", "a/X.PCAPNG").record == RecordOptions(
        "a/X.PCAPNG", 1 << 30, False, True
    )
    flags = ("--record-max-bytes", "70000", "--record-ring", "--record-without-contents")
    assert parse("--data-dir", "d", "--record", "x.json", *flags).record == RecordOptions("x.json", 70000, True, False)


@pytest.mark.parametrize(
    ("arguments", "name"), [((), "ottla"), (("--release", "2.8"), "2.8"), (("--release", "0.10"), "0.10.2")]
)
def test_release_is_chosen_by_profile(arguments: tuple[str, ...], name: str) -> None:
    assert parse("--data-dir", "d", *arguments).config.profile == profile(name)


def test_release_decides_the_known_variables_and_overrides() -> None:
    environ = {"KAFKA_LOG_MESSAGE_FORMAT_VERSION": "0.10.2"}
    old = parse("--data-dir", "d", "--release", "2.8", environ=environ).config
    assert old["log.message.format.version"] == "0.10.2" and old.warnings == ()
    assert len(parse("--data-dir", "d", "--release", "4.3", environ=environ).config.warnings) == 1
    with pytest.raises(ConfigError, match=r"Kafka 4\.3 does not have it"):
        parse("--data-dir", "d", "--release", "4.3", "--override", "log.message.format.version=2.8")
    behaviour = {"KAFKA_OTTLA_BEHAVIOUR_ONE__MAGIC": "false"}
    assert parse("--data-dir", "d", environ=behaviour).config.profile.behaviour.one_magic is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--release", "3.10"], "unknown release 3.10; did you mean 3.9 or 4.0?"),
        (["--release", "otttla"], "unknown release otttla; did you mean ottla?"),
        (["--release"], "argument --release: expected one argument"),
        (
            ["--override", "ottla.behaviour.down_convert=none"],
            "unknown behaviour ottla.behaviour.down_convert in --override; "
            "did you mean ottla.behaviour.down_conversion?",
        ),
    ],
)
def test_unknown_release_or_behaviour_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "data"
    try:
        code = serve.serve(["--data-dir", str(missing), *arguments])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert (code, captured.out, captured.err) == (2, "", f"ottla serve: {message}\n")
    assert not missing.exists()


def test_serve_reports_a_wrong_argument_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "data"
    assert serve.serve(["--data-dir", str(missing), "--override", "num.partitions=0"]) == 2
    captured = capsys.readouterr()
    assert (
        captured.out == "" and captured.err.startswith("ottla serve: Invalid value 0") and captured.err.count("\n") == 1
    )
    assert not missing.exists()


def test_unknown_flag_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve.serve(["--data-dirs", "x"])
    assert caught.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_omitted_flags_set_nothing() -> None:
    assert flags_to_configs([], [], []) == {}


def test_listener_names_need_no_protocol_map_on_the_command_line_only() -> None:
    config = Config({"listeners": "INSIDE://h:1", "log.dirs": "d"})
    assert serve_options(config, flag_listeners=True).listeners == (Listener("INSIDE", "h", 1),)
    with pytest.raises(ConfigError):
        serve_options(config)


# ---- the command itself


def test_help_has_a_line_for_each_installed_command(capsys: pytest.CaptureFixture[str]) -> None:
    installed = main.names()
    assert main.main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    described = [line.split(maxsplit=1) for line in lines if line.startswith("  ")]
    assert sorted(name for name, _ in described) == sorted(installed)
    assert "Others:" not in lines and max(map(len, lines)) <= 100


def test_help_lists_a_command_of_another_distribution_by_name() -> None:
    assert main.usage(["serve", "extra"]).splitlines()[-4:-1] == ["Others:", "  extra", ""]


@pytest.mark.parametrize(("arguments", "problem"), [([], "no command given"), (["sevre"], "unknown command sevre")])
def test_unknown_command_is_one_line(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"ottla: {problem}") and "serve" in error and error.count("\n") == 1


@pytest.mark.parametrize("command", ["serve", "dump"])
def test_keyboard_interrupt_prints_nothing(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", interrupted)
    assert main.main([command, "x"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--data-dir", "d", "--override", "num.partitions=\nx"],
        ["serve", "--data-dir", "d", "--override", "ottla.behaviour.one_magic=\n\x1b[1m"],
        ["serve", "--data-dir", "d", "--override", "a\nb=1"],
        ["serve", "--release", "4\n0"],
        ["serve", "--x\ny"],
        ["releases", "4\n0"],
        ["clients", "no\nsuch"],
        ["formats", "no\nsuch"],
        ["dump", "no\nsuch"],
        ["no\nsuch"],
    ],
)
def test_error_with_any_letters_is_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main.main(arguments)
    except SystemExit as ended:
        code = ended.code
    output = capsys.readouterr()
    assert (code, output.out) == (2, "")
    assert output.err.endswith("\n") and output.err[:-1].isprintable()


HEARTBEAT = "00000016000c00000000000500026d650001670000000300016d"


CLOSED = [("| true", 0), ("> /dev/full", 2), (">&-", 2), ("<&- >&-", 2)]


@each(
    ("command", "redirection", "code"), [(name, *one) for one in CLOSED for name in ("releases", "dump")], strided=True
)
def test_closed_stdout_prints_no_traceback(command: str, redirection: str, code: int) -> None:
    arguments = {"releases": "releases --json", "dump": "dump " + HEARTBEAT}[command]
    script = f"set -o pipefail; {sys.executable} -m ottla.tools {arguments} {redirection}"
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd="/", timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr.count("\n")) == (code, min(code, 1)), ended.stderr
    assert "Traceback" not in ended.stderr and "Exception" not in ended.stderr


def test_version_is_that_of_the_package() -> None:
    script = Path(sys.executable).with_name("ottla")
    outcome = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert outcome.stdout == "ottla 0.1.0 (plain Python)\n"


def test_wrong_argument_does_not_import_the_broker(tmp_path: Path) -> None:
    """The checks come first: neither the event loop nor the logger is imported to report a wrong value."""
    program = (
        "import sys\nfrom ottla.tools.main import main\n"
        "assert main(['serve', '--data-dir', 'd', '--override', 'num.partitions=0']) == 2\n"
        "print([name for name in ('asyncio', 'uvloop', 'structlog', 'construct') if name in sys.modules])\n"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert outcome.stdout == "[]\n", outcome.stderr
    assert list(tmp_path.iterdir()) == []


def test_start_imports_no_handler() -> None:
    """Handlers are imported for the first requests of their APIs: together they take some 50 ms."""
    program = (
        "import sys, ottla.broker.main\n"
        "print([name for name in sys.modules if name.startswith('ottla.broker.handlers.')])\n"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert outcome.stdout == "[]\n", outcome.stderr
