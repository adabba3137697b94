"""The commands `ottla serve` and `ottla releases`.

Owns their flags, the mapping of flags to Kafka's configs, and the exit codes. All options are checked before the
server is imported, so that wrong arguments fail at once and change nothing on disk.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..broker.config.control_access import (
    TOKEN_FILE_FLAG,
    TOKEN_FILE_VARIABLE,
    TOKEN_VARIABLE,
    given_token,
    server_context,
)
from ..broker.config.record_options import MAX_BYTES, RecordError, RecordOptions
from ..broker.config.security.words import PLAINTEXT, PROTOCOLS
from ..broker.config.serve_options import (
    BROKERS_MAX,
    ControlOptions,
    ServeOptions,
    StartupError,
    control_listener,
    flags_to_configs,
    parse_node_ids,
    serve_options,
)
from ..broker.config.values import Config
from ..broker.errors import ConfigError
from ..broker.logs import Levels, level_of
from ..broker.releases.loggers import kafka_logger_names
from ..broker.releases.profiles import NEWEST, OWN, RELEASES, UnknownRelease, profile
from ..protocol.arguments import Parser
from ..protocol.collection import without_collection
from ..protocol.mistakes import complain

if TYPE_CHECKING:
    from ..broker.network.server import Running
    from ..broker.testing.security import Security


DEFAULT_ADDRESS = "127.0.0.1:9092"
PROTOCOL_MAP = "listener.security.protocol.map"  # of --security even where a file or variable has another
# Flags of other brokers and servers: the error names the flag of `ottla serve` instead.
_MEANT = {
    **dict.fromkeys("--port --host --bind --listeners --bootstrap --bootstrap-server".split(), "--listen HOST:PORT"),
    **dict.fromkeys("--dir --data --log-dir --log-dirs".split(), "--data-dir DIR"),
    "--set": "--override KEY=VALUE",
    "--version": "ottla --version",
    "--control-token": "--control-token-file FILE, or the variable OTTLA_CONTROL_TOKEN",
}


def serve_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ottla serve", description="Run a broker until SIGTERM or SIGINT.", allow_abbrev=False, meant=_MEANT
    )
    parser.add_argument(
        "--listen",
        action="append",
        default=[],
        metavar="[NAME=]HOST:PORT",
        help="address to listen on; may repeat; a port alone is on 127.0.0.1, port 0 picks a free one "
        "(default: 127.0.0.1:9092)",
    )
    parser.add_argument("--data-dir", action="append", default=[], metavar="DIR", help="data directory; may repeat")
    parser.add_argument(
        "--advertise",
        action="append",
        default=[],
        metavar="[NAME=]HOST[:PORT]",
        help="address that clients connect to, if it differs from the listener's; may repeat",
    )
    parser.add_argument(
        "--security",
        choices=PROTOCOLS,
        default=PLAINTEXT,
        help="security of all listeners, for tests: TLS by a throw-away authority (ssl), with certificates of clients "
        "(mtls), logins of the users admin and user with passwords (sasl_plaintext, with TLS sasl_ssl) or with tokens "
        "(oauth_plaintext, with TLS oauth_ssl); what clients need is in client.properties and security-* in the data "
        "directory (default: plaintext; TLS needs ottla[security])",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a Kafka server.properties")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one config by Kafka's name; overrides all other sources; may repeat",
    )
    parser.add_argument(
        "--release",
        default=OWN,
        metavar="X.Y",
        help=f"behave as that release of Kafka, {RELEASES[0]} to {NEWEST} (default: {OWN}, Ottla's own profile)",
    )
    parser.add_argument(
        "--brokers",
        type=int,
        metavar="N",
        help=f"number of nodes that clients see, 1 to {BROKERS_MAX}, on consecutive ports, with one log store; ids "
        "count up from node.id, or from 1 (default: 1)",
    )
    parser.add_argument(
        "--node-ids", metavar="ID,ID,...", help="node ids that clients see, such as 0,1,2, in the order of the ports"
    )
    parser.add_argument(
        "--control",
        metavar="HOST:PORT",
        help="serve a control plane for tests over HTTP: faults, leaders, clock, snapshots (default: none; needs "
        "ottla[http]); it needs a token unless HOST is a loopback address",
    )
    parser.add_argument(
        "--control-write",
        action="store_true",
        help="allow changes from the control plane's web page: create topics, send records, move the clock",
    )
    parser.add_argument(
        TOKEN_FILE_FLAG,
        metavar="FILE",
        help="file with the token of the control plane, which is then needed on a loopback address as well (default: "
        f"the token of {TOKEN_VARIABLE}, or of the file {TOKEN_FILE_VARIABLE}, or where one is needed a new one, which "
        "is printed)",
    )
    parser.add_argument(
        "--control-open-metrics", action="store_true", help="serve /metrics, /health and /ready without the token"
    )
    parser.add_argument("--control-tls-cert", metavar="FILE", help="certificate chain of the control plane, PEM: HTTPS")
    parser.add_argument("--control-tls-key", metavar="FILE", help="private key of that certificate, PEM")
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        metavar="TOPIC[:key|value]=FILE[#MESSAGE]",
        help="schema by which the web page decodes a topic's values (or keys): an Avro schema (.avsc), a Protobuf "
        "descriptor set (.desc, made by protoc --include_imports --descriptor_set_out) or source (.proto); may repeat",
    )
    parser.add_argument(
        "--log-format",
        choices=["console", "json"],
        default="console",
        help="format of the log on stderr (default: console)",
    )
    parser.add_argument(
        "--log-level",
        action="append",
        default=[],
        metavar="[LOGGER=]LEVEL",
        help=f"log level, one of {', '.join(Levels.LEVELS)}, of one logger or of all; may repeat (default: INFO)",
    )
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="record every request and response: decoded as JSON lines (FILE.jsonl), or for Wireshark "
        "(FILE.pcapng); without credentials",
    )
    parser.add_argument(
        "--record-max-bytes",
        type=int,
        metavar="N",
        help=f"maximum size of the recording, which ends there (default: {MAX_BYTES}, 1 GiB)",
    )
    parser.add_argument(
        "--record-ring",
        action="store_true",
        help="at the maximum size keep the newest requests instead: the recording rotates between FILE and FILE.1",
    )
    parser.add_argument(
        "--record-without-contents", action="store_true", help="omit keys, values and header values of records"
    )
    return parser


def _control(parsed: argparse.Namespace, environ: Mapping[str, str]) -> ControlOptions | None:
    """Returns the options of the control plane, or None without --control. Raises ConfigError."""
    if parsed.control is not None:
        listener = control_listener(parsed.control)
        certificate, key = parsed.control_tls_cert, parsed.control_tls_key
        if (certificate is None) != (key is None):
            raise ConfigError("--control-tls-cert and --control-tls-key belong together: give both, each a PEM file")
        tls = None if certificate is None else server_context(certificate, key)
        token = given_token(parsed.control_token_file, environ)
        schemas = None
        if parsed.schema:
            from ..broker.record_schemas.schemas import SchemaError, load, pair_of

            try:
                schemas = load(map(pair_of, parsed.schema))
            except SchemaError as error:
                raise ConfigError(f"--schema: {error}") from error
        return ControlOptions(listener, token, parsed.control_open_metrics, tls, parsed.control_write, schemas)
    if parsed.schema:
        raise ConfigError("--schema needs --control HOST:PORT: it is for the web page of the control plane")
    if parsed.control_write:
        raise ConfigError("--control-write needs --control HOST:PORT: it is for the web page of the control plane")
    for name in ("token_file", "open_metrics", "tls_cert", "tls_key"):
        if getattr(parsed, f"control_{name}"):
            raise ConfigError(f"--control-{name.replace('_', '-')} needs --control HOST:PORT")
    return None


def _record_options(parsed: argparse.Namespace) -> RecordOptions | None:
    """Returns the options of the recording, or None without --record. Raises ConfigError."""
    if parsed.record is None:
        for flag in ("record_max_bytes", "record_ring", "record_without_contents"):
            if getattr(parsed, flag):
                raise ConfigError(f"--{flag.replace('_', '-')} needs --record FILE")
        return None
    most = MAX_BYTES if parsed.record_max_bytes is None else parsed.record_max_bytes
    try:
        return RecordOptions(parsed.record, most, parsed.record_ring, not parsed.record_without_contents)
    except RecordError as error:
        raise ConfigError(f"--record: {error}") from error


def parse_serve(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[ServeOptions, str, Security | None]:
    """Returns the options of `ottla serve`, the log format, and the security of --security.

    Raises ConfigError, UnknownRelease, or SystemExit for the errors of argparse.
    """
    parsed = serve_parser().parse_args(list(arguments))
    overrides: dict[str, str] = {}
    for text in parsed.override:
        name, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"--override {text}: expected KEY=VALUE")
        overrides[name.strip()] = value
    flags = flags_to_configs(parsed.listen, parsed.advertise, parsed.data_dir, PROTOCOLS[parsed.security])
    config = Config.load(overrides, flags, environ, parsed.config, profile(parsed.release))
    security = None
    if parsed.security != PLAINTEXT:
        from . import serve_security

        security = serve_security.read(parsed.security, config)
        if not config.is_set("listeners"):
            flags |= flags_to_configs([DEFAULT_ADDRESS], [], [], PROTOCOLS[parsed.security])
            config = Config.load(overrides, flags, environ, parsed.config, profile(parsed.release))
        secured = security.configs(config["listeners"], config["advertised.listeners"] or (), config.profile)
        flags |= {name: text for name, text in secured.items() if name == PROTOCOL_MAP or not config.is_set(name)}
        config = Config.load(overrides, flags, environ, parsed.config, profile(parsed.release))
    named_by_flags = bool(parsed.listen) and "listeners" not in overrides
    node_ids = None if parsed.node_ids is None else parse_node_ids(parsed.node_ids)
    options = serve_options(config, flag_listeners=named_by_flags, brokers=parsed.brokers, node_ids=node_ids)
    kafka_loggers = kafka_logger_names(config.profile)
    try:
        log_levels = tuple(level_of(text, kafka_loggers) for text in parsed.log_level)
    except ValueError as error:
        raise ConfigError(f"--log-level: {error}") from error
    if security is not None:
        bad_certificate = security.bad_certificate if security.has_tls else None
        options = dataclasses.replace(options, scram_users=security.users, bad_certificate=bad_certificate)
    control = _control(parsed, environ)
    options = dataclasses.replace(options, log_levels=log_levels, control=control, record=_record_options(parsed))
    return options, parsed.log_format, security


def serve(arguments: Sequence[str], on_ready: Callable[[Running], object] = lambda running: None) -> int:
    """`ottla serve`: runs a broker and returns the exit code, 2 with one line on stderr if it cannot start.

    `on_ready` is called once, when clients can connect.
    """
    try:
        options, log_format, security = parse_serve(arguments, os.environ)
        with without_collection(for_good=True):
            from ..broker import logs, main

        logs.configure(log_format, dict(options.log_levels))
        if security is None:
            return main.serve(options, on_ready)
        from . import serve_security

        def announce(running: Running) -> None:
            serve_security.announce(security)
            on_ready(running)

        return main.serve(options, announce, partial(serve_security.write, security))
    except (ConfigError, StartupError, UnknownRelease) as error:
        return complain("ottla serve", error)


def releases_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ottla releases",
        description="Show the releases for `ottla serve --release`: all, one in full, or the differences of two.",
        allow_abbrev=False,
    )
    parser.add_argument("release", nargs="*", metavar="X", help="one release, or two to compare")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def releases(arguments: Sequence[str]) -> int:
    """`ottla releases [X [Y]]`: prints and returns the exit code, 2 with one line on stderr for an unknown release."""
    parser = releases_parser()
    parsed = parser.parse_args(list(arguments))
    if len(parsed.release) > 2:
        parser.error(f"{len(parsed.release)} releases given: at most two can be compared")
    from . import release_table
    from .command_line import print_text

    try:
        chosen = [profile(name) for name in parsed.release]
    except UnknownRelease as error:
        parser.error(str(error))
    if parsed.json:
        reports = (release_table.overview, release_table.one, release_table.difference)
        text = json.dumps(reports[len(chosen)](*chosen), indent=2)
    else:
        texts = (release_table.overview_text, release_table.one_text, release_table.difference_text)
        text = "\n".join(texts[len(chosen)](*chosen))
    return print_text(parser.prog, text + "\n")
