"""What the container image runs: the environment of Kafka's own images as `ottla serve`.

Owns the variables that name no config (CLUSTER_ID, OTTLA_*), the image's defaults, the lines by which Testcontainers
sees that a broker has started, and the file that the health check reads. What `KAFKA_*` variables mean is
`broker/config/sources.py`'s. Sources: the scripts and defaults of apache/kafka (/etc/kafka/docker), and the wait
strategies of the Kafka modules of Testcontainers for Java, Python, Go and Node.js.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ..broker.releases.profiles import NEWEST
from ..protocol.mistakes import USAGE_ERROR, complain
from ..storage.io import permissions

if TYPE_CHECKING:
    from ..broker.config.serve_options import ServeOptions
    from ..broker.network.server import Running

PROGRAM = "ottla image"
RELEASE = NEWEST
DATA_DIR = "/var/lib/kafka/data"
MOUNTED_CONFIG = Path("/mnt/shared/config/server.properties")
READY_FILE, READY_VARIABLE = "/tmp/ottla-ready", "OTTLA_READY_FILE"  # the variable names another
LISTENERS = "PLAINTEXT://:9092"
ADVERTISED = "PLAINTEXT://localhost:9092"
ROLES = "KAFKA_PROCESS_ROLES"  # `ottla serve` knows the config and does not act on it, the image does
CONTROLLER_ROLE = "controller"

# What the image reads for itself, by the flag of `ottla serve` that it stands for.
FLAGS = {
    "OTTLA_RELEASE": "--release",
    "OTTLA_BROKERS": "--brokers",
    "OTTLA_NODE_IDS": "--node-ids",
    "OTTLA_CONTROL": "--control",
    "OTTLA_LOG_FORMAT": "--log-format",
    "OTTLA_LOG_LEVEL": "--log-level",
}
OWN_VARIABLES = (*FLAGS, READY_VARIABLE, permissions.VARIABLE)
# An empty one of these says the same as none; a compose file easily has one.
_MAY_BE_EMPTY = ("KAFKA_LISTENERS", "KAFKA_ADVERTISED_LISTENERS", "KAFKA_LOG_DIRS", "KAFKA_LOG_DIR")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CLUSTER_ID = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class ImageError(Exception):
    """The environment asks for what cannot be: one line for the user."""


class Launch(NamedTuple):
    """What an environment asks for."""

    arguments: tuple[str, ...]  # of `ottla serve`
    environ: dict[str, str]  # in which it runs
    cluster_id: str | None  # of a directory that is new
    unknown: tuple[str, ...]  # names of ours that we do not know
    serves: bool  # False: the container is to be a controller and no broker, which is nothing here


def plan(
    environ: Mapping[str, str],
    assignments: Sequence[str] = (),
    file: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> Launch:
    """What `/etc/kafka/docker/run NAME=VALUE ...` is to do in an environment. Raises ImageError.

    `file` is the mounted server.properties, `settings` what it says: nothing is taken for granted that is said there.
    """
    known = settings or {}
    env = dict(environ)
    for text in assignments:
        name, separator, value = text.partition("=")
        if not separator or not _VARIABLE.fullmatch(name):
            raise ImageError(f"{text!r} is not NAME=VALUE")
        env[name] = value
    for name in _MAY_BE_EMPTY:
        # Testcontainers for .NET writes a comma after the last one, which older releases took.
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
    if not {"KAFKA_LOG_DIRS", "KAFKA_LOG_DIR"} & env.keys() and not {"log.dirs", "log.dir"} & known.keys():
        env["KAFKA_LOG_DIRS"] = DATA_DIR
    arguments = [] if file is None else ["--config", str(file)]
    for name, flag in FLAGS.items():
        value = env.get(name, RELEASE if flag == "--release" else "").strip()
        if flag == "--control":
            value = re.sub(r"^https?://", "", value).rstrip("/")
        for one in value.split(",") if flag == "--log-level" else [value]:
            arguments += [flag, one.strip()] if one.strip() else []
    cluster_id = env.get("CLUSTER_ID", "").strip() or None
    if cluster_id is not None and not _CLUSTER_ID.fullmatch(cluster_id):
        raise ImageError(f"CLUSTER_ID {cluster_id!r} is malformed")
    unknown = tuple(sorted(name for name in env if name.startswith("OTTLA_") and name not in OWN_VARIABLES))
    serves = _serves(env.get(ROLES, known.get(_config(ROLES), "")))
    return Launch(tuple(arguments), env, cluster_id, unknown, serves)


def _serves(roles: str) -> bool:
    """Whether the roles have a broker; none at all is a broker of the days of ZooKeeper."""
    named = {role.strip().lower() for role in roles.split(",") if role.strip()}
    return named != {CONTROLLER_ROLE}


def _config(variable: str) -> str:
    """The config that a variable without double underscores stands for."""
    return variable.removeprefix("KAFKA_").lower().replace("_", ".")


def listeners_of(advertised: str) -> str:
    """`listeners` for advertised ones: the same names and ports on every interface."""
    found: list[str] = []
    for part in filter(None, (part.strip() for part in advertised.split(","))):
        name, separator, address = part.partition("://")
        port = address.rpartition(":")[2]
        if not separator or not port.isdecimal():
            raise ImageError(f"KAFKA_ADVERTISED_LISTENERS: {part!r} is not NAME://host:port")
        found.append(f"{name}://0.0.0.0:{port}")
    return ",".join(found)


def format_directory(options: ServeOptions, cluster_id: str) -> str | None:
    """Gives data directories that nobody has used yet a cluster id. Raises StorageError.

    Where one of them was used before, nothing is changed and its cluster id is returned.
    """
    from ..storage import restore
    from ..storage.format.file_names import META_PROPERTIES
    from ..storage.format.meta_properties import parse_meta_properties
    from ..storage.io.files import DiskFiles
    from ..storage.log_dir.directory import DataDirectory

    files = DiskFiles()
    restore.finish(files, options.data_dirs)  # an interrupted one may have taken meta.properties away
    for path in options.data_dirs:
        place = os.path.join(path, META_PROPERTIES)
        with contextlib.suppress(OSError):  # one that cannot be read is the broker's affair
            return parse_meta_properties(files.read_bytes(place), place).get("cluster.id", "")
    node_id = options.config["node.id"] if options.config.is_set("node.id") else options.node_ids[0]
    # The others take over what the first one has.
    DataDirectory.open(files, options.data_dirs[0], node_id=node_id, cluster_id=cluster_id).close()
    return None


def started_lines(node_id: int) -> tuple[str, ...]:
    """What Kafka's log says of a broker that has started, as far as somebody waits for it.

    The first is waited for by Testcontainers for Java and Go, the others by that for Python: with KRaft and without.
    """
    return (
        f"[BrokerLifecycleManager id={node_id}] Transitioning from RECOVERY to RUNNING.",
        f"[KafkaRaftServer nodeId={node_id}] Kafka Server started",
        f"[KafkaServer id={node_id}] started",
    )


def ready_addresses(addresses: Sequence[str]) -> list[str]:
    """Addresses to connect to from beside the broker: every interface is reached by the loopback's."""
    wildcards = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "127.0.0.1", "[]": "127.0.0.1"}
    found: list[str] = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        found.append(f"{wildcards.get(host, host)}:{port}")
    return found


