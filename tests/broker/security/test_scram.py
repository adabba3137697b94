"""SCRAM credentials: validation of changes, stored keys, and persistence."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import Embedded
from ottla.broker.security.scram import Credential, Mechanism, decoy
from ottla.protocol.acls import AclOperation
from ottla.protocol.internal_records.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.security.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.records import steps
from ottla.protocol.records.steps import Steps
from ottla_testing.broker.adopting import kraft, metadata_batch, values_of
from ottla_testing.broker.denying import OnlyAllowed
from ottla_testing.broker.dumping import Run, runner
from ottla_testing.broker.harness import Client, frame, read_response, running
from ottla_testing.each import each

SHA_256, SHA_512 = 1, 2
TWICE = (92, "A user credential cannot be altered twice in the same request")
NOT_THERE = (91, "Attempt to delete a user credential that does not exist")
UNKNOWN = (33, "Unknown SCRAM mechanism")
FEW, MANY = (93, "Too few iterations"), (93, "Too many iterations")
NO_NAME = (93, "Username must not be empty")
DONE = (0, None)
Result = tuple[int, str | None]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def up(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, password: bytes = bytes(32), salt: bytes = b"salt"
) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=password
    )


def down(name: str, mechanism: int = SHA_256) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(client: Client, *changes: Any) -> dict[str, Result]:
    """Returns (code, message) by user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if not hasattr(change, "salt")],
        upsertions=[change for change in changes if hasattr(change, "salt")],
    )
    results = (await client.call(request, 0)).results
    responses = {result.user: (result.error_code, result.error_message) for result in results}
    assert len(responses) == len(results)
    return responses


async def describe(client: Client, *users: str, everybody: bool = False) -> list[tuple[Any, ...]]:
    """Returns (user, code, message, {mechanism: iterations}) of each."""
    named = [DescribeUserScramCredentialsRequest.UserName(name=user) for user in users]
    response = await client.call(DescribeUserScramCredentialsRequest(users=None if everybody else named), 0)
    assert (response.error_code, response.error_message) == (0, "")
    return [
        (one.user, one.error_code, one.error_message, {c.mechanism: c.iterations for c in one.credential_infos})
        for one in response.results
    ]


# Results of Apache Kafka 3.9.1 and 4.3.1; joe has a credential for SHA-256.
CASES: list[tuple[Sequence[Any], dict[str, Result]]] = [
    ([], {}),
    ([up("")], {"": NO_NAME}),
    ([down("")], {"": NO_NAME}),
    *([(([up("d", number)]), {"d": UNKNOWN}) for number in (0, 3, -1)]),
    ([down("joe", 9)], {"joe": UNKNOWN}),
    ([up("d", iterations=4095)], {"d": FEW}),
    ([up("d", iterations=-1)], {"d": FEW}),
    ([up("d", iterations=16385)], {"d": MANY}),
    ([up("d", iterations=16384), up("e", SHA_512)], {"d": DONE, "e": DONE}),
    ([up("d", password=b"")], {"d": (-1, None)}),
    ([up("f", SHA_256), up("f", SHA_512)], {"f": TWICE}),
    ([up("f"), up("f")], {"f": TWICE}),
    ([up("f"), up("f", iterations=5)], {"f": TWICE}),
    ([up("f", iterations=5), up("f")], {"f": FEW}),
    ([down("joe"), up("joe")], {"joe": TWICE}),
    ([down("joe"), up("joe", SHA_512)], {"joe": TWICE}),
    ([down("nobody"), up("nobody", SHA_512)], {"nobody": NOT_THERE}),
    ([down("joe"), down("joe")], {"joe": TWICE}),
    ([down("joe", SHA_512)], {"joe": NOT_THERE}),
    ([down("joe"), up("g"), up("h"), up("i", 7)], {"joe": DONE, "g": DONE, "h": DONE, "i": UNKNOWN}),
]


@each(("changes", "responses"), CASES)
async def test_changes_are_validated_like_in_a_controller(
    changes: Sequence[Any], responses: dict[str, Result], tmp_path: Path
) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert await alter(client, up("joe")) == {"joe": DONE}
        assert await alter(client, *changes) == responses
        there = {user for user, *_ in await describe(client, everybody=True)}
        made = {change.name for change in changes if hasattr(change, "salt") and responses[change.name] == DONE}
        gone = {change.name for change in changes if not hasattr(change, "salt") and responses[change.name] == DONE}
        assert there == ({"joe"} - gone) | made


