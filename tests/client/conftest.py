"""Binds the broker's log to a stream that outlives every test."""

from __future__ import annotations

from ottla.broker.logs import get_logger

get_logger()  # else the first broker within a test that captures its output would log to what that test closes