def announce(running: Running) -> None:
    """Tells who waits for it that the broker accepts connections: a log's readers, and the health check."""
    file = _ready_file()
    try:
        file.write_text("".join(f"{address}\n" for address in ready_addresses(running.addresses)))
    except OSError as error:
        from ..broker.logs import get_logger

        get_logger().warning("the health check cannot be told where to ask", file=str(file), reason=error.strerror)
    print("\n".join(started_lines(running.state.node_id)), flush=True)


def _ready_file() -> Path:
    return Path(os.environ.get(READY_VARIABLE) or READY_FILE)


def run(assignments: Sequence[str]) -> int:
    """`/etc/kafka/docker/run`: serves until the container is stopped; the exit code."""
    # The first process of a container gets no signal that it does not handle: until the broker handles them, this does.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    with contextlib.suppress(OSError):
        _ready_file().unlink(missing_ok=True)
    from ..broker import logs
    from .serve import serve

    launch = _launch(assignments)
    os.environ.clear()
    os.environ.update(launch.environ)
    _apply_umask()
    logs.configure(launch.environ.get("OTTLA_LOG_FORMAT") or "console")
    for name in launch.unknown:
        logs.get_logger().warning("variable ignored", reason=f"unknown variable {name}")
    if not launch.serves:
        print(
            "process.roles has no broker: Ottla needs no controller, so this container only waits to be stopped",
            flush=True,
        )
        while True:
            signal.pause()
    _take_cluster_id(launch)
    return serve(launch.arguments, announce)


