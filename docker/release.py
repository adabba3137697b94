"""`make release VERSION=X.Y.Z`: a release as files and a tag in this checkout. It pushes and uploads nothing.

    python docker/release.py VERSION [--out FOLDER] [--no-containers] [--dry-run]

In a clone of HEAD it sets the version in pyproject.toml, dates the section "Unreleased" of CHANGELOG.md, builds sdist
and wheel, checks them with twine, installs the wheel into an empty environment, writes the list of the installed
components (SBOM, CycloneDX), and builds the image and the wheels with the compiled check of records (cibuildwheel; its
own variables, such as CIBW_MANYLINUX_X86_64_IMAGE, work). Only when all of that succeeded does the checkout get the
commit and the annotated tag vX.Y.Z. With --dry-run it gets neither. Without an engine for containers these wheels and
the image are named as missing; --no-containers leaves them out.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
UNRELEASED = "## [Unreleased]"
RUN = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class Refused(Exception):
    """The release cannot be made; one line."""


def with_version(project: str, version: str) -> str:
    """pyproject.toml with another version of the project. Raises Refused."""
    changed, count = re.subn(r'(?m)^version = "[^"]*"$', f'version = "{version}"', project, count=1)
    if not count:
        raise Refused('pyproject.toml has no line `version = "..."`')
    return changed


def with_section(changes: str, version: str, day: datetime.date) -> str:
    """CHANGELOG.md with the section of this version, and an empty section "Unreleased" before it. Raises Refused."""
    before, found, after = changes.partition(UNRELEASED)
    if not found:
        raise Refused(f"CHANGELOG.md has no section {UNRELEASED}")
    if f"## [{version}]" in changes:
        raise Refused(f"CHANGELOG.md has a section for {version} already")
    body = after.partition("\n## [")[0]
    if not body.strip():
        raise Refused("CHANGELOG.md lists no changes under Unreleased")
    return f"{before}{UNRELEASED}\n\n## [{version}] - {day.isoformat()}{after}"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The output of a program. Raises Refused with its last line if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise Refused(f"{' '.join(str(part) for part in command[:4])}: {lines[-1]}")
    return done.stdout.strip()


def check(version: str) -> None:
    """Refuses a version that is not one, a tag that exists, and a checkout with changes."""
    if not VERSION.fullmatch(version):
        raise Refused(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    if run("git", "tag", "--list", f"v{version}"):
        raise Refused(f"the tag v{version} exists")
    if run("git", "status", "--porcelain"):
        raise Refused("the checkout has changes that are not committed")


def python_of(folder: Path) -> Path:
    """The interpreter of a new, empty environment."""
    venv.create(folder, with_pip=True, clear=True)
    return folder / "bin" / "python"


def build(tree: Path, out: Path, scratch: Path) -> list[Path]:
    """Builds sdist and wheel, checks them, and writes the list of components of an installation."""
    tools = python_of(scratch / "tools")
    run(tools, *RUN, "build", "twine", "cyclonedx-bom")
    run(tools, "-m", "build", "--outdir", out, tree)
    packages = sorted(out.glob("ottla-*"))
    run(tools, "-m", "twine", "check", "--strict", *packages)
    (wheel,) = out.glob("*.whl")
    installed = python_of(scratch / "installed")
    run(installed, *RUN, f"{wheel}[http]")
    if run(scratch / "installed" / "bin" / "ottla", "--version").split()[1] != wheel.name.split("-")[1]:
        raise Refused(f"{wheel.name} installs another version than its name has")
    run(installed, "-m", "pip", "uninstall", "--yes", "--quiet", "pip", "setuptools")
    components = out / wheel.name.replace(".whl", ".cdx.json")
    command = ("-m", "cyclonedx_py", "environment", "--pyproject", tree / "pyproject.toml", "--output-reproducible")
    run(tools, *command, "--output-file", components, installed)
    return [*packages, components]


def working_engine() -> str | None:
    """docker or podman, whichever works here."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True).returncode == 0:
            return name
    return None


def compiled_wheels(sdist: Path, out: Path, scratch: Path, engine: str) -> list[Path]:
    """Builds the wheels of [tool.cibuildwheel] from the sdist, each tested in its container."""
    run(python_of(scratch / "cibuildwheel"), *RUN, "cibuildwheel")
    os.environ.setdefault("CIBW_CONTAINER_ENGINE", engine)
    run(scratch / "cibuildwheel" / "bin" / "cibuildwheel", "--platform", "linux", "--output-dir", out, sdist)
    return sorted(out.glob("ottla-*-cp*.whl"))


def image(tree: Path, version: str, engine: str) -> str:
    """Builds the image ottla:VERSION, and returns one line about it."""
    run(engine, "build", "--file", tree / "docker" / "Dockerfile", "--tag", f"ottla:{version}", tree)
    return f"image ottla:{version}, built with {engine}"


def release(version: str, out: Path, *, has_containers: bool, is_dry: bool) -> None:
    """Makes the release. Raises Refused; then the checkout is as it was."""
    check(version)
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("ottla-*"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="ottla-release-") as scratch_name:
        scratch = Path(scratch_name)
        tree = scratch / "tree"
        run("git", "clone", "--quiet", "--no-hardlinks", ROOT, tree)
        edits = {
            "pyproject.toml": with_version((tree / "pyproject.toml").read_text(), version),
            "CHANGELOG.md": with_section((tree / "CHANGELOG.md").read_text(), version, datetime.date.today()),
        }
        for name, text in edits.items():
            (tree / name).write_text(text)
        packages = build(tree, out, scratch)
        engine = working_engine() if has_containers else None
        if engine is not None:
            (sdist,) = out.glob("*.tar.gz")
            packages += compiled_wheels(sdist, out, scratch, engine)
        for path in packages:
            print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
        if engine is not None:
            print(image(tree, version, engine))
        elif has_containers:
            print("missing: the compiled wheels and the image (neither docker nor podman works here)")
        else:
            print("left out: the compiled wheels and the image")
    if is_dry:
        print("dry run: no commit, no tag")
        return
    for name, text in edits.items():
        (ROOT / name).write_text(text)
    run("git", "commit", "--quiet", "--message", f"release: {version}", "--", *edits)
    run("git", "tag", "--annotate", f"v{version}", "--message", f"Ottla {version}")
    print(f"tagged v{version}; nothing was pushed or uploaded")


def main(arguments: list[str]) -> int:
    """The command; 1 and one line on stderr if the release was refused."""
    parser = argparse.ArgumentParser(prog="release.py", description="Makes a release in this checkout.")
    parser.add_argument("version")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "release", help="where the files go")
    parser.add_argument("--no-containers", action="store_true", help="leave out the compiled wheels and the image")
    parser.add_argument("--dry-run", action="store_true", help="make the files, but neither commit nor tag")
    given = parser.parse_args(arguments)
    try:
        release(given.version, given.out.resolve(), has_containers=not given.no_containers, is_dry=given.dry_run)
    except Refused as refused:
        print(f"release: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
