"""Clients in processes of their own with a line protocol: old ones, and ones in other languages, with one interface.

A line `ADDRESS produce TOPIC CODEC COUNT [NAME=VALUE...]` is followed by COUNT lines `TIMESTAMP KEY VALUE HEADERS`; the
response is `ok OFFSET...`. The response to `ADDRESS consume TOPIC FROM COUNT SECONDS [NAME=VALUE...]` has lines `record
OFFSET KIND TIMESTAMP KEY VALUE HEADERS` and `end`. The partition is 0. A failure is `error TEXT`. A key or value is `-`
for null or `x` and its hex digits, headers are NAME=VALUE separated by commas, or `-`. A timestamp of -1 is none.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla_testing.old_environment import NODE_MODULES, old_python
from ottla_testing.patience import PATIENCE_S

HERE = Path(__file__).parent
Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record to send. With timestamp -1 the client sets one."""

    key: bytes | None
    value: bytes | None
    timestamp: int = -1
    headers: Headers = ()


class Seen(NamedTuple):
    """A record as returned by a client; `kind` is of the timestamp: CreateTime, LogAppendTime or NoTimestampType."""

    offset: int
    kind: str
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ClientError(Exception):
    """The error text of the client."""


def encoded(value: bytes | None) -> str:
    return "-" if value is None else "x" + value.hex()


def decoded(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text[1:])


def seen(line: str) -> Seen:
    """Parses one line that begins with `record`."""
    _, offset, kind, timestamp, key, value, named = line.split(" ")
    pairs = [pair.partition("=") for pair in named.split(",")] if named != "-" else []
    headers = tuple((name, decoded(text)) for name, _, text in pairs)
    return Seen(int(offset), kind, int(timestamp), decoded(key), decoded(value), headers)


class LineClient:
    """A program with the line protocol. `settings` are sent with every line. `close()` ends it."""

    def __init__(
        self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None, **settings: str
    ) -> None:
        self.name = name
        self.settings = settings
        # The client's log is not part of the responses.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=HERE,
            env={**os.environ, **(environment or {})},
        )

    def produce(self, address: str, topic: str, rows: Sequence[Row], codec: str = "none", **settings: str) -> list[int]:
        """Returns the offsets from the broker; raises ClientError."""
        lines = [self._first(address, "produce", topic, codec, len(rows), settings)]
        for row in rows:
            headers = ",".join(f"{name}={encoded(value)}" for name, value in row.headers) or "-"
            lines.append(f"{row.timestamp} {encoded(row.key)} {encoded(row.value)} {headers}\n")
        return [int(word) for word in self._send(lines)[-1].split()[1:]]

    def consume(
        self, address: str, topic: str, start: int, count: int, seconds: int = 20, **settings: str
    ) -> list[Seen]:
        """Reads until there are `count` records, or the time is over; raises ClientError."""
        lines = self._send([self._first(address, "consume", topic, start, count, seconds, settings)])
        return [seen(line) for line in lines[:-1]]

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()

    def _first(self, address: str, *words: object) -> str:
        *given, settings = words
        named = {**self.settings, **settings}  # type: ignore[dict-item]
        return " ".join([address, *map(str, given), *(f"{name}={value}" for name, value in named.items())]) + "\n"

    def _send(self, lines: Sequence[str]) -> list[str]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("".join(lines))
        self.process.stdin.flush()
        response: list[str] = []
        for line in self.process.stdout:
            response.append(line.rstrip("\n"))
            word, _, text = response[-1].partition(" ")
            if word == "error":
                raise ClientError(text)
            if word in ("ok", "end"):
                return response
        raise ClientError(f"{self.name} ended with exit code {self.process.wait()}")


def kafka_python_2(api_version: str) -> LineClient:
    """kafka-python 2.0.2 as a client of that Kafka release, such as "0.8.2"."""
    command = [old_python(), "-W", "ignore", HERE / "lines_kafka_python_2.py"]
    return LineClient(f"kafka-python 2.0.2 as {api_version}", command, api_version=api_version)


def kafkajs() -> LineClient:
    """kafkajs, of `.venv-node`."""
    return LineClient("kafkajs", ["node", HERE / "lines.js"], environment={"NODE_PATH": str(NODE_MODULES)})


class Librdkafka:
    """confluent-kafka with the same interface. With `fallback` it does not negotiate versions but assumes that release,
    as required for brokers before 0.10.
    """

    def __init__(self, fallback: str | None = None) -> None:
        self.name = f"librdkafka, fallback {fallback}" if fallback else "librdkafka"
        self.common = {"client.id": "librdkafka"}
        if fallback:
            self.common |= {"api.version.request": "false", "broker.version.fallback": fallback}
            self.common |= {"log_level": "3"}  # it warns that these two are deprecated

    def produce(self, address: str, topic: str, rows: Sequence[Row], codec: str = "none", **settings: str) -> list[int]:
        """As LineClient's."""
        found: list[int | KafkaError] = []
        producer = Producer(
            {
                **self.common,
                "bootstrap.servers": address,
                "compression.type": codec,
                "linger.ms": 200,
                "message.timeout.ms": 1000 * PATIENCE_S,
                **settings,
            }
        )
        for row in rows:
            given = {"timestamp": row.timestamp} if row.timestamp >= 0 else {}
            if row.headers:
                given["headers"] = list(row.headers)  # type: ignore[assignment]
            producer.produce(
                topic,
                row.value,
                row.key,
                0,
                on_delivery=lambda error, message: found.append(error or message.offset() or 0),
                **given,  # type: ignore[arg-type]
            )
        left = producer.flush(PATIENCE_S)
        errors = [one for one in found if isinstance(one, KafkaError)]
        if errors or left:
            raise ClientError(f"{errors[0] if errors else ''} {left} not acknowledged")
        return [one for one in found if isinstance(one, int)]

    def consume(
        self, address: str, topic: str, start: int, count: int, seconds: int = 20, **settings: str
    ) -> list[Seen]:
        """As LineClient's. With a group.id it continues at the group's offset, whatever `start` is, and commits."""
        config = {"group.id": "nobody", "enable.auto.commit": False, "check.crcs": True, "fetch.wait.max.ms": 100}
        config |= {"bootstrap.servers": address, "auto.offset.reset": "error"}
        consumer = Consumer({**self.common, **config, **settings})
        grouped = "group.id" in settings
        try:
            consumer.assign([TopicPartition(topic, 0, OFFSET_STORED if grouped else start)])
            found: list[Seen] = []
            for _ in range(seconds * 5):
                for message in consumer.consume(count - len(found), 0.2):
                    if error := message.error():
                        raise ClientError(str(error))
                    kind, timestamp = message.timestamp()
                    headers = tuple(message.headers() or ())
                    place = (message.offset() or 0, KINDS[kind], timestamp if kind else -1)
                    found.append(Seen(*place, message.key(), message.value(), headers))  # type: ignore[arg-type]
                if len(found) >= count:
                    break
            if grouped:
                consumer.commit(offsets=[TopicPartition(topic, 0, found[-1].offset + 1)], asynchronous=False)
            return found
        except KafkaException as error:
            raise ClientError(str(error)) from None
        finally:
            consumer.close()

    def close(self) -> None:
        """Does nothing: no state is kept between calls."""


KINDS = {0: "NoTimestampType", 1: "CreateTime", 2: "LogAppendTime"}
