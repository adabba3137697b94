"""kafka-python 2.0.2 with the protocol of `line_clients.py`: runs in `.venv-old`, imports nothing of Ottla."""

# pyright: reportArgumentType=false, reportIndexIssue=false, reportCallIssue=false, reportAttributeAccessIssue=false
# The types are those of the newer release in `.venv`.

from __future__ import annotations

import sys
import time

import six  # of that environment; the bundled one fails from Python 3.12 on

sys.modules |= {"kafka.vendor.six": six, "kafka.vendor.six.moves": six.moves}

from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402

KINDS = {None: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def decoded(text):
    return None if text == "-" else bytes.fromhex(text[1:])


def encoded(value):
    return "-" if value is None else "x" + bytes(value).hex()


def settings(address: str, words: list, **defaults) -> dict:
    given: dict = dict(word.split("=", 1) for word in words)
    given["api_version"] = tuple(map(int, given["api_version"].split(".")))
    given = {name: int(value) if str(value).isdigit() else value for name, value in given.items()}
    return {**defaults, **given, "bootstrap_servers": address, "client_id": "kafka-python-2"}


def produce(address: str, topic: str, codec: str, rows: list, words: list) -> str:
    # One request after the other, or a retry could change the order.
    config = settings(
        address,
        words,
        compression_type=None if codec == "none" else codec,
        linger_ms=200,
        acks="all",
        max_in_flight_requests_per_connection=1,
        request_timeout_ms=10000,
        max_block_ms=60000,
    )
    producer = KafkaProducer(**config)
    try:
        sent = []
        for timestamp, key, value, headers in (row.split() for row in rows):
            pairs = [pair.split("=") for pair in headers.split(",")] if headers != "-" else []
            given = {"headers": [(name, decoded(text)) for name, text in pairs]} if pairs else {}
            if timestamp != "-1":
                given["timestamp_ms"] = int(timestamp)
            sent.append(producer.send(topic, decoded(value), decoded(key), partition=0, **given))
        producer.flush(25)
        return "ok " + " ".join(str(one.get(25).offset) for one in sent)
    finally:
        producer.close(5)


def consume(address: str, topic: str, start: str, count: str, seconds: str, words: list) -> str:
    """With a group_id it continues at the group's offset, whatever `start` is, and commits before it leaves."""
    config = settings(
        address,
        words,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
        fetch_max_wait_ms=100,
        check_crcs=True,
        session_timeout_ms=10000,
        request_timeout_ms=12000,
    )
    consumer = KafkaConsumer(**config)
    try:
        place = TopicPartition(topic, 0)
        if config["group_id"] and config["api_version"] >= (0, 9):
            consumer.subscribe([topic])
        else:
            consumer.assign([place])
        if not config["group_id"]:
            consumer.seek(place, int(start))
        lines: list = []
        end = time.monotonic() + int(seconds)
        while len(lines) < int(count) and time.monotonic() < end:
            for records in consumer.poll(200, max_records=int(count) - len(lines)).values():
                for r in records:
                    headers = ",".join(f"{name}={encoded(value)}" for name, value in r.headers) or "-"
                    stamp = f"{KINDS[r.timestamp_type]} {-1 if r.timestamp is None else r.timestamp}"
                    lines.append(f"record {r.offset} {stamp} {encoded(r.key)} {encoded(r.value)} {headers}")
        if config["group_id"]:
            consumer.commit()
        return "\n".join([*lines, "end"])
    finally:
        consumer.close()


def main() -> None:
    for line in sys.stdin:
        address, verb, *words = line.split()
        try:
            if verb == "produce":
                topic, codec, count = words[:3]
                rows = [sys.stdin.readline() for _ in range(int(count))]
                response = produce(address, topic, codec, rows, words[3:])
            else:
                topic, start, count, seconds = words[:4]
                response = consume(address, topic, start, count, seconds, words[4:])
        except Exception as error:
            response = "error " + f"{type(error).__name__}: {error}".replace("\n", " ")
        print(response, flush=True)


if __name__ == "__main__":
    main()
