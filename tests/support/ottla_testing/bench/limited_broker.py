"""A broker that measures how long it blocks its event loop: what `limits.py` measures.
    python -m ottla_testing.bench.limited_broker FOLDER PORT
Reads lines `begin` and `end` from its stdin. From `begin` on, a probe runs in each iteration of the loop, so that the
time between two probes contains the whole iteration. The response to `end` is a line of JSON: the longest iteration in
seconds of processor time of the loop's thread, and memory in bytes: resident before, and at the peak. Ends with its
stdin.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path

from ottla.broker.config.serve_options import serve_options
from ottla.broker.config.values import Config
from ottla.broker.network import server
from ottla.broker.releases.profiles import profile


class Probe:
    """Measures the longest iteration of a loop. Costs nothing when not running."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._runs = False
        self._before = 0.0
        self.longest = 0.0
        self.iterations = 0
        self.collecting = 0.0
        """The longest garbage collection, which is part of an iteration."""
        self._collects_since = 0.0
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, _info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            self._collects_since = now
        else:
            self.collecting = max(self.collecting, now - self._collects_since)

    def begin(self) -> None:
        """Starts measuring."""
        self.longest, self.collecting, self.iterations, self._runs = 0.0, 0.0, 0, True
        self._before = time.thread_time()
        self._loop.call_soon(self._look)

    def end(self) -> None:
        """Stops measuring."""
        self._runs = False

    def _look(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._before)
        self.iterations += 1
        self._before = now
        if self._runs:
            self._loop.call_soon(self._look)


def resident(field: str = "VmRSS") -> int:
    """Returns the resident bytes of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


async def serve(folder: str, port: str) -> None:
    """Serves until stdin ends."""
    loop = asyncio.get_running_loop()
    configs = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": folder, "log.segment.delete.delay.ms": "0"}
    configs["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    configs["super.users"] = "User:ANONYMOUS"
    configs["group.initial.rebalance.delay.ms"] = "0"
    running = await server.start(serve_options(Config(configs, profile=profile("ottla"))), loop)
    gc.collect()
    gc.freeze()  # as `ottla serve`
    probe = Probe(loop)
    print("ready", resident(), flush=True)
    before = 0
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line == "begin\n":
            gc.collect()
            before = resident()
            Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present resident memory
            probe.begin()
            print("begun", flush=True)
        elif line == "end\n":
            probe.end()
            figures = {"longest_s": probe.longest, "collecting_s": probe.collecting, "iterations": probe.iterations}
            print(json.dumps({**figures, "before": before, "peak": resident("VmHWM")}), flush=True)
    await running.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=server.loop_factory()) as runner:
        runner.run(serve(*sys.argv[1:3]))
