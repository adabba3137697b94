"""`.venv-compose`: Testcontainers for Python and a client, apart from what the tests of the checkout use.

python tests/containers/environment.py      makes it, unless it is there
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-compose"
# packaging is used by testcontainers 4.15.0, which does not say so.
PACKAGES = ("testcontainers==4.15.0", "packaging>=24", "confluent-kafka>=2.8")


def compose_python() -> tuple[str, Path]:
    """(what is missing or "", its interpreter); it is made first if it is not there or holds something else."""
    python, stamp = FOLDER / "bin" / "python", FOLDER / "installed"
    wanted = " ".join(PACKAGES)
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(FOLDER, clear=True, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            return f"{wanted} could not be installed: {done.stderr.strip()[-300:]}", python
        stamp.write_text(wanted)
    return "", python


if __name__ == "__main__":
    problem, _ = compose_python()
    if problem:
        print(problem, file=sys.stderr)
