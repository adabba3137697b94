"""Apache's Java clients of each generation, fetched from Maven Central, as the line clients of tests/clients."""

from __future__ import annotations

from pathlib import Path

from ottla_testing.clients.line_clients import LineClient
from ottla_testing.interop.checks import jars, java

# The release by the name that the tests use -> the newest of it.
RELEASES = {
    "0.8.2": "0.8.2.2",
    "0.10.2": "0.10.2.2",
    "1.1": "1.1.1",
    "2.8": "2.8.2",
    "3.9": "3.9.1",
    "4.3": "4.3.1",
    "4.4": "4.4.0",
}
HERE = Path(__file__).parent


def java_client(release: str) -> LineClient:
    """Returns a process with one release's clients. 0.8.2 has its consumer in the Scala client. Raises Missing."""
    version = RELEASES[release]
    if release == "0.8.2":
        folder, source = jars(f"kafka-{version}", [f"org.apache.kafka:kafka_2.11:{version}"]), "Lines08.java"
    else:
        folder = jars(f"kafka-clients-{version}", [f"org.apache.kafka:kafka-clients:{version}"])
        source = "Lines.java"
    return LineClient(f"Java {version}", java(folder, HERE / source))
