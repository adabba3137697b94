"""Forms of the page: sends them, and reads what the page shows then."""

from __future__ import annotations

from urllib.parse import unquote

from ottla_testing.broker.paged import Visitor


def done(visitor: Visitor, path: str, **form: object) -> str:
    """What the page that a form ends with says was done."""
    where = visitor.post(path, 303, **form).headers["Location"]
    assert where.startswith("/")
    (text,) = [one.text for one in visitor.page(where).all("p") if one.attributes.get("role") == "status"][:1]
    assert unquote(where.partition("done=")[2]) in text
    return " ".join(text.split())


def refused(visitor: Visitor, path: str, status: int, **form: object) -> str:
    """Why a form is refused; it is there once more with what was typed."""
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
