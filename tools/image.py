"""The entry point of the container image: runs `ottla serve` from the environment variables of Kafka's own images.

Owns the variables that name no config (CLUSTER_ID, OTTLA_*), the image's defaults, the log lines by which
Testcontainers detects that a broker has started, and the file that the health check reads. `KAFKA_*` variables are
mapped to configs by `broker/config/sources.py`.

Sources: the scripts and defaults of apache/kafka (/etc/kafka/docker), and the wait
strategies of the Kafka modules of Testcontainers for Java, Python, Go and Node.js.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..broker.config.control_access import CA_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE
from ..broker.releases.profiles import NEWEST
from ..protocol.mistakes import USAGE_ERROR, complain
from ..protocol.named import NamedTuple
from ..storage.io import permissions
from . import image_security

if TYPE_CHECKING:
    from ..broker.config.serve_options import ServeOptions
    from ..broker.network.server import Running

PROGRAM = "ottla image"
RELEASE = NEWEST
DATA_DIR = "/var/lib/kafka/data"
TLS_SCHEME = "tls://"
MOUNTED_CONFIG = Path("/mnt/shared/config/server.properties")
READY_FILE, READY_VARIABLE = "/tmp/ottla-ready", "OTTLA_READY_FILE"  # the variable overrides the path
LISTENERS = "PLAINTEXT://:9092"
ADVERTISED = "PLAINTEXT://localhost:9092"
ROLES = "KAFKA_PROCESS_ROLES"  # `ottla serve` accepts process.roles without effect; the image acts on it
CONTROLLER_ROLE = "controller"

# Variables of the image, with the flag of `ottla serve` that each one sets.
FLAGS = {
    "OTTLA_RELEASE": "--release",
    "OTTLA_BROKERS": "--brokers",
    "OTTLA_NODE_IDS": "--node-ids",
    "OTTLA_SECURITY": "--security",
    "OTTLA_CONTROL": "--control",
    "OTTLA_CONTROL_TLS_CERT": "--control-tls-cert",
    "OTTLA_CONTROL_TLS_KEY": "--control-tls-key",
    "OTTLA_LOG_FORMAT": "--log-format",
    "OTTLA_LOG_LEVEL": "--log-level",
}
SWITCHES = {"OTTLA_CONTROL_WRITE": "--control-write", "OTTLA_CONTROL_OPEN_METRICS": "--control-open-metrics"}
# Read by `ottla serve` itself, which a command line does not carry: the token is a secret.
_ACCESS = (TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CA_VARIABLE)
OWN_VARIABLES = (*FLAGS, *SWITCHES, *_ACCESS, READY_VARIABLE, permissions.VARIABLE)
# An empty value counts as unset: compose files pass `KAFKA_LISTENERS: ${UNSET}` as an empty text.
_MAY_BE_EMPTY = ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "KAFKA_LOG_DIRS", "KAFKA_LOG_DIR")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLUSTER_ID = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class ImageError(Exception):
    """The environment is invalid; the text is one line for the user."""


class Launch(NamedTuple):
    """The arguments and environment of `ottla serve`, as read from the container's environment."""

    arguments: tuple[str, ...]  # of `ottla serve`
    environ: dict[str, str]  # of `ottla serve`
    cluster_id: str | None  # for a data directory without one
    unknown: tuple[str, ...]  # variables that begin with OTTLA_ and have no meaning
    serves: bool  # False for process.roles=controller: Ottla has no separate controller to run


