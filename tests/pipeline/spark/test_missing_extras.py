"""The package without pyspark or its dependencies: its imports, and the error that names the extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = sys.argv[1].split()
sys.meta_path.insert(0, Absent())
"""
PROGRAM = """
import ottla.pipeline
assert "pyspark" not in sys.modules and "pyarrow" not in sys.modules
try:
    ottla.pipeline.session
except ImportError as error:
    print(type(error).__name__, error, isinstance(error, ottla.pipeline.SetupError))
else:
    from ottla.pipeline import register, session
    import ottla.pipeline.session as module  # does not take the function's place
    print(callable(session), callable(register), ottla.pipeline.session is session)
"""


@pytest.mark.parametrize(
    ("absent", "outcome"),
    [
        ("pyspark", "MissingExtra this needs pyspark, which is not installed: pip install 'ottla[pipeline]' True"),
        ("py4j", "MissingExtra this needs py4j, which is not installed: pip install 'ottla[pipeline]' True"),
        ("", "True True True"),
    ],
)
def test_missing_extra_named_on_use(absent: str, outcome: str) -> None:
    command = [sys.executable, "-c", WITHOUT + PROGRAM, absent]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (outcome, "")


FOUND = """
import pyspark_ottla, pyspark_ottla_batches, pyspark_ottla_log
for module in (pyspark_ottla, pyspark_ottla_batches, pyspark_ottla_log):
    print(module.DefaultSource.name() if hasattr(module, "DefaultSource") else None)
"""


@pytest.mark.parametrize(
    ("absent", "names"),
    [("", ["ottla", "ottla_batches", "ottla_log"]), ("pyarrow", ["None"] * 3), ("pyspark pyarrow", ["None"] * 3)],
)
def test_pyspark_ottla_modules_import_without_extras(absent: str, names: list[str]) -> None:
    """Spark imports all modules called `pyspark_...`: a failing one would disable every Python source."""
    done = subprocess.run([sys.executable, "-c", WITHOUT + FOUND, absent], capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (names, "")
