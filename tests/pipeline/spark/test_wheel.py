"""The installed wheel `ottla[pipeline]` in a fresh session: no register call, the Java of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla_testing import ROOT

# The programs that Spark's own scripts call, without `java`.
PROGRAMS = ("bash", "basename", "cat", "dirname", "env", "ps", "readlink", "sed", "sh", "uname")
PROGRAM = """
import os, sys
from pyspark.sql import SparkSession
import ottla.pipeline.java as java

site, path = sys.argv[1:]
assert java.__file__.startswith(site), java.__file__
found = java.find(os.environ)
os.environ |= {"JAVA_HOME": str(java.spark_home()), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate()
runs = spark._jvm.System.getProperty("java.home")
assert runs == str(found.home) and not found.has_vector, (runs, found)
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "path": path}
for name, needs in {"ottla": "kafka.bootstrap.servers", "ottla_batches": "path"}.items():
    assert "topic" in spark.read.format(name).option(needs, options[needs]).load().columns
print(spark.read.format("ottla_log").load(path).where("topic = 'orders' AND partition = 1").count())
spark.stop()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the contents of the built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "data", "out", "tests")
    source = shutil.copytree(ROOT, folder / "source", ignore=ignored)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    build = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    built = subprocess.run(build, capture_output=True, text=True, cwd=folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("ottla-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_spark_finds_the_sources_of_the_wheel(site: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    for program in PROGRAMS:
        if found := shutil.which(program):
            (bare / program).symlink_to(found)
    environ = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environ |= {"PATH": str(bare), "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    data = tmp_path / "data"
    with Embedded(data_dir=data) as broker:
        broker.create_topic("orders", partitions=2)
        for number in range(8):
            broker.send("orders", str(number), partition=number % 2)
    command = [sys.executable, "-P", "-c", PROGRAM, str(site), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "4"
    (made,) = (tmp_path / "cache" / "ottla").iterdir()
    assert made.name.startswith("java-")
