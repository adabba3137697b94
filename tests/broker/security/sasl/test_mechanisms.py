"""PLAIN and SCRAM: the exchanges, with RFC 7677's example, wrong tokens, and a client made from the RFC's formulas."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.security.sasl.mechanisms import PlainExchange, SaslError, ScramExchange
from ottla.broker.security.scram import HASHES, Credential, Mechanism, decoy
from ottla.broker.security.tokens import DelegationTokens, TokenSettings
from ottla.protocol.internal_records.metadata_records import DelegationTokenRecord
from ottla_testing.each import each

WRONG = "Authentication failed: Invalid username or password"
OTHER_NAME = "Authentication failed: Client requested an authorization id that is different from username"


class Stored:
    """Credentials by user; the password of each is `pencil`."""

    def __init__(self, users: dict[str, dict[int, Credential]]) -> None:
        self.users = users

    def find(self, user: str, mechanism: Mechanism) -> Credential | None:
        return self.users.get(user, {}).get(mechanism)

    def decoy(self, user: str, mechanism: Mechanism) -> Credential:
        models = [one[mechanism] for one in self.users.values() if mechanism in one]
        return decoy(b"secret", user, HASHES[mechanism], models)


def credential(mechanism: Mechanism, salt: bytes = b"0123456789abcdef", iterations: int = 4096) -> Credential:
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], b"pencil", salt, iterations)
    return Credential.made(mechanism, salt, salted, iterations)


def tokens(*ids: str) -> DelegationTokens:
    """Tokens of `ann`, which expire at 7; without ids they are disabled."""
    made = DelegationTokens(None, TokenSettings(b"key", 9, 9) if ids else None, bytes, rules="removable")  # type: ignore[arg-type]
    for token_id in ids:
        made.replay(
            DelegationTokenRecord(
                owner="User:ann",
                requester="User:bob",
                renewers=[],
                issue_timestamp=1,
                max_timestamp=9,
                expiration_timestamp=7,
                token_id=token_id,
            )
        )
    return made


def exchange(mechanism: Mechanism, user: str = "user", stored: DelegationTokens | None = None) -> ScramExchange:
    users = Stored({user: {mechanism: credential(mechanism)}})
    return ScramExchange(mechanism, users, stored or tokens(), "SERVER")  # type: ignore[arg-type]


def final(mechanism: Mechanism, first_bare: str, server_first: str, password: bytes = b"pencil", **other: str) -> str:
    """The second token of a client, and the broker's proof that it expects."""
    parts = dict(part.split("=", 1) for part in server_first.split(","))
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, base64.b64decode(parts["s"]), int(parts["i"]))
    without = f"c={other.get('binding', 'biws')},r={other.get('nonce', parts['r'])}"
    signed = f"{first_bare},{server_first},{without}".encode()
    key = hmac.digest(salted, b"Client Key", HASHES[mechanism])
    signature = hmac.digest(hashlib.new(HASHES[mechanism], key).digest(), signed, HASHES[mechanism])
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}"


def test_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored = Stored({"user": {Mechanism.SCRAM_SHA_256: credential(Mechanism.SCRAM_SHA_256, salt)}})
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    made = ScramExchange(Mechanism.SCRAM_SHA_256, stored, tokens(), nonce)  # type: ignore[arg-type]
    assert made.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert not made.is_complete
    reply = made.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert reply == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=" and made.is_complete
    assert made.user == "user"


@each("mechanism", list(Mechanism))
@each(
    ("head", "bare", "user"),
    [
        ("n,,", "n=user,r=abc", "user"),
        ("n,a=user,", "n=user,r=abc", "user"),
        ("n,,", "n=a=2Cb=3Dc,r=abc", "a,b=c"),
        ("n,,", "n=user,r=abc,other=true", "user"),
        ("n,,", "n=user,r=abc,tokenauth=false", "user"),
        ("n,,", "n=user,r=abc,tokenauth=true,tokenauth=no", "user"),
        ("n,a=a=2Cb,", "n=a=2Cb,r=!~", "a,b"),
    ],
)
def test_right_password_is_proved_by_both_sides(mechanism: Mechanism, head: str, bare: str, user: str) -> None:
    made = exchange(mechanism, user)
    server_first = made.respond((head + bare).encode()).decode()
    binding = base64.b64encode(head.encode()).decode()
    reply = made.respond(final(mechanism, bare, server_first, binding=binding).encode())
    assert reply.startswith(b"v=") and made.is_complete and made.user == user
    assert (made.expires_ms, made.token_authenticated) == (None, False)


