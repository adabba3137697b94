"""The health check of the services in compose.yml: a service touches a file while it works.

`python alive.py` is the check: exit code 0 if the file was touched in the last five seconds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

FILE = Path("/tmp/alive")
FRESH_S = 5.0


def report() -> None:
    """Reports that the service works; to be called at least once a second."""
    FILE.touch()


def is_fresh() -> bool:
    """Whether the last report is recent."""
    try:
        return time.time() - FILE.stat().st_mtime < FRESH_S
    except OSError:
        return False


def run(work: Coroutine[Any, Any, None]) -> None:
    """Runs a service until SIGTERM, which ends it at its next wait."""
    import asyncio  # the check starts faster without it
    import signal

    async def main() -> None:
        task = asyncio.ensure_future(work)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            print("stopped", flush=True)

    asyncio.run(main())


if __name__ == "__main__":
    sys.exit(0 if is_fresh() else 1)
