"""The page's views and forms for resets of offsets, configs and access control lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

import pytest

from ottla.broker import Embedded
from ottla.broker.testing.embedded import AclEntry
from ottla_testing.broker.administering_broker import AUTHORIZER
from ottla_testing.broker.page_forms import done, refused
from ottla_testing.broker.paged import HURTFUL, Document, Element, Visitor


@pytest.fixture
def broker() -> Iterator[Embedded]:
    with Embedded(configs=AUTHORIZER, control="127.0.0.1:0", control_write=True) as started:
        yield started


@pytest.fixture
def visitor(broker: Embedded) -> Visitor:
    assert broker.control_url
    return Visitor(broker.control_url)


def cells(page: Document, name: str) -> list[str]:
    """Returns the row of a table whose first cell begins with this text."""
    for row in page.all("tr"):
        found = [" ".join(cell.text.split()) for cell in row.children]
        if found[0].split(" ")[0] == name:
            return found
    raise AssertionError(f"no row {name}: {page.one('main').text}")


def hidden(forms: Iterable[Element], action: str) -> dict[str, str]:
    """Returns the hidden fields of the first form with this action."""
    (form,) = [one for one in forms if one.attributes.get("action") == action][:1]
    fields = [one.attributes for one in form.all("input") if one.attributes.get("type") == "hidden"]
    return {one["name"]: one["value"] for one in fields}


def committed(broker: Embedded, group: str) -> dict[tuple[str, int], int]:
    return broker.group(group).committed


def commit(broker: Embedded, group: str, topic: str, offset: int) -> None:
    """Commits an offset of a group in each partition of a topic."""
    broker.reset_offsets(group, "offset", offset, [(topic, None)])


def test_a_group_shows_both_ends_of_each_log_and_its_lag(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("orders", 2)
    broker.send_many("orders", [(None, str(n)) for n in range(6)])
    commit(broker, "readers", "orders", 1)
    page = visitor.page("/groups/readers")
    heads = [" ".join(one.text.split()) for one in page.all("th") if one.attributes["scope"] == "col"]
    assert heads[:5] == ["Partition ↑", "Committed", "Log start", "Log end", "Lag"]
    assert cells(page, "orders-0")[1:5] == ["1", "0", "3", "2"]
    assert "orders-1" in visitor.page("/groups/readers?sort=-end").one("main").text


def test_reset_shows_a_preview_of_offsets(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("orders", 2)
    broker.send_many("orders", [(None, str(n)) for n in range(6)])
    commit(broker, "readers", "orders", 1)
    form = {"id": "readers", "to": "shift", "number": "5", "time": "", "of": "orders:0"}
    preview = visitor.post("/groups/reset", 200, **form, do="preview").document
    assert cells(preview, "orders-0") == ["orders-0", "1", "3 6 is out of range", "+2", "0", "3", "0"]
    assert committed(broker, "readers") == {("orders", 0): 1, ("orders", 1): 1}
    fields = hidden(preview.all("form"), "/groups/reset")
    assert fields == {f"quoted.{name}": quote(value, safe="") for name, value in form.items()}
    assert done(visitor, "/groups/reset", **fields, do="reset") == "Done. The offsets of 1 partition were reset."
    assert committed(broker, "readers") == {("orders", 0): 3, ("orders", 1): 1}
    done(visitor, "/groups/reset", id="readers", to="time", time="2100-01-01", do="reset")
    assert committed(broker, "readers") == {("orders", 0): 3, ("orders", 1): 3}
    done(visitor, "/groups/reset", id="readers", to="earliest", do="reset")
    assert committed(broker, "readers") == {("orders", 0): 0, ("orders", 1): 0}


@pytest.mark.parametrize(
    ("form", "status", "why"),
    [
        ({"to": "offset"}, 400, "an offset is needed"),
        ({"to": "shift", "number": "x"}, 400, "not a whole number"),
        ({"to": "time", "time": "soon"}, 400, "is not a time"),
        ({"to": "nowhere"}, 400, "one of earliest, latest"),
        ({"to": "latest", "of": "none"}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"to": "latest", "of": "orders:x"}, 400, "is not TOPIC or TOPIC:0,1"),
        ({"to": "latest", "of": f"{HURTFUL}"}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_invalid_reset_is_refused(
    visitor: Visitor, broker: Embedded, form: dict[str, str], status: int, why: str
) -> None:
    broker.create_topic("orders")
    commit(broker, "readers", "orders", 0)
    page = visitor.post("/groups/reset", status, id="readers", **form).document
    (alert,) = [one.text for one in page.all("p") if one.attributes.get("role") == "alert"]
    assert why in alert and "Reset the offsets" in page.one("main").text


def test_configs_of_a_topic_are_shown_and_changed(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("orders", configs={"retention.ms": "1000"})
    where = "/topics/orders/configs"
    assert cells(visitor.page(where), "retention.ms")[1:5] == ["1000", "604800000", "this topic", "long"]
    assert cells(visitor.page(where), "segment.bytes")[1:4] == ["1073741824", "1073741824", "default"]
    page = visitor.page(f"{where}?kind=set&change=retention.ms")
    assert page.one("caption").text.startswith(
        "2 of "
    )  # and min.insync.replicas, which a cluster with eligible leaders sets
    assert "open" in page.one("details").attributes and "retention.ms=1000" in page.one("details").text
    result = done(visitor, where, name="segment.ms", how="set", value="60000", do="check")
    assert result == "Done. The change of segment.ms is allowed; nothing was changed."
    assert broker.topic("orders").configs == {"retention.ms": "1000"}
    assert done(visitor, where, name="segment.ms", how="set", value="60000") == "Done. segment.ms was changed."
    done(visitor, where, name="cleanup.policy", how="append", value="compact")
    done(visitor, where, name="retention.ms", how="delete")
    assert broker.topic("orders").configs == {"segment.ms": "60000", "cleanup.policy": "delete,compact"}
    assert "INVALID_CONFIG" in refused(visitor, where, 400, name="segment.ms", value="soon", how="set")
    assert "Unknown topic config name" in refused(visitor, where, 400, name=f"x{HURTFUL}", value="1", how="set")
    assert "name of a config" in refused(visitor, where, 400, name="", how="set", value="1")
    assert "one of set" in visitor.post(where, 400, name="a", how="guess").text
    assert visitor.request("GET", "/topics/none/configs").status == 404


def test_configs_of_the_broker_are_shown_and_changed(visitor: Visitor) -> None:
    assert cells(visitor.page("/broker?q=log.dirs"), "log.dirs")[0].startswith("log.dirs read only")
    assert all("read only" not in row.text for row in visitor.page("/broker?kind=changeable").all("tr"))
    changed = done(visitor, "/broker", name="message.max.bytes", how="set", value="2000000", for_all="yes")
    assert changed == "Done. message.max.bytes was changed."
    done(visitor, "/broker", name="message.max.bytes", how="set", value="3000000")
    (row,) = [cells(visitor.page("/broker?q=message.max.bytes"), "message.max.bytes")]
    assert row[1:4] == ["3000000", "1048588", "this broker, dynamic"]
    page = visitor.page("/broker?change=message.max.bytes")
    assert re.search(r"message.max.bytes=3000000.*message.max.bytes=2000000", page.one("details").text, re.S)
    done(visitor, "/broker", name="message.max.bytes", how="delete")
    assert cells(visitor.page("/broker?q=message.max.bytes"), "message.max.bytes")[1] == "2000000"
    assert "Cannot update these configs dynamically" in refused(
        visitor, "/broker", 400, name="log.dirs", value="/x", how="set"
    )


def test_access_control_lists_are_listed_added_and_removed(visitor: Visitor) -> None:
    assert "No entries" in visitor.page("/acls").one("main").text
    form = {
        "principal": f"User:{HURTFUL}", "permission": "DENY", "operation": "READ", "resource_type": "TOPIC",
        "resource_name": "orders", "pattern_type": "PREFIXED", "host": "",
    }  # fmt: skip
    visitor.post("/acls", 303, **form)
    done(visitor, "/acls", **form | {"principal": "User:bob", "permission": "ALLOW", "pattern_type": "LITERAL"})
    assert cells(visitor.page("/acls"), "User:bob")[1:5] == ["ALLOW", "READ", "TOPIC orders", "*"]
    assert "2 entries" in visitor.page("/acls").one("caption").text
    assert "1 entry" in visitor.page("/acls?principal=User:bob").one("caption").text
    assert "No entry matches" in visitor.page("/acls?operation=WRITE").one("main").text
    assert "Invalid filter" in visitor.page("/acls?operation=DANCE").one("main").text
    assert "no colon is present" in refused(visitor, "/acls", 400, **form | {"principal": "bob"})
    assert "host is missing" in visitor.post("/acls/remove", 400, **{k: v for k, v in form.items() if k != "host"}).text
    assert "1 entry was removed" in done(visitor, "/acls/remove", **form | {"host": "*"})
    assert "1 entry" in visitor.page("/acls").one("caption").text


def test_names_with_control_characters_survive_hidden_fields(visitor: Visitor, broker: Embedded) -> None:
    name = f"{HURTFUL}\r\n\t ü%41+&"
    broker.create_topic("orders")
    commit(broker, name, "orders", 0)
    page = visitor.page(f"/groups/{quote(name, safe='')}")
    done(visitor, "/groups/reset", **hidden(page.all("form"), "/groups/reset"), to="latest", do="reset")
    visitor.post("/groups/delete", 303, **hidden(page.all("form"), "/groups/delete"), sure="yes")
    assert broker.group(name).state == "Dead"
    broker.add_acls([AclEntry("TOPIC", name, "LITERAL", f"User:{name}", "*", "READ", "ALLOW")])
    fields = hidden(visitor.page("/acls").all("form"), "/acls/remove")
    assert "1 entry was removed" in done(visitor, "/acls/remove", **fields) and broker.acls() == []
    assert "is not UTF-8" in visitor.request("POST", "/groups/delete", "quoted.id=%25ff").text


def test_read_only_page_has_no_administration_forms() -> None:
    with Embedded(control="127.0.0.1:0") as broker:
        assert broker.control_url
        visitor = Visitor(broker.control_url)
        broker.create_topic("orders")
        for path in ("/broker", "/acls", "/topics/orders/configs"):
            assert all(one.attributes["method"] in ("get", "dialog") for one in visitor.page(path).all("form"))
        for path in ("/groups/reset", "/broker", "/acls", "/acls/remove", "/topics/orders/configs"):
            assert visitor.request("POST", path, "id=a").status == 403


def test_administration_forms_from_another_site_are_refused(visitor: Visitor) -> None:
    for path in ("/groups/reset", "/broker", "/acls", "/acls/remove", "/topics/orders/configs"):
        assert visitor.request("POST", path, "id=a", Origin="http://evil.example").status == 403
        assert visitor.request("POST", path, "id=a", Origin=None).status == 403