@each("mechanism", list(Mechanism))
@each("extensions", [",tokenauth=true", ",tokenauth=TRUE", ",other=1,tokenauth=true", ",tokenauth=no,tokenauth=true"])
def test_token_is_proved_by_its_secret(mechanism: Mechanism, extensions: str) -> None:
    """KIP-48: the password is the HMAC in Base64."""
    password = base64.b64encode(hmac.digest(b"key", b"id", "sha512"))
    made = exchange(mechanism, "id", tokens("id"))
    bare = f"n=id,r=abc{extensions}"
    server_first = made.respond(f"n,,{bare}".encode()).decode()
    assert server_first.endswith(",i=4096")
    reply = made.respond(final(mechanism, bare, server_first, password).encode())
    assert reply.startswith(b"v=") and made.is_complete
    assert (made.user, made.expires_ms, made.token_authenticated) == ("ann", 7, True)


@each(
    ("user", "password", "stored"),
    [
        ("id", b"pencil", tokens("id")),
        ("id", base64.b64encode(hmac.digest(b"other", b"id", "sha512")), tokens("id")),
        ("unknown", base64.b64encode(hmac.digest(b"key", b"unknown", "sha512")), tokens("id")),
        ("user", b"pencil", tokens("id")),
        ("id", base64.b64encode(hmac.digest(b"key", b"id", "sha512")), tokens()),
    ],
)
def test_wrong_and_unknown_tokens_look_alike(user: str, password: bytes, stored: DelegationTokens) -> None:
    mechanism, bare = Mechanism.SCRAM_SHA_256, f"n={user},r=abc,tokenauth=true"
    made = exchange(mechanism, "user", stored)
    server_first = made.respond(f"n,,{bare}".encode()).decode()
    assert server_first.endswith(",i=4096") and len(server_first) == len("r=abcSERVER,s=,i=4096") + 24
    with pytest.raises(SaslError, match=r"^$"):
        made.respond(final(mechanism, bare, server_first, password).encode())
    assert not made.is_complete