def plan(
    environ: Mapping[str, str],
    assignments: Sequence[str] = (),
    file: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Launch:
    """Returns the launch for `/etc/kafka/docker/run NAME=VALUE ...` in an environment. Raises ImageError.

    `file` is the mounted server.properties and `settings` its contents: a config that it sets gets no default of the
    image.
    """
    known = settings or {}
    env = dict(environ)
    for text in assignments:
        name, separator, value = text.partition("=")
        if not separator or not _VARIABLE.fullmatch(name):
            raise ImageError(f"{text!r} is not NAME=VALUE")
        env[name] = value
    for name in _MAY_BE_EMPTY:
        # Testcontainers for .NET appends a comma to the last listener, which older releases of Kafka accepted.
        if name in env:
            text = env.pop(name).strip().rstrip(",")
            if text:
                env[name] = text
    if "KAFKA_LISTENERS" not in env and "listeners" not in known:
        if "KAFKA_ADVERTISED_LISTENERS" in env:
            env["KAFKA_LISTENERS"] = listeners_of(env["KAFKA_ADVERTISED_LISTENERS"])
        else:
            env["KAFKA_LISTENERS"] = LISTENERS
            if "advertised.listeners" not in known:
                env["KAFKA_ADVERTISED_LISTENERS"] = ADVERTISED
    try:
        image_security.apply(env, known)
    except ValueError as error:
        raise ImageError(str(error)) from None
    if not {"KAFKA_LOG_DIRS", "KAFKA_LOG_DIR"} & env.keys() and not {"log.dirs", "log.dir"} & known.keys():
        env["KAFKA_LOG_DIRS"] = DATA_DIR
    arguments = [] if file is None else ["--config", str(file)]
    for name, flag in FLAGS.items():
        value = env.get(name, RELEASE if flag == "--release" else "").strip()
        if flag == "--control":
            value = re.sub(r"^https?://", "", value).rstrip("/")
        for one in value.split(",") if flag == "--log-level" else [value]:
            arguments += [flag, one.strip()] if one.strip() else []
    for name, flag in SWITCHES.items():
        value = env.get(name, "").strip().lower()
        if value not in ("", "true", "false"):
            raise ImageError(f"{name} {value!r}: expected true or false")
        arguments += [flag] if value == "true" else []
    cluster_id = env.get("CLUSTER_ID", "").strip() or None
    if cluster_id is not None and not _CLUSTER_ID.fullmatch(cluster_id):
        raise ImageError(f"CLUSTER_ID {cluster_id!r}: expected 1 to 255 of the characters a-z A-Z 0-9 . _ -")
    unknown = tuple(sorted(name for name in env if name.startswith("OTTLA_") and name not in OWN_VARIABLES))
    given = known.get(ROLES.removeprefix("KAFKA_").lower().replace("_", "."), "")
    roles = env.get(ROLES, given)  # unset means a ZooKeeper-mode broker
    named = {role.strip().lower() for role in roles.split(",") if role.strip()}
    return Launch(tuple(arguments), env, cluster_id, unknown, named != {CONTROLLER_ROLE})


def listeners_of(advertised: str) -> str:
    """Returns `listeners` for `advertised.listeners`: the same names and ports, on all interfaces.

    Raises ImageError.
    """
    found: list[str] = []
    for part in filter(None, (part.strip() for part in advertised.split(","))):
        name, separator, address = part.partition("://")
        port = address.rpartition(":")[2]
        if not separator or not port.isdecimal():
            raise ImageError(f"KAFKA_ADVERTISED_LISTENERS: {part!r} is not NAME://host:port")
        found.append(f"{name}://0.0.0.0:{port}")
    return ",".join(found)


def format_directory(options: ServeOptions, cluster_id: str) -> str | None:
    """Formats new data directories with a cluster id and returns None. Raises ImageError.

    If one of them is formatted already, nothing is changed and its cluster id is returned.
    """
    from ..storage import restore
    from ..storage.errors import StorageError
    from ..storage.format.meta_properties import read_meta_properties
    from ..storage.io.files import DiskFiles
    from ..storage.log_dir.directory import DataDirectory

    files = DiskFiles()
    try:
        restore.finish(files, options.data_dirs)  # an interrupted restore may have moved meta.properties away
        for path in options.data_dirs:
            with contextlib.suppress(OSError):  # the broker reports an unreadable one at its start
                return read_meta_properties(files, path).get("cluster.id", "")
        node_id = options.config["node.id"] if options.config.is_set("node.id") else options.node_ids[0]
        # The broker copies the cluster id to the other directories at its start.
        DataDirectory.open(files, options.data_dirs[0], node_id=node_id, cluster_id=cluster_id).close()
    except StorageError as error:
        raise ImageError(str(error)) from error
    return None


def started_lines(node_id: int) -> tuple[str, ...]:
    """Returns the lines of Kafka's log that Testcontainers waits for.

    The first is for Testcontainers for Java and Go, the others for Python: with KRaft and with ZooKeeper.
    """
    return (
        f"[BrokerLifecycleManager id={node_id}] Transitioning from RECOVERY to RUNNING.",
        f"[KafkaRaftServer nodeId={node_id}] Kafka Server started",
        f"[KafkaServer id={node_id}] started",
    )


def ready_addresses(addresses: Sequence[str], encrypted: Sequence[bool] = ()) -> list[str]:
    """Returns addresses reachable inside the container, for the health check: a wildcard address becomes 127.0.0.1, and
    that of a listener with TLS, one that is `encrypted`, begins with `tls://`."""
    wildcards = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "127.0.0.1", "[]": "127.0.0.1"}
    found: list[str] = []
    for address, has_tls in zip_longest(addresses, encrypted, fillvalue=False):
        host, _, port = str(address).rpartition(":")
        found.append(f"{TLS_SCHEME if has_tls else ''}{wildcards.get(host, host)}:{port}")
    return found


