"""Options of `ottla serve` as one value: listeners, advertised addresses, data directories, configuration.

Owns the notations of addresses (`[NAME=]HOST:PORT` on the command line, `NAME://host:port` in Kafka's configs) and the
checks that involve several options. Opens and binds nothing, so that mistakes are reported before any side effect.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.frozen import frozen
from ...protocol.limits import INT32_MAX
from ...protocol.named import NamedTuple
from ...protocol.names import meant, near
from ..errors import ConfigError
from .node_configs import check_nodes
from .record_options import RecordOptions
from .values import Config

if TYPE_CHECKING:
    import ssl

    from ..record_schemas.schemas import Schemas
    from .security.sasl import SaslSettings
    from .security.tls import TlsSettings

DEFAULT_LISTENER = "PLAINTEXT"
PROTOCOLS = (DEFAULT_LISTENER, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
BROKERS_MAX = 100
FIRST_NODE_ID = 1
NODE_ID_MAX = INT32_MAX
WILDCARDS = ("", "0.0.0.0", "::")
LOCAL = "127.0.0.1"
INITIAL_FEATURES = "ottla.features"

_FEATURE = re.compile(r"([a-z.]+)=([0-9]{1,5})")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_CONFIG_NAME = re.compile(r"[A-Za-z0-9_.-]+")  # Kafka takes any; Testcontainers calls its own TC-0, TC-1
_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]|(?P<host>[^\s\[\]:/=]*))(?::(?P<port>[0-9]{1,9}))?"
)


class StartupError(Exception):
    """The broker cannot start, for example because of a used port or a locked data directory. The message is one line
    for the user; exit code 2.
    """


class Listener(NamedTuple):
    """An address to listen on."""

    name: str
    host: str  # without brackets; "" for all interfaces
    port: int  # 0 for a free port
    protocol: str = DEFAULT_LISTENER
    """The security protocol, one of PROTOCOLS."""

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in."""
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


@frozen
class ControlOptions:
    """A control plane: its address, who may use it, and its web page.

    Without a `token` one is generated, unless the control plane listens on a loopback address alone: there it needs
    none. With `opens_metrics` the routes for monitoring need no token. `tls` is the context of its server. With
    `may_write` its page, and browsers, may make changes; with `schemas` the page decodes keys and values.
    """

    listener: Listener = Listener("CONTROL", LOCAL, 0)
    token: str | None = field(default=None, repr=False)
    opens_metrics: bool = False
    tls: ssl.SSLContext | None = None
    may_write: bool = False
    schemas: Schemas | None = None


