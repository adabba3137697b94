"""`make compose-test`: the image built and run for real. Prints each check, writes out/compose-test.json.

    python tests/containers/run.py [WORD...]    only the checks whose name has one of the words, with the image built

Exits with 1 when a check failed or none ran. What this machine lacks is listed as missing, by name.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import Any

import compose
import image_checks
import modules
from engine import ROOT, Gone, find, write_json
from image_checks import Figures

from ottla_testing.interop.checks import Check, Failed, Missing

REPORT = ROOT / "out" / "compose-test.json"


def run_one(check: Check) -> dict[str, Any]:
    """Returns the outcome of one check as it is printed and written."""
    begun = time.monotonic()
    try:
        outcome, text = "passed", check.run()
    except Missing as missing:
        outcome, text = "missing", str(missing)
    except (Failed, Gone) as failed:
        outcome, text = "failed", str(failed)
    except Exception:
        outcome, text = "failed", traceback.format_exc()
    return {"name": check.name, "outcome": outcome, "seconds": round(time.monotonic() - begun, 1), "text": text}


def main(words: list[str]) -> int:
    engine = find()
    if engine is None:
        print("compose-test: nothing ran, there is neither a working docker nor podman here")
        return 1
    figures = Figures()
    checks = [
        *image_checks.checks(engine, figures),
        *modules.checks(engine),
        *compose.checks(engine, figures),
    ]
    report = []
    try:
        for check in checks:
            if not words or check is checks[0] or any(word in check.name for word in words):
                found = run_one(check)
                report.append(found)
                print(f"{found['outcome']:7}  {found['name']} ({found['seconds']} s): {found['text']}", flush=True)
                engine.remove_all()
                if check is checks[0] and found["outcome"] != "passed":
                    break  # the others are of this image
    finally:
        engine.remove_all()
    counts = {kind: sum(one["outcome"] == kind for one in report) for kind in ("passed", "failed", "missing")}
    result = {"engine": engine.program, "figures": figures.result(), "counts": counts, "checks": report}
    write_json(REPORT, result)
    for name, value, aim in figures.rows():
        print(f"{name}: {value}" + (f" (aim {aim})" if aim else ""))
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
