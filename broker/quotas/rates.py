"""How fast somebody is: a rate over sampled windows, and a bucket of tokens.

Pure: the time is an argument, in milliseconds; the numbers are Kafka's own (`Rate`, `SampledStat`, `TokenBucket`,
`QuotaUtils`), since clients are told how long to wait. A clock that is set back by more than all windows begins anew.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...protocol.limits import INT32_MAX

THROTTLE_MAX_MS = INT32_MAX  # what an answer can tell


class Windows(NamedTuple):
    """How many samples are kept, the one that is filled included, and how long each is."""

    samples: int
    ms: int

    @property
    def span_ms(self) -> int:
        """After so long nothing of an event is left."""
        return self.samples * self.ms


class _Sample:
    __slots__ = ("begun_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.begun_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """What was recorded, per second of a window that is at least all samples but one long, also for a newcomer."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Adds to the sample of now; a negative value takes back."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.begun_ms >= self._windows.ms:
            # One more than is counted: the oldest may reach into the window with its end.
            self._current = (self._current + 1) % (self._windows.samples + 1)
            if self._current < len(self._samples):
                sample = self._samples[self._current]
                sample.reset(now_ms)
            else:
                sample = _Sample(now_ms)
                self._samples.append(sample)
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """(what is in the window, its length in ms, at least 1)."""
        windows = self._windows
        for sample in self._samples:
            if abs(now_ms - sample.last_ms) >= windows.span_ms:
                sample.reset(now_ms)
        begun_ms = min((sample.begun_ms for sample in self._samples), default=now_ms)
        elapsed_ms = now_ms - begun_ms
        whole = int(elapsed_ms / windows.ms)
        if whole < windows.samples - 1:
            elapsed_ms += (windows.samples - 1 - whole) * windows.ms
        return math.fsum(sample.value for sample in self._samples), max(1, elapsed_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing more may be recorded until the rate is down to `limit` a second; 0 if it is not above."""
        if limit <= 0:  # as the releases with ZooKeeper take it, where it is no limit
            return 0
        total, window_ms = self.measure(now_ms)
        rate = total / (window_ms / 1000)
        return _whole_ms((rate - limit) / limit * window_ms) if rate > limit else 0


class TokenBucket:
    """Tokens that come back at the limit's rate, at most as many as all windows bring; it begins full."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """How many there are; below 0 if more was taken than was there."""
        burst = self._windows.span_ms / 1000 * limit
        back = max(0, now_ms - self._updated_ms) / 1000 * limit
        self._tokens = min(burst, self._tokens + back)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Takes tokens, also such as are not there."""
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until as many are back as were not there; 0 if there are enough."""
        if limit <= 0:
            return 0
        tokens = self.tokens(limit, now_ms)
        return _whole_ms(-tokens / limit * 1000) if tokens < 0 else 0


def _whole_ms(ms: float) -> int:
    return math.floor(min(ms, THROTTLE_MAX_MS) + 0.5)