@frozen
class ServeOptions:
    """All options of a server, validated as far as that is possible without side effects."""

    listeners: tuple[Listener, ...]
    advertised: dict[str, tuple[str, int | None]]  # listener name -> host and port; None: the bound port
    data_dirs: tuple[Path, ...]
    config: Config
    node_ids: tuple[int, ...] = (FIRST_NODE_ID,)
    """The node ids that clients see, in the order of their ports; each node has its own port for every listener.
    Ignored for a single node without `--node-ids`: it has the configured id, or that of its data directory.
    """
    are_named: bool = False
    """Whether `--node-ids` was given."""
    control: ControlOptions | None = None
    """None for no control plane."""
    log_levels: tuple[tuple[str, str], ...] = ()
    """Loggers with an initial level other than INFO."""
    scram_users: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Passwords of users that can log in with SCRAM from the start on."""
    bad_certificate: Callable[[str], tuple[str, str]] | None = field(default=None, repr=False)
    """Makes a certificate that clients refuse, for the kind of a fault: chain and key, PEM."""
    record: RecordOptions | None = None
    """Recording that starts with the broker; None for no recording."""

    @property
    def brokers(self) -> int:
        """Number of nodes that clients see."""
        return len(self.node_ids)

    @property
    def allowed_ids(self) -> tuple[int, ...]:
        """The node ids that the data directories may have; empty for any id."""
        return self.node_ids if self.brokers > 1 or self.are_named or self.config.of_nodes else ()

    def advertised_address(self, name: str, bound_port: int, local_host: str, node_id: int) -> tuple[str, int]:
        """Returns the host and port of listener `name` of a node, as clients receive them.

        That is the advertised address if one was given, with consecutive ports for further nodes. Otherwise it is the
        listener's own host; for a listener on all interfaces it is `local_host`, the address at which this client
        reached the broker, which is certain to work for it.
        """
        if name in self.advertised:
            host, port = self.advertised[name]
            place = self.node_ids.index(node_id) if self.brokers > 1 else 0
            return host, bound_port if port is None else port + place
        host = next(listener.host for listener in self.listeners if listener.name == name)
        return (local_host if host in WILDCARDS else host), bound_port

    def nodes(self) -> list[tuple[int, Listener]]:
        """Returns (node id, listener with that node's port) for every listener, node by node."""
        return [
            (node_id, listener._replace(port=listener.port + place) if listener.port else listener)
            for place, node_id in enumerate(self.node_ids)
            for listener in self.listeners
        ]


def format_address(host: str, port: int) -> str:
    """Returns `host:port`, with brackets around an IPv6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> tuple[str, int | None]:
    """Parses `HOST:PORT`, `[v6]:PORT`, `:PORT` or `HOST` into (host, port or None). Raises ConfigError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or not text:
        raise ConfigError(f"{text!r} is not HOST:PORT (write an IPv6 address in brackets: [::1]:9092)")
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        raise ConfigError(f"{text!r}: expected a port from 0 to 65535, not {match['port']}")
    return match["v6"] or match["host"] or "", port


def flag_address(flag: str, text: str) -> tuple[str, int | None]:
    """Parses a flag's address as `parse_address`; a port alone is on 127.0.0.1. Raises ConfigError with the flag."""
    if text.isascii() and text.isdigit():
        text = f"{LOCAL}:{text}"
    try:
        return parse_address(text)
    except ConfigError as error:
        raise ConfigError(f"{flag} {error}") from None


def control_listener(text: str) -> Listener:
    """Parses the value of `--control`: HOST:PORT. The host is mandatory: on a loopback address a control plane needs
    no token. Raises ConfigError, also if aiohttp is not installed.
    """
    host, port = flag_address("--control", text.removeprefix("http://").removesuffix("/"))
    if port is None:
        raise ConfigError(f"--control {text}: the port is missing (0 lets the system choose)")
    if not host:
        raise ConfigError(f"--control {text}: the host is missing (use 127.0.0.1 for this machine only)")
    if importlib.util.find_spec("aiohttp") is None:
        raise ConfigError("a control plane needs aiohttp: pip install 'ottla[http]'")
    return Listener("CONTROL", host, port)


def flags_to_configs(
    listen: list[str], advertise: list[str], data_dirs: list[str], default_name: str = DEFAULT_LISTENER
) -> dict[str, str]:
    """Converts the command line's flags to configs; a flag that was not given sets nothing.

    A `--listen` without a name is `default_name`, such as PLAINTEXT, further ones are PLAINTEXT_2, PLAINTEXT_3: Kafka's
    listeners have distinct names. An `--advertise` without a port uses the listener's port, which is filled in once it
    is bound. Raises ConfigError.
    """
    configs: dict[str, str] = {}
    if listen:
        configs["listeners"] = ",".join(str(listener) for listener in _flag_listeners(listen, default_name))
    if advertise:
        pairs = [_split_name(text) for text in advertise]
        for _, text in pairs:
            if not flag_address("--advertise", text)[0]:
                raise ConfigError(f"--advertise {text}: clients need a host to connect to")
        configs["advertised.listeners"] = ",".join(f"{name or default_name}://{text}" for name, text in pairs)
    if data_dirs:
        if any("," in text for text in data_dirs):
            raise ConfigError(
                "--data-dir: a path with a comma is not possible, because log.dirs is a comma-separated list"
            )
        configs["log.dirs"] = ",".join(data_dirs)
    return configs


def _flag_listeners(listen: list[str], default_name: str) -> list[Listener]:
    found: list[Listener] = []
    unnamed = 0
    for argument in listen:
        name, text = _split_name(argument)
        host, port = flag_address("--listen", text)
        if port is None:
            raise ConfigError(f"--listen {argument}: the port is missing (0 lets the system choose)")
        if name is None:
            unnamed += 1
            name = default_name if unnamed == 1 else f"{default_name}_{unnamed}"
        found.append(Listener(name, host, port))
    return found


def _split_name(argument: str) -> tuple[str | None, str]:
    """Splits `NAME=ADDRESS` or, as in Kafka's configs, `NAME://ADDRESS`. Raises ConfigError."""
    separator = "://" if "://" in argument else "="
    name, found, text = argument.partition(separator)
    if not found:
        return None, argument
    if name.lower() in ("http", "https"):
        raise ConfigError(f"{argument!r}: not an HTTP address: expected PLAINTEXT://HOST:PORT or HOST:PORT")
    if not (_NAME if separator == "=" else _CONFIG_NAME).fullmatch(name):
        raise ConfigError(f"{argument!r}: a listener name may only have letters, digits and underscores")
    return name.upper(), text


def serve_options(
    config: Config, flag_listeners: bool = False, brokers: int | None = None, node_ids: Sequence[int] | None = None
) -> ServeOptions:
    """Derives listeners, advertised addresses, data directories and nodes from the configuration and the command line.

    `flag_listeners`: the listeners are from the command line, where a custom name needs no entry in
    `listener.security.protocol.map`. `brokers` nodes have consecutive ids from `node.id` or 1 on; `node_ids` sets the
    ids explicitly. Raises ConfigError with one line for the user.
    """
    nodes = _node_ids(config, brokers, node_ids)
    check_nodes(config.of_nodes, nodes)
    listeners = _served_listeners(config, flag_listeners)
    names = {listener.name for listener in listeners}
    advertised: dict[str, tuple[str, int | None]] = {}
    for name, host, port in _parse_listeners(config, "advertised.listeners"):
        if name not in names:
            raise ConfigError(f"advertised.listeners has {name}, which is not in listeners")
        if host in WILDCARDS:
            raise ConfigError(
                f"advertised.listeners cannot use {host or 'an empty host'}: clients cannot connect to it"
            )
        if name in advertised:
            raise ConfigError(f"advertised.listeners has {name} twice")
        advertised[name] = (host, port or None)
    if not config.is_set("log.dirs"):
        raise ConfigError("no data directory: give --data-dir DIR, or log.dirs in the configuration")
    data_dirs = tuple(Path(text).absolute() for text in config["log.dirs"])  # as DescribeLogDirs has them
    if len(set(data_dirs)) != len(data_dirs):
        raise ConfigError("the same data directory is given twice")
    initial_features(config)  # raises ConfigError
    for node_config in {id(one): one for one in map(config.of, nodes)}.values():
        for listener in listeners:
            if listener.has_sasl:
                sasl_of(node_config, listener)  # raises ConfigError
            if listener.has_tls:
                tls_of(node_config, listener)  # raises ConfigError
    options = ServeOptions(listeners, advertised, data_dirs, config, nodes, node_ids is not None)
    _check_ports(options)
    return options


def initial_features(config: Config) -> dict[str, int]:
    """Returns the levels of features in a new data directory that `ottla.features` sets, by name (KIP-1022). Raises
    ConfigError for a feature that the release does not have, and for an unsupported level.
    """
    known = config.profile.feature_ranges(unstable=config.get("unstable.feature.versions.enable", False))
    found: dict[str, int] = {}
    for entry in config[INITIAL_FEATURES] or ():
        match = _FEATURE.fullmatch(entry)
        if match is None:
            raise ConfigError(f"{INITIAL_FEATURES}: {entry!r} is not NAME=LEVEL")
        name, level = match[1], int(match[2])
        if name not in known:
            raise ConfigError(f"{INITIAL_FEATURES}: this release has no feature {name}{meant(near(name, known))}")
        first, last = known[name]
        if not first <= level <= last:
            raise ConfigError(f"{INITIAL_FEATURES}: {name}={level} is not supported: expected {first} to {last}")
        found[name] = level
    return found


def sasl_of(config: Config, listener: Listener) -> SaslSettings:
    """Returns the SASL settings of a listener of a node. Raises ConfigError."""
    from .security.sasl import sasl_settings  # few brokers have such a listener, and its patterns take 3 ms of a start

    return sasl_settings(config, listener.name)


def tls_of(config: Config, listener: Listener) -> TlsSettings:
    """Returns the TLS settings of a listener of a node. Raises ConfigError."""
    from .security.tls import tls_settings  # few brokers have such a listener, and OpenSSL takes time to load

    return tls_settings(config.get, listener.name, has_sasl=listener.has_sasl, is_set=config.is_set)


def parse_node_ids(text: str) -> tuple[int, ...]:
    """Parses the value of `--node-ids`: `0,1,2`. Raises ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,10}", part) for part in parts):
        raise ConfigError(f"--node-ids {text!r}: expected whole numbers with commas between them, such as 0,1,2")
    return tuple(map(int, parts))


def _node_ids(config: Config, brokers: int | None, named: Sequence[int] | None) -> tuple[int, ...]:
    """Returns the node ids in the order of their ports. Raises ConfigError."""
    configured: int | None = config["node.id"] if config.is_set("node.id") else None
    count = brokers if brokers is not None else 1 if named is None else len(named)
    if not 1 <= count <= BROKERS_MAX:
        raise ConfigError(f"--brokers {count}: expected 1 to {BROKERS_MAX}")
    if named is None:
        first = FIRST_NODE_ID if configured is None else configured
        if first + count - 1 > NODE_ID_MAX:
            raise ConfigError(f"--brokers {count}: too many for node.id {first}: the last node id is {NODE_ID_MAX}")
        return tuple(range(first, first + count))
    ids = ",".join(map(str, named))
    if len(named) != count:
        raise ConfigError(
            f"--brokers {count} and --node-ids {ids} differ in the number of nodes: give only one of them"
        )
    if len(set(named)) < len(named):
        raise ConfigError(f"--node-ids {ids}: a node id is given twice")
    if not all(0 <= node_id <= NODE_ID_MAX for node_id in named):
        raise ConfigError(f"--node-ids {ids}: expected node ids from 0 to {NODE_ID_MAX}")
    if configured is not None and configured not in named:
        raise ConfigError(f"--node-ids {ids}: node.id {configured} is missing")
    return tuple(named)


def _check_ports(options: ServeOptions) -> None:
    """Checks that every node has its own ports. Raises ConfigError."""
    brokers = options.brokers
    if brokers == 1:
        return
    ports = [port for port in (port for _, port in options.advertised.values()) if port]
    for port in (*(listener.port for listener in options.listeners), *ports):
        if port + brokers - 1 > 65535:
            raise ConfigError(f"--brokers {brokers}: not enough ports from {port} on, the last port is 65535")
    taken = [(listener.host, listener.port) for _, listener in options.nodes() if listener.port]
    if len(set(taken)) < len(taken):
        raise ConfigError(
            f"--brokers {brokers}: two listeners need the same port: each needs {brokers} consecutive ports"
        )


def _served_listeners(config: Config, flag_listeners: bool) -> tuple[Listener, ...]:
    """Returns the listeners for clients."""
    protocols = protocol_map(config["listener.security.protocol.map"])
    found: dict[str, Listener] = {}
    for name, host, port in _parse_listeners(config, "listeners"):
        protocol = protocols.get(name, DEFAULT_LISTENER if flag_listeners else None)
        if protocol is None:
            raise ConfigError(f"listener {name} has no entry in listener.security.protocol.map")
        if name in found:
            raise ConfigError(f"listeners has {name} twice")
        if port is None:
            raise ConfigError(f"listener {name} has no port (0 lets the system choose)")
        found[name] = Listener(name, host, port, protocol)
    if not found:
        raise ConfigError("listeners has no listener for clients")
    return tuple(found.values())


def _parse_listeners(config: Config, config_name: str) -> list[tuple[str, str, int | None]]:
    """Returns names and addresses in a config, without a KRaft controller's, which a server.properties may include."""
    controllers = {name.upper() for name in config["controller.listener.names"] or ()}
    found: list[tuple[str, str, int | None]] = []
    for text in config[config_name] or ():
        name, separator, address = text.partition("://")
        if not separator or not _CONFIG_NAME.fullmatch(name):
            raise ConfigError(f"{config_name}: {text!r} is not NAME://host:port")
        found.append((name.upper(), *parse_address(address)))
    return [one for one in found if one[0] not in controllers]


def protocol_map(text: str) -> dict[str, str]:
    """Parses `listener.security.protocol.map`: NAME:PROTOCOL pairs, names in upper case as in Kafka's comparison."""
    found: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = pair.partition(":")
        if not separator or protocol.upper() not in PROTOCOLS:
            raise ConfigError(f"listener.security.protocol.map: {pair!r} is not NAME:PROTOCOL")
        found[name.strip().upper()] = protocol.upper()
    return found
