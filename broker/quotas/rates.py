"""Measures the rate of a client: a rate over sampled windows, and a token bucket.

Pure functions of time in ms. Same numbers as Kafka (`Rate`, `SampledStat`, `TokenBucket`, `QuotaUtils`), because
clients receive the throttle times. If the clock is set back by more than all windows, measuring starts from scratch.
"""

from __future__ import annotations

import math

from ...protocol.limits import INT32_MAX
from ...protocol.named import NamedTuple

THROTTLE_MAX_MS = INT32_MAX  # largest throttle time of a response


class Windows(NamedTuple):
    """Number of samples, including the current one, and the length of each."""

    samples: int
    ms: int

    @property
    def span_ms(self) -> int:
        """Time after which an event no longer counts."""
        return self.samples * self.ms


class _Sample:
    __slots__ = ("begun_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.begun_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Recorded values per second, over a window of at least all samples but one, even right after the first value."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Adds to the current sample; a negative value corrects an earlier one."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.begun_ms >= self._windows.ms:
            # One sample more than counted: the end of the oldest may reach into the window.
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
        """Returns (sum of the values in the window, length of the window in ms, at least 1)."""
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
        """Returns the time in ms without recording after which the rate is down to `limit` per second; 0 if not
        exceeded.
        """
        if limit <= 0:  # as in releases with ZooKeeper, where a limit of 0 or less does not throttle
            return 0
        total, window_ms = self.measure(now_ms)
        rate = total / (window_ms / 1000)
        return _whole_ms((rate - limit) / limit * window_ms) if rate > limit else 0


class TokenBucket:
    """Tokens that are refilled at the limit's rate, at most as many as all windows provide; full at first."""

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf
        self._updated_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """Returns the available tokens; negative if more were taken than available."""
        burst = self._windows.span_ms / 1000 * limit
        back = max(0, now_ms - self._updated_ms) / 1000 * limit
        self._tokens = min(burst, self._tokens + back)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Takes tokens, even more than are available."""
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time in ms until the bucket is no longer negative; 0 if it is not."""
        if limit <= 0:
            return 0
        tokens = self.tokens(limit, now_ms)
        return _whole_ms(-tokens / limit * 1000) if tokens < 0 else 0


def _whole_ms(ms: float) -> int:
    return math.floor(min(ms, THROTTLE_MAX_MS) + 0.5)
