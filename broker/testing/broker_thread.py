"""A broker on an event loop in a thread of its own, and calls into that thread.

Starts and stops the thread, also when the caller is interrupted meanwhile. The operations are in
`broker/admin_api/operations.py`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from ...storage.errors import StorageError
from ...storage.io.files import DiskFiles, Files
from ...storage.io.memory import MemoryFiles
from .. import logs
from ..admin_api.operations import Operations
from ..admin_api.views import OperationError
from ..config.serve_options import ServeOptions
from ..faults.rule_set import Faults
from ..futures import wake
from ..network import server
from ..recording.ring import Ring
from ..virtual_clock import VirtualClock

if TYPE_CHECKING:
    from ..control.app import ControlServer
    from .security import Security

CLOSING_STEPS = 10  # of the loop, until sockets that were just accepted or aborted are closed
T = TypeVar("T")
_LOOP_FACTORY = server.loop_factory()


def _remove(folder: str, process: int) -> None:
    if process == os.getpid():  # a forked process does not remove the folder of its parent
        shutil.rmtree(folder, ignore_errors=True)


class BrokerThread:
    """One broker that can be started and stopped several times; data in memory lives as long as this object."""

    def __init__(self, options: ServeOptions, *, in_memory: bool, security: Security) -> None:
        self.options = options
        self.security = security
        self.faults = Faults()
        self.bootstraps: dict[str, str] = {}
        self.control_url: str | None = None
        self.control_token: str | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.operations: Operations | None = None
        """None while the broker does not run."""
        self._files: Files = MemoryFiles(self._now_ns) if in_memory else DiskFiles()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._stop: asyncio.Future[None] | None = None
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._clock: VirtualClock | None = None
        security.now_ms = self._now_ms

    def _now_ms(self) -> int:
        """Returns the broker's time, in any thread."""
        operations = self.operations
        clock = self._clock if operations is None else operations.running.state.clock
        return 0 if clock is None else clock.now_ms()

    def _now_ns(self) -> int:
        """Returns the modification time of files in memory."""
        return self._now_ms() * 1_000_000

    # Starting and stopping

    def start(self) -> None:
        """Returns when clients can connect. Raises StartupError, or OperationError if the broker runs already."""
        with self._starting() as ready:
            ready.result()

    async def start_awaited(self) -> None:
        """Like `start`, for a coroutine of any loop."""
        with self._starting() as ready:
            await asyncio.wrap_future(ready)

    @contextlib.contextmanager
    def _starting(self) -> Generator[concurrent.futures.Future[None]]:
        """Ends the thread of a start that fails, or whose caller is interrupted."""
        ready = self._begin()
        try:
            yield ready
        except BaseException:
            with contextlib.suppress(Exception):  # a start that failed or was cancelled ends its thread itself
                ready.result()
                self._end()
            self._gone()
            raise

    def _begin(self) -> concurrent.futures.Future[None]:
        if self._thread is not None:
            raise OperationError("the broker runs already")
        self._process = os.getpid()
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(ready, self._ended), name="ottla-embedded", daemon=True)
        self._thread.start()
        return ready

    def stop(self) -> None:
        """Returns when the thread has ended; does nothing if the broker does not run. Raises OperationError if not
        everything could be written."""
        ended = self._end()
        try:
            ended.result()
        finally:
            self._gone()

    async def stop_awaited(self) -> None:
        """Like `stop`, for a coroutine of any loop."""
        ended = self._end()
        try:
            await asyncio.shield(asyncio.wrap_future(ended))
        finally:
            self._gone()

    def _end(self) -> concurrent.futures.Future[None]:
        """Requests the stop of the broker; the future is done when it has stopped."""
        if self._process != os.getpid():
            self._thread = None
        if self._thread is None:
            ended: concurrent.futures.Future[None] = concurrent.futures.Future()
            ended.set_result(None)
            return ended
        self._check_thread()
        loop = self.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the broker has ended
                loop.call_soon_threadsafe(wake, self._stop)
        return self._ended

    def _gone(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self.loop = self.operations = self._stop = None

    # In the thread

    def _run(self, ready: concurrent.futures.Future[None], ended: concurrent.futures.Future[None]) -> None:
        logs.quieten_thread()
        failure: BaseException | None = None
        try:
            with self._security_files(), asyncio.Runner(loop_factory=_LOOP_FACTORY) as runner:
                runner.run(self._live(ready))
        except BaseException as error:
            failure = error
        if not ready.done():
            ready.set_exception(failure or OperationError("the broker ended before it was ready"))
            failure = None
        if failure is None:
            ended.set_result(None)
        else:
            ended.set_exception(failure)

    @contextlib.contextmanager
    def _security_files(self) -> Generator[None]:
        """Keeps the files for clients in a folder of their own while the broker runs."""
        if not self.security.has_tls:
            yield
            return
        folder = tempfile.mkdtemp(prefix="ottla-security-")
        remove = weakref.finalize(self, _remove, folder, os.getpid())  # also if the broker is not stopped
        try:
            self.security.write(folder)
            yield
        finally:
            self.security.folder = None
            remove()

    async def _live(self, ready: concurrent.futures.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        self._clock = VirtualClock(loop)
        running = await server.start(
            self.options, loop, self._clock, files=self._files, faults=self.faults, ring=Ring()
        )
        operations = Operations(running)
        control: ControlServer | None = None
        try:
            await operations.keep_start()
            if self.options.control is not None:
                from ..control.app import start_control

                control = await start_control(operations, self.options.control)
                self.control_url, self.control_token = control.url, control.token
            running.on_failed = running.shut
            names = [listener.name for listener in self.options.listeners]
            self.bootstraps = {name: running.bootstrap(number, "127.0.0.1") for number, name in enumerate(names)}
            self._stop = loop.create_future()
            self.loop, self.operations = loop, operations
            ready.set_result(None)
            await self._stop
        finally:
            if control is not None:
                await control.stop()
            await self._close(operations)

    async def _close(self, operations: Operations) -> None:
        running = operations.running
        has_failed = running.failed.done()
        try:
            await operations.stop()
        except StorageError as error:
            if not has_failed:
                raise OperationError(f"stopped, but not everything could be written: {error}") from error
        finally:
            self._files = running.store
            for _ in range(CLOSING_STEPS):
                await asyncio.sleep(0)

    # Calls from other threads

    def _check_thread(self) -> None:
        if self._thread is threading.current_thread():
            raise RuntimeError("an embedded broker cannot be called in its own thread: the call would wait for itself")

    def _submit(self, work: Callable[[Operations], Awaitable[T]]) -> concurrent.futures.Future[T]:
        """Runs `work` on the broker's loop."""
        self._check_thread()
        if self._process != os.getpid():
            raise OperationError("the broker runs in the parent process; this forked process has no broker")
        loop, operations = self.loop, self.operations
        if loop is None or operations is None:
            raise OperationError("the broker does not run")
        coroutine: Coroutine[Any, Any, T] = work(operations)  # type: ignore[assignment]
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError as error:  # its loop is closed
            coroutine.close()
            raise OperationError("the broker does not run") from error

    def call(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """Runs `work` on the broker's loop and returns its result. Raises OperationError if the broker does not run, or
        if it stops before the work is done."""
        future = self._submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise OperationError("the broker stopped before it was done") from error

    async def call_awaited(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        """Like `call`, for a coroutine of any loop; cancelling it cancels the work."""
        future = self._submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise OperationError("the broker stopped before it was done") from error
