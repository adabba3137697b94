"""The lock of a prefix in a store: an object that only its owner renews.

It is created by a conditional request (`If-None-Match: *`), and renewed by one that names the previous version
(`If-Match`). An owner that could not renew it in time changes nothing any more. A process that finds the lock waits for
a renewal: if none comes for the time of a lease, by its own clock, it takes the lock over by naming the version that it
saw, so only one of several does. Clocks of different machines are never compared. Deleting the object breaks the lock:
its owner notices at the next renewal.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_log = logging.getLogger(__name__)

LEASE_S = 60.0
RENEW_S = 15.0
_USABLE = 0.75
"""The part of a lease in which its owner begins requests: the last of them end within the rest."""


class LockLost(OSError):
    """The lock was not renewed in time, or another process has it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a lock, in seconds. Without `renews` no thread renews it."""

    lease_s: float = LEASE_S
    renew_s: float = RENEW_S
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep
    renews: bool = True


class ObjectLock:
    """A held lock among these `ObjectFiles`; made only if it could be taken. Raises BlockingIOError, OSError."""

    def __init__(self, files: Any, path: str, timing: Timing) -> None:
        self.path = path
        self._files, self._timing = files, timing
        self._owner = uuid.uuid4().hex
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._renewals = 0
        self._lost = False
        self._began_s = timing.clock()
        self._tag = self._taken()
        self._check_conditions()
        self._released = threading.Event()
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None
        if timing.renews:
            self._thread = threading.Thread(target=self._renew_always, name="renew export lock", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raises LockLost if another process may have the lock."""
        if self._lost or self._timing.clock() - self._began_s > _USABLE * self._timing.lease_s:
            raise LockLost(errno.ESTALE, "the lock was not renewed in time, or was broken", self.path)

    def renew(self) -> None:
        """Renews the lock. Raises LockLost if another process has it, OSError."""
        with self._changing:
            if self._released.is_set():
                return
            began_s = self._timing.clock()
            self._renewals += 1
            try:
                self._tag = self._files.swap(self.path, self._text(), self._tag)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                self._lost = True
                raise LockLost(errno.ESTALE, "another process has the lock", self.path) from error
            self._began_s = began_s

    def release(self) -> None:
        self._released.set()
        with self._changing:
            try:
                self.check()
                self._files.remove(self.path)
            except OSError as error:
                _log.warning("lock not released path=%s error=%s", self.path, error.strerror)
            self._lost = True

    # -- taking it

    def _text(self) -> bytes:
        fields = {
            "owner": self._owner,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "since": self._since,
            "renewals": self._renewals,
        }
        return json.dumps(fields).encode() + b"\n"

    def _taken(self) -> str:
        """Returns the version of our own object."""
        timing, seen, seen_s = self._timing, None, 0.0
        while True:
            self._began_s = timing.clock()
            try:
                return self._files.create(self.path, self._text())
            except FileExistsError:
                pass
            try:
                found = self._files.get(self.path)
            except FileNotFoundError:
                continue  # released meanwhile
            now_s = timing.clock()
            if seen is None:
                seen, seen_s = found, now_s
                text = "lock held: waiting up to %.0f s for its renewal path=%s owner=%s"
                _log.warning(text, timing.lease_s, self.path, _holder(found.data))
            if found.tag != seen.tag:
                text = f"locked by {_holder(found.data)}, which is alive; to break the lock, delete the object"
                raise BlockingIOError(errno.EAGAIN, text, self.path)
            if now_s - seen_s >= timing.lease_s:
                return self._taken_over(found.tag, _holder(found.data))
            timing.sleep(min(timing.renew_s / 3, timing.lease_s - (now_s - seen_s)))

    def _taken_over(self, tag: str, holder: str) -> str:
        self._began_s = self._timing.clock()
        try:
            tag = self._files.swap(self.path, self._text(), tag)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise BlockingIOError(errno.EAGAIN, "locked by another process", self.path) from error
            raise
        _log.warning("lock taken over path=%s from=%s", self.path, holder)
        return tag

    def _check_conditions(self) -> None:
        """Checks that the store obeys conditions: one that ignores them has no locks."""
        try:
            self._files.create(self.path, b"must not be written\n")
        except FileExistsError:
            return
        self._lost = True
        text = "the store ignores If-None-Match, so two exports could write at the same time"
        raise OSError(errno.ENOTSUP, text, self.path)

    def _renew_always(self) -> None:
        while not self._released.wait(self._timing.renew_s):
            try:
                self.renew()
            except LockLost as error:
                _log.error("lock lost path=%s error=%s", self.path, error.strerror)
                return
            except OSError as error:  # tried again: `check` counts the time
                _log.warning("lock not renewed path=%s error=%s", self.path, error.strerror)


def _holder(data: bytes) -> str:
    """Returns the owner of a lock in words."""
    try:
        found = json.loads(data)
        return f"process {int(found['process'])} on {str(found['host'])[:100]} since {str(found['since'])[:40]}"
    except (ValueError, KeyError, TypeError):
        return "an unknown process"
