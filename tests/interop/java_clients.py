"""Apache's own Java clients, of three generations, against a running broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla_testing.interop.checks import Check, Failed, broker, jars, java

# The newest; the last of 3.x, with the versions that 4.0 dropped (KIP-896); one from before idempotence by default.
RELEASES = ("4.3.1", "3.9.1", "2.8.2")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def run_client(release: str) -> str:
    """Runs one client: topics, 1,000 idempotent records per codec, a group, commits, a search by time, descriptions,
    deletion."""
    folder = jars(f"kafka-clients-{release}", [f"org.apache.kafka:kafka-clients:{release}"])
    with broker() as address:
        command = java(folder, Path(__file__).with_name("Clients.java"), address, ",".join(CODECS))
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"not done after {late.timeout} s; so far: {late.stdout}") from None
    passed = [line.removeprefix("ok ") for line in done.stdout.splitlines() if line.startswith("ok ")]
    if done.returncode or tuple(passed) != CODECS:
        raise Failed(f"passed {passed}, then: {done.stderr[:3000]}")
    return f"1,000 records with each of {', '.join(passed)}: produced, consumed in a group, found by time"


CHECKS = [Check(f"Java clients {release}", lambda release=release: run_client(release)) for release in RELEASES]
