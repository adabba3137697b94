"""Dynamic broker configs: Kafka's rules, their order and messages."""

from __future__ import annotations

import pytest

from ottla.broker.config.dynamic import check_dynamic
from ottla.broker.config.values import Config, ConfigSource
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import profile
from ottla_testing.each import each

ONE, ALL = ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER
WRAPPED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
THREADS = "Dynamic thread count update validation failed for num.io.threads="


def refusal(configs: dict[str, str], source: ConfigSource = ONE, release: str = "4.3", **static: str) -> str | None:
    config = Config({name.replace("_", "."): text for name, text in static.items()}, profile=profile(release))
    try:
        check_dynamic(config, source, configs)
    except ConfigError as error:
        return str(error)
    return None


@each(
    ("configs", "message"),
    [
        ({"node.id": "2", "log.dirs": "/x"}, "Cannot update these configs dynamically: [node.id, log.dirs]"),
        ({"log.retention.hours": "2"}, "Cannot update these configs dynamically: [log.retention.hours]"),
        # Checked before values.
        ({"log.segment.bytes": "x", "node.id": "2"}, "Cannot update these configs dynamically: [node.id]"),
        (
            {"ssl.key.password": "x"},
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.key.password]",
        ),
        ({"log.retention.ms": "x"}, "Invalid value x for configuration log.retention.ms: Not a number of type LONG"),
        (
            {"log.retention.ms": "0"},
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        ({"log.roll.ms": "0"}, "requirement failed: log.roll.ms must be greater than or equal to 1"),
        (
            {"log.cleaner.dedupe.buffer.size": "1"},
            "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ),
        (
            {"num.io.threads": "17"},
            WRAPPED.format(f"{THREADS}17, value should not be greater than double the current value 8"),
        ),
        ({"num.io.threads": "3"}, WRAPPED.format(f"{THREADS}3, value should be at least half the current value 8")),
        (
            {"log.cleaner.threads": "3"},
            WRAPPED.format("Log cleaner threads cannot be increased to more than double the current value 1"),
        ),
        (
            {"log.local.retention.ms": "604800001"},
            WRAPPED.format(
                "Invalid value 604800001 for configuration log.local.retention.ms: "
                "Value must not be more than log.retention.ms property value: 604800000"
            ),
        ),
        (
            {"max.connections.per.ip.overrides": "a:1,host"},
            "Error parsing configuration property 'max.connections.per.ip.overrides': begin 0, end -1, length 4",
        ),
        ({"max.connections.per.ip.overrides": "host:many"}, 'For input string: "many"'),
        (
            {"max.connections.per.ip.overrides": "a:1,hostName#:100"},
            "max.connections.per.ip.overrides contains invalid addresses : hostName#",
        ),
        (
            {"max.connections.per.ip": "0"},
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set.",
        ),
        ({"listeners": "PLAINTEXT://:1"}, "listeners cannot be changed while the broker runs"),
    ],
)
def test_invalid_change_is_refused_with_kafkas_message(configs: dict[str, str], message: str) -> None:
    assert refusal(configs) == message


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"num.io.threads": "16", "log.cleaner.threads": "2"},
        {"log.retention.ms": "-2"},  # refused only at startup
        {"max.connections.per.ip.overrides": ""},
        {"max.connections.per.ip.overrides": "a:1, b:-2,", "max.connections.per.ip": "0"},
        {"listener.name.x.ssl.key.password": "p"},
        {"log.local.retention.ms": "999999999999", "log.retention.ms": "-1"},
        {"a.plugins.own": "1", "": "x"},
    ],
)
def test_valid_changes_are_accepted(configs: dict[str, str]) -> None:
    assert refusal(configs) is None


@pytest.mark.parametrize(
    "name",
    [
        "listeners",
        "sasl.jaas.config",
        "listener.name.x.ssl.key.password",
        "listener.name.x.plain.sasl.jaas.config",
        "listener.name.x.ssl.provider",
        "listener.name.x.a.plugins.own",
        "listener.name..",
    ],
)
def test_per_broker_configs_cannot_be_set_for_all_brokers(name: str) -> None:
    message = f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
    assert refusal({name: "PLAINTEXT://:1"}, ALL) == message


def test_listener_limits_can_be_set_for_all_brokers() -> None:
    assert refusal({"listener.name.plaintext.max.connections": "4", "max.connections": "5"}, ALL) is None


def test_network_threads_of_a_listener_can_be_set_for_all_brokers_since_3_2() -> None:
    """KAFKA-7589. The names that only begin like those of a listener are a plugin's."""
    threads = {"listener.name.x.num.network.threads": "3"}
    assert refusal(threads, ALL) is refusal({"listener.name.x": "1", "listener.namex.y.z": "1"}, ALL) is None
    assert refusal(threads, ALL, release="3.1") == (
        "Cannot update these configs at default cluster level, broker id must be specified: "
        "Set(listener.name.x.num.network.threads)"
    )


def test_older_releases_print_sets_as_scala_does() -> None:
    assert refusal({"node.id": "2"}, release="4.1") == "Cannot update these configs dynamically: Set(node.id)"
    assert refusal({"ssl.key.password": "2"}, release="2.8").endswith("HashSet(ssl.key.password)")  # type: ignore[union-attr]


def test_check_includes_values_of_the_other_level() -> None:
    config = Config()
    config.set_dynamic("log.cleaner.dedupe.buffer.size", str(3 << 20), ALL)
    with pytest.raises(ConfigError, match="1MB per cleaner thread"):
        check_dynamic(config, ONE, {"log.cleaner.threads": "2", "log.cleaner.dedupe.buffer.size": str(2 << 20)})
    check_dynamic(config, ONE, {"log.cleaner.threads": "2"})
    # A broker's own value overrides that of all brokers.
    config.set_dynamic("log.retention.ms", "5")
    check_dynamic(config, ALL, {"log.retention.ms": "0"})


@pytest.mark.parametrize("release", ["0.8.2", "0.11", "2.0", "2.8", "3.3", "3.9", "4.0", "4.3", "ottla"])
def test_checks_work_in_every_release(release: str) -> None:
    assert refusal({"log.retention.ms": "7"}, release=release) is None
    assert "requirement failed" in (refusal({"log.retention.ms": "0"}, release=release) or "")
