"""Rates and token buckets compared with a naive model of Kafka's `Rate`, `SampledStat`, `TokenBucket` and
`QuotaUtils`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.quotas.rates import THROTTLE_MAX_MS, Rate, TokenBucket, Windows

START = 1_700_000_000_000
ELEVEN = Windows(11, 1000)
WINDOWS = st.builds(Windows, st.integers(1, 12), st.sampled_from([10, 500, 1000, 2000]))
PAUSES = st.one_of(st.integers(0, 50), st.integers(0, 3000), st.integers(9_000, 30_000))
EVENTS = st.lists(st.tuples(PAUSES, st.integers(-100, 100_000)), max_size=60)


@dataclass
class ModelSample:
    begun_ms: int
    last_ms: int
    value: float = 0.0


@dataclass
class ModelRate:
    """A direct transcription of Kafka's code, which shares nothing with the tested code."""

    windows: Windows
    samples: list[ModelSample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(ModelSample(now_ms, now_ms))
        if now_ms - self.samples[self.current].begun_ms >= self.windows.ms:
            self.current = (self.current + 1) % (self.windows.samples + 1)
            if self.current >= len(self.samples):
                self.samples.append(ModelSample(now_ms, now_ms))
            else:
                self.samples[self.current] = ModelSample(now_ms, now_ms)
        sample = self.samples[self.current]
        sample.value += value
        sample.last_ms = now_ms

    def window_ms(self, now_ms: int) -> int:
        for number, sample in enumerate(self.samples):
            if now_ms - sample.last_ms >= self.windows.samples * self.windows.ms:
                self.samples[number] = ModelSample(now_ms, now_ms)
        oldest = min((sample.begun_ms for sample in self.samples), default=now_ms)
        total = now_ms - oldest
        full, least = total // self.windows.ms, self.windows.samples - 1
        return max(1, total + max(0, least - full) * self.windows.ms)

    def rate(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(sample.value for sample in self.samples) / window_ms * 1000


@given(WINDOWS, EVENTS, st.floats(0.5, 1e6))
def test_rate_matches_kafka(windows: Windows, events: list[tuple[int, int]], limit: float) -> None:
    rate, model, now_ms = Rate(windows), ModelRate(windows), START
    for pause_ms, value in events:
        now_ms += pause_ms
        rate.record(value, now_ms)
        model.record(value, now_ms)
        total, window_ms = rate.measure(now_ms)
        assert window_ms == model.window_ms(now_ms)
        assert total / window_ms * 1000 == pytest.approx(model.rate(now_ms))
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if model.rate(now_ms) <= limit * (1 - 1e-9):
            assert throttle_ms == 0
        elif model.rate(now_ms) > limit * (1 + 1e-9):
            expected = (model.rate(now_ms) - limit) / limit * model.window_ms(now_ms)
            assert throttle_ms == pytest.approx(expected, abs=0.51)


@given(EVENTS)
def test_window_is_ten_to_twelve_seconds_from_the_first_value_on(events: list[tuple[int, int]]) -> None:
    rate, now_ms = Rate(ELEVEN), START
    assert rate.measure(now_ms) == (0, 10_000)
    for pause_ms, value in events:
        now_ms += pause_ms
        rate.record(value, now_ms)
        assert 10_000 <= rate.measure(now_ms)[1] < 12_000


def test_rate_equal_to_the_limit_is_not_throttled() -> None:
    rate = Rate(ELEVEN)
    rate.record(10_000, START)
    assert rate.throttle_ms(1000, START) == 0
    rate.record(1, START)
    assert rate.throttle_ms(1000, START) == 1  # sum / limit - W


@given(st.floats(1, 1e6), st.floats(0, 1e9))
def test_values_expire_after_all_windows(limit: float, value: float) -> None:
    """Not earlier, even for a client that waits as requested: within ten windows the rate does not drop faster."""
    rate = Rate(ELEVEN)
    rate.record(value, START)
    assert rate.throttle_ms(limit, START + 9_000) == rate.throttle_ms(limit, START)
    assert rate.throttle_ms(limit, START + 11_000) == 0


def test_negative_value_cancels_an_earlier_one() -> None:
    rate = Rate(ELEVEN)
    rate.record(1_000_000, START)
    rate.record(-1_000_000, START)
    assert rate.throttle_ms(1, START) == 0


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_limit_of_0_or_less_does_not_throttle(limit: float) -> None:
    rate, bucket = Rate(ELEVEN), TokenBucket(ELEVEN)
    rate.record(1e18, START)
    assert rate.throttle_ms(limit, START) == 0
    bucket.take(1000, limit, START)
    assert bucket.throttle_ms(limit, START) == 0


def test_throttle_time_is_limited_to_int32() -> None:
    rate, bucket = Rate(ELEVEN), TokenBucket(ELEVEN)
    rate.record(1e300, START)
    assert rate.throttle_ms(5e-324, START) == THROTTLE_MAX_MS
    bucket.take(1e300, 1e-300, START)
    assert bucket.throttle_ms(1e-300, START) == THROTTLE_MAX_MS


@pytest.mark.parametrize("back_ms", [1, 500, 60_000, 86_400_000])
def test_clock_set_back_does_not_throttle_forever(back_ms: int) -> None:
    rate, bucket = Rate(ELEVEN), TokenBucket(ELEVEN)
    rate.record(20_000, START)
    assert rate.throttle_ms(1000, START - back_ms) <= 10_000 + back_ms
    assert rate.throttle_ms(1000, START - back_ms + 22_000) == 0
    bucket.take(20, 1, START)
    assert bucket.throttle_ms(1, START - back_ms) == 9000
    assert bucket.throttle_ms(1, START - back_ms + 9000) == 0


@given(st.floats(0.1, 1000), st.lists(st.tuples(PAUSES, st.integers(0, 5000)), max_size=40))
def test_token_bucket_matches_kafka(limit: float, events: list[tuple[int, int]]) -> None:
    bucket, now_ms = TokenBucket(ELEVEN), START
    tokens, last_ms = 0.0, 0  # as in Kafka at first: the last update was in 1970
    burst = 11 * limit
    for pause_ms, count in events:
        now_ms += pause_ms
        tokens = min(burst, tokens + limit * (now_ms - last_ms) / 1000)
        last_ms = now_ms
        assert bucket.tokens(limit, now_ms) == pytest.approx(tokens, abs=1e-6 * burst)
        bucket.take(count, limit, now_ms)
        tokens -= count
        throttle_ms = bucket.throttle_ms(limit, now_ms)
        assert throttle_ms == pytest.approx(max(0.0, -tokens / limit * 1000), abs=0.6)


def test_huge_request_passes_and_later_ones_wait() -> None:
    bucket = TokenBucket(ELEVEN)
    assert bucket.throttle_ms(1, START) == 0
    bucket.take(100, 1, START)
    assert bucket.tokens(1, START) == -89
    assert bucket.throttle_ms(1, START + 1000) == 88_000
