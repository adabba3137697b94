"""`ottla verify`: checks a data directory and lists its damage with file, byte position and offset.

Owns the command line and the printing; the checks are in `storage/check/`. It takes no lock and writes nothing, so it
works while a broker runs. Exit code 0; 1 for damage; 2 for wrong arguments.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from ...broker.trace.tracer import quoted
from ...protocol.arguments import Parser
from ...protocol.internal_records.layouts import problem_of
from ...protocol.internal_records.metadata_values import gaps_by_config, topic_configs, topic_ids
from ...protocol.limits import INT32_MAX
from ...protocol.mistakes import complain
from ...protocol.text import elapsed, plural, speed
from ...storage.check.directory import Finding, Verification
from ...storage.errors import StorageError
from ...storage.log_dir import metadata_log
from ..command_line import FOUND_DAMAGE, Write, number, printing
from ..terminal import GREEN, RED, YELLOW, Progress, painted

PROGRAM = "ottla verify"


def verify(arguments: Sequence[str]) -> int:
    parser = Parser(prog=PROGRAM, description="Check a data directory: batches, indexes, snapshots, checkpoints.")
    parser.add_argument("directory", metavar="DIR", help="a data directory of Ottla or of Apache Kafka")
    parser.add_argument("--topic", help="only this topic")
    parser.add_argument("--partition", type=number(INT32_MAX), help="only this partition")
    parser.add_argument("--records", action="store_true", help="decompress every batch and check its records")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(list(arguments))

    def chosen(topic: str, partition: int) -> bool:
        return parsed.topic in (None, topic) and parsed.partition in (None, partition)

    try:
        verification = Verification(
            parsed.directory,
            deep=parsed.records,
            may_have_gaps=gaps_by_config(topic_configs(metadata_log.values(parsed.directory))),
            chosen=chosen,
            check=problem_of,
            topic_ids=lambda: topic_ids(metadata_log.values(parsed.directory)),
        )
    except StorageError as error:
        return complain(PROGRAM, error)
    is_limited = (parsed.topic, parsed.partition) != (None, None)
    if is_limited and not any(chosen(folder.topic, folder.partition) for folder in verification.folders):
        return complain(PROGRAM, f"{parsed.directory} has no partition that matches --topic and --partition")
    print_it = _print_json if parsed.json else _print_text
    return printing(PROGRAM, lambda write: print_it(verification, write))


def mark_of(finding: Finding) -> str:
    """Returns the first character of a finding's line: `!` for damage, `-` for a note."""
    return painted("!", RED) if finding.wrong else painted("-", YELLOW)


def text_of(finding: Finding) -> str:
    return quoted(f"{finding.where}: {finding.what}")[1:-1]


def _print_text(verification: Verification, write: Write) -> int:
    began, report, wrong = time.monotonic(), verification.report, 0
    write(f"{verification.root}: {'closed cleanly' if report.clean else 'not closed cleanly, or in use'}\n")
    progress = Progress("verify", "partitions")
    write_line = progress.around(write)
    for finding in verification.findings(progress.each):
        wrong += finding.wrong
        write_line(f"{mark_of(finding)} {text_of(finding)}\n")
    seconds = max(time.monotonic() - began, 1e-6)
    amounts = f"{report.partitions} partitions, {report.segments} segments, {report.bytes} bytes"
    write(f"{amounts} in {elapsed(seconds * 1000)}, {speed(report.bytes, seconds)}\n")
    write((painted(plural(wrong, "error"), RED) if wrong else painted("no errors", GREEN)) + "\n")
    return FOUND_DAMAGE if wrong else 0


def _print_json(verification: Verification, write: Write) -> int:
    began = time.monotonic()
    found = list(verification.findings(Progress("verify", "partitions").each))
    seconds = max(time.monotonic() - began, 1e-6)
    report = verification.report
    entries = [finding._asdict() for finding in found]
    for one in entries:
        del one["wrong"]
    wrong = [one for one, finding in zip(entries, found, strict=True) if finding.wrong]
    document = {
        "directory": verification.root,
        "clean": report.clean,
        "partitions": report.partitions,
        "segments": report.segments,
        "bytes": report.bytes,
        "seconds": round(seconds, 3),
        "mb_per_s": round(report.bytes / seconds / 1e6, 1),
        "wrong": wrong,
        "notes": [one for one, finding in zip(entries, found, strict=True) if not finding.wrong],
    }
    write(json.dumps(document, indent=2) + "\n")
    return FOUND_DAMAGE if wrong else 0
