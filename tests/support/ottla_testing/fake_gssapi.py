"""The package `gssapi` as the broker and the client use it, without Kerberos: tickets in clear text, and messages with
checksums that only the two sides of a context know.

A token of the client is `ticket|CLIENT|SERVICE|PROOF|KEY`; PROOF is 1 where the client requires the broker's proof.
"""

from __future__ import annotations

import hashlib
import itertools
from enum import IntFlag
from types import SimpleNamespace
from typing import Any

REALM = "R.TEST"
CODES_BEGIN = 2_529_638_912  # MIT Kerberos's minor code of Kerberos's error code 0


class GSSError(Exception):
    """As that of the package: a major and a minor code with texts; `token` is for the other side."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.maj_code = 851_968
        self.min_code = 0 if code is None else CODES_BEGIN + code

    def get_all_statuses(self, code: int, is_maj: bool) -> list[str]:
        return [self.text]


class Name:
    def __init__(self, name: str, name_type: str) -> None:
        if name_type == "hostbased":
            name = name.replace("@", "/")
        self.text = name

    def canonicalize(self, mech: str) -> Name:
        return self if "@" in self.text else Name(f"{self.text}@{REALM}", "principal")

    def __bytes__(self) -> bytes:
        return self.text.encode(errors="surrogateescape")


class RequirementFlag(IntFlag):
    mutual_authentication = 1
    integrity = 2
    out_of_sequence_detection = 4


class Kerberos:
    """The world of one test: keytabs and ticket caches by path, and the next error of a step.

    `module` stands for the package. The principal of the environment's ticket cache is `cached`.
    """

    def __init__(self) -> None:
        self.keytabs: dict[str | None, set[str]] = {"/keytab": {"kafka/localhost@R.TEST"}, "/ann": {"ann@R.TEST"}}
        self.caches: dict[str, str] = {"/tickets": "ann@R.TEST"}
        self.cached: str | None = None
        self.fails_with: GSSError | None = None
        self.stores: list[dict[str, str] | None] = []
        self.seen: set[bytes] = set()
        self.keys = itertools.count()
        self.module: Any = SimpleNamespace(
            Name=Name,
            NameType=SimpleNamespace(kerberos_principal="principal", hostbased_service="hostbased"),
            MechType=SimpleNamespace(kerberos="kerberos"),
            RequirementFlag=RequirementFlag,
            exceptions=SimpleNamespace(GSSError=GSSError),
            Credentials=self.credentials,
            SecurityContext=self.context,
        )

    def credentials(self, *, usage: str, name: Name | None, mechs: list[str], store: dict[str, str] | None) -> Any:
        self.stores.append(store)
        store = store or {}
        wanted = None if name is None else bytes(name.canonicalize("")).decode()
        if usage == "accept":
            if wanted not in self.keytabs.get(store.get("keytab"), ()):
                raise GSSError(f"No key table entry found for {wanted}")
            return wanted
        if "client_keytab" in store:
            found = sorted(self.keytabs.get(store["client_keytab"], ()))
        else:
            found = [one for one in (self.caches.get(store["ccache"]) if "ccache" in store else self.cached,) if one]
        if not found or wanted not in (None, *found):
            raise GSSError("No credentials cache found")
        return wanted or found[0]

    def context(self, **more: Any) -> SecurityContext:
        return SecurityContext(self, **more)


class SecurityContext:
    def __init__(
        self,
        world: Kerberos,
        *,
        creds: str,
        usage: str,
        name: Name | None = None,
        mech: str = "",
        flags: int = 0,
    ) -> None:
        self._world = world
        self._own = creds
        self._is_client = usage == "initiate"
        self._service = "" if name is None else bytes(name.canonicalize("")).decode()
        self._wants_proof = bool(flags & RequirementFlag.mutual_authentication)
        self._key = b""
        self._is_after_step = False
        self.complete = False
        self.initiator_name: Name | None = None

    def step(self, token: bytes | None = None) -> bytes | None:
        if self._world.fails_with is not None:
            raise self._world.fails_with
        return self._of_client(token) if self._is_client else self._of_broker(token or b"")

    def _of_client(self, token: bytes | None) -> bytes | None:
        if not self._key:
            self._key = b"%d" % next(self._world.keys)
            self.initiator_name = Name(self._own, "principal")
            self.complete = not self._wants_proof
            return b"|".join(
                (b"ticket", self._own.encode(), self._service.encode(), b"%d" % self._wants_proof, self._key)
            )
        if token != b"proof" + self._key:
            raise GSSError("A token was invalid")
        self.complete = True
        return None

    def _of_broker(self, token: bytes) -> bytes | None:
        parts = token.split(b"|")
        if len(parts) != 5 or parts[0] != b"ticket":
            raise GSSError("A token was invalid")
        client, service, proof, self._key = parts[1:]
        if service.decode(errors="replace") != self._own:
            raise GSSError(
                f"Cannot decrypt ticket for {service.decode(errors='replace')} using keytab key for {self._own}", 35
            )
        if token in self._world.seen:
            raise GSSError("Request is a replay", 34)
        self._world.seen.add(token)
        self.initiator_name = Name(client.decode(errors="surrogateescape"), "principal")
        self.complete = True
        return b"proof" + self._key if proof == b"1" else None

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        return SimpleNamespace(message=wrapped(self._key, message))

    def unwrap(self, token: bytes) -> Any:
        message = token[8:]
        if wrapped(self._key, message) != token:
            raise GSSError("A token had an invalid message integrity check")
        return SimpleNamespace(message=message)


def wrapped(key: bytes, message: bytes) -> bytes:
    """Returns a message as both sides of the context with a key wrap it."""
    return hashlib.sha256(key + message).digest()[:8] + message
