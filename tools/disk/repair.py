"""`ottla repair`: repairs the damage that `ottla verify` finds; without --apply it only reports the steps.

Owns the command line, the lock, the location of the backup and the printing. The repair itself is
`storage/check/repair.py`. A dry run is the same repair over a copy-on-write view of the disk. Exit code 0; 1 if some
damage cannot be repaired; 2 with one line on stderr for wrong arguments and for a directory in use.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from ...protocol.arguments import Parser
from ...protocol.internal_records.metadata_values import gaps_by_config, number_in, topic_configs, topic_ids
from ...protocol.mistakes import complain
from ...protocol.text import visible
from ...storage import inspect
from ...storage.check.repair import Options, Repair, Step, backup_place, is_data_directory, place_of
from ...storage.errors import StorageError
from ...storage.io.copy_on_write import Overlay, ReadOnlyFiles
from ...storage.io.files import DiskFiles
from ...storage.io.undo_journal import Backup, NoBackup, put_back
from ...storage.log_dir import metadata_log
from ...storage.log_dir.directory import held_lock
from ..command_line import FOUND_DAMAGE, Write, print_text, printing
from ..terminal import Progress
from .verify import mark_of, text_of

PROGRAM = "ottla repair"


def repair(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog=PROGRAM, description="Repair the damage that `ottla verify` finds. Without --apply only report the steps."
    )
    parser.add_argument("directory", metavar="DIR", help="a data directory of Ottla or Apache Kafka, or a partition's")
    parser.add_argument("--apply", action="store_true", help="apply the repair; removed bytes are kept in the backup")
    parser.add_argument(
        "--skip", action="store_true", help="remove damaged ranges of a log and keep the valid batches after them"
    )
    parser.add_argument("--backup", metavar="DIR", help="directory for removed bytes (default: ../ottla-repair-N)")
    parser.add_argument("--undo", metavar="BACKUP", help="undo a repair from its backup")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(list(arguments))
    if parsed.undo is not None and (parsed.apply or parsed.skip or parsed.backup is not None):
        parser.error("--undo can only be combined with --json")
    try:
        root, only = place_of(parsed.directory)
        if not inspect.is_folder(root):
            raise StorageError(f"cannot read {root}: no such directory")
        with held_lock(DiskFiles(), root, may_create=parsed.apply and only is None and is_data_directory(root)):
            if parsed.undo is not None:
                changes = put_back(DiskFiles(), root, os.path.abspath(parsed.undo))
                document = {"directory": root, "undone": changes}
                text = json.dumps(document) if parsed.json else f"{root}: {changes} changes undone"
                return print_text(PROGRAM, text + "\n")
            backup = _backup_place(parsed.directory, root, parsed.backup)
            return _run(parsed, root, only, backup)
    except (StorageError, OSError) as error:
        return complain(PROGRAM, error)


def _backup_place(directory: str, root: str, wanted: str | None) -> str:
    """Returns the path of the backup, not created yet. Raises StorageError for a path in a data directory."""
    if wanted is None:
        return backup_place(directory)
    place = os.path.realpath(wanted)
    above = place
    while os.path.dirname(above) != above:
        if above == os.path.realpath(root) or is_data_directory(above):
            raise StorageError(f"--backup {wanted} is inside the data directory {above}: expected a path outside of it")
        above = os.path.dirname(above)
    if os.path.exists(place) and (not os.path.isdir(place) or os.listdir(place)):
        raise StorageError(f"--backup {wanted} is not empty: expected a new or empty directory")
    return place


def _options(root: str, keep_sound: bool) -> Options:
    """Returns the options of the repair, with topic ids and configs from the directory's metadata log."""
    configs = topic_configs(metadata_log.values(root))

    def interval(topic: str) -> int:
        return number_in((configs or {}).get(topic, {}), "index.interval.bytes", 4096)

    return Options(keep_sound, gaps_by_config(configs), topic_ids(metadata_log.values(root)), interval)


def _run(parsed: argparse.Namespace, root: str, only: str | None, place: str) -> int:
    options = _options(root, parsed.skip)
    report = _report_json if parsed.json else _report
    if not parsed.apply:
        with Overlay(ReadOnlyFiles()) as files:
            backup = NoBackup(files, place, root)
            work = Repair(files, root, backup, options, only)
            return printing(PROGRAM, lambda write: report(work, backup, False, write))
    backup = Backup(DiskFiles(), place, root)
    work = Repair(DiskFiles(), root, backup, options, only)
    lines: list[str] = []  # written at the end: a closed pipe must not stop a repair half way
    try:
        code = report(work, backup, True, lines.append)
    except (StorageError, OSError) as error:
        print_text(PROGRAM, "".join(lines))
        return complain(PROGRAM, error)
    finally:
        backup.close()
    return max(code, print_text(PROGRAM, "".join(lines)))


def _report(work: Repair, backup: Backup, apply: bool, write: Write) -> int:
    write(f"{work.root}: {'repair' if apply else 'dry run, nothing is changed'}\n")
    mended = unmended = 0
    progress = Progress("repair", "files")
    write_step = progress.around(write)
    for step in work.run(progress.each):
        mended, unmended = mended + step.mends, unmended + (not step.mends)
        write_step(f"{mark_of(step.finding)} {text_of(step.finding)}\n    {visible(step.does)}\n")
    if not mended and not unmended:
        write("no damage\n")
    elif apply:
        write(f"{mended} repaired, {unmended} cannot be repaired\n")
        if work.changed:
            write(f"{backup.saved_bytes} bytes kept in {backup.path}; --undo restores them\n")
    else:
        write(f"{mended} to repair, {unmended} cannot be repaired\n")
        if work.changed:
            write(f"--apply repairs, and keeps {backup.saved_bytes} bytes in {backup.path}\n")
    return FOUND_DAMAGE if unmended else 0


def _step_report(step: Step) -> dict[str, object]:
    return {**step.finding._asdict(), "does": step.does}


def _report_json(work: Repair, backup: Backup, apply: bool, write: Write) -> int:
    steps = list(work.run(Progress("repair", "files").each))
    document = {
        "directory": work.root,
        "applied": apply,
        "steps": [_step_report(step) for step in steps if step.mends],
        "cannot_be_mended": [_step_report(step) for step in steps if not step.mends],
        "backup": backup.path if work.changed else None,
        "backup_bytes": backup.saved_bytes,
    }
    write(json.dumps(document, indent=2) + "\n")
    return 0 if all(step.mends for step in steps) else FOUND_DAMAGE
