"""`make interop`: checks against Apache Kafka's own code. Prints each check, writes out/interop.json.

    python tests/interop/run.py [WORD...]    only the checks whose name has one of the words

Add a check by adding a module with a list CHECKS to MODULES. A check that needs what this machine lacks is listed as
missing, by name. Exits with 1 when a check failed, or none ran.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
import traceback
from typing import Any

from ottla_testing.interop.checks import OUT, Check, Failed, Missing

MODULES = [
    "definitions",
    "java_sets",
    "java_clients",
    "old_java",
    "apache_kafka",
    "own_admin",
    "own_logins",
    "decisions",
    "coordinators",
    "described_configs",
    "difference",
    "denied",
    "refused_batches",
    "admin_clients",
    "directories",
    "cleaned",
    "mirrored",
    "repaired",
    "lost_directory",
    "java_transactions",
    "histories",
    "streams",
    "streams_groups",
    "transaction_directories",
    "group_directories",
    "dead_letters",
    "other_transactions",
    "own_transactions",
    "pages",
    "scripts",
    "commands",
    "kafka_tools",
    "connect",
    "replayed",
    "other_admins",
    "spark",
    "spark_stored",
    "spark_connect",
    "spark_sink",
    "iceberg_rest",
    "spark_rewritten",
    "spark_moved",
    "top_screen",
    "browsed",
    "secured",
    "kerberos_logins",
    "tls_speed",
    "tokens",
    "delegation_tokens",
    "observing",
]


def run_one(check: Check) -> dict[str, Any]:
    """Returns the outcome of one check as it is printed and written."""
    begun = time.monotonic()
    try:
        outcome, text = "passed", check.run()
    except Missing as missing:
        outcome, text = "missing", str(missing)
    except Failed as failed:
        outcome, text = "failed", str(failed)
    except Exception:
        outcome, text = "failed", traceback.format_exc()
    return {"name": check.name, "outcome": outcome, "seconds": round(time.monotonic() - begun, 1), "text": text}


def write(report: list[dict[str, Any]]) -> dict[str, int]:
    """Writes the report, and returns the number of checks by outcome."""
    counts = {kind: sum(one["outcome"] == kind for one in report) for kind in ("passed", "failed", "missing")}
    OUT.with_suffix(".json").write_text(json.dumps({"counts": counts, "checks": report}, indent=2) + "\n")
    return counts


def main(words: list[str]) -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    checks: list[Check] = [check for name in MODULES for check in importlib.import_module(name).CHECKS]
    report = []
    for check in checks:
        if not words or any(word in check.name for word in words):
            found = run_one(check)
            report.append(found)
            print(f"{found['outcome']:7}  {found['name']} ({found['seconds']} s): {found['text']}", flush=True)
            write(report)  # after each: the whole takes two hours, and a run that was stopped has its checks
    counts = write(report)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
