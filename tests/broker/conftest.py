"""Binds the log to a stream that outlives every test.

kafka-python causes a warning while it is imported, attributed to the standard library: it is imported quietly here.
"""

from __future__ import annotations

import warnings

from ottla.broker.logs import get_logger

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records  # noqa: F401


get_logger()  # else the first broker within a test that captures its output would log to what that test closes
