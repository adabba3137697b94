"""Which of the calls that a client was seen making would fail on a release, why, and what helps.

Owns the rules, which know only what was used, never what else a client could do. Pure: no file, no output.

* A call fails whose API the release does not have.
* A call fails whose version is below those that the release serves. Served, not advertised: Produce v0-v2 fail on 4.x.
  One exception: the client asks for versions (ApiVersions), and the broker that saw it offered none newer, as one that
  plays an old release does. Then it may know a newer one.
* A call in a version above those served fails, unless the client asks for versions: then it takes a lower one. No
  client can ask a release without ApiVersions (before 0.10.0), and asking it fails.
* Records fail in a format that the release does not know or does not take in that version of Produce, and with zstd
  where the version of Produce, that used or the one that the client goes down to, is below v7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...broker.metrics.client_ledger import CallUse, Format, SeenClient
from ...broker.releases.profiles import NEWEST, OWN, RELEASES, Profile, api_names, profile
from ...protocol.api_key import ApiKey
from ...protocol.records.compression import Codec
from ...protocol.records.schemas import CODEC_NAMES

if TYPE_CHECKING:
    from ...protocol.schema import Versions

FIRST_V2_PRODUCE = 3  # from here on records are v2 batches and nothing else (KIP-98)
FIRST_ZSTD_PRODUCE = 7  # KIP-110

Outcome = Literal["works", "negotiates", "fails"]


class Verdict(NamedTuple):
    """What becomes of one call, or of one format of produced records. `reason` and `advice` are None if it works."""

    what: str
    outcome: Outcome
    reason: str | None = None
    advice: str | None = None


def api_name(api_key: int) -> str:
    """The API's name, or its key if no release has it."""
    return api_names().get(api_key, f"API key {api_key}")


def format_name(magic: int, codec: int) -> str:
    """A format of records as it is shown."""
    return f"v{magic}" + ("" if codec == Codec.NONE else f" {CODEC_NAMES.get(codec, f'codec {codec}')}")


def fetched_magic(fetch_version: int) -> int:
    """The newest message format that a version of Fetch can be answered with."""
    return 0 if fetch_version < 2 else 1 if fetch_version < 4 else 2


def range_text(versions: Versions) -> str:
    """`v3-v12`, or `v0` alone."""
    return f"v{versions.first}" + (f"-v{versions.last}" if versions.last > versions.first else "")


def verdicts(client: SeenClient, on: Profile) -> Iterator[Verdict]:
    """One for each call and, where the call itself does not decide it, each format of records; by API and version."""
    for (api_key, version), use in sorted(client.calls.items(), key=lambda item: item[0]):
        yield _of_call(client, api_key, version, use, on)
    for found in sorted(client.produced):
        if (verdict := _of_format(client, found, on)) is not None:
            yield verdict


def _negotiates(client: SeenClient, on: Profile) -> bool:
    return client.asks_versions and ApiKey.API_VERSIONS in on.served


def _of_call(client: SeenClient, api_key: int, version: int, use: CallUse, on: Profile) -> Verdict:
    name = api_name(api_key)
    what = f"{name} v{version}"
    served = on.served.get(api_key)
    if served is None:
        return Verdict(what, "fails", f"{on.name} has no {name}", _without(api_key))
    if version in served or api_key == ApiKey.API_VERSIONS:  # that is answered in every version, if with an error
        return Verdict(what, "works")
    reason = f"{on.name} serves {name} {range_text(served)}"
    if version > served.last:
        if _negotiates(client, on):
            return Verdict(what, "negotiates", reason, f"it asks first, and takes v{served.last} or lower")
        asking = "let the client ask for versions, or " if ApiKey.API_VERSIONS in on.served else ""
        return Verdict(what, "fails", reason, f"{asking}set the client to Kafka {on.name}")
    if _negotiates(client, on) and use.was_newest:
        return Verdict(what, "negotiates", reason, "it was offered none newer; whether it knows one was not seen")
    since = _first_release(api_key, served.first)
    return Verdict(
        what, "fails", reason, f"use a client that knows {name} v{served.first}, which came with Kafka {since}"
    )


def _without(api_key: int) -> str:
    if api_key == ApiKey.API_VERSIONS:
        return "tell the client the broker's version instead of letting it ask"
    having = [name for name in RELEASES if api_key in profile(name).served]
    if not having:
        return "no release serves this to clients"
    last = "" if having[-1] == NEWEST else f" to {having[-1]}"
    return f"switch off what it needs this for; Kafka {having[0]}{last or ' and later'} has it"


def _first_release(api_key: int, version: int) -> str:
    """The first release that knows this version."""
    known = ((name, profile(name).apis.get(api_key)) for name in RELEASES)
    return next((name for name, versions in known if versions and versions.last >= version), OWN)


def _of_format(client: SeenClient, found: Format, on: Profile) -> Verdict | None:
    version, magic, codec = found
    what = f"Produce v{version} with {format_name(magic, codec)}"
    served = on.served[ApiKey.PRODUCE]
    if version not in served:
        # The call itself fails, or the client goes to another version, and with it to that version's format.
        goes_down = version > served.last and _negotiates(client, on)
        if goes_down and codec == Codec.ZSTD and served.last < FIRST_ZSTD_PRODUCE:
            return _zstd_too_early(what, f"{on.name} serves Produce {range_text(served)}")
        return None
    newest = on.behaviour.newest_magic
    if magic > newest:
        return Verdict(what, "fails", f"{on.name} knows formats up to v{newest}", f"let the client write v{newest}")
    if version >= FIRST_V2_PRODUCE and magic < 2:
        return Verdict(what, "fails", "Produce v3 and later take v2 batches only", "let the client write v2")
    if codec not in CODEC_NAMES:
        return Verdict(what, "fails", f"no release knows codec {codec}", "use another codec")
    if codec == Codec.ZSTD and magic < 2:
        return Verdict(what, "fails", "zstd needs message format v2", "let the client write v2, or use another codec")
    if codec == Codec.ZSTD and version < FIRST_ZSTD_PRODUCE:
        return _zstd_too_early(what, f"the call is Produce v{version}")
    return Verdict(what, "works")


def _zstd_too_early(what: str, why: str) -> Verdict:
    since = _first_release(ApiKey.PRODUCE, FIRST_ZSTD_PRODUCE)
    reason = f"zstd needs Produce v{FIRST_ZSTD_PRODUCE}, which came with Kafka {since}; {why}"
    return Verdict(what, "fails", reason, "use another codec")
