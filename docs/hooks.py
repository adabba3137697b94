"""Hooks of the build of the documentation: the packages for the Python reference, and no loads from a network.

The packages at the top of the repository install as the namespace `ottla`. mkdocstrings reads source files without
importing them, so it gets a folder in which they lie under that name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / "out" / "docs-packages" / "ottla"
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//"""
    r"""|<link[^>]*\srel=["']?(?:stylesheet|preconnect)[^>]*//"""
)


def on_startup(command: str, dirty: bool) -> None:
    """Links each package into `out/docs-packages/ottla`, before mkdocstrings looks for the folder."""
    PACKAGES.mkdir(parents=True, exist_ok=True)
    for name in ("protocol", "storage", "broker", "client", "pipeline", "tools"):
        link = PACKAGES / name
        if not link.is_symlink():
            link.symlink_to(ROOT / name, target_is_directory=True)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Fails the build if a page loads a script, a style or an image from another host; Mermaid would be one."""
    if (found := _LOADED.search(output)) or 'class="mermaid"' in output:
        raise PluginError(f"{page.file.src_uri} loads from another host: {found[0] if found else 'Mermaid'}")
    return output
