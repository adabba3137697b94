"""The rules by which a call of a client fails on a release, with the reason and an advice.

The rules judge the calls that were seen: another call of the same client may still fail. Pure: no file, no output.

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

from collections.abc import Iterator
from typing import Literal

from ...broker.metrics.client_ledger import CallUse, Format, SeenClient
from ...broker.releases.profiles import NEWEST, OWN, RELEASES, Profile, profile
from ...protocol.api_key import ApiKey
from ...protocol.named import NamedTuple
from ...protocol.records.compression import CODEC_NAMES, Codec
from ..release_table import api_name, range_text

FIRST_V2_PRODUCE = 3  # from this version on records are v2 batches only (KIP-98)
FIRST_ZSTD_PRODUCE = 7  # KIP-110

Outcome = Literal["works", "negotiates", "fails"]


class Verdict(NamedTuple):
    """The outcome of a call, or of a format of produced records. `reason` and `advice` are None if it works."""

    what: str
    outcome: Outcome
    reason: str | None = None
    advice: str | None = None


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
