"""Merges the small files of an export to Delta, those of each day of a partition, topic by topic.

Delta replaces the files of a topic in one transaction that changes no rows (`dataChange` is false, so streams of the
table skip it). A reader sees the old files or the new ones, and so does the next run after an interruption. The numbers
of the export's documents stay in the table. The old files stay for readers of older versions, unless they are deleted.

Owns the folder meanwhile, as an export does, and completes an interrupted commit of one first. Other formats are
refused: plain Parquet has no such transaction, and pyiceberg cannot replace files.

The document of the report's `to_json`: folder, seconds, deleted (how many old files), kept (topics that were created
again, whose files stay as they are), and topics: [{topic, files, bytes, files_after, bytes_after}].
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ....protocol.text import elapsed, plural, size
from ...backend import ReadError, pattern
from ...objects.places import Place
from ..export import arguments
from ..export.commit import Settings, opened, stored
from ..export.delta import DeltaTable, file_sizes
from ..export.manifest import ExportError
from ..export.tasks import FILE_BYTES, Form
from ..report import Report
from ..spark_tasks import Progress, ProgressCallback

_REFUSED = {
    "parquet": "is an export to plain Parquet, whose readers would see rows twice or not at all while files are"
    " replaced: export to a table, with --format delta or iceberg",
    "iceberg": "has an Iceberg table, whose files pyiceberg cannot replace: call Iceberg's own procedure in Spark,"
    " system.rewrite_data_files",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeSettings:
    """The files of `topics`, all without, whose names match the regular expression `like`, become files of about
    `file_bytes`. `delete_old_hours`: files that no version of the table of these last hours has are deleted."""

    topics: Sequence[str] | None = None
    like: str | None = None
    file_bytes: int = FILE_BYTES
    codec: str = "zstd"
    delete_old_hours: int | None = None
    store_conf: Mapping[str, str] | None = None


class TopicFiles(NamedTuple):
    """The files of a topic in the newest version of the table, before and after."""

    topic: str
    files: int
    bytes: int
    files_after: int
    bytes_after: int


@dataclass(slots=True)
class OptimizeReport(Report):
    """The result for the export in a folder. `seconds` is the duration."""

    folder: str
    topics: list[TopicFiles] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    deleted: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": self.folder,
            "seconds": round(self.seconds, 3),
            "deleted": self.deleted,
            "kept": self.kept,
            "topics": [one._asdict() for one in self.topics],
        }

    def lines(self) -> Iterator[str]:
        """Returns a line for each topic, and the total."""
        yield from (
            f"{one.topic}: {plural(one.files, 'file')}, {size(one.bytes)} -> {one.files_after}, {size(one.bytes_after)}"
            for one in self.topics
        )
        yield from (f"{topic}: kept as it is, since it has rows of several generations" for topic in self.kept)
        total, after = sum(one.files for one in self.topics), sum(one.files_after for one in self.topics)
        deleted = f", {plural(self.deleted, 'old file')} deleted" if self.deleted else ""
        yield f"{plural(total, 'file')} -> {after}{deleted} in {elapsed(self.seconds * 1000)}"


def check(folder: str, store_conf: Mapping[str, str]) -> tuple[Settings, Place | None]:
    """Returns the settings of an export to Delta, and its place of objects. Raises ExportError for another folder."""
    place = arguments.objects(folder, store_conf, 0, ())
    settings = stored(folder, place)
    if settings is None:
        raise ExportError(f"{folder} is not the folder of an export")
    if settings.format != "delta":
        raise ExportError(f"{folder} {_REFUSED[settings.format]}")
    return settings, place


def optimize(
    folder: str,
    settings: OptimizeSettings | None = None,
    *,
    dry_run: bool = False,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
) -> OptimizeReport:
    """Merges the files of an export. `dry_run` only makes the plan. Raises ExportError and other ReadErrors, OSError;
    topics that were done before stay so."""
    began = time.monotonic()
    settings = settings or OptimizeSettings()
    of_folder, place = check(folder, settings.store_conf or {})
    report = OptimizeReport(folder)
    options = None if place is None else place.options()
    before = file_sizes(folder, options)
    chosen = _chosen(settings, before, folder)
    if on_plan is not None:
        for topic in chosen:
            number, bytes_ = _amount(before[topic])
            small = sum(len(sizes) > 1 for sizes in before[topic].values())
            on_plan(f"{topic}: {plural(number, 'file')}, {size(bytes_)}, {plural(small, 'day')} with several files")
    if dry_run:
        return report
    with opened(folder, of_folder, Form(format="delta"), place=place) as committer:
        table = committer.table
        assert isinstance(table, DeltaTable)
        todo = [topic for topic in chosen if not committer.manifest.topic(topic).generation]
        all_bytes = sum(_amount(before[topic])[1] for topic in todo)
        done_bytes = 0
        for number, topic in enumerate(todo):
            if on_progress is not None:
                on_progress(Progress(number, len(todo), done_bytes, all_bytes, time.monotonic() - began))
            table.merge_files(topic, settings.file_bytes, settings.codec)
            done_bytes += _amount(before[topic])[1]
        after = file_sizes(folder, options)
        report.topics = [TopicFiles(topic, *_amount(before[topic]), *_amount(after.get(topic, {}))) for topic in todo]
        report.kept = [topic for topic in chosen if topic not in todo]
        if settings.delete_old_hours is not None:
            report.deleted = table.delete_old(settings.delete_old_hours)
    report.seconds = time.monotonic() - began
    if on_progress is not None:
        on_progress(Progress(len(todo), len(todo), all_bytes, all_bytes, report.seconds, ended=True))
    return report


def _chosen(settings: OptimizeSettings, there: Mapping[str, object], folder: str) -> list[str]:
    """Returns the selected topics. Raises ReadError for a named one that the table does not have."""
    if missing := sorted(set(settings.topics or ()) - set(there)):
        raise ReadError(f"there is no topic {', '.join(missing)} in {folder}")
    names, matches = there if settings.topics is None else settings.topics, pattern(settings.like)
    return sorted(name for name in names if matches is None or matches.fullmatch(name))


def _amount(of: Mapping[Any, Sequence[int]]) -> tuple[int, int]:
    """Returns the number of files, and their bytes."""
    return sum(map(len, of.values())), sum(map(sum, of.values()))
