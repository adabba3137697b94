"""`ottla clients`: the clients that a broker has seen, their calls, and which of these another release would refuse.

Owns the printing and the exit code. It reads the file `ottla-clients.json` alone, so it works while the broker runs.
The broker writes new clients and calls to it within a second, times every ten minutes, and everything when it stops.
Exit code 0; 1 if a call fails on the release of --release; 2 with one line on stderr for an unknown release or a
directory without the file.

The rules by which a call fails judge the calls that were seen: another call of the same client may still fail.

* A call fails if the release does not have its API.
* A call fails if its version is below those that the release serves. Served, not advertised: Produce v0-v2 fail on 4.x.
  Exception: the client negotiates versions (ApiVersions) and the broker that saw the call offered no newer version, as
  under an old release profile. The client may then support a newer one.
* A call fails if its version is above those served, unless the client negotiates versions: then it uses a lower one.
  A release before 0.10.0 has no ApiVersions, so that request fails, too.
* Records fail in a format that the release does not have or does not accept in that version of Produce. With zstd they
  fail if the version of Produce, the one used or the one negotiated, is below v7.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from ..broker.metrics.client_ledger import FILE_NAME, CallUse, DamagedFile, Format, Seen, SeenClient, read
from ..broker.releases.profiles import NEWEST, OWN, RELEASES, Profile, UnknownRelease, profile
from ..broker.trace.tracer import quoted
from ..protocol.api_key import ApiKey
from ..protocol.arguments import Parser
from ..protocol.mistakes import complain
from ..protocol.named import NamedTuple
from ..protocol.records.compression import CODEC_NAMES, Codec
from ..protocol.text import moment, table
from ..storage.format.file_names import META_PROPERTIES
from ..storage.io.files import DiskFiles
from .command_line import Write, printing
from .release_table import api_name, range_text

SOME_FAIL = 1
HEAD = ("CLIENT ID", "SOFTWARE", "LISTENER", "NEGOTIATES", "LAST SEEN (UTC)")
OTHERS = "(all others)"
COLUMN_MAX = 40  # characters; a longer cell shifts its own line only
FIRST_V2_PRODUCE = 3  # from this version on records are v2 batches only (KIP-98)
FIRST_ZSTD_PRODUCE = 7  # KIP-110

Outcome = Literal["works", "negotiates", "fails"]


class Verdict(NamedTuple):
    """The outcome of a call, or of a format of produced records. `reason` and `advice` are None if it works."""

    what: str
    outcome: Outcome
    reason: str | None = None
    advice: str | None = None


Judged = list[tuple[SeenClient, list[Verdict]]]


def clients(arguments: Sequence[str]) -> int:
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


# The rules


def format_name(magic: int, codec: int) -> str:
    """Returns a record format as it is shown: `v2 zstd`, or `v1` if uncompressed."""
    return f"v{magic}" + ("" if codec == Codec.NONE else f" {CODEC_NAMES.get(codec, f'codec {codec}')}")


def fetched_magic(fetch_version: int) -> int:
    """Returns the newest message format (magic) in the responses of a version of Fetch."""
    return 0 if fetch_version < 2 else 1 if fetch_version < 4 else 2


def verdicts(client: SeenClient, on: Profile) -> Iterator[Verdict]:
    """Yields a verdict for each call, then for each record format unless the call's verdict covers it."""
    for (api_key, version), use in sorted(client.calls.items(), key=lambda item: item[0]):
        yield _of_call(client, api_key, version, use, on)
    for found in sorted(client.produced):
        if (verdict := _of_format(client, found, on)) is not None:
            yield verdict


def _negotiates(client: SeenClient, on: Profile) -> bool:
    return client.negotiates_versions and ApiKey.API_VERSIONS in on.served


def _of_call(client: SeenClient, api_key: int, version: int, use: CallUse, on: Profile) -> Verdict:
    name = api_name(api_key)
    what = f"{name} v{version}"
    served = on.served.get(api_key)
    if served is None:
        return Verdict(what, "fails", f"{on.name} has no {name}", _without(api_key))
    if version in served or api_key == ApiKey.API_VERSIONS:  # every version of it gets a response (KIP-511)
        return Verdict(what, "works")
    reason = f"{on.name} serves {name} {range_text(served)}"
    if version > served.last:
        if _negotiates(client, on):
            return Verdict(what, "negotiates", reason, f"the client negotiates v{served.last} or lower")
        negotiate = "let the client negotiate versions (ApiVersions), or " if ApiKey.API_VERSIONS in on.served else ""
        return Verdict(what, "fails", reason, f"{negotiate}configure the client for Kafka {on.name}")
    if _negotiates(client, on) and use.was_newest:
        return Verdict(what, "negotiates", reason, "the client was offered no newer version; it may support one")
    since = _first_release(api_key, served.first)
    return Verdict(what, "fails", reason, f"use a client that has {name} v{served.first}, new in Kafka {since}")


def _without(api_key: int) -> str:
    if api_key == ApiKey.API_VERSIONS:
        return "configure the broker's version in the client instead of negotiating it"
    having = [name for name in RELEASES if api_key in profile(name).served]
    if not having:
        return "no release serves this API to clients"
    last = "" if having[-1] == NEWEST else f" to {having[-1]}"
    return f"turn off the feature that needs this API; Kafka {having[0]}{last or ' and later'} has it"


def _first_release(api_key: int, version: int) -> str:
    """Returns the first release with this version of an API."""
    known = ((name, profile(name).apis.get(api_key)) for name in RELEASES)
    return next((name for name, versions in known if versions and versions.last >= version), OWN)


def _of_format(client: SeenClient, found: Format, on: Profile) -> Verdict | None:
    version, magic, codec = found
    what = f"Produce v{version} with {format_name(magic, codec)}"
    served = on.served[ApiKey.PRODUCE]
    if version not in served:
        # The call itself fails, or the client negotiates another version and uses that version's format.
        goes_down = version > served.last and _negotiates(client, on)
        if goes_down and codec == Codec.ZSTD and served.last < FIRST_ZSTD_PRODUCE:
            return _zstd_too_early(what, f"{on.name} serves Produce {range_text(served)}")
        return None
    newest = on.behaviour.newest_magic
    if magic > newest:
        return Verdict(what, "fails", f"{on.name} has formats up to v{newest}", f"let the client write v{newest}")
    if version >= FIRST_V2_PRODUCE and magic < 2:
        return Verdict(what, "fails", "Produce v3 and later accept v2 batches only", "let the client write v2")
    if codec not in CODEC_NAMES:
        return Verdict(what, "fails", f"no release has codec {codec}", "use another codec")
    if codec == Codec.ZSTD and magic < 2:
        return Verdict(what, "fails", "zstd needs message format v2", "let the client write v2, or use another codec")
    if codec == Codec.ZSTD and version < FIRST_ZSTD_PRODUCE:
        return _zstd_too_early(what, f"the call is Produce v{version}")
    return Verdict(what, "works")


def _zstd_too_early(what: str, why: str) -> Verdict:
    since = _first_release(ApiKey.PRODUCE, FIRST_ZSTD_PRODUCE)
    reason = f"zstd needs Produce v{FIRST_ZSTD_PRODUCE}, new in Kafka {since}; {why}"
    return Verdict(what, "fails", reason, "use another codec")
