"""A process with librdkafka's mock cluster: prints its address, and ends with its stdin.
The mock runs inside a client; in its own process it competes for the cores like any other broker.
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer


def main() -> None:
    """Prints the line that the starter of each peer reads, then waits for the end of stdin."""
    holder = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 3})
    broker = next(iter(holder.list_topics(timeout=10).brokers.values()))
    print(f"mock ready on {broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