@pytest.mark.parametrize("release", ["2.7", "2.8", "3.2"])
async def test_mechanisms_of_a_user_change_together_in_zookeeper_releases(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        assert await alter(client, up("joe", SHA_256), up("joe", SHA_512)) == {"joe": (0, "")}
        assert await alter(client, down("joe", SHA_256), up("joe", SHA_512)) == {"joe": (0, "")}
        assert await describe(client, "joe") == [("joe", 0, "", {SHA_512: 4096})]
        for changes in ([up("joe"), up("joe")], [down("joe", SHA_512), up("joe", SHA_512)], [down("joe"), down("joe")]):
            assert await alter(client, *changes) == {"joe": TWICE}
        # Invalid credentials are reported before duplicates.
        assert await alter(client, up("joe"), up("joe", iterations=5)) == {"joe": FEW}
        assert await alter(client, down("joe", 7), up("joe", iterations=5)) == {"joe": FEW}
        assert await alter(client, down("joe"), up("joe", SHA_512, 8192)) == {"joe": NOT_THERE}
        assert await describe(client, "joe") == [("joe", 0, "", {SHA_512: 4096})]
        text = "The server experienced an unexpected error when processing the request."
        assert await alter(client, up("amy", password=b"")) == {"amy": (-1, text)}
        found = await alter(client, up("bob"), up("amy", SHA_512), up("amy", password=b""), up("zoe", iterations=5))
        assert found == {"amy": (-1, text), "bob": (-1, text), "zoe": FEW}
        assert [user for user, *_ in await describe(client, everybody=True)] == ["joe"]
        for users in ([""], ["", ""]):
            assert await describe(client, *users) == [("", 91, "Username must not be empty", {})]


async def test_users_are_described_once_each(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert await describe(client, everybody=True) == []
        await alter(client, up("zoe", SHA_512, 8192), up("joe"), up("amy"))
        await alter(client, up("joe", SHA_512, 5000))
        everybody = [
            ("amy", 0, "", {SHA_256: 4096}),
            ("joe", 0, "", {SHA_256: 4096, SHA_512: 5000}),
            ("zoe", 0, "", {SHA_512: 8192}),
        ]
        assert await describe(client, everybody=True) == everybody == await describe(client)
        unknown = "Attempt to describe a user credential that does not exist: "
        twice = "Cannot describe SCRAM credentials for the same user twice in a single request: "
        assert await describe(client, "joe", "joe", "nobody", "zoe", "") == [
            ("joe", 92, twice + "joe", {}),
            ("nobody", 91, unknown + "nobody", {}),
            everybody[2],
            ("", 91, unknown, {}),
        ]


async def test_upsertion_replaces_the_credential(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        await alter(client, up("joe"))
        before = broker.state.scram.of("joe")[SHA_256]
        await alter(client, up("joe", password=b"another"))
        after = broker.state.scram.of("joe")[SHA_256]
        assert after.stored_key != before.stored_key and after.server_key != before.server_key


@pytest.mark.parametrize("release", ["2.8", "3.9", "4.3"])
async def test_mechanism_deletion_and_upsertion_in_one_request(release: str, tmp_path: Path) -> None:
    # Kafka's brokers lose carol's credential here if bob is removed before her in a hash table (ScramDelta.apply).
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        await alter(client, up("bob", SHA_512))
        done = await alter(client, down("bob", SHA_512), up("User:carol", SHA_512, iterations=8192))
        assert {name: code for name, (code, _) in done.items()} == {"bob": 0, "User:carol": 0}
        assert await describe(client, everybody=True) == [("User:carol", 0, "", {SHA_512: 8192})]


def test_stored_keys_match_rfc_7677() -> None:
    """Its example, with the password "pencil": proof and signature are made with these keys."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    made = Credential.made(Mechanism.SCRAM_SHA_256, salt, salted, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    auth_message = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    )
    signature = base64.b64encode(hmac.digest(made.server_key, auth_message, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_signature = hmac.digest(made.stored_key, auth_message, "sha256")
    client_key = bytes(one ^ other for one, other in zip(proof, client_signature, strict=True))
    assert hashlib.sha256(client_key).digest() == made.stored_key


async def test_credentials_survive_a_restart_without_passwords(tmp_path: Path) -> None:
    password = bytes(range(100, 164))
    async with running(tmp_path) as broker:
        client = await broker.client()
        await alter(client, up("joe", SHA_512, 5000, password), up("amy"))
        await alter(client, down("amy"))
        kept = broker.state.scram.of("joe")
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or password not in path.read_bytes(), path
    async with running(tmp_path) as broker:
        assert list(broker.state.scram.users) == ["joe"]
        assert broker.state.scram.of("joe") == kept != {}
        assert await alter(await broker.client(), down("amy")) == {"amy": NOT_THERE}


async def test_dump_shows_credential_records(run: Run, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        await alter(client, up("joe"))
        await alter(client, down("joe"))
    reported = [run("--records", path) for path in sorted(tmp_path.glob("__cluster_metadata-0/*.log"))]
    assert {(code, err) for code, _, err in reported} == {(0, "")}
    out = "".join(text for _, text, _ in reported)
    assert ", UserScramCredentialRecord v0" in out and ", RemoveUserScramCredentialRecord v0" in out
    assert 'name: "joe"' in out and "iterations: 4096" in out


async def test_snapshot_includes_credentials() -> None:
    async with Embedded() as broker:
        host, _, port = broker.bootstrap.rpartition(":")

        async def users(*changes: Any) -> list[str]:
            client = await Client.connect(int(port), host)
            try:
                if changes:
                    await alter(client, *changes)
                return [user for user, *_ in await describe(client, everybody=True)]
            finally:
                client.close()

        assert await users(up("joe")) == ["joe"]
        snapshot = broker.snapshot()
        assert await users(down("joe"), up("amy")) == ["amy"]
        broker.restore(snapshot)
        assert await users() == ["joe"]
        broker.reset()
        assert await users() == []


async def test_scram_apis_require_authorization(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        broker.state.authorizer = OnlyAllowed(AclOperation.DESCRIBE)
        refused = (31, "Cluster authorization failed.")
        assert await alter(client, up("joe"), down("amy")) == {"amy": refused, "joe": refused}
        assert await describe(client, everybody=True) == []
        broker.state.authorizer = OnlyAllowed(AclOperation.ALTER)
        assert await alter(client, up("joe")) == {"joe": DONE}
        response = await client.call(DescribeUserScramCredentialsRequest(users=None), 0)
        assert (response.error_code, response.error_message, response.results) == (31, None, [])


NAMES = st.sampled_from(["a", "b", ""])
CHANGES = st.lists(
    st.one_of(
        st.builds(down, NAMES, st.integers(0, 3)),
        st.builds(up, NAMES, st.integers(0, 3), st.sampled_from([4096, 5, 20000]), st.sampled_from([b"p", b""])),
    ),
    max_size=6,
)


@given(CHANGES, st.booleans())
def test_random_changes_have_one_result_per_user_and_refused_ones_change_nothing(
    changes: list[Any], once: bool
) -> None:
    from ottla.broker.security.scram import ScramCredentials

    class Log:
        def __init__(self) -> None:
            self.written: list[Any] = []

        def append_steps(self, records: Sequence[Any], now_ms: int) -> Steps[None]:
            yield None
            self.written.extend(records)

    log: Any = Log()
    credentials = ScramCredentials(log, b"secret")
    steps.run(credentials.alter([], [up("a")], 0, once_a_user=once))
    before = {user: credentials.of(user) for user in ("a", "b", "")}
    deletions = [change for change in changes if not hasattr(change, "salt")]
    upsertions = [change for change in changes if hasattr(change, "salt")]
    responses = steps.run(credentials.alter(deletions, upsertions, 0, once_a_user=once))
    assert set(responses) == {change.name for change in changes}
    for user, refused in responses.items():
        if refused is not None:
            assert credentials.of(user) == before[user]
    replayed = ScramCredentials(log, b"secret")
    for record in log.written:
        replayed.replay(record)
    assert {user: replayed.of(user) for user in before} == {user: credentials.of(user) for user in before}


JAVA_SALT = re.compile(r"[0-9a-z]{20,26}")  # one in 2,000 has fewer than 24


@pytest.mark.parametrize("made_by", ["nobody", "java", "librdkafka"])
async def test_unknown_users_look_as_those_that_there_are(made_by: str, tmp_path: Path) -> None:
    """Also after a restart and among other users: a name that is known must not be found by its salt or iterations."""
    salts = {"java": b"4q7g9a0s8d6f5g4h3j2k1l0z9x", "librdkafka": bytes(range(64))}
    firsts: list[dict[str, tuple[bytes, int]]] = []
    for _ in range(2):
        async with running(tmp_path) as broker:
            client = await broker.client()
            for number in range(0 if made_by == "nobody" else 3):
                made = up(f"u{number}", salt=salts[made_by], iterations=5000, password=bytes([number]) * 32)
                assert await alter(client, made) == {made.name: DONE}
            found: dict[str, tuple[bytes, int]] = {}
            for name in map(str, range(200)):
                unknown = broker.state.scram.decoy(name, Mechanism.SCRAM_SHA_256)
                found[name] = unknown.salt, unknown.iterations
            firsts.append(found)
    assert firsts[0] == firsts[1]
    iterations = {one for _, one in firsts[0].values()}
    lengths = {len(salt) for salt, _ in firsts[0].values()}
    assert len({salt for salt, _ in firsts[0].values()}) == 200
    if made_by == "java":
        assert iterations == {5000} and {25, 26} <= lengths
        assert all(JAVA_SALT.fullmatch(salt.decode("latin-1")) for salt, _ in firsts[0].values())
    else:
        assert (iterations, lengths) == ({4096 if made_by == "nobody" else 5000}, {16 if made_by == "nobody" else 64})


def test_forms_of_unknown_users_are_those_of_several() -> None:
    models = [
        Credential(salt, bytes([number]) * 32, bytes([number]) * 32, 4096 + number)
        for number, salt in enumerate((b"0" * 16, b"1" * 64, b"2" * 26))
    ]
    found = {name: decoy(b"secret", name, "sha256", models) for name in map(str, range(100))}
    assert {one.iterations for one in found.values()} == {4096, 4097, 4098}
    for one in found.values():
        kind = one.iterations - 4096
        assert len(one.salt) in ((16,), (64,), (23, 24, 25, 26))[kind]
    fewer = {name: decoy(b"secret", name, "sha256", models[:2]) for name in found}
    assert all(fewer[name] == one for name, one in found.items() if one.iterations < 4098)
    assert all(decoy(b"other", name, "sha256", models) != one for name, one in found.items())


async def test_request_with_trailing_bytes_is_accepted(tmp_path: Path) -> None:
    """librdkafka sends one; also if the last byte of the password looks like it."""
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[up("joe", password=b"p\0\0")])
    async with running(tmp_path) as broker:
        for left in (b"", b"\0", b"\0\0", b"\1"):
            client = await broker.client()
            whole = frame(request, 0, 7)[4:] + left
            await client.send_bytes(struct.pack(">i", len(whole)) + whole)
            _, response = read_response(await client.receive_bytes(), AlterUserScramCredentialsRequest, 0)
            assert [(one.user, one.error_code) for one in response.results] == [("joe", 0)]


async def test_credentials_of_a_kafka_directory_are_taken_over(tmp_path: Path) -> None:
    kept, gone = (
        UserScramCredentialRecord(
            name=name, mechanism=SHA_256, salt=b"s", stored_key=b"k", server_key=b"v", iterations=5000
        )
        for name in ("joe", "amy")
    )
    removal = RemoveUserScramCredentialRecord(name="amy", mechanism=SHA_256)
    folder = kraft(tmp_path / "data", metadata_batch(40, *values_of(kept, gone, removal)), snapshot=False)
    for _ in range(2):
        async with running(folder) as broker:
            assert await describe(await broker.client(), everybody=True) == [("joe", 0, "", {SHA_256: 5000})]
            assert broker.state.scram.of("joe") == {SHA_256: Credential(b"s", b"k", b"v", 5000)}