@each("extensions", ["", ",tokenauth=true"])
@each("mechanism", list(Mechanism))
def test_refusals_take_the_same_digests(mechanism: Mechanism, extensions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/bench/login_times.py` measures the times, which these digests are most of."""
    digests: list[tuple[int, str]] = []

    def counted(key: bytes, message: bytes, name: str) -> bytes:
        digests.append((len(message), name))
        return digest(key, message, name)

    digest = hmac.digest
    stored = tokens("known")
    for token in filter(None, [stored.find("known")]):
        stored.credential(token, mechanism)
    taken: list[list[tuple[int, str]]] = []
    for name in ("known", "other"):
        made = exchange(mechanism, "known", stored)
        monkeypatch.setattr(hmac, "digest", counted)
        bare = f"n={name},r=abc{extensions}"
        first = made.respond(f"n,,{bare}".encode()).decode()
        monkeypatch.setattr(hmac, "digest", digest)
        second = final(mechanism, bare, first, b"wrong").encode()
        monkeypatch.setattr(hmac, "digest", counted)
        with pytest.raises(SaslError):
            made.respond(second)
        monkeypatch.setattr(hmac, "digest", digest)
        taken.append(list(digests))
        digests.clear()
    assert taken[0] == taken[1] and len(taken[0]) == 3


@each("mechanism", list(Mechanism))
def test_wrong_password_and_unknown_name_look_alike(mechanism: Mechanism) -> None:
    firsts: list[str] = []
    for user, password in (("user", b"pen"), ("nobody", b"pencil"), ("nobody", b"pen")):
        made = exchange(mechanism)
        bare = f"n={user},r=abc"
        firsts.append(server_first := made.respond(f"n,,{bare}".encode()).decode())
        with pytest.raises(SaslError, match=r"^$"):
            made.respond(final(mechanism, bare, server_first, password).encode())
        assert not made.is_complete
    assert firsts[1] == firsts[2], "the salt of an unknown name must not change"
    assert [text.split(",")[2] for text in firsts] == ["i=4096"] * 3
    assert {len(text) for text in firsts} == {len(firsts[0])}


@each(
    "token",
    [
        *(b"", b"y,,n=user,r=abc", b"p=tls-unique,,n=user,r=abc", b"n,,n=user", b"n,,n=us=er,r=abc", b"n,,n=,r=abc"),
        *(
            b"n,,n=user,r=",
            b"n,,n=user,r=a b",
            b"n,,n=\xff,r=abc",
            b"n,,r=abc,n=user",
            b"n,,n=user,r=abc,x",
            b"\0user\0x",
        ),
    ],
)
def test_malformed_first_token_is_refused_without_a_text(token: bytes) -> None:
    with pytest.raises(SaslError, match=r"^$"):
        exchange(Mechanism.SCRAM_SHA_256).respond(token)


def test_other_authorization_id_is_refused() -> None:
    with pytest.raises(SaslError, match=f"^{OTHER_NAME}$"):
        exchange(Mechanism.SCRAM_SHA_256).respond(b"n,a=root,n=user,r=abc")
    with pytest.raises(SaslError, match=f"^{OTHER_NAME}$"):
        PlainExchange({"u": "p"}).respond(b"root\0u\0p")


def test_malformed_second_token_is_refused() -> None:
    mechanism, bare = Mechanism.SCRAM_SHA_256, "n=user,r=abc"

    def cases(server_first: str) -> list[str]:
        good = final(mechanism, bare, server_first)
        return [
            *("", good[:-1], good + ",x=1", good.replace("r=abc", "r=abd"), good.partition(",p=")[0]),
            *(final(mechanism, bare, server_first, nonce="abc"), good.partition(",p=")[0] + ",p=AAAA"),
        ]

    for number in range(len(cases("r=abcSERVER,s=AAAA,i=4096"))):
        made = exchange(mechanism)
        with pytest.raises(SaslError, match=r"^$"):
            made.respond(cases(made.respond(f"n,,{bare}".encode()).decode())[number].encode())


@each(
    ("token", "text"),
    [
        (b"\0u\0p", None),
        (b"u\0u\0p", None),
        ("\0ü\0ß".encode(), None),
        (b"\0u\0q", WRONG),
        (b"\0v\0p", WRONG),
        (b"\0u\0", "Authentication failed: password not specified"),
        (b"\0\0p", "Authentication failed: username not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"u\0p", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0u\0p\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\xff\0\xfe", WRONG),
    ],
)
def test_plain(token: bytes, text: str | None) -> None:
    made = PlainExchange({"u": "p", "ü": "ß"})
    if text is None:
        assert made.respond(token) == b"" and made.is_complete and made.user == token.decode().split("\0")[1]
    else:
        with pytest.raises(SaslError) as raised:
            made.respond(token)
        assert str(raised.value) == text and not made.is_complete


@each("make", [lambda: exchange(Mechanism.SCRAM_SHA_512), lambda: PlainExchange({"u": "p"})])
@given(
    sent=st.lists(st.binary(max_size=60) | st.text(alphabet="n,=arcip\0us", max_size=40).map(str.encode), max_size=4)
)
def test_any_tokens_raise_nothing_else(make: Callable[[], ScramExchange | PlainExchange], sent: list[bytes]) -> None:
    made = make()
    for token in sent:
        try:
            made.respond(token)
        except SaslError:
            break
    assert not made.is_complete or (isinstance(made, PlainExchange) and made.user == "u")
