"""kafka-python causes a warning while it is imported, attributed to the standard library: import it quietly."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records  # noqa: F401
