"""`ottla clients`: each rule, the printed text, exit codes, and a running broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.metrics.client_ledger import FILE_NAME, SOON_MS, CallUse, Seen, SeenClient, Use, to_bytes
from ottla.broker.releases.profiles import RELEASES, profile
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.tools.clients import fetched_magic, verdicts
from ottla.tools.main import main
from ottla_testing.broker.harness import Client as Connection
from ottla_testing.broker.harness import Closed, ping, process, produce, records, running

SEEN_MS = 1_700_000_000_000
PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID, CONSUMER_HEARTBEAT = 0, 1, 3, 18, 22, 68
NONE, GZIP, LZ4, ZSTD = 0, 1, 3, 4

Run = Callable[..., tuple[int, str, str]]


def client(
    *calls: tuple[int, int],
    negotiates: bool = False,
    newest: bool = False,
    produced: tuple[tuple[int, int, int], ...] = (),
    name: str | None = "app",
    software: str | None = None,
    listener: str = "PLAINTEXT",
) -> SeenClient:
    uses = {call: CallUse(SEEN_MS, SEEN_MS, None, newest) for call in calls}
    formats = {found: Use(SEEN_MS, SEEN_MS) for found in produced}
    return SeenClient(name, listener, software, "2.6" if software else None, negotiates, uses, formats)


def outcomes(seen: SeenClient, release: str) -> list[str]:
    return [verdict.outcome for verdict in verdicts(seen, profile(release))]


def reason(seen: SeenClient, release: str) -> str:
    (verdict,) = [verdict for verdict in verdicts(seen, profile(release)) if verdict.outcome != "works"]
    assert verdict.reason and verdict.advice
    return f"{verdict.what} {verdict.outcome}: {verdict.reason}; {verdict.advice}"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(["clients", *map(str, arguments)])
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def write(folder: Path, *clients: SeenClient, complete: bool = True) -> Path:
    seen = Seen({}, complete, SEEN_MS)
    for one in clients:
        seen.add(one)
    folder.mkdir(exist_ok=True)
    (folder / FILE_NAME).write_bytes(to_bytes(seen))
    return folder


# The rules


@pytest.mark.parametrize("negotiates", [False, True])
@pytest.mark.parametrize(
    ("key", "fail", "first"), [(PRODUCE, range(3), 3), (FETCH, range(4), 4)], ids=["Produce", "Fetch"]
)
def test_versions_removed_in_4_0_fail_though_produce_is_advertised(
    key: int, fail: range, first: int, negotiates: bool
) -> None:
    for release in ("4.0.0", "4.0", "4.1", "4.2", "4.3", "4.4"):
        assert profile(release).apis[PRODUCE].first == 0
        for version in range(first + 4):
            expected = "fails" if version in fail else "works"
            assert outcomes(client((key, version), negotiates=negotiates), release) == [expected], (release, version)
    for release in RELEASES[RELEASES.index("0.11") : RELEASES.index("4.0.0")]:
        assert outcomes(client(*((key, version) for version in range(first + 1)), negotiates=negotiates), release) == [
            "works"
        ] * (first + 1)


def test_reasons_name_the_versions_and_the_fix() -> None:
    assert reason(client((PRODUCE, 2)), "4.0") == (
        "Produce v2 fails: 4.0 serves Produce v3-v12; use a client that has Produce v3, new in Kafka 0.11"
    )
    assert reason(client((FETCH, 11)), "2.0") == (
        "Fetch v11 fails: 2.0 serves Fetch v0-v8; let the client negotiate versions (ApiVersions), "
        "or configure the client for Kafka 2.0"
    )
    assert reason(client((FETCH, 11)), "0.9") == (
        "Fetch v11 fails: 0.9 serves Fetch v0-v1; configure the client for Kafka 0.9"
    )
    assert reason(client((CONSUMER_HEARTBEAT, 0)), "3.6") == (
        "ConsumerGroupHeartbeat v0 fails: 3.6 has no ConsumerGroupHeartbeat;"
        " turn off the feature that needs this API; Kafka 3.7 and later has it"
    )
    assert reason(client((999, 1)), "4.3") == (
        "API key 999 v1 fails: 4.3 has no API key 999; no release serves this API to clients"
    )


def test_negotiating_client_uses_a_lower_version() -> None:
    calls = (PRODUCE, 13), (FETCH, 18), (METADATA, 13), (API_VERSIONS, 4)
    assert outcomes(client(*calls, negotiates=True), "2.0") == ["negotiates"] * 3 + ["works"]
    assert outcomes(client(*calls[:3]), "2.0") == ["fails"] * 3
    assert outcomes(client(*calls, negotiates=True), "4.3") == ["works"] * 4
    assert "negotiates v6 or lower" in reason(client((PRODUCE, 9), negotiates=True), "2.0")


def test_before_0_10_clients_cannot_negotiate() -> None:
    seen = client((PRODUCE, 9), (API_VERSIONS, 0), negotiates=True)
    for release in ("0.8.2", "0.9"):
        assert outcomes(seen, release) == ["fails", "fails"]
    assert outcomes(seen, "0.10.0") == ["negotiates", "works"]
    assert "instead of negotiating it" in reason(client((API_VERSIONS, 0), negotiates=True), "0.9")


def test_client_offered_only_old_versions_may_support_newer_ones() -> None:
    """With a broker of profile 0.10 the newest client uses Produce v2."""
    assert outcomes(client((PRODUCE, 2), negotiates=True, newest=True), "4.0") == ["negotiates"]
    assert outcomes(client((PRODUCE, 2), negotiates=True, newest=False), "4.0") == ["fails"]
    assert outcomes(client((PRODUCE, 2), negotiates=False, newest=True), "4.0") == ["fails"]
    assert "it may support one" in reason(client((PRODUCE, 2), negotiates=True, newest=True), "4.0")


def test_join_group_fails_on_4_0_0_only() -> None:
    seen = client((11, 1), negotiates=True)
    assert [name for name in RELEASES[-8:] if outcomes(seen, name) == ["fails"]] == ["4.0.0"]


@pytest.mark.parametrize(
    ("release", "version", "magic", "codec", "negotiates", "expected"),
    [
        ("4.0", 9, 2, ZSTD, False, None),
        ("2.1", 7, 2, ZSTD, False, None),
        ("2.1", 6, 2, ZSTD, False, "zstd needs Produce v7, new in Kafka 2.1; the call is Produce v6"),
        ("2.0", 6, 2, ZSTD, False, "zstd needs Produce v7, new in Kafka 2.1; the call is Produce v6"),
        ("2.0", 9, 2, ZSTD, True, "zstd needs Produce v7, new in Kafka 2.1; 2.0 serves Produce v0-v6"),
        ("2.0", 9, 2, GZIP, True, None),
        ("0.10.2", 2, 1, LZ4, False, None),
        ("0.10.2", 2, 2, NONE, False, "0.10.2 has formats up to v1"),
        ("0.9", 1, 1, NONE, False, "0.9 has formats up to v0"),
        ("0.11", 2, 2, NONE, False, None),
        ("0.11", 3, 1, NONE, False, "Produce v3 and later accept v2 batches only"),
        ("4.3", 3, 0, NONE, False, "Produce v3 and later accept v2 batches only"),
        ("3.9", 2, 1, ZSTD, False, "zstd needs message format v2"),
        ("3.9", 9, 2, 5, False, "no release has codec 5"),
    ],
)
def test_formats_refused_by_a_release_fail(
    release: str, version: int, magic: int, codec: int, negotiates: bool, expected: str | None
) -> None:
    seen = client(produced=((version, magic, codec),), negotiates=negotiates)
    found = [verdict.reason for verdict in verdicts(seen, profile(release)) if verdict.outcome == "fails"]
    assert found == ([] if expected is None else [expected])


def test_format_is_not_reported_for_a_version_that_fails_anyway() -> None:
    seen = client((PRODUCE, 2), produced=((2, 1, ZSTD), (2, 0, NONE)))
    assert [verdict.what for verdict in verdicts(seen, profile("4.0"))] == ["Produce v2"]
    fixed = client((PRODUCE, 9), produced=((9, 2, ZSTD),))
    assert [verdict.what for verdict in verdicts(fixed, profile("2.0"))] == ["Produce v9"]


def test_message_formats_by_fetch_version() -> None:
    assert [fetched_magic(version) for version in range(6)] == [0, 0, 1, 1, 2, 2]


# The command


def test_printed_text_of_clients(tmp_path: Path, run: Run) -> None:
    write(
        tmp_path,
        client((PRODUCE, 2), (FETCH, 3), (FETCH, 2), produced=((2, 1, GZIP), (2, 1, NONE)), name="old\n\x1b[1m"),
        client((PRODUCE, 13), (API_VERSIONS, 4), negotiates=True, software="my-client", listener="IN"),
        client((PRODUCE, 1), name=None),
        complete=False,
    )
    code, out, err = run(tmp_path)
    assert (code, err) == (0, "")
    assert out == (
        "CLIENT ID       SOFTWARE       LISTENER   NEGOTIATES  LAST SEEN (UTC)\n"
        '"app"           my-client 2.6  IN         yes         2023-11-14 22:13:20.000\n'
        "  calls: Produce v13; ApiVersions v4\n"
        '"old\\n\\x1b[1m"  -              PLAINTEXT  no          2023-11-14 22:13:20.000\n'
        "  calls: Produce v2; Fetch v2, v3\n"
        "  writes: v1; v1 gzip\n"
        "  reads: up to v1\n"
        "(all others)    -              PLAINTEXT  no          2023-11-14 22:13:20.000\n"
        "  calls: Produce v1\n"
        "\nAs of 2023-11-14 22:13:20.000.\n"
        "Too many clients or calls to list each one: the rest is counted in (all others).\n"
    )
    code, out, err = run(tmp_path, "--release", "4.0")
    assert (code, err) == (1, "")
    assert [line for line in out.splitlines() if line.startswith(("  !", "  >"))] == [
        "  > Produce v13: 4.0 serves Produce v3-v12; the client negotiates v12 or lower.",
        "  ! Produce v2 fails: 4.0 serves Produce v3-v12."
        " What to do: use a client that has Produce v3, new in Kafka 0.11.",
        "  ! Fetch v2 fails: 4.0 serves Fetch v4-v17. What to do: use a client that has Fetch v4, new in Kafka 0.11.",
        "  ! Fetch v3 fails: 4.0 serves Fetch v4-v17. What to do: use a client that has Fetch v4, new in Kafka 0.11.",
        "  ! Produce v1 fails: 4.0 serves Produce v3-v12."
        " What to do: use a client that has Produce v3, new in Kafka 0.11.",
    ]
    assert "On 4.0 4 calls fail, of 2 of 3 clients.\n" in out
    code, out, _ = run(tmp_path, "--release", "3.9")
    assert code == 0 and "On 3.9 none of these calls fails.\n" in out


def test_long_client_id_moves_only_its_own_line(tmp_path: Path, run: Run) -> None:
    write(tmp_path, client((PRODUCE, 9), name="x" * 200), client((PRODUCE, 9), name="app"))
    head, app, _, long, *_ = run(tmp_path)[1].splitlines()
    assert head.index("LISTENER") == app.index("PLAINTEXT") < 60
    assert long.split() == [f'"{"x" * 200}"', "-", "PLAINTEXT", "no", "2023-11-14", "22:13:20.000"]


def test_json_of_clients(tmp_path: Path, run: Run) -> None:
    write(tmp_path, client((PRODUCE, 2), produced=((2, 1, GZIP),)), client((FETCH, 12), negotiates=True, name="new"))
    code, out, _ = run(tmp_path, "--release", "4.0", "--json")
    report = json.loads(out)
    assert code == 1
    assert (report["release"], report["failures"], report["complete"], report["written_ms"]) == (
        "4.0",
        1,
        True,
        SEEN_MS,
    )
    app, new = report["clients"]
    assert app["calls"] == [
        {
            "api": "Produce",
            "api_key": 0,
            "version": 2,
            "first_seen_ms": SEEN_MS,
            "last_seen_ms": SEEN_MS,
            "refused_ms": None,
        }
    ]
    assert (app["client_id"], app["writes"], app["reads"], app["last_seen_ms"]) == ("app", ["v1 gzip"], [], SEEN_MS)
    assert [(verdict["what"], verdict["outcome"]) for verdict in app["verdicts"]] == [("Produce v2", "fails")]
    assert (new["verdicts"], new["reads"], new["asks_versions"]) == ([], ["up to v2"], True)
    code, out, _ = run(tmp_path, "--json")
    assert code == 0 and json.loads(out)["release"] is None and json.loads(out)["failures"] is None


def test_principals_are_printed(tmp_path: Path, run: Run) -> None:
    one = client((PRODUCE, 9))
    one.principals |= {"User:bob", "User:CN=al\x1bice"}
    write(tmp_path, one)
    _, out, _ = run(tmp_path)
    assert "  authenticated as: User:CN=al\\x1bice; User:bob\n" in out
    _, out, _ = run(tmp_path, "--json")
    assert json.loads(out)["clients"][0]["principals"] == ["User:CN=al\x1bice", "User:bob"]


def test_no_clients_yet(tmp_path: Path, run: Run) -> None:
    write(tmp_path)
    code, out, _ = run(tmp_path, "--release", "4.0")
    assert code == 0 and "(no clients yet)" in out


def test_wrong_arguments_are_one_line_and_exit_code_2(tmp_path: Path, run: Run) -> None:
    good = write(tmp_path / "good", client((PRODUCE, 9)))
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / FILE_NAME).write_bytes(b"{")
    (tmp_path / "empty").mkdir()
    for arguments, printed in [
        ((good, "--release", "4.0.7"), "unknown release 4.0.7; did you mean 4.0 or 4.1?"),
        ((good, "--release", "otla"), "did you mean ottla?"),
        ((tmp_path / "none",), "no such directory: "),
        ((tmp_path / "empty",), f"has no {FILE_NAME}: expected the data directory of an Ottla broker"),
        ((good / FILE_NAME,), "not a directory: "),
        ((bad,), f"{bad / FILE_NAME}: not JSON: "),
        ((), "required: DIR"),
        ((good, "--rel", "4.0"), "unknown flag --rel; did you mean --release?"),
    ]:
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), arguments
        assert err.startswith("ottla clients: ") and printed in err


async def test_requests_refused_by_the_broker_are_shown_as_refused(tmp_path: Path, run: Run) -> None:
    async with running(tmp_path, release="4.0") as broker:
        await broker.topic("t")
        connection = await broker.client()
        await connection.send(produce(records(b"x")), 2, "old")
        with pytest.raises(Closed):
            await connection.receive()
    code, out, _ = run(tmp_path, "--release", "4.0")
    assert code == 1 and "  refused here: Produce v2\n" in out and "Produce v2 fails" in out
    assert run(tmp_path, "--release", "2.8")[0] == 0


async def test_clients_of_a_running_broker_are_printed_from_the_first_request_on(tmp_path: Path, run: Run) -> None:
    async with running(tmp_path) as broker:
        code, out, err = run(tmp_path, "--release", "4.0")
        assert (code, err) == (0, "") and "(no clients yet)\n\nNo Ottla broker has seen a client" in out
        assert json.loads(run(tmp_path, "--json")[1])["clients"] == []
        client = await broker.client()
        await client.call(ping(), 0, "app")
        broker.clock.advance(SOON_MS)
        code, out, _ = run(tmp_path, "--release", "4.0")
        assert code == 0 and "  calls: ApiVersions v0\n" in out and "On 4.0 none of these calls fails." in out


@pytest.mark.process
async def test_running_broker_is_not_disturbed(tmp_path: Path, run: Run) -> None:
    """While the next run holds the lock, the file of the earlier run is read; after the stop its own file is there."""
    for life in range(2):
        with process(tmp_path) as broker:
            if life:
                assert run(tmp_path / "data", "--release", "4.0")[0] == 0
            connection = await Connection.connect(broker.ports[0])
            await connection.call(ping(), 0, "app")
            await connection.call(MetadataRequest(topics=[]), life + 1, "app")
            connection.close()
            assert broker.end() == 0
        _, out, _ = run(tmp_path / "data")
        assert f"  calls: Metadata {'v1, v2' if life else 'v1'}; ApiVersions v0\n" in out
