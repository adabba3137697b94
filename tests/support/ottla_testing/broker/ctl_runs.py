"""Runs `ottla ctl` in this process for its tests."""

from __future__ import annotations

import asyncio
import contextlib
import io

from ottla.tools.ctl.command import ctl
from ottla_testing.broker.controlling import Api


def run(url: str | None, *arguments: str, environ: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Runs `ottla ctl`: (exit code, stdout, stderr)."""
    out, error = io.StringIO(), io.StringIO()
    control = [] if url is None else ["--control", url]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            code = ctl([*control, *arguments], environ or {})
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    return code, out.getvalue(), error.getvalue()


async def ctl_lines(api: Api, *arguments: str) -> list[str]:
    """Returns the words of each printed line of a successful command."""
    code, out, error = await asyncio.to_thread(run, api.url, *arguments)
    assert (code, error) == (0, ""), (code, out, error)
    return [" ".join(line.split()) for line in out.splitlines()]


async def refused(api: Api, *arguments: str) -> str:
    """Returns the error line of a failed command."""
    code, out, error = await asyncio.to_thread(run, api.url, *arguments)
    assert (code, out) == (2, ""), (code, out, error)
    assert error.startswith("ottla ctl") and error.count("\n") == 1, error
    return error.partition(": ")[2].rstrip("\n")
