"""The broker as a process: wires the server, the control plane and the recorder, and runs until a signal.

SIGTERM and SIGINT stop the broker in order, with exit code 0. It stops by itself, with exit code 1, when a disk that it
needs has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import signal
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from ..storage.errors import StorageError
from .config.message_format import behaviours_set
from .config.serve_options import ServeOptions, StartupError
from .futures import wake
from .logs import get_logger
from .network.listener import SocketSettings, bind
from .network.server import Running, loop_factory, start

if TYPE_CHECKING:
    from .control.app import ControlServer

COMPLETED_AFTER_S = 0.5
"""From the first connections to what takes 20 ms of a start, and need not delay them."""


def serve(
    options: ServeOptions,
    on_ready: Callable[[Running], object] = lambda running: None,
    before_ready: Callable[[Running], object] = lambda running: None,
) -> int:
    """Runs the broker until a signal and returns the exit code. Raises StartupError if it cannot start with these
    options.

    `on_ready` is called once, when clients can connect, and `before_ready` before the broker announces that; it may
    raise StartupError.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(options, on_ready, before_ready))


async def _serve(
    options: ServeOptions, on_ready: Callable[[Running], object], before_ready: Callable[[Running], object]
) -> int:
    loop = asyncio.get_running_loop()
    stop = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(RuntimeError):
            loop.add_signal_handler(number, wake, stop)
    _allow_many_files()
    try:
        running, control = await _start(options, loop)
    except _Interrupted:
        get_logger().info("stopped during start")
        return 0
    try:
        before_ready(running)
    except StartupError:
        if control is not None:
            await control.stop()
        await running.stop()
        raise
    # The objects of the start live as long as the process. A collection before takes 20 ms and finds next to nothing.
    gc.freeze()
    for address in running.addresses:
        print(f"ottla ready on {address}", flush=True)
    if control is not None:
        print(f"ottla control on {control.url}", flush=True)
        if control.new_token is not None:
            print(f"ottla control token {control.new_token}", flush=True)
    on_ready(running)
    loop.call_later(COMPLETED_AFTER_S, _complete_start, running)
    if control is None:
        await asyncio.wait((stop, running.failed), return_when=asyncio.FIRST_COMPLETED)
        if running.failed.done():
            get_logger().error("fatal disk failure, broker stops", reason=running.failed.result())
    else:
        await _wait_for_stop(running, stop)
    try:
        if control is not None:
            await control.stop()
        await (running if control is None else control.operations).stop()
    except StorageError as error:
        get_logger().error("stopped with unwritten data", reason=str(error))
        return 1
    get_logger().info("stopped")
    return 1 if running.failed.done() else 0


def _complete_start(running: Running) -> None:
    """Logs the start, and imports what logs errors and explains malformed requests: once no more files can be opened,
    an import fails.
    """
    importlib.import_module("..protocol.layouts", __package__)
    state = running.state
    topics, behaviours = len(state.topics), behaviours_set(state.config)
    get_logger().info("serving", profile=state.profile.name, **behaviours, cluster_id=state.cluster_id, topics=topics)


async def _wait_for_stop(running: Running, stop: asyncio.Future[None]) -> None:
    """Waits for the stop signal. With a control plane a disk failure does not end the process: a reset or a restore
    opens new data. Until then every node refuses connections.
    """

    def on_failed() -> None:
        running.shut()
        get_logger().error("fatal disk failure, broker waits for a reset or restore", reason=running.failed.result())

    running.on_failed = on_failed
    if running.failed.done():
        on_failed()
    await stop


async def _start(options: ServeOptions, loop: asyncio.AbstractEventLoop) -> tuple[Running, ControlServer | None]:
    """Starts the broker, and its control plane if configured. Raises StartupError, _Interrupted."""
    if options.control is None:
        return await start(options, loop, opening=_interruptible()), None
    from .admin_api.operations import Operations
    from .control import app
    from .faults.rule_set import Faults
    from .recording.ring import Ring
    from .virtual_clock import VirtualClock

    with contextlib.closing(bind(options.control.listener, SocketSettings())) as sock:
        running = await start(options, loop, VirtualClock(loop), opening=_interruptible(), faults=Faults(), ring=Ring())
        operations = Operations(running)
        await operations.keep_start()
        return running, await app.start_control(operations, options.control, sock.dup())


class _Interrupted(BaseException):
    """A stop signal arrived while the data was being opened. No failure: `except Exception` must not catch it."""


@contextlib.contextmanager
def _interruptible() -> Generator[None]:
    """Makes SIGTERM and SIGINT raise _Interrupted in the running code, once.

    Opening the data blocks the event loop, for minutes while a large log is recovered or converted, and it may end at
    any point, as in a crash.
    """
    raised = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal raised
        if not raised:
            raised = True
            raise _Interrupted

    try:
        before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, which alone gets signals
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _allow_many_files() -> None:
    """Raises the limit of open files to the system's maximum: each partition that is written to keeps one open."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
