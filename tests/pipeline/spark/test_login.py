"""Spark at a listener with a login: batches and streams in both directions; plans and checkpoints have no password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline import write_exactly_once
from ottla_testing.clients.securing import LISTENER, broker_configs, client_settings
from ottla_testing.patience import PATIENCE_S

PASSWORD = "never-shown"
CONFIGS = broker_configs() | {
    "listener.name.secured.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{PASSWORD}";'
    )
}


@pytest.fixture
def broker() -> Iterator[Embedded]:
    with Embedded(listeners=LISTENER, configs=CONFIGS) as broker:
        broker.create_topic("t")
        yield broker


def options(broker: Embedded, password: str = PASSWORD) -> dict[str, str]:
    settings = {"bootstrap.servers": broker.bootstrap, **client_settings(password=password)}
    return {f"kafka.{name}": value for name, value in settings.items()}


def plans(spark: SparkSession) -> str:
    """Returns the plans of all queries so far, as the web page and the event log have them."""
    session: Any = vars(spark)["_jsparkSession"]
    java = session.sharedState().statusStore().executionsList()
    return "\n".join(java.apply(number).physicalPlanDescription() for number in range(java.size()))


def test_spark_logs_in_and_shows_no_password(
    spark: SparkSession, broker: Embedded, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = options(broker)
    rows = spark.createDataFrame([(f"v{number}",) for number in range(4)], "value string")
    rows.write.format("ottla").options(**given, topic="t").mode("append").save()
    rows.write.format("ottla").options(**given, topic="t", idempotencyKey="once").mode("append").save()
    write_exactly_once(rows, 0, {**given, "topic": "t", "transactionalId": "each"})

    read = spark.read.format("ottla").options(**given, subscribe="t").load()
    assert read.count() == 12
    read.explain("extended")
    frame: Any = vars(read)["_jdf"]
    text = str(frame.queryExecution().toString())

    stream = spark.readStream.format("ottla").options(**given, subscribe="t", startingOffsets="earliest").load()
    target = stream.select("value").writeStream.format("ottla").options(**given, topic="copy")
    broker.create_topic("copy")
    query = target.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert sum(one.numInputRows for one in query.recentProgress) == 12
    text += str([one.json for one in query.recentProgress])
    assert len(broker.records("copy")) == 12

    kept = b"".join(path.read_bytes() for path in (tmp_path / "checkpoint").rglob("*") if path.is_file())
    printed = "".join(capfd.readouterr())
    planned = plans(spark)
    assert "ottla" in text and "ottla" in planned and b'{"t": {"0": ' in kept
    wrong = spark.read.format("ottla").options(**{**given, **options(broker, "guess")}, subscribe="t").load()
    with pytest.raises(Exception, match="Invalid username or password") as refused:
        wrong.count()
    for shown in (text, planned, printed, kept.decode(errors="replace"), str(refused.value)):
        assert PASSWORD not in shown and "guess" not in shown
