"""The settings of a session before it starts: local, on a cluster, under spark-submit; starts no Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline import java
from ottla.pipeline.session import LOGGING, SUBMITTED, is_local, settings, variables

PUSHDOWN = {"spark.sql.python.filterPushdown.enabled": "true"}


def settings_of(master: str | None = None, environ: dict[str, str] | None = None, **conf: Any) -> dict[str, str]:
    return settings(master, conf, environ or {}, terminal=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(java, "spark_home", lambda _: tmp_path)
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    return str(tmp_path)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*,3]"])
def test_local_session_uses_loopback(master: str) -> None:
    assert is_local(master)
    assert settings_of(master) == {
        **PUSHDOWN,
        "spark.master": master,
        "spark.ui.showConsoleProgress": "false",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "ottla.pipeline.worker_daemon",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    }
    assert LOGGING.exists()


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_cluster_session_has_no_local_settings(master: str, home: str) -> None:
    assert not is_local(master)
    found = settings_of(master)
    assert found == {**PUSHDOWN, "spark.master": master, "spark.ui.showConsoleProgress": "false"}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert variables(found, {}) == {**python, "JAVA_HOME": home}


def test_spark_submit_settings_kept() -> None:
    environ = {SUBMITTED: "1"}
    assert settings_of(environ=environ) == PUSHDOWN
    assert settings_of("yarn", environ, a=1) == {**PUSHDOWN, "spark.master": "yarn", "a": "1"}
    own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert variables(PUSHDOWN, environ) == own  # without it the workers start any `python3`
    chosen = {"PYSPARK_PYTHON": "/w/python", "PYSPARK_DRIVER_PYTHON": "/d/python"}
    assert variables(PUSHDOWN, environ | chosen) == chosen
    assert variables(PUSHDOWN | {"spark.pyspark.python": "/c/python"}, environ)["PYSPARK_PYTHON"] == "/c/python"


def test_caller_settings_override() -> None:
    options: dict[str, Any] = {"spark.driver.extraJavaOptions": "-Da=b", "spark.ui.enabled": True}
    found = settings_of("local[3]", **options)
    assert found["spark.master"] == "local[3]"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.driver.extraJavaOptions"].endswith("log4j2.properties -Da=b")
    assert settings(None, {"spark.master": "yarn"}, {}, terminal=False)["spark.master"] == "yarn"
    assert settings("local[1]", {"spark.master": "yarn"}, {}, terminal=False)["spark.master"] == "local[1]"
    assert settings_of()["spark.master"] == "local[*]"
    assert settings(None, {}, {}, terminal=True)["spark.ui.showConsoleProgress"] == "true"


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_configured_log4j_kept(variable: str, tmp_path: Path) -> None:
    folder = tmp_path / "conf" if variable == "SPARK_HOME" else tmp_path
    folder.mkdir(exist_ok=True)
    assert "spark.driver.extraJavaOptions" in settings_of(environ={variable: str(tmp_path)})
    (folder / "log4j2.properties").write_text("")
    assert "spark.driver.extraJavaOptions" not in settings_of(environ={variable: str(tmp_path)})


def test_environment_variables_kept(home: str) -> None:
    local = settings_of("local[1]")
    own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert variables(local, {}) == {**own, "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": home}
    other = {"PYSPARK_PYTHON": "python3.12", "SPARK_LOCAL_IP": "10.0.0.1"}
    found = variables(local, other)
    assert found == {"PYSPARK_PYTHON": "python3.12", "PYSPARK_DRIVER_PYTHON": "python3.12", "JAVA_HOME": home}
