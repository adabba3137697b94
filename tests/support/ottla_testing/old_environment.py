"""Environments for clients that cannot stand in `.venv`: `.venv-old` for kafka-python 2.0.2, `.venv-node` for kafkajs.

    python -m ottla_testing.old_environment             makes the first, unless it is there
    python -m ottla_testing.old_environment kafkajs     makes the second, where there is npm

The Makefile runs both before the tests. A test that is run alone makes the first itself, by `old_python()`; kafkajs is
used where it is, and named as not run elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from ottla_testing import ROOT

FOLDER = ROOT / ".venv-old"
NODE_MODULES = ROOT / ".venv-node" / "node_modules"
# six in place of the one bundled with kafka-python 2.0.2, which fails from Python 3.12 on; the others are for its
# codecs, xxhash for the lz4 header of v0.
PACKAGES = ("kafka-python==2.0.2", "six==1.17.0", "python-snappy==0.7.3", "lz4==4.4.5", "xxhash==3.6.0")
NODE_PACKAGES = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0")


def old_python() -> Path:
    """Returns the interpreter of `.venv-old`, which is made first if it is not there or holds something else."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed"
    wanted = " ".join(PACKAGES)
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not stamp.exists() or stamp.read_text() != wanted:
            venv.create(FOLDER, clear=True, with_pip=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
            done = subprocess.run(install, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{wanted} could not be installed into {FOLDER.name}: {done.stderr}")
            stamp.write_text(wanted)
    return python


def has_kafkajs() -> bool:
    """Returns whether kafkajs and the program that runs it are here."""
    return shutil.which("node") is not None and (NODE_MODULES / "kafkajs" / "package.json").exists()


def in_node(source: Path, address: str, folder: Path) -> str | None:
    """Returns the output of a program of the documentation that uses kafkajs, at a broker; None where it is missing.

    `folder` is the working directory. Raises AssertionError with the program's errors.
    """
    if not has_kafkajs():
        return None
    program = folder / source.name
    program.write_text(source.read_text().replace("127.0.0.1:9093", address))
    environ = {**os.environ, "NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    done = subprocess.run(["node", program], capture_output=True, text=True, cwd=folder, env=environ, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install_kafkajs() -> str:
    """Installs kafkajs unless it is there; what is missing, or ""."""
    if has_kafkajs():
        return ""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "no node and npm here"
    NODE_MODULES.parent.mkdir(exist_ok=True)
    (NODE_MODULES.parent / "package.json").write_text("{}")
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *NODE_PACKAGES]
    done = subprocess.run(install, capture_output=True, text=True, cwd=NODE_MODULES.parent, timeout=300)
    return "" if has_kafkajs() else f"npm could not install it: {done.stderr.strip()[-200:]}"


if __name__ == "__main__":
    if sys.argv[1:] == ["kafkajs"]:
        missing = install_kafkajs()
        print(f"kafkajs: not run ({missing})" if missing else "kafkajs: installed")
    else:
        old_python()
