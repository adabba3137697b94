"""Spark at a listener with a login: batches and streams in both directions; plans and checkpoints have no password."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline import write_exactly_once
from ottla.pipeline.cli import add_arguments
from ottla.pipeline.jobs.command import Job, Running
from ottla.pipeline.jobs.export.cli import Command as Export
from ottla.pipeline.jobs.import_.cli import Command as Import
from ottla.pipeline.jobs.replay.cli import Command as Replay
from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.clients.securing import LISTENER, client_file, client_settings, encrypted
from ottla_testing.clients.securing import PASSWORD as PASSWORD_OF_FILE
from ottla_testing.patience import PATIENCE_S

PASSWORD = "never-shown"
USERS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{PASSWORD}";'


def options(bootstrap: str, trusted: Path, password: str = PASSWORD) -> dict[str, str]:
    settings = {"bootstrap.servers": bootstrap, **client_settings("SASL_SSL", password)}
    settings |= {"ssl.truststore.location": str(trusted), "ssl.truststore.password": STORE_PASSWORD}
    return {f"kafka.{name}": value for name, value in settings.items()}


def plans(spark: SparkSession) -> str:
    """Returns the plans of all queries so far, as the web page and the event log have them."""
    session: Any = vars(spark)["_jsparkSession"]
    java = session.sharedState().statusStore().executionsList()
    return "\n".join(java.apply(number).physicalPlanDescription() for number in range(java.size()))


def test_spark_logs_in_and_shows_no_password(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path / "authority")
    configs, _ = encrypted(authority)
    configs["listener.name.secured.plain.sasl.jaas.config"] = USERS
    with Embedded(listeners=LISTENER, configs=configs) as broker:
        shown = used(spark, broker, authority.trusted_pkcs12(), tmp_path / "checkpoint") + "".join(capfd.readouterr())
    for secret in (PASSWORD, STORE_PASSWORD, "guess"):
        assert secret not in shown


def used(spark: SparkSession, broker: Embedded, trusted: Path, checkpoint: Path) -> str:
    """Writes, reads, and copies a stream. Returns all texts in which Spark could show the options."""
    given = options(broker.bootstrap, trusted)
    broker.create_topic("t")
    rows = spark.createDataFrame([(f"v{number}",) for number in range(4)], "value string")
    rows.write.format("ottla").options(**given, topic="t").mode("append").save()
    write_exactly_once(rows, 0, {**given, "topic": "t", "transactionalId": "each"})

    read = spark.read.format("ottla").options(**given, subscribe="t").load()
    assert read.count() == 8
    read.explain("extended")
    frame: Any = vars(read)["_jdf"]
    text = str(frame.queryExecution().toString())

    stream = spark.readStream.format("ottla").options(**given, subscribe="t", startingOffsets="earliest").load()
    target = stream.select("value").writeStream.format("ottla").options(**given, topic="copy")
    broker.create_topic("copy")
    query = target.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(PATIENCE_S)
    assert sum(one.numInputRows for one in query.recentProgress) == 8
    text += str([one.json for one in query.recentProgress])
    assert len(broker.records("copy")) == 8

    wrong = options(broker.bootstrap, trusted, "guess")
    with pytest.raises(Exception, match="Invalid username or password") as refused:
        spark.read.format("ottla").options(**wrong, subscribe="t").load().count()
    planned = plans(spark)
    kept = b"".join(path.read_bytes() for path in checkpoint.rglob("*") if path.is_file())
    assert "ottla" in text and "ottla" in planned and b'{"t": {"0": ' in kept
    return "\n".join((text, planned, kept.decode(errors="replace"), str(refused.value)))


def test_jobs_log_in_by_their_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each as the command runs it: `ottla pipeline export`, `import` and `replay`."""
    configs, settings = encrypted(Authority(tmp_path / "authority"))
    file, lake = client_file(tmp_path, settings), str(tmp_path / "lake")
    with Embedded(listeners=LISTENER, configs=configs) as broker, Embedded() as other:
        broker.create_topic("t")
        broker.send("t", "one")
        there = ["--bootstrap-server", other.bootstrap]
        at = ["--bootstrap-server", broker.bootstrap, "--command-config", file]
        run(spark, Export(), [*at, "--topic", "t", "--to", lake])
        run(spark, Import(), [lake, *at, "--to-topic", "imported"])
        run(spark, Replay(), ["--source", broker.bootstrap, "--source-config", file, "--topic", "t", *there])
        run(spark, Replay(), ["--source", other.bootstrap, "--topic", "t", *at, "--to-topic", "again"])
        for where, topic in ((broker, "imported"), (other, "t"), (broker, "again")):
            assert [record.value for record in where.records(topic)] == [b"one"], topic


def run(spark: SparkSession, job: Job, arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, job)
    parsed = parser.parse_args(arguments)
    job.check(parsed)
    report, code = job.run(Running(spark, parsed, lambda line: None, None))
    assert code == 0 and report is not None
    assert PASSWORD_OF_FILE not in report.to_json()
