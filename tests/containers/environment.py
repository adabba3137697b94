"""`.venv-compose`: Testcontainers for Python and a client, apart from what the tests of the checkout use.

python tests/containers/environment.py      makes it, unless it is there
"""

from __future__ import annotations

import shutil
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-compose"
NODE_FOLDER = ROOT / ".venv-compose-node"
# packaging is used by testcontainers 4.15.0, which does not declare it.
PACKAGES = ("testcontainers==4.15.0", "packaging>=24", "confluent-kafka>=2.8")
NODE_PACKAGES = ("@testcontainers/kafka@11.14.0", "kafkajs@2.2.4")  # 12 needs a newer Node.js than many have


def compose_python() -> tuple[str, Path]:
    """Returns (what is missing or "", its interpreter); makes the environment if it is missing or outdated."""
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


def compose_node() -> tuple[str, Path]:
    """Returns (what is missing or "", its folder); installs the packages if they are missing or outdated."""
    stamp = NODE_FOLDER / "installed"
    wanted = " ".join(NODE_PACKAGES)
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "no node and npm here", NODE_FOLDER
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(NODE_FOLDER, ignore_errors=True)
        NODE_FOLDER.mkdir()
        (NODE_FOLDER / "package.json").write_text("{}")
        install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *NODE_PACKAGES]
        done = subprocess.run(install, capture_output=True, text=True, cwd=NODE_FOLDER)
        if done.returncode:
            return f"{wanted} could not be installed: {(done.stdout + done.stderr).strip()[-300:]}", NODE_FOLDER
        stamp.write_text(wanted)
    return "", NODE_FOLDER
