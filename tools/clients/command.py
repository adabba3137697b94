"""`ottla clients`: the clients that a broker has seen, their calls, and which of these another release would refuse.

Owns the printing and the exit code. It reads the file `ottla-clients.json` alone, so it works while the broker runs.
The broker writes new clients and calls to it within a second, times every ten minutes, and everything when it stops.
Exit code 0; 1 if a call fails on the release of --release; 2 with one line on stderr for an unknown release or a
directory without the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from ...broker.metrics.client_ledger import FILE_NAME, DamagedFile, Seen, SeenClient, read
from ...broker.releases.profiles import Profile, UnknownRelease, profile
from ...broker.trace.tracer import quoted
from ...protocol.api_key import ApiKey
from ...protocol.arguments import Parser
from ...protocol.mistakes import complain
from ...protocol.text import moment, table
from ...storage.format.file_names import META_PROPERTIES
from ...storage.io.files import DiskFiles
from ..command_line import Write, printing
from ..release_table import api_name
from .rules import Verdict, fetched_magic, format_name, verdicts

SOME_FAIL = 1
HEAD = ("CLIENT ID", "SOFTWARE", "LISTENER", "NEGOTIATES", "LAST SEEN (UTC)")
OTHERS = "(all others)"
COLUMN_MAX = 40  # characters; a longer cell shifts its own line only

Judged = list[tuple[SeenClient, list[Verdict]]]


def clients(arguments: Sequence[str]) -> int:
    """`ottla clients`: prints the clients and returns the exit code."""
    parser = Parser(
        prog="ottla clients",
        description="List the clients that a broker has seen, and which calls fail on another release of Kafka.",
        allow_abbrev=False,
    )
    parser.add_argument("directory", metavar="DIR", help="the broker's data directory, the first if it has several")
    parser.add_argument(
        "--release", dest="judge", metavar="X", help="check all calls against this release, such as 4.0"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse_args(list(arguments))
    try:
        on = None if parsed.judge is None else profile(parsed.judge)
        seen = _read(parsed.directory)
    except (UnknownRelease, DamagedFile, OSError) as error:
        return complain(parser.prog, error)
    ordered = sorted(seen.clients.values(), key=_order)
    judged = [(client, list(verdicts(client, on)) if on else []) for client in ordered]
    print_it = _print_json if parsed.json else _print_text
    if code := printing(parser.prog, lambda write: print_it(seen, judged, on, write)):
        return code
    # Also if the reader of a pipe closed it early.
    return SOME_FAIL if any(_failures(found) for _, found in judged) else 0


def _read(directory: str) -> Seen:
    """Reads the ledger of a directory. Raises DamagedFile, or OSError with a text for the user."""
    path = os.path.join(directory, FILE_NAME)
    try:
        return read(DiskFiles(), path)
    except FileNotFoundError:
        if os.path.exists(os.path.join(directory, META_PROPERTIES)):
            return Seen()  # no client has connected yet
        missing = f"{directory} has no {FILE_NAME}: expected the data directory of an Ottla broker"
        raise OSError(missing if os.path.isdir(directory) else f"no such directory: {directory}") from None
    except NotADirectoryError:
        raise OSError(f"not a directory: {directory}") from None


def _order(client: SeenClient) -> tuple[Any, ...]:
    return (
        client.client_id is None,
        client.client_id or "",
        client.software_name or "",
        client.software_version or "",
        client.listener,
        client.negotiates_versions,
    )


def _failures(found: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in found if verdict.outcome == "fails"]


def _calls(client: SeenClient, refused: bool = False) -> list[str]:
    """Returns texts such as `Fetch v4, v12`, one for each API: of all calls, or of the refused ones."""
    by_key: dict[int, list[int]] = {}
    for (api_key, version), use in sorted(client.calls.items(), key=lambda item: item[0]):
        if not refused or use.refused_ms is not None:
            by_key.setdefault(api_key, []).append(version)
    return [
        f"{api_name(api_key)} {', '.join(f'v{version}' for version in versions)}"
        for api_key, versions in by_key.items()
    ]


def _writes(client: SeenClient) -> list[str]:
    return [format_name(*key) for key in sorted({(magic, codec) for _, magic, codec in client.produced})]


def _reads(client: SeenClient) -> list[str]:
    fetched = {fetched_magic(version) for key, version in client.calls if key == ApiKey.FETCH}
    return [f"up to v{magic}" for magic in sorted(fetched)]


def _text(text: str) -> str:
    return quoted(text)[1:-1]


def _software(client: SeenClient) -> str:
    if client.software_name is None:
        return "-"
    return _text(f"{client.software_name} {client.software_version or ''}".rstrip())


def _print_text(seen: Seen, judged: Judged, on: Profile | None, write: Write) -> None:
    rows: list[tuple[str, ...]] = []
    for client, _ in judged:
        name = OTHERS if client.client_id is None else quoted(client.client_id)
        negotiates = "yes" if client.negotiates_versions else "no"
        rows.append((name, _software(client), _text(client.listener), negotiates, moment(client.last_seen_ms)))
    # A very long client id must not push the other columns of all rows off the screen.
    lines = table(rows, HEAD, most=COLUMN_MAX)
    write(lines[0])
    for line, (client, found) in zip(lines[1:], judged, strict=True):
        write(line)
        for title, items in (
            ("calls", _calls(client)),
            ("writes", _writes(client)),
            ("reads", _reads(client)),
            ("refused here", _calls(client, refused=True)),
            ("authenticated as", [_text(principal) for principal in sorted(client.principals)]),
        ):
            if items:
                write(f"  {title}: {'; '.join(items)}\n")
        for verdict in found:
            if verdict.outcome == "fails":
                write(f"  ! {verdict.what} fails: {verdict.reason}. What to do: {verdict.advice}.\n")
            elif verdict.outcome == "negotiates":
                write(f"  > {verdict.what}: {verdict.reason}; {verdict.advice}.\n")
    if not judged:
        write("(no clients yet)\n")
    write("\n" + "".join(f"{line}\n" for line in _summary(seen, judged, on)))


def _summary(seen: Seen, judged: Judged, on: Profile | None) -> list[str]:
    if not seen.written_ms:
        return ["No Ottla broker has seen a client in this directory."]
    lines = [f"As of {moment(seen.written_ms)}." + (" Only calls that were seen are checked." if on else "")]
    if on:
        failing = [found for _, found in judged if _failures(found)]
        count = sum(len(_failures(found)) for found in failing)
        lines.append(
            f"On {on.name} {count} {'call fails' if count == 1 else 'calls fail'},"
            f" of {len(failing)} of {len(judged)} {'client' if len(judged) == 1 else 'clients'}."
            if count
            else f"On {on.name} none of these calls fails."
        )
    if not seen.complete:
        lines.append(f"Too many clients or calls to list each one: the rest is counted in {OTHERS}.")
    return lines


def _print_json(seen: Seen, judged: Judged, on: Profile | None, write: Write) -> None:
    report: dict[str, Any] = {
        "written_ms": seen.written_ms,
        "complete": seen.complete,
        "release": on.name if on else None,
        "failures": sum(len(_failures(found)) for _, found in judged) if on else None,
        "clients": [_client_report(client, found) for client, found in judged],
    }
    write(json.dumps(report, indent=2) + "\n")


def _client_report(client: SeenClient, found: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "client_id": client.client_id,
        "software_name": client.software_name,
        "software_version": client.software_version,
        "listener": client.listener,
        "asks_versions": client.negotiates_versions,
        "principals": sorted(client.principals),
        "first_seen_ms": client.first_seen_ms,
        "last_seen_ms": client.last_seen_ms,
        "calls": [
            {
                "api": api_name(api_key),
                "api_key": api_key,
                "version": version,
                "first_seen_ms": use.first_seen_ms,
                "last_seen_ms": use.last_seen_ms,
                "refused_ms": use.refused_ms,
            }
            for (api_key, version), use in sorted(client.calls.items(), key=lambda item: item[0])
        ],
        "writes": _writes(client),
        "reads": _reads(client),
        "verdicts": [verdict._asdict() for verdict in found if verdict.outcome != "works"],
    }
