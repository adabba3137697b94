"""Command lines: errors of one line, and suggestions for unknown names."""

from __future__ import annotations

import pytest

from ottla.protocol.arguments import Parser, add_bootstrap
from ottla.protocol.names import did_you_mean, meant, near


def parser() -> Parser:
    made = Parser(prog="tool", allow_abbrev=False, meant={"--port": "--listen HOST:PORT"})
    made.add_argument("--listen", required=True)
    made.add_argument("--format", choices=["console", "json"])
    add_bootstrap(made)
    commands = made.add_subparsers(dest="command", metavar="COMMAND")
    topics = commands.add_parser("topics")
    topics.add_argument("--partitions", type=int)
    topics.add_subparsers(dest="verb").add_parser("create").add_argument("--replicas", required=True)
    commands.add_parser("groups")
    return made


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "tool: the following arguments are required: --listen"),
        ("--listne 1", "tool: unknown flag --listne; did you mean --listen?"),
        ("--listne=1", "tool: unknown flag --listne; did you mean --listen?"),
        ("--LISTEN 1", "tool: unknown flag --LISTEN; did you mean --listen?"),
        ("--port 1", "tool: unknown flag --port; did you mean --listen HOST:PORT?"),
        ("--listen 1 --zzz", "tool: unknown flag --zzz; tool --help lists the flags"),
        ("--listen 1 -z", "tool: unknown flag -z; tool --help lists the flags"),
        ("--listen 1 topics data", "tool topics: unknown command data; one of: create"),
        ("--listen 1 groups data", "tool: unexpected argument data"),
        ("--listen 1 --format jsn", "tool: argument --format: 'jsn' is none of console, json; did you mean json?"),
        ("--listen 1 topcs", "tool: unknown command topcs; did you mean topics? one of: topics, groups"),
        ("--listen 1 topics --partitons 3", "tool topics: unknown flag --partitons; did you mean --partitions?"),
        (
            "--listen 1 topics create --replics 3",
            "tool topics create: unknown flag --replics; did you mean --replicas?",
        ),
        ("--listen 1 groups --partitions 3", "tool: unknown flag --partitions; tool groups --help lists the flags"),
        ("--listen 1 topics --partitions x", "tool topics: argument --partitions: invalid int value: 'x'"),
    ],
)
def test_unknown_argument_is_one_line_with_the_nearest_name(
    arguments: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parser().parse_args(arguments.split())
    assert (stopped.value.code, *capsys.readouterr()) == (2, "", text + "\n")


def test_unprintable_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--x\ny\x1b[1m"])
    assert capsys.readouterr().err == "tool: unknown flag --x\\ny\\x1b[1m; tool --help lists the flags\n"


@pytest.mark.parametrize("flag", ["--bootstrap-server", "--bootstrap"])
def test_both_flags_set_the_broker_address(flag: str) -> None:
    assert parser().parse_args(["--listen", "1", flag, "a:1"]).bootstrap_server == "a:1"
    assert parser().parse_args(["--listen", "1", f"{flag}=a:1", "groups"]).bootstrap_server == "a:1"


def test_nearest_names_ignore_case() -> None:
    assert near("TOPCS", ["topics", "groups"]) == ["topics"] and near("zzz", ["topics"]) == []
    assert did_you_mean("produc", ["Produce", "Fetch"]) == "; did you mean Produce?"
    assert did_you_mean("x", []) == "" and meant(["a", "b"]) == "; did you mean a or b?"
