"""A broker whose observation can be switched on and off while it runs: what `observing.py` measures.
    python -m ottla_testing.bench.observed_broker FOLDER PORT RECORDINGS
Reads lines `FEATURE on`, `FEATURE off` and `FEATURE rest` from its stdin. The response to each is `done` and the number
of dropped requests; to `rest` when everything is written. Ends with its stdin.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from ottla.broker.config.record_options import RecordOptions
from ottla.broker.config.serve_options import serve_options
from ottla.broker.config.values import Config
from ottla.broker.metrics.counters import RequestMetrics
from ottla.broker.network import server
from ottla.broker.recording.ring import Ring
from ottla.broker.releases.profiles import profile

LOOK_S = 0.05
RECORDED_BYTES = 4 << 30  # more than all bursts
Switch = Callable[[server.Running, bool], Awaitable[None]]


async def metrics(running: server.Running, on: bool) -> None:
    """Switches the metrics of a control plane."""
    running.connections.observe(RequestMetrics() if on else None)


async def ring(running: server.Running, on: bool) -> None:
    """Switches the buffer of the newest requests, as in a control plane and an embedded broker."""
    connections = running.connections
    if on:
        running.ring = Ring()
        connections.listen(running.ring, running.ring.frame_bytes)
    elif running.ring is not None:
        connections.unlisten(running.ring)
        running.ring = None


def recording(kind: str, contents: bool = True) -> Switch:
    """Returns a recording to the recordings folder; its previous files are removed before the next one begins."""

    async def switch(running: server.Running, on: bool) -> None:
        if on:
            path = f"{sys.argv[3]}/recording.{kind}"
            running.recorder.start(running, RecordOptions(path, RECORDED_BYTES, contents=contents))
        else:
            await running.recorder.stop()

    return switch


FEATURES: dict[str, Switch] = {
    "metrics": metrics,
    "ring": ring,
    "jsonl": recording("jsonl"),
    "pcapng": recording("pcapng"),
    "bare": recording("jsonl", contents=False),
}


async def serve(folder: str, port: str) -> None:
    """Serves until stdin ends."""
    loop = asyncio.get_running_loop()
    configs = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": folder, "log.segment.delete.delay.ms": "0"}
    running = await server.start(serve_options(Config(configs, profile=profile("ottla"))), loop)
    print("ready", flush=True)
    recorder = running.recorder
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        feature, _, wanted = line.strip().partition(" ")
        if wanted != "rest":
            await FEATURES[feature](running, wanted == "on")
        while wanted == "rest" and recorder.state is not None and recorder.state.waiting_bytes:
            await asyncio.sleep(LOOK_S)
        print("done", 0 if recorder.state is None else recorder.state.dropped, flush=True)
    await running.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=server.loop_factory()) as runner:
        runner.run(serve(*sys.argv[1:3]))
