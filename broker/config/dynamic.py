"""Validation of dynamic broker configs, of one broker or of all, with Kafka's rules and messages (KIP-226).

Owns the checks and their order, as pure functions; `values.py` has the values. Config names that no release knows are
accepted, as in Kafka: they may belong to a plugin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...protocol.config_codes import ConfigSource
from ..errors import ConfigError
from . import host_limits
from .definitions import Fact, parse_value
from .group_limits import check_group_limits
from .serve_options import protocol_map
from .values import Config, check_codec, check_cordoned

# Without a listener prefix these would change the settings of all listeners.
_ONLY_BY_LISTENER = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
_OF_A_LISTENER = re.compile(r"listener\.name\.([^.]*)\.(.*)")
_FOR_ALL_BY_LISTENER = {"max.connections", "max.connection.creation.rate"}
_LISTENER_THREADS = "num.network.threads"
_CHANGED_BY_LISTENER = {*_FOR_ALL_BY_LISTENER, _LISTENER_THREADS}
_THREADS = (
    "num.network.threads",
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
# Kafka opens and closes listeners on a change of these; Ottla keeps the listeners of its startup.
_LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
MEBIBYTE = 1 << 20


def check_dynamic(config: Config, source: ConfigSource, configs: Mapping[str, str]) -> None:
    """Checks `configs` as all configs of a level, DYNAMIC_BROKER or DYNAMIC_DEFAULT_BROKER. Raises ConfigError."""
    names = list(configs)
    static = [name for name in names if (fact := _own(config, name)) is not None and fact.read_only]
    _refuse(config, static, "Cannot update these configs dynamically", "Set")
    bare = [name for name in names if name.startswith(_ONLY_BY_LISTENER)]
    problem = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse(config, bare, problem, "HashSet")
    for name, text in configs.items():
        if (fact := config.fact(name)) is not None:
            parse_value(fact, text, name)
    if source is ConfigSource.DYNAMIC_DEFAULT_BROKER:
        one = [name for name in names if _is_of_one_broker(config, name)]
        problem = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse(config, one, problem, "Set")
    _check_together(config, source, configs)


def _own(config: Config, name: str) -> Fact | None:
    """Returns the definition of exactly this name, without handling a listener prefix."""
    fact = config.fact(name)
    return fact if fact is not None and fact.name == name else None


def _is_of_one_broker(config: Config, name: str) -> bool:
    """Returns whether the config is each broker's own: one of a listener is, also with a name that no release has."""
    if (fact := _own(config, name)) is not None:
        return fact.dynamic == "per-broker"
    match = _OF_A_LISTENER.fullmatch(name)
    if match is None or match[2] in _FOR_ALL_BY_LISTENER:
        return False
    return match[2] != _LISTENER_THREADS or not config.profile.behaviour.listener_threads


def _refuse(config: Config, names: Iterable[str], problem: str, kind: str) -> None:
    if listed := ", ".join(names):
        shown = f"{kind}({listed})" if config.profile.behaviour.sets_as_scala else f"[{listed}]"
        raise ConfigError(f"{problem}: {shown}")


