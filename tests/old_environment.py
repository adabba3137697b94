"""`.venv-old`: an environment of its own for clients too old to stand beside the new ones, kafka-python 2.0.2.

    python tests/old_environment.py     makes it, unless it is there

The Makefile runs this before the tests; a test that is run alone calls `old_python()`, which does the same.
"""

from __future__ import annotations

import fcntl
import subprocess
import venv
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".venv-old"
# six in place of the one bundled with kafka-python 2.0.2, which fails from Python 3.12 on; the others are for its
# codecs, xxhash for the lz4 header of v0.
PACKAGES = ("kafka-python==2.0.2", "six==1.17.0", "python-snappy==0.7.3", "lz4==4.4.4", "xxhash==3.5.0")


def old_python() -> Path:
    """The interpreter of `.venv-old`, which is made first if it is not there or holds something else."""
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


if __name__ == "__main__":
    old_python()
