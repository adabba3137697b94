"""What a session's cluster must have: a classic context, and workers whose Python has Ottla.

Owns the sentences for the cases in which it has not. No dependency on Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .extras import SetupError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PYTHON = "spark.pyspark.python"
REMOTE = "spark.remote"
API_MODE = "spark.api.mode"

_TEXT_MAX = 1 << 20
_REMEDY = (
    "set PYSPARK_PYTHON, or --conf spark.pyspark.python, to the path of a Python that has ottla[pipeline] on the "
    "driver and on every worker"
)
_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"ModuleNotFoundError: No module named '(?P<what>[\w.]+)'"), "has no module {what}"),
    (re.compile(r'Cannot run program "(?P<python>[^"]+)"'), "cannot be run there"),
    (
        re.compile(r"different version: (?P<what>[\d.]+) than that in driver:? (?P<other>[\d.]+)"),
        "is Python {what}, but the driver's is {other}",
    ),
    (
        re.compile(r"AttributeError: (?:Can't get attribute|module) .*'ottla\."),
        "has another version of Ottla than the driver's",
    ),
)


class WorkerPython(SetupError):
    """The workers' Python cannot run the tasks. The message is one sentence with the path and the remedy."""


def worker_python(error: object, python: str) -> WorkerPython | None:
    """Returns the error for a failed Spark job whose cause is the workers' Python, else None. `python` is the path that
    the workers start."""
    text = str(getattr(error, "java_exception", None) or error)[:_TEXT_MAX]
    for pattern, words in _CAUSES:
        if (found := pattern.search(text)) is not None:
            named = found.groupdict()
            python = named.pop("python", python)
            return WorkerPython(f"the workers' Python, {python}, {words.format(**named)}: {_REMEDY}")
    return None


def context_of(spark: SparkSession) -> SparkContext:
    """Returns the session's context. Raises SetupError for a session of Spark Connect, which has none."""
    kind: Any = type(spark)
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise SetupError(f"this is a session of Spark Connect ({REMOTE}), in which only the formats work: {_CLASSIC}")
    return spark.sparkContext


def check_classic(conf: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """Refuses the settings of Spark Connect, before Spark starts. Raises SetupError, which names the setting."""
    master = conf.get("spark.master", "")
    for name, value in (
        (REMOTE, conf.get(REMOTE)),
        ("SPARK_REMOTE", environ.get("SPARK_REMOTE")),
        ("spark.master", master if master.startswith("sc://") else None),
        (API_MODE, conf.get(API_MODE) if conf.get(API_MODE, "classic").lower() != "classic" else None),
    ):
        if value:
            raise SetupError(f"{name} is {value}: Spark Connect is not supported, {_CLASSIC}")


_CLASSIC = "use a classic session, such as --master local[*] or spark://HOST:7077"
