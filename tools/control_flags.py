"""The flags of the commands that call a control plane: its address, its token, and how its certificate is checked.

Apart from `http_client.py`, whose import takes longer than the rest of a command line.
"""

from __future__ import annotations

import argparse

from ..broker.config.control_access import CA_VARIABLE, TOKEN_FILE_FLAG, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE

VARIABLE = "OTTLA_CONTROL"  # environment variable: the address unless --control gives one


def add_control_flags(parser: argparse.ArgumentParser) -> None:
    """Adds them all."""
    parser.add_argument("--control", metavar="URL", help=f"address of the control plane (default: {VARIABLE})")
    add_access_flags(parser)


def add_access_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the control plane's token and its certificate authority."""
    parser.add_argument(
        TOKEN_FILE_FLAG,
        metavar="FILE",
        help=f"file with the token of the control plane (default: the token of {TOKEN_VARIABLE}, or of the file "
        f"{TOKEN_FILE_VARIABLE})",
    )
    parser.add_argument(
        "--control-ca",
        metavar="FILE",
        help=f"certificates that an https address is checked with, PEM (default: {CA_VARIABLE}, or the system's)",
    )
