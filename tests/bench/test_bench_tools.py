"""The parts of the benchmark: statistics, tables, requests, processes. No figures are tested."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import Embedded
from ottla.pipeline.backend import Selection
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol import headers
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.records import batch, formats, legacy
from ottla_testing.bench import (
    conversion,
    growth,
    limit_requests,
    limits,
    observing,
    peers,
    pictures,
    pings,
    pipeline_jobs,
    pipeline_worker,
    plan,
    raw,
    stats,
    storage_brokers,
    storage_logs,
    validation,
    volume,
)
from ottla_testing.bench.stats import Aim, Measure
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import each

RATE, TIME = Measure("rate", "MB/s"), Measure("time", "ms", False)
SAMPLES = {"rate": {"ottla": [3.0, 1.0, 2.0], "mock": [4.0, 4.0, 1.0], "tansu": []}, "time": {"ottla": [7.0]}}


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50), st.floats(0.1, 100))
def test_percentile_is_nearest_rank(samples: list[float], percent: float) -> None:
    value = stats.percentile(samples, percent)
    reached = sum(sample <= value for sample in samples) * 100 / len(samples)
    below = sum(sample < value for sample in samples) * 100 / len(samples)
    assert value in samples and reached >= percent - 1e-9 and below < percent


def test_percentiles_of_100_samples() -> None:
    samples = [float(n) for n in range(1, 101)]
    random.shuffle(samples)
    assert (stats.percentile(samples, 50), stats.percentile(samples, 99), stats.percentile(samples, 100)) == (
        50,
        99,
        100,
    )
    with pytest.raises(ValueError):
        stats.percentile([], 50)
    with pytest.raises(ValueError):
        stats.percentile(samples, 0)


def test_summary_has_median_min_max() -> None:
    assert stats.summarize([5.0, 1.0, 2.0, 8.0]) == (3.5, 1.0, 8.0)
    with pytest.raises(ValueError):
        stats.summarize([])


def test_ratio_of_medians_needs_both() -> None:
    assert stats.ratio(SAMPLES["rate"], "mock") == 0.5
    assert stats.ratio(SAMPLES["rate"], "tansu") is None
    assert stats.ratio(SAMPLES["time"], "mock") is None


@pytest.mark.parametrize(
    ("aim", "value", "met"),
    [
        (Aim("rate", "mock", 0.5, True), 0.5, True),
        (Aim("rate", "mock", 0.51, True), 0.5, False),
        (Aim("time", None, 7, False), 7.0, True),
        (Aim("time", None, 6.9, False), 7.0, False),
        (Aim("rate", "tansu", 0.0, True), None, None),  # not measured is not met
        (Aim("never", None, 0.0, True), None, None),
    ],
)
def test_aim_verdict(aim: Aim, value: float | None, met: bool | None) -> None:
    assert stats.judge(aim, SAMPLES) == (aim, value, met)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234567.8, "1,234,568"), (99.96, "100.0"), (12.34, "12.3"), (1.2345, "1.23"), (0.01234, "0.0123")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert stats.number(value) == text


def test_tables_are_aligned() -> None:
    assert stats.table([["a", "bb"], ["ccc", "d"]]) == "a    bb\n---  --\nccc   d"


def test_tables_show_measured_and_missing() -> None:
    text = stats.figures([RATE, TIME, Measure("absent", "s")], ["ottla", "mock", "tansu"], SAMPLES)
    assert "2.00 (1.00..3.00)" in text and "4.00 (1.00..4.00)" in text and "0.50" in text and "absent" not in text
    aims = [Aim("rate", "mock", 0.4, True), Aim("rate", "mock", 0.6, True), Aim("rate", "tansu", 1, True)]
    lines = stats.verdicts(aims, [RATE, TIME], SAMPLES).splitlines()[2:]
    assert [line.split("  ")[-1].strip() for line in lines] == ["met", "missed", "not measured"]
    report = stats.as_json([RATE, TIME], aims, SAMPLES)
    assert report["measures"][0]["ottla_over"] == {"mock": 0.5}
    assert report["measures"][0]["peers"]["mock"] == {
        "median": 4.0,
        "low": 1.0,
        "high": 4.0,
        "samples": [4.0, 4.0, 1.0],
    }
    assert [aim["met"] for aim in report["aims"]] == [True, False, None]


def test_aims_measures_and_names_match() -> None:
    known = {measure.name for measure in plan.MEASURES}
    assert len(known) == len(plan.MEASURES)
    assert {aim.measure for aim in plan.AIMS} <= known
    assert {name.split()[0] for name in known} == set(plan.NAMES) - {
        *limits.NAMES,
        *growth.NAMES,
        *volume.NAMES,
    }  # these print a table


def test_request_is_framed_and_numbered() -> None:
    template = raw.frame(raw.produce_request("topic", raw.one_record(b"value")))
    twice = raw.numbered(template, 2)
    for index in range(2):
        frame = twice[index * len(template) :][: len(template)]
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        prefix = headers.read_prefix(frame[4:])
        assert prefix[:3] == (0, raw.VERSIONS[ProduceRequest], index)
        client, position = headers.read_rest(frame[4:], prefix, False)
        assert client.encode() == raw.CLIENT_ID
        request = raw.parse(ProduceRequest, raw.VERSIONS[ProduceRequest], frame[4:], position)
        records = request.topic_data[0].partition_data[0].records
        assert records is not None and [record.value for record in batch.records(records)] == [b"value"]


@pytest.mark.parametrize("label", validation.LABELS)
def test_validation_counts_all_records(label: str) -> None:
    taken = validation.case(label)
    assert validation._by_ottla(taken.data) == validation._by_kafka_python(taken.data) == taken.records


@pytest.mark.parametrize("label", [label for label in conversion.LABELS if label.endswith("1 KiB")])
def test_conversion_with_missing_records_raises(label: str) -> None:
    taken = conversion.case(*label.split(" ", 3)[1:])
    for rewrite in taken.ways.values():
        result = rewrite(taken.data)
        conversion.check(taken, result)
        with pytest.raises(raw.BenchError, match="records in the result"):
            conversion.check(taken._replace(expected=taken.expected[1:]), result)
    with pytest.raises(raw.BenchError, match="of format v"):
        conversion.check(taken, taken.data)


def test_large_set_of_pings_is_format_v1() -> None:
    data = pings._old_set()
    header = legacy.read_header(data)
    assert (header.magic, header.codec, header.size_bytes) == (1, pings.GZIP, len(data))
    assert len(data) < 1_000_000 < pings.RECORDS * len(pings.VALUE)
    assert sum(1 for _ in legacy.records(data, produced=True)) == pings.RECORDS


def test_every_api_has_limit_requests() -> None:
    """Requests are made from the schemas: each array has at least one request that the broker reads."""
    for key, route in ROUTES.items():
        version = route.versions.last
        for shape in limit_requests.shapes(key, version, ("distinct",)):
            request, entries = limit_requests.frame(key, version, shape, 2000)
            assert len(request) < 4000 and (entries > 5 or not shape.path), (key, shape)
            assert headers.read_prefix(request)[:2] == (key, version)


def test_limits_table_marks_exceeded() -> None:
    kept = limits.Taken("Fetch", 18, "topics", 1000, 10, 100, 49.0, 1.0, 16 << 20, 0.1, "")
    slow, large = kept._replace(loop_ms=51.0), kept._replace(grown=(16 << 20) + 20_001)
    assert kept.is_kept and not slow.is_kept and not large.is_kept
    lines = limits.table([kept, slow, large]).splitlines()
    assert len(lines) == 4 and lines[1].endswith("LOOP") and lines[2].endswith("MEMORY")
    assert lines[-1] == "3 requests; above the limits: 2"


def test_growth_is_marked() -> None:
    figures = [growth.Grown("groups", count, us, 0.1) for count, us in ((1, 1.0), (10, 10.0), (100, 20.0))]
    assert growth.is_flat(figures) and not growth.is_flat([*figures, growth.Grown("groups", 1000, 20.1, 0.1)])
    figures += [growth.Grown("members", count, us, 0.1) for count, us in ((1, 1.0), (10, 10.0), (100, 20.1))]
    lines = growth.table(figures, 1.5).splitlines()
    assert lines[1].split() == ["groups", "1.0", "10.0", "20.0"] and lines[2].endswith("20.1  GROWS")
    assert lines[-1] == "a topic of 1,000 partitions is created in 1.50 s"


@pytest.mark.process
@each("what", list(growth.WHAT))
def test_growth_is_measured(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "REQUESTS", 300)
    found = growth.taken(what, 3)
    assert found.us > 1 and (found.what, found.count) == (what, 3)


def test_volume_log_is_a_log(tmp_path: Path) -> None:
    count = volume.write_log(tmp_path, 6_000_000, segment_bytes=1 << 20)
    with FileBackend([str(tmp_path)]) as backend:
        keys = backend.partitions(Selection())
        assert sum(backend.latest(keys, committed=True).values()) == count and len(keys) == 2
    folder = tmp_path / f"{volume.TOPIC}-0"
    assert len(list(folder.glob("*.log"))) == 3
    offset = 0
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        assert int(path.stem) == offset
        for position, header in formats.headers(data):
            assert header.base_offset == offset and formats.crc_matches(data, position, header)
            offset = header.next_offset
    assert offset == count // 2


def test_volume_samples_descendants() -> None:
    program = "data = bytearray(b'x' * 100_000_000); print(len(data), flush=True); input()"
    shell = ["sh", "-c", f'{sys.executable} -c "{program}"; true']
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline()
        memory = volume.Memory()
        memory.sample(process.pid)
        process.stdin.write(b"\n")
    assert 100_000_000 < memory.task_bytes < 250_000_000 and memory.jvm_bytes == 0


def test_volume_is_extrapolated_and_marked() -> None:
    figures = [volume.Taken("read", size, 3 + 2 * size, 400, 900) for size in (8, 2, 4)]
    assert volume.extrapolated(figures) == pytest.approx(203)
    assert volume.is_flat(figures)
    large = [volume.Taken("audit", size, size, 300 + 10 * size, 900) for size in (2, 8, 16)]
    above = [volume.Taken("census", 2, 1, 1001, 900), volume.Taken("census", 4, 1, 1001, 900)]
    lines = volume.table([*figures, *large, *above]).splitlines()
    assert lines[1].split() == ["read", "7.0", "s", "11.0", "s", "19.0", "s", "203", "s", "400/400/400", "900/900/900"]
    assert [line.endswith("  GROWS") for line in lines[1:]] == [False, True, True]


def test_mock_cluster_supports_needed_requests() -> None:
    peer = peers.start_mock()
    try:
        raw.check_versions(peer.address, peers.needed("mock"))
        raw.make_topic(peer.address, "topic")
    finally:
        peer.stop()


def test_observed_broker_switches_features() -> None:
    with observing.observed() as peer:
        for feature in observing.FEATURES:
            assert [peer.switch(feature, to) for to in ("on", "rest", "off")] == [0, 0, 0]


def test_observed_broker_without_start_has_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "free_port", lambda: -1)
    with pytest.raises(raw.BenchError, match=r"the broker does not start: .*ConfigError"), observing.observed():
        pass


def test_fetch_over_loopback_returns_each_batch_once() -> None:
    """The responses are limited to whole batches: Kafka fills a response with a part of the next batch."""
    count, data = 40, storage_logs.made_batch(*storage_brokers.WIRE_BATCH)
    with Embedded() as broker:
        host, port = broker.bootstrap.split(":")
        raw.make_topic((host, int(port)), "wire")
        requests = raw.numbered(raw.frame(raw.produce_request("wire", data)), count)
        with raw.Connection((host, int(port))) as connection:
            connection.pipeline(requests, count)
            assert storage_brokers._fetched_in(connection, count, len(data)) > 0


def test_slow_disk_aim_without_slow_disk_has_reason() -> None:
    fast = {"fsync raw": {"file": [0.1]}}
    assert "less than 0.3 ms" in storage_brokers.slow_disk_missing(fast)
    assert storage_brokers.slow_disk_missing({}) == ""
    assert storage_brokers.slow_disk_missing({**fast, storage_brokers.SLOW_DISK: {"ottla": [8.0]}}) == ""
    assert storage_brokers.SLOW_DISK in {aim.measure for aim in plan.AIMS}


@pytest.mark.parametrize("job", pipeline_jobs.JOBS)
def test_job_command_has_parameters_of_job(job: str, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    spark: Any = None
    stock: Any = SimpleNamespace(get=lambda *_: tmp_path / "input", new=lambda: tmp_path / "new")
    run = pipeline_jobs.RUNS[job](stock, "100 B")
    called, arguments = pipeline_worker.job_call(spark, run._asdict())
    assert called.__name__ == run.name and list(arguments.args)[:1] == [None]


def test_failed_job_raises_its_own_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class FailingWorker:
        def run(self, *_: object, **__: object) -> None:
            raise raw.BenchError("the job has failed")

    place: Any = SimpleNamespace(worker=lambda _: FailingWorker())
    monkeypatch.setitem(
        pipeline_jobs.RUNS, "export", lambda *_: pipeline_jobs.Run("export", [], {}, tmp_path, tmp_path / "never")
    )
    with pytest.raises(raw.BenchError, match="the job has failed"):
        pipeline_jobs.Stock(place, pipeline_jobs.QUICK).seconds("local[1]", "export", "100 B")


def test_table_of_the_speed_page_has_its_figures() -> None:
    """An edited table would be no measurement."""
    figures = json.loads(pictures.FIGURES.read_text())
    assert pictures.TABLE.read_text() == pictures.table(figures)
    shown = {name for plot in pictures.PLOTS for name in plot.measures.values()}
    assert shown <= figures["measures"].keys() and figures["growth"]


def test_plots_of_the_speed_page_are_drawn_from_results(tmp_path: Path) -> None:
    figures = json.loads(pictures.FIGURES.read_text())
    rounds = figures["rounds"]
    result = {
        "environment": {**figures["environment"], "system": "Linux"},
        "rounds": rounds,
        "measures": [{"name": name, **one} for name, one in figures["measures"].items()],
        "growth": {"figures": figures["growth"]},
    }
    assert pictures.figures_of([result]) == figures
    pictures.draw(figures, tmp_path)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in pictures.PICTURES.glob("speed-*.svg")}
