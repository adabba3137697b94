"""Spark (PySpark) over log directories and over brokers.

`session()` makes a Spark session that reads the logs of Ottla and of Apache Kafka; `register(spark)` adds the data
sources to an existing one. `lag` returns how many offsets a streaming query still has to read, `scan` gives the records
to a function in the tasks, `write_exactly_once` writes rows to topics, and the others are the jobs. Each is imported on
first use: importing this package needs nothing of the extra `ottla[pipeline]`.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .extras import MissingExtra as MissingExtra
from .extras import SetupError as SetupError
from .extras import needed

if TYPE_CHECKING:
    from .jobs.audit.job import audit as audit
    from .jobs.audit.job import audit_brokers as audit_brokers
    from .jobs.census.job import census as census
    from .jobs.compact.configs import CompactSettings as CompactSettings
    from .jobs.compact.job import compact as compact
    from .jobs.export.job import ExportSettings as ExportSettings
    from .jobs.export.job import export as export
    from .jobs.import_.job import ImportSettings as ImportSettings
    from .jobs.import_.job import import_records as import_records
    from .jobs.replay.job import replay as replay
    from .jobs.replay.tasks import ReplaySettings as ReplaySettings
    from .jobs.upgrade.job import upgrade as upgrade
    from .jobs.verify.job import VerifySettings as VerifySettings
    from .jobs.verify.job import verify_export as verify_export
    from .lag import lag as lag
    from .scan import scan as scan
    from .session import register as register
    from .session import session as session
    from .sink.exactly_once import write_exactly_once as write_exactly_once

_EXPORTS = {
    "CompactSettings": ".jobs.compact.configs",
    "ExportSettings": ".jobs.export.job",
    "ImportSettings": ".jobs.import_.job",
    "ReplaySettings": ".jobs.replay.tasks",
    "VerifySettings": ".jobs.verify.job",
    "audit": ".jobs.audit.job",
    "audit_brokers": ".jobs.audit.job",
    "census": ".jobs.census.job",
    "compact": ".jobs.compact.job",
    "export": ".jobs.export.job",
    "import_records": ".jobs.import_.job",
    "lag": ".lag",
    "register": ".session",
    "replay": ".jobs.replay.job",
    "scan": ".scan",
    "session": ".session",
    "upgrade": ".jobs.upgrade.job",
    "verify_export": ".jobs.verify.job",
    "write_exactly_once": ".sink.exactly_once",
}

__all__ = sorted({"MissingExtra", "SetupError", *_EXPORTS})  # pyright: ignore[reportUnsupportedDunderAll]


def _exported(name: str) -> property:
    """The property that imports the function or class `name` on access."""

    def get(_: ModuleType) -> Any:
        with needed():
            return getattr(importlib.import_module(_EXPORTS[name], __name__), name)

    def put(_: ModuleType, value: object) -> None:
        """Ignores the assignment: importing a submodule of that name (`session.py`) would replace the function."""

    return property(get, put)


class _Package(ModuleType):
    """This package with its exports as properties, which an import of a submodule of the same name (`session`, `lag`)
    cannot replace."""

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_EXPORTS})


for _name in _EXPORTS:
    setattr(_Package, _name, _exported(_name))
sys.modules[__name__].__class__ = _Package
