"""Configs: parsing, valid values, precedence, synonyms, DescribeConfigs, and error messages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla.broker.config.definitions import _table, check_of, facts, format_value, parse_value
from ottla.broker.config.sources import MAX_FILE_BYTES, from_environment
from ottla.broker.config.values import (
    ACTED_ON,
    Config,
    ConfigSource,
    ConfigType,
    TopicConfig,
    validate_topic_configs,
    without_nulls,
)
from ottla.broker.errors import ConfigError
from ottla.broker.releases.profiles import profile
from ottla_testing.each import each

SCOPES = ("broker", "topic", "group", "client-metrics")


def file_with(folder: Path, text: str) -> Path:
    path = folder / "server.properties"
    path.write_text(text)
    return path


# ---- definitions and values


def test_every_definition_has_a_check_and_a_readable_default() -> None:
    allowed_to_be_empty = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}
    for scope in SCOPES:
        for fact in facts(scope).values():
            check_of(fact.valid)
            if fact.default is not None and fact.name not in allowed_to_be_empty:
                parse_value(fact, fact.default)
            for synonym in fact.synonyms:
                assert synonym in facts("broker"), (fact.name, synonym)


def test_table_includes_the_newest_release_and_3_9() -> None:
    broker = facts("broker")
    assert broker["num.partitions"].type == "INT" and "inter.broker.protocol.version" in broker
    # Kubernetes sets KAFKA_PORT=tcp://... beside a service with the name kafka; the config with that name was removed
    # in 3.0.
    assert "port" not in broker
    assert broker["log.message.timestamp.after.max.ms"].default == "3600000"


def test_configs_acted_on_are_defined() -> None:
    known = {name for release in ("ottla", "2.8") for scope in ("broker", "topic") for name in facts(scope, release)}
    assert known | facts("group").keys() >= ACTED_ON


@each(
    ("name", "text", "value"),
    [
        ("num.partitions", " 12 ", 12),
        ("num.partitions", "+3", 3),
        ("log.retention.ms", "-1", -1),
        ("auto.create.topics.enable", "FALSE", False),
        ("log.cleanup.policy", "compact , delete", ["compact", "delete"]),
        ("log.cleanup.policy", "", []),
        ("log.cleaner.min.cleanable.ratio", "0.25", 0.25),
        ("log.cleaner.min.cleanable.ratio", "1", 1.0),
        ("compression.gzip.level", "-1", -1),
        ("compression.gzip.level", "9", 9),
        ("log.message.timestamp.type", "LogAppendTime", "LogAppendTime"),
        ("inter.broker.protocol.version", "2.8", "2.8"),
        ("inter.broker.protocol.version", "2.8.1", "2.8.1"),
        ("inter.broker.protocol.version", "0.10.2-IV0", "0.10.2-IV0"),
        ("group.consumer.migration.policy", "Bidirectional", "Bidirectional"),
    ],
)
def test_values_are_typed(name: str, text: str, value: object) -> None:
    assert Config({name: text})[name] == value


@each(
    ("name", "text", "reason"),
    [
        ("num.partitions", "0", "Value must be at least 1"),
        ("num.partitions", "x", "Not a number of type INT"),
        ("num.partitions", "1_0", "Not a number of type INT"),
        ("num.partitions", "\u0661", "Not a number of type INT"),
        ("num.partitions", "", "Not a number of type INT"),
        ("num.partitions", "2147483648", "Not a number of type INT"),
        ("log.flush.interval.messages", "9223372036854775808", "Not a number of type LONG"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "Value must be no more than 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "Not a number of type DOUBLE"),
        ("compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("log.cleanup.policy", "purge", "String must be one of: compact, delete"),
        ("log.dirs", "", "List must not be empty"),
        ("inter.broker.protocol.version", "2.9", "Version 2.9 is not a valid version"),
        ("inter.broker.protocol.version", "0.10", "Version 0.10 is not a valid version"),
    ],
)
def test_malformed_values_are_refused_with_kafkas_message(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config({name: text})
    assert str(caught.value) == f"Invalid value {text} for configuration {name}: {reason}"


def test_zstd_requires_2_1() -> None:
    zstd = {"compression.type": "zstd"}
    for release in ("2.1", "2.8", "4.3"):
        TopicConfig(Config(zstd, profile=profile(release)), zstd)
    for release in ("0.8.2", "2.0"):
        known = "uncompressed,snappy,lz4,gzip,producer"
        with pytest.raises(ConfigError, match=f"zstd is not valid. Valid options are {known}"):
            Config(zstd, profile=profile(release))
        with pytest.raises(ConfigError, match="String must be one of: uncompressed, snappy, lz4, gzip, producer"):
            TopicConfig(Config(profile=profile(release)), zstd)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        # The message has the parsed value, and for a list the element.
        ("num.partitions", " 00 ", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("log.cleaner.min.cleanable.ratio", "2", "Invalid value 2.0 for configuration log.cleaner.min.cleanable.ratio"),
        ("log.cleanup.policy", "delete,purge", "Invalid value purge for configuration log.cleanup.policy: String must"),
        ("log.cleanup.policy", "delete,", "Configuration 'log.cleanup.policy' values must not be empty."),
        (
            "listener.name.a.num.network.threads",
            "0",
            "Invalid value 0 for configuration listener.name.a.num.network.th",
        ),
    ],
)
def test_error_shows_the_parsed_value(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config({name: text})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("release", "values"),
    [
        ("2.8", ["delete", "compact", "delete"]),
        ("4.1", ["delete", "compact", "delete"]),
        ("4.3", ["delete", "compact"]),
    ],
)
def test_duplicates_in_a_list_are_removed_since_kip_1161(release: str, values: list[str]) -> None:
    config = Config({"log.cleanup.policy": "delete,compact,delete"}, profile=profile(release))
    assert config["log.cleanup.policy"] == values
    assert config.describe("log.cleanup.policy").value == ",".join(values)
    with pytest.raises(ConfigError) as caught:
        Config({"log.cleanup.policy": ",x"}, profile=profile(release))
    reported = "Invalid value  for configuration log.cleanup.policy: String must be one of: compact, delete"
    if release == "4.3":
        reported = "Configuration 'log.cleanup.policy' values must not be empty."
    assert str(caught.value) == reported


@pytest.mark.parametrize("name", ["sasl.enabled.mechanisms", "listeners", "group.streams.rack.aware.assignment.tags"])
def test_lists_have_no_empty_elements_since_kip_1161(name: str) -> None:
    for text in ("a,,b", ",", "a,"):
        with pytest.raises(ConfigError) as caught:
            parse_value(facts("broker", "4.4")[name], text)
        assert str(caught.value) == f"Configuration '{name}' values must not be empty."
    older = facts("broker", "3.9").get(name)
    assert older is None or parse_value(older, "a,,b") == ["a", "", "b"]


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3"])
def test_throttled_replicas_accept_empty_and_star(release: str) -> None:
    name, config = "leader.replication.throttled.replicas", Config(profile=profile(release))
    for text in ("", ",", ",0:1", "0:1, 1:2", "*", ",*"):
        TopicConfig(config, {name: text})
    for text, shown in (("0:1,*", "[0:1, *]"), ("x,", "[x, ]"), ("none", "[none]")):
        with pytest.raises(ConfigError) as caught:
            TopicConfig(config, {name: text})
        assert str(caught.value).startswith(f"Invalid value {shown} for configuration {name}: {name} must be the")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (10000000.5, "1.00000005E7"),
        (-2e7, "-2.0E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_double_is_formatted_like_java(value: float, text: str) -> None:
    assert format_value(facts("topic")["min.cleanable.dirty.ratio"], value) == text


def test_sensitive_value_is_hidden() -> None:
    config = Config({"ssl.key.password": "hunter2"})
    entry = config.describe("ssl.key.password")
    assert entry.value is None and entry.sensitive and entry.type is ConfigType.PASSWORD
    assert [synonym.value for synonym in entry.synonyms] == [None]
    with pytest.raises(ConfigError) as caught:
        Config({"ssl.key.password": "x" * (1 << 20) + "y"})
    assert "xx" not in str(caught.value)


# ---- notations


def test_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        Config.load(file=tmp_path / "missing.properties")
    with pytest.raises(ConfigError, match="larger than"):
        Config.load(file=file_with(tmp_path, "#" * (MAX_FILE_BYTES + 1)))
    with pytest.raises(ConfigError, match=r"cannot read .*properties: malformed .uxxxx escape"):
        Config.load(file=file_with(tmp_path, "log.dir=\\u00g1"))


def test_environment_variable_names() -> None:
    environ = {
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_LISTENER_NAME_A__B_SSL_KEY_PASSWORD": "p",
        "KAFKA_A___B": "c",
        "KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET": "s",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "PATH": "/bin",
    }
    assert {name: text for name, (text, _) in from_environment(environ, facts("broker")).items()} == {
        "num.partitions": "3",
        "listener.name.a_b.ssl.key.password": "p",
        "a-b": "c",
        "zookeeper.clientCnxnSocket": "s",
    }


# ---- precedence


def test_source_precedence(tmp_path: Path) -> None:
    file = file_with(tmp_path, "num.partitions=2")
    environ = {"KAFKA_NUM_PARTITIONS": "3"}
    assert Config.load()["num.partitions"] == 1
    assert Config.load(file=file)["num.partitions"] == 2
    assert Config.load(environ=environ, file=file)["num.partitions"] == 3
    assert Config.load(flags={"num.partitions": "4"}, environ=environ, file=file)["num.partitions"] == 4
    everything = Config.load({"num.partitions": "5"}, {"num.partitions": "4"}, environ, file)
    assert everything["num.partitions"] == 5
    assert everything.reported_synonyms("num.partitions")[0].source is ConfigSource.STATIC_BROKER
    assert Config.load().reported_synonyms("num.partitions")[0].source is ConfigSource.DEFAULT


def test_overridden_malformed_value_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Invalid value many"):
        Config.load({"num.partitions": "1"}, file=file_with(tmp_path, "num.partitions=many"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("num.partition", "unknown config num.partition in --override; did you mean num.partitions?"),
        ("qqqq", "unknown config qqqq in --override"),
        ("retention.ms", "retention.ms in --override is a topic config; the broker's name for it is log.retention.ms"),
        (
            "ottla.behaviour.old_format",
            "unknown behaviour ottla.behaviour.old_format in --override; did you mean ottla.behaviour.old_formats?",
        ),
    ],
)
def test_unknown_override_suggests_the_nearest_name(name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.load({name: "1"})
    assert str(caught.value) == message


def test_unknown_names_in_other_sources_are_warnings(tmp_path: Path) -> None:
    file = file_with(tmp_path, "my.plugin.setting=1\nnum.partitons=2\nnum.partitions=7\n")
    config = Config.load(environ={"KAFKA_PORT": "tcp://10.0.0.1:9092"}, file=file)
    assert config["num.partitions"] == 7
    assert len(config.warnings) == 3
    assert any(str(file) in text and "did you mean num.partitions?" in text for text in config.warnings)
    assert any("KAFKA_PORT" in text for text in config.warnings)


def test_inert_configs_are_listed() -> None:
    config = Config({"num.partitions": "1", "num.io.threads": "8", "listener.name.x.ssl.provider": "p"})
    assert config.not_acted_on() == ["listener.name.x.ssl.provider", "num.io.threads"]


# ---- synonyms


@pytest.mark.parametrize(
    ("static", "expected_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_is_the_first_set_synonym(static: dict[str, str], expected_ms: int) -> None:
    config = Config(static)
    assert config["log.retention.ms"] == expected_ms
    assert TopicConfig(config)["retention.ms"] == expected_ms
    assert config["log.retention.hours"] == int(static.get("log.retention.hours", "168"))


def test_node_id_and_log_dirs_have_synonyms() -> None:
    assert Config()["node.id"] == 1
    assert Config({"broker.id": "7"})["node.id"] == 7
    assert Config({"broker.id": "-1"})["node.id"] == 1
    assert Config({"log.dir": "/a"})["log.dirs"] == ["/a"] and Config({"log.dir": "/a"}).is_set("log.dirs")
    assert Config({"log.dir": "/a", "log.dirs": "/b,/c"})["log.dirs"] == ["/b", "/c"]
    with pytest.raises(ConfigError, match="both are the id of this broker"):
        Config({"node.id": "1", "broker.id": "2"})


def test_retention_of_0_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.ms must be unlimited"):
        Config({"log.retention.hours": "0"})


def test_listener_prefixed_config_falls_back_to_the_plain_one() -> None:
    config = Config({"sasl.enabled.mechanisms": "PLAIN", "listener.name.b.sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    assert config["listener.name.a.sasl.enabled.mechanisms"] == ["PLAIN"]
    assert config["listener.name.b.sasl.enabled.mechanisms"] == ["SCRAM-SHA-256"]
    assert Config({"listener.name.b.plain.sasl.jaas.config": "x"})["listener.name.b.plain.sasl.jaas.config"] == "x"
    with pytest.raises(KeyError):
        config["listener.name.a.no.such.thing"]


# ---- DescribeConfigs


def test_broker_config_description() -> None:
    entry = Config({"log.retention.hours": "24"}).describe("log.retention.ms")
    # As in Kafka: there is no entry for a config that is not set, even if a synonym is.
    assert (entry.value, entry.source, entry.type) == (None, ConfigSource.DEFAULT, ConfigType.LONG)
    assert entry.synonyms == ()
    hours = Config({"log.retention.hours": " 24"}).describe("log.retention.hours")
    assert hours.value == "24" and [(s.name, s.value, s.source) for s in hours.synonyms] == [
        ("log.retention.hours", " 24", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert not entry.read_only and Config().describe("node.id").read_only
    assert Config().describe("auto.create.topics.enable").value == "true"
    assert Config().describe("advertised.listeners").value is None


def test_topic_config_description_has_its_source() -> None:
    broker = Config({"log.segment.bytes": "2097152"})
    broker.set_dynamic("log.segment.bytes", "3145728")
    topic = TopicConfig(broker, {"segment.bytes": "1048576"})
    entry = topic.describe("segment.bytes")
    assert (entry.value, entry.source, entry.read_only) == ("1048576", ConfigSource.DYNAMIC_TOPIC, False)
    assert [(s.name, s.value, int(s.source)) for s in entry.synonyms] == [
        ("segment.bytes", "1048576", 1),
        ("log.segment.bytes", "3145728", 2),
        ("log.segment.bytes", "2097152", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    assert topic.describe("cleanup.policy").value == "delete"
    assert topic.describe("remote.storage.enable").source is ConfigSource.DEFAULT


def test_all_configs_can_be_described() -> None:
    broker = Config()
    topic = TopicConfig(broker)
    assert {broker.describe(name).name for name in broker.names()} == set(broker.names())
    assert {topic.describe(name).name for name in topic.names()} == set(topic.names())
    assert "retention.ms" in topic.names() and "internal.segment.bytes" not in topic.names()
    assert "message.format.version" in topic.names()
    assert "internal.segment.bytes" in TopicConfig(broker, {"internal.segment.bytes": "2000000"}).names()
    with pytest.raises(KeyError):
        topic.describe("num.partitions")


# ---- dynamic configs


def test_topic_configs_follow_dynamic_broker_configs() -> None:
    broker = Config({"log.retention.ms": "10"})
    topic = TopicConfig(broker)
    assert topic["retention.ms"] == 10
    broker.set_dynamic("log.retention.ms", "20", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    assert topic["retention.ms"] == 20
    broker.set_dynamic("log.retention.ms", "30")
    assert (
        topic["retention.ms"] == 30
        and broker.reported_synonyms("log.retention.ms")[0].source is ConfigSource.DYNAMIC_BROKER
    )
    broker.set_dynamic("log.retention.ms", None)
    assert topic["retention.ms"] == 20
    assert broker.dynamic(ConfigSource.DYNAMIC_DEFAULT_BROKER) == {"log.retention.ms": "20"}


def test_dynamic_value_hides_weaker_synonyms() -> None:
    config = Config({"log.retention.hours": "24"})
    config.set_dynamic("log.retention.ms", "5")
    hours = config.describe("log.retention.hours")
    assert (hours.value, hours.source) == ("168", ConfigSource.STATIC_BROKER)  # Kafka's own contradiction
    reported = config.describe("log.retention.ms")
    assert reported.value == "5" and [(s.name, s.value) for s in reported.synonyms] == [
        ("log.retention.ms", "5"),
        ("log.retention.hours", "24"),
        ("log.retention.hours", "168"),
    ]


def test_unknown_config_is_hidden() -> None:
    config = Config()
    config.set_dynamic("my.plugin.password", "x", ConfigSource.DYNAMIC_DEFAULT_BROKER)
    entry = config.describe("my.plugin.password")
    assert (entry.value, entry.sensitive, entry.read_only, entry.type) == (None, True, True, ConfigType.UNKNOWN)
    assert [(s.value, s.source) for s in entry.synonyms] == [(None, ConfigSource.DYNAMIC_DEFAULT_BROKER)]
    assert "my.plugin.password" in config.names()
    with pytest.raises(KeyError):
        config.describe("my.other.plugin")


# ---- topic configs from the wire


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"retention": "1"}, "Unknown topic config name: retention"),
        (
            {"retention.ms": "-2"},
            "Invalid value -2 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"cleanup.policy": "forever"},
            "Invalid value forever for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "conflict topic config setting min.compaction.lag.ms (2) > max.compaction.lag.ms (1)",
        ),
    ],
)
def test_topic_configs_are_validated(configs: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_configs(configs)
    assert str(caught.value) == message


def test_spaces_around_a_value_are_stripped() -> None:
    config = TopicConfig(
        Config(), {"compression.type": " gzip ", "cleanup.policy": " compact , delete ", "segment.ms": " 5 "}
    )
    assert [config[name] for name in config.overrides] == ["gzip", ["compact", "delete"], 5]
    assert parse_value(facts("broker")["ssl.keystore.password"], " s ") == "s"
    with pytest.raises(ConfigError, match=r"^Invalid value 7 for configuration compression.type: "):
        TopicConfig(Config(), {"compression.type": " 7 "})


def test_topic_config_without_value_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        without_nulls({"retention.ms": None, "segment.ms": "5", "nope": None})
    assert str(caught.value) == "Null value not supported for topic configs: retention.ms,nope"
    assert without_nulls({"segment.ms": "5"}) == {"segment.ms": "5"}


def test_valid_topic_configs_are_valid_in_3_9() -> None:
    configs = {"retention.ms": "-1", "cleanup.policy": "compact,delete", "message.format.version": "0.10.2"}
    validate_topic_configs(configs)
    assert TopicConfig(Config(), dict(configs)).overrides == configs


def test_loading_is_quick() -> None:
    """The table is read once, at startup, and must be a small part of that; the bound is ten times the usual time. The
    best of several runs counts: one may include a garbage collection for all earlier tests.
    """

    def once() -> float:
        facts.cache_clear()
        _table.cache_clear()
        started = time.process_time()
        assert Config.load()["num.partitions"] == 1
        return time.process_time() - started

    assert min(once() for _ in range(5)) < 0.03
