"""A process that holds librdkafka's mock cluster: says where it listens, and ends when its standard input does.

The mock lives inside a client; in a process of its own it competes for the cores as any other broker does.
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer


def main() -> None:
    """Prints the line that every peer's starter waits for, then waits to be told to stop."""
    holder = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 3})
    broker = next(iter(holder.list_topics(timeout=10).brokers.values()))
    print(f"mock ready on {broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
