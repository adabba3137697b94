"""Sends forms of the web pages, and reads the resulting page."""

from __future__ import annotations

from urllib.parse import unquote

from ottla_testing.broker.paged import Visitor


def done(visitor: Visitor, path: str, **form: object) -> str:
    """Sends a form and returns the message of the page that follows."""
    where = visitor.post(path, 303, **form).headers["Location"]
    assert where.startswith("/")
    (text,) = [one.text for one in visitor.page(where).all("p") if one.attributes.get("role") == "status"][:1]
    assert unquote(where.partition("done=")[2]) in text
    return " ".join(text.split())


def refused(visitor: Visitor, path: str, status: int, **form: object) -> str:
    """Sends a form that is refused and returns the error; checks that the form is shown again with its fields."""
    page = visitor.post(path, status, **form).document
    fields = [one for one in page.all() if one.name in ("input", "textarea") or "selected" in one.attributes]
    typed = {one.attributes.get("value") or one.text for one in fields}
    alerts = [one.text for one in page.all("p") if one.attributes.get("role") == "alert"]
    if alerts:
        assert {
            str(value)
            for name, value in form.items()
            if name not in ("do", "action") and str(value).isprintable() and value
        } <= typed
    return " ".join((alerts or [page.one("main").text])[0].split())
