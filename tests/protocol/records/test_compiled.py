"""The compiled check of records, as the image has it: the tests of this folder pass with it, too."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = ("test_walk", "test_plain", "test_batch", "test_validate", "test_validate_releases", "test_refused_batches")
PROGRAM = """
import importlib.util, sys
import ottla.protocol.records
spec = importlib.util.spec_from_file_location("ottla.protocol.records.walk", sys.argv[1])
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
ottla.protocol.records.walk = module
assert module.IS_COMPILED
try:
    module.whole_from([], 0, 0, 0, 0, 0, False)
except TypeError:
    pass
else:
    sys.exit("compiled without the types of walk.pxd")
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


@pytest.mark.slow
@pytest.mark.process
def test_tests_of_records_pass_with_the_compiled_module(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT / "protocol", source / "protocol", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.py", source)
    arguments = ["setup.py", "--quiet", "build_ext", "--build-lib", "built", "--build-temp", "temp"]
    environ = {**os.environ, "OTTLA_COMPILE": "1"}
    built = subprocess.run(
        [sys.executable, *arguments], cwd=source, env=environ, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    (module,) = source.glob("built/ottla/protocol/records/walk*.so")
    files = [str(ROOT / "tests" / "protocol" / "records" / f"{name}.py") for name in TESTS]
    outcome = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(module), *files],
        cwd=ROOT,
        env={**os.environ, "OTTLA_TEST_SCALE": "0.1"},  # the same laws run with the plain module
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:] + outcome.stderr[-2000:]
    assert " passed" in outcome.stdout