def _apply_umask() -> None:
    try:
        permissions.apply()
    except ValueError as error:
        raise ImageError(str(error)) from error


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(0)


def _launch(assignments: Sequence[str] = ()) -> Launch:
    """What the process's environment and the mounted file ask for. Raises ImageError, ConfigError."""
    from ..broker.config.sources import read_properties_file

    file = MOUNTED_CONFIG if MOUNTED_CONFIG.exists() else None
    return plan(os.environ, assignments, file, read_properties_file(file) if file else None)


def _take_cluster_id(launch: Launch) -> None:
    from ..storage.errors import StorageError
    from .serve import parse_serve

    if launch.cluster_id is None:
        return
    try:
        found = format_directory(parse_serve(launch.arguments, launch.environ)[0], launch.cluster_id)
    except StorageError as error:
        raise ImageError(str(error)) from error
    if found not in (None, launch.cluster_id):
        from ..broker.logs import get_logger

        get_logger().warning(
            "CLUSTER_ID ignored: the data directory has one", cluster_id=found, ignored=launch.cluster_id
        )


def storage(arguments: Sequence[str]) -> int:
    """`kafka-storage`: a random id, or a data directory formatted with one; the exit code."""
    from ..protocol.arguments import Parser

    parser = Parser(prog="kafka-storage", description="Prepare the data directory of a broker.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    commands.add_parser("random-uuid", help="print a new cluster id")
    formatting = commands.add_parser("format", help="give the data directory a cluster id", allow_abbrev=False)
    formatting.add_argument("-t", "--cluster-id", required=True, metavar="ID")
    formatting.add_argument("-c", "--config", metavar="FILE", help="taken and not read: the environment says it all")
    formatting.add_argument("-g", "--ignore-formatted", action="store_true", help="leave one that has an id as it is")
    formatting.add_argument("-s", "--standalone", action="store_true", help="taken, and what a broker here always is")
    parsed = parser.parse_args(list(arguments))
    if parsed.command == "random-uuid":
        from ..storage.format.partition_metadata import encode_id
        from ..storage.log_dir.directory import new_id

        print(encode_id(new_id()))
        return 0
    from ..storage.errors import StorageError
    from .serve import parse_serve

    _apply_umask()
    launch = _launch([f"CLUSTER_ID={parsed.cluster_id}"])
    options = parse_serve(launch.arguments, launch.environ)[0]
    path = options.data_dirs[0]
    try:
        found = format_directory(options, parsed.cluster_id)
    except StorageError as error:
        raise ImageError(str(error)) from error
    if found is None:
        print(f"Formatting {path} with cluster id {parsed.cluster_id}.")
    elif parsed.ignore_formatted:
        print(f"{path} is already formatted.")
    else:
        print(f"{path} is already formatted; --ignore-formatted leaves it as it is", file=sys.stderr)
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m ottla.tools.image run [NAME=VALUE ...]` or `storage ...`: the exit code."""
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
