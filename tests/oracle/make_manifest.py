"""Makes `golden/manifest.sha256`, after another script has replaced data: `python tests/oracle/make_manifest.py`."""

from __future__ import annotations

from ottla_testing.oracle.manifest import MANIFEST, present

if __name__ == "__main__":
    MANIFEST.write_text("".join(f"{digest}  {path}\n" for path, digest in present().items()))