def announce(running: Running) -> None:
    """Reports that the broker accepts connections: to Testcontainers by log lines, to the health check by a file."""
    file = _ready_file()
    try:
        listeners = running.state.options.listeners
        encrypted = [one.has_tls for one in listeners] * (len(running.addresses) // len(listeners))
        file.write_text("".join(f"{address}\n" for address in ready_addresses(running.addresses, encrypted)))
    except OSError as error:
        from ..broker.logs import get_logger

        get_logger().warning("ready file not written, the health check fails", file=str(file), reason=error.strerror)
    print("\n".join(started_lines(running.state.node_id)), flush=True)


def _ready_file() -> Path:
    return Path(os.environ.get(READY_VARIABLE) or READY_FILE)


def run(assignments: Sequence[str]) -> int:
    """`/etc/kafka/docker/run`: serves until the container is stopped, and returns the exit code."""
    # Process 1 gets no signal without a handler: `docker stop` would wait 10 seconds for a broker that is starting.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    with contextlib.suppress(OSError):
        _ready_file().unlink(missing_ok=True)
    from ..broker import logs
    from .serve import parse_serve, serve

    launch = _launch(assignments)
    os.environ.clear()
    os.environ.update(launch.environ)
    _apply_umask()
    logs.configure(launch.environ.get("OTTLA_LOG_FORMAT") or "console")
    for name in launch.unknown:
        logs.get_logger().warning("variable ignored", reason=f"unknown variable {name}")
    if not launch.serves:
        print(
            "process.roles has no broker, and Ottla needs no controller: the container waits until it is stopped",
            flush=True,
        )
        while True:
            signal.pause()
    if launch.cluster_id is not None:
        found = format_directory(parse_serve(launch.arguments, launch.environ)[0], launch.cluster_id)
        if found not in (None, launch.cluster_id):
            text = "CLUSTER_ID ignored: the data directory has one"
            logs.get_logger().warning(text, cluster_id=found, ignored=launch.cluster_id)
    return serve(launch.arguments, announce)


def _apply_umask() -> None:
    try:
        permissions.apply()
    except ValueError as error:
        raise ImageError(str(error)) from error


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def _launch(assignments: Sequence[str] = ()) -> Launch:
    """Plans the launch from the process's environment and the mounted file. Raises ImageError, ConfigError."""
    from ..broker.config.sources import read_properties_file

    file = MOUNTED_CONFIG if MOUNTED_CONFIG.exists() else None
    return plan(os.environ, assignments, file, read_properties_file(file) if file else None)


def storage(arguments: Sequence[str]) -> int:
    """`kafka-storage`: prints a random cluster id or formats the data directory, and returns the exit code."""
    from ..protocol.arguments import Parser

    parser = Parser(prog="kafka-storage", description="Prepare the data directory of a broker.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    commands.add_parser("random-uuid", help="print a new cluster id")
    formatting = commands.add_parser("format", help="write a cluster id into the data directory", allow_abbrev=False)
    formatting.add_argument("-t", "--cluster-id", required=True, metavar="ID")
    formatting.add_argument("-c", "--config", metavar="FILE", help="ignored: configs come from the environment")
    formatting.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="exit with 0 if it is formatted already"
    )
    formatting.add_argument("-s", "--standalone", action="store_true", help="ignored: a broker is always standalone")
    parsed = parser.parse_args(list(arguments))
    if parsed.command == "random-uuid":
        from ..storage.format.partition_metadata import encode_id
        from ..storage.log_dir.directory import new_id

        print(encode_id(new_id()))
        return 0
    from .serve import parse_serve

    _apply_umask()
    launch = _launch([f"CLUSTER_ID={parsed.cluster_id}"])
    options = parse_serve(launch.arguments, launch.environ)[0]
    path = options.data_dirs[0]
    found = format_directory(options, parsed.cluster_id)
    if found is None:
        print(f"Formatting {path} with cluster id {parsed.cluster_id}.")
    elif parsed.ignore_formatted:
        print(f"{path} is already formatted.")
    else:
        print(f"{path} is already formatted; use --ignore-formatted to ignore this", file=sys.stderr)
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m ottla.tools.image run [NAME=VALUE ...]` or `storage ...`: returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    known = {"run": run, "storage": storage}
    if not given or given[0] not in known:
        return complain(PROGRAM, f"expected one of: {', '.join(known)}")
    from ..broker.errors import ConfigError
    from ..broker.releases.profiles import UnknownRelease

    try:
        return known[given[0]](given[1:])
    except (ImageError, ConfigError, UnknownRelease) as error:
        return complain(PROGRAM, error)
    except KeyboardInterrupt:
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