def _check_together(config: Config, source: ConfigSource, configs: Mapping[str, str]) -> None:
    """Checks the configs that a broker would refuse at startup, and those that it cannot change while running."""

    def after(name: str) -> Any:
        """Returns the effective value after the change; None if the release does not have the config."""
        fact = config.fact(name)
        if fact is None:
            return None
        strongest = config.dynamic(ConfigSource.DYNAMIC_BROKER)
        if source is ConfigSource.DYNAMIC_DEFAULT_BROKER and name in strongest:
            return parse_value(fact, strongest[name])
        return parse_value(fact, configs[name]) if name in configs else config.without(name, source)

    if after("log.retention.ms") == 0:
        raise ConfigError("requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    if after("log.roll.ms") < 1:
        raise ConfigError("requirement failed: log.roll.ms must be greater than or equal to 1")
    check_codec(after("compression.type"), config.profile)
    threads = after("log.cleaner.threads")
    if threads < 1:
        raise ConfigError("requirement failed: log.cleaner.threads must be at least 1")
    if after("log.cleaner.dedupe.buffer.size") // threads <= MEBIBYTE:
        raise ConfigError("requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    for name in _THREADS:
        if config.fact(name) is not None:
            _check_threads(name, after(name), config[name])
    _check_cleaner_threads(threads, config["log.cleaner.threads"])
    for name in _LISTENERS:
        if name in configs and after(name) != config.without(name, source):
            raise ConfigError(f"{name} cannot be changed while the broker runs")
    _check_listeners(config, source, configs, after)
    host_limits.check_limits(after(host_limits.PER_IP), after(host_limits.NAME))
    check_cordoned(config, after("cordoned.log.dirs") or [])
    check_group_limits(after)
    for unit in ("ms", "bytes"):
        _check_local(unit, after(f"log.local.retention.{unit}"), after(f"log.retention.{unit}"))


def _check_listeners(
    config: Config, source: ConfigSource, configs: Mapping[str, str], after: Callable[[str], Any]
) -> None:
    """Refuses changes of what a listener has from its start on, and stores of TLS that cannot be used."""
    served = {text.partition("://")[0].lower() for text in config["listeners"]}
    with_tls: set[str] = set()
    for name in configs:
        match = _OF_A_LISTENER.fullmatch(name)
        if match is None or match[1] not in served or match[2] in _CHANGED_BY_LISTENER:
            continue
        if match[2].startswith("ssl."):
            from .security.tls import RECONFIGURABLE  # few brokers use TLS

            if match[2] in RECONFIGURABLE:
                with_tls.add(match[1])
                continue
        fact = config.fact(name)
        if fact is None or parse_value(fact, configs[name], name) != config.without(name, source):
            raise _cannot(
                f"Configs cannot be updated dynamically for existing listener ListenerName({match[1].upper()}), "
                "restart broker or create a new listener for update"
            )
    protocols = protocol_map(config["listener.security.protocol.map"])
    for listener in sorted(with_tls):
        if protocols.get(listener.upper(), listener.upper()).endswith("SSL"):
            _check_stores(config, listener.upper(), configs, after)


def _check_stores(config: Config, listener: str, configs: Mapping[str, str], after: Callable[[str], Any]) -> None:
    from ...protocol.security.key_stores import StoreError  # few brokers use TLS
    from .security.tls import check_replacement, server_context, tls_settings

    protocols = protocol_map(config["listener.security.protocol.map"])
    has_sasl = protocols.get(listener, "").startswith("SASL_")

    def is_set(name: str) -> bool:
        return name in configs or config.is_set(name)

    old = tls_settings(config.get, listener, has_sasl=has_sasl, is_set=config.is_set)
    try:
        new = tls_settings(after, listener, has_sasl=has_sasl, is_set=is_set)
        server_context(new)
        check_replacement(old, new)
    except (ConfigError, StoreError) as error:
        raise _cannot(f"Validation of dynamic config update of SSLFactory failed: {error}") from None


def _cannot(reason: str) -> ConfigError:
    wrapped = f"org.apache.kafka.common.config.ConfigException: {reason}"
    return ConfigError(f"Invalid value {wrapped} for configuration Invalid dynamic configuration")


def _check_threads(name: str, count: int, now: int) -> None:
    """Checks Kafka's limit of a change: at most double, at least half the number of threads."""
    failed = f"Dynamic thread count update validation failed for {name}={count}"
    if count == now:
        return
    if count <= 0:
        raise _cannot(f"{failed}, value should be at least 1")
    if count < now // 2:
        raise _cannot(f"{failed}, value should be at least half the current value {now}")
    if count > now * 2:
        raise _cannot(f"{failed}, value should not be greater than double the current value {now}")


def _check_cleaner_threads(count: int, now: int) -> None:
    if count < now // 2:
        raise _cannot(f"Log cleaner threads cannot be reduced to less than half the current value {now}")
    if count > now * 2:
        raise _cannot(f"Log cleaner threads cannot be increased to more than double the current value {now}")


def _check_local(unit: str, local: int | None, whole: int) -> None:
    """Checks that local retention does not exceed total retention (tiered storage); -2 means the same as total."""
    name = f"log.local.retention.{unit}"
    if local is None or local == -2 or whole == -1:
        return
    problem = None
    if local == -1:
        problem = f"Value must not be -1 as log.retention.{unit} value is set as {whole}."
    elif local > whole:
        problem = f"Value must not be more than log.retention.{unit} property value: {whole}"
    if problem:
        raise _cannot(f"Invalid value {local} for configuration {name}: {problem}")
