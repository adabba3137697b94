"""Describes the Python that runs it, in one line: version, whether its build is optimised, path.

    python tests/support/ottla_testing/interpreter.py             CPython 3.11.2, optimised, /usr/bin/python3.11
    python tests/support/ottla_testing/interpreter.py --rank      2 3.11 /usr/bin/python3.11

The second form is for tests/choose_python.sh: rank, version and path, or no line and exit code 1 for an interpreter
that the environment of development cannot be made with. `make` takes the highest rank, then the newest version.
"""

from __future__ import annotations

import platform
import sys
import sysconfig

OLDEST, NEWEST_TRIED = (3, 11), (3, 13)
"""Releases of Python that the tests have passed on; pyproject.toml lists them as classifiers."""

TRACES = ("--enable-optimizations", "--with-lto", "-fprofile-use", "-fno-semantic-interposition")


def optimised() -> bool:
    """Returns whether this Python was built with profile-guided optimisation.

    A distribution's own build, below /usr, counts as optimised: Debian removes the flags from what sysconfig shows.
    """
    names = ("CONFIG_ARGS", "PY_CORE_CFLAGS", "PY_CFLAGS_NODIST")
    found = [str(sysconfig.get_config_var(name) or "") for name in names]
    return sys.base_prefix == "/usr" or any(trace in text for trace in TRACES for text in found)


def described() -> str:
    """Returns implementation, version and build: "CPython 3.11.2, optimised"."""
    build = "optimised" if optimised() else "not optimised"
    return f"{platform.python_implementation()} {platform.python_version()}, {build}"


def rank() -> int:
    """Returns 0 for a release that the tests have not run on, else 1, and 2 if optimised; -1 if no .venv can be made
    with it."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return -1
    if sys.version_info < OLDEST or platform.python_implementation() != "CPython":
        return -1
    if sys.version_info[:2] > NEWEST_TRIED:
        return 0
    return 1 + optimised()


if __name__ == "__main__":
    if sys.argv[1:] != ["--rank"]:
        print(f"{described()}, {sys.executable}")
    elif rank() < 0:
        sys.exit(1)
    else:
        print(rank(), "{}.{}".format(*sys.version_info), sys.executable)
