"""A client of a schema registry with Confluent's REST API: schemas by id, and the latest one of a subject.

Owns the requests, their login, their limits and their repetition. Redirects are refused, since they would take the
login to another server.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from .sources import BYTES_MAX, TYPES, Schema, SourceError

TIMEOUT_S = 10.0
PAUSES_S = (0.2, 1.0, 3.0)
"""Before the repetitions of a request that found no server, or an error of the server."""

REFERENCES_MAX = 100
DEPTH_MAX = 16
ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"

USER_INFO = "basic.auth.user.info"
TOKEN = "bearer.auth.token"
CERTIFICATES = "ssl.truststore.location"
_SOURCES = {"basic.auth.credentials.source": ("USER_INFO", "URL"), "bearer.auth.credentials.source": ("STATIC_TOKEN",)}
_PREFIX = "schema.registry."


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry. `authorization` is the header of each request, `certificates` a PEM file of trusted ones."""

    url: str
    authorization: str | None = field(default=None, repr=False)
    certificates: str | None = None

    pause: ClassVar[Callable[[float], object]] = time.sleep

    @classmethod
    def of(cls, url: str, configs: Mapping[str, str] | None = None) -> Registry:
        """Returns the registry at a URL, with the login of the URL or of Confluent's configs. Raises SourceError."""
        parts = urlsplit(url)
        try:
            where = parts.hostname, parts.port
        except ValueError:
            where = None, None
        if parts.scheme not in ("http", "https") or where[0] is None or parts.query or parts.fragment:
            raise SourceError(f"the schema registry is {_shown(url)}: it must be http://HOST:PORT or https://HOST:PORT")
        known = {name.removeprefix(_PREFIX): value for name, value in (configs or {}).items()}
        for name, value in known.items():
            if name not in (USER_INFO, TOKEN, CERTIFICATES) and value not in _SOURCES.get(name, ()):
                raise SourceError(
                    f"the setting {name} of the schema registry is not supported as given: known are {USER_INFO}, "
                    f"{TOKEN} and {CERTIFICATES} (a PEM file)"
                )
        user = known.get(USER_INFO)
        if user is None and parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        if user is not None and TOKEN in known:
            raise SourceError(f"{USER_INFO} and {TOKEN} of the schema registry are given: use one")
        authorization = f"Bearer {known[TOKEN]}" if TOKEN in known else None
        if user is not None:
            authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
        if authorization is not None and not authorization.isprintable():
            raise SourceError("the login of the schema registry has characters that a header cannot have")
        place = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        return cls(place, authorization, known.get(CERTIFICATES))

    def __str__(self) -> str:
        return self.url

    def by_id(self, schema_id: int) -> Schema | None:
        """Returns a schema, None if the registry has none with this id. Raises SourceError."""
        found = self._get(f"/schemas/ids/{schema_id}")
        return None if found is None else self._schema(found, [])

    def latest(self, subject: str) -> Schema:
        """Returns the newest schema of a subject. Raises SourceError."""
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if found is None:
            raise SourceError(f"the schema registry {self} has no subject {subject}: name another with --subject")
        return self._schema(found, [])

    def _schema(self, document: Any, referred: list[Any], depth: int = 0) -> Schema:
        """Returns a schema with its references, which are added to `referred`. Raises SourceError."""
        try:
            kind, text = document.get("schemaType") or "AVRO", document["schema"]
            references = [(one["name"], one["subject"], one["version"]) for one in document.get("references") or ()]
            types = [tuple(map(type, one)) for one in references]
            if kind not in TYPES or not isinstance(text, str) or types != [(str, str, int)] * len(types):
                raise TypeError
        except (AttributeError, KeyError, TypeError):
            raise SourceError(f"the response of the schema registry {self} has no schema of a known type") from None
        referred += references
        if depth > DEPTH_MAX or len(referred) > REFERENCES_MAX:
            raise SourceError(
                f"a schema of {self} has more references than {REFERENCES_MAX}, or deeper than {DEPTH_MAX}"
            )
        resolved: list[tuple[str, Schema]] = []
        for name, subject, version in references:
            found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            if found is None:
                raise SourceError(
                    f"the schema registry {self} has no version {version} of {subject}, which is referred to"
                )
            resolved.append((name, self._schema(found, referred, depth + 1)))
        return Schema(kind, text, tuple(resolved))

    def _get(self, path: str) -> Any | None:
        """Returns the document at a path, None for 404. Raises SourceError."""
        request = urllib.request.Request(self.url + path, headers={"Accept": ACCEPT})
        if self.authorization is not None:
            request.add_unredirected_header("Authorization", self.authorization)
        for pause in (*PAUSES_S, None):
            try:
                with self._opener().open(request, timeout=TIMEOUT_S) as response:
                    data = response.read(BYTES_MAX + 1)
                break
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 404:
                        return None
                    if error.code < 500 and error.code != 429:
                        raise SourceError(f"the schema registry {self} refuses {path}: {_reason(error)}") from None
                problem = f"{error.code} {error.reason}"
            except (OSError, HTTPException) as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
            if pause is None:
                raise SourceError(f"the schema registry {self} cannot be read: {problem}")
            type(self).pause(pause)
        if len(data) > BYTES_MAX:
            raise SourceError(f"the schema registry {self} sends more than {BYTES_MAX} bytes for {path}")
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise SourceError(f"the schema registry {self} sends no JSON for {path}: is it the URL of one?") from None

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if self.url.startswith("https:"):
            try:
                context = ssl.create_default_context(cafile=self.certificates)
            except OSError as error:
                raise SourceError(f"cannot read the certificates in {self.certificates}: {error}") from None
            handlers.append(urllib.request.HTTPSHandler(context=context))
        return urllib.request.build_opener(*handlers)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _reason(error: urllib.error.HTTPError) -> str:
    """Returns the status of a refusal, and the registry's words for it."""
    words = ""
    try:
        document = json.loads(error.read(4096))
        words = f": {document['message']}" if isinstance(document.get("message"), str) else ""
    except (OSError, HTTPException, ValueError, AttributeError, KeyError):
        pass
    return " ".join(f"{error.code} {error.reason}{words}".split())[:300]


def _shown(url: str) -> str:
    """Returns a URL without its login."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"
