"""PySpark over the logs and over the wire.

`session()` makes a Spark session that reads Ottla's and Kafka's logs, `register(spark)` teaches that to one that is
there; `lag` tells how far a stream is behind, `write_exactly_once` writes rows to topics; the others are the jobs. Each
is imported when it is first used: importing this package needs nothing of the extra `ottla[pipeline]`.
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
    from .jobs.census.job import census as census
    from .jobs.compact.job import compact as compact
    from .jobs.compact.settings import CompactSettings as CompactSettings
    from .jobs.export.job import export as export
    from .jobs.export.settings import ExportSettings as ExportSettings
    from .jobs.import_.job import import_records as import_records
    from .jobs.import_.settings import ImportSettings as ImportSettings
    from .jobs.replay.job import replay as replay
    from .jobs.replay.settings import ReplaySettings as ReplaySettings
    from .jobs.upgrade.job import upgrade as upgrade
    from .lag import lag as lag
    from .session import register as register
    from .session import session as session
    from .sink.exactly_once import write_exactly_once as write_exactly_once

_EXPORTS = {
    "CompactSettings": ".jobs.compact.settings",
    "ExportSettings": ".jobs.export.settings",
    "ImportSettings": ".jobs.import_.settings",
    "ReplaySettings": ".jobs.replay.settings",
    "audit": ".jobs.audit.job",
    "census": ".jobs.census.job",
    "compact": ".jobs.compact.job",
    "export": ".jobs.export.job",
    "import_records": ".jobs.import_.job",
    "lag": ".lag",
    "register": ".session",
    "replay": ".jobs.replay.job",
    "session": ".session",
    "upgrade": ".jobs.upgrade.job",
    "write_exactly_once": ".sink.exactly_once",
}

__all__ = sorted({"MissingExtra", "SetupError", *_EXPORTS})  # pyright: ignore[reportUnsupportedDunderAll]


def _exported(name: str) -> property:
    """A function of one of the modules, as an attribute of this package."""

    def get(_: ModuleType) -> Any:
        with needed():
            return getattr(importlib.import_module(_EXPORTS[name], __name__), name)

    def put(_: ModuleType, value: object) -> None:
        """Importing a module of that name (`session.py`) would put it in the function's place."""

    return property(get, put)


class _Package(ModuleType):
    """This package, with the exported functions as properties: they stay what they are also where a module has the
    name of one, and importing that module comes first."""

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_EXPORTS})


for _name in _EXPORTS:
    setattr(_Package, _name, _exported(_name))
sys.modules[__name__].__class__ = _Package
