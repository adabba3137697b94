"""The web pages in a real browser: each view, filters, a message found by time, keys, forms, and accessibility by
axe-core. Screenshots are in out/interop/page."""

from __future__ import annotations

import asyncio
import functools
import html
import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import quote

from browser import Page, chromium

from ottla.broker import Embedded
from ottla_testing.broker import paged
from ottla_testing.interop.checks import OUT, Check, Failed, Missing, program

HURTFUL, START_MS = paged.HURTFUL, paged.START_MS

SHOTS = OUT / "page"
NARROW = 400
WIDTHS = ((1280, 900), (NARROW, 800))
WIDEST = (
    "[...document.querySelectorAll('body *')].filter((one) => !one.closest('table, .scroll, pre') "
    "&& one.getBoundingClientRect().right > document.documentElement.clientWidth)"
    ".slice(0, 5).map((one) => one.outerHTML.slice(0, 120)).join(' | ')"
)
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
TOKEN = "a~token-for/the+browser.0=="
FOREIGN = "stranger.example.org"

Work = Callable[[Page, Embedded, str], Awaitable[str]]


def need(true: object, what: str) -> None:
    """Raises Failed."""
    if not true:
        raise Failed(what)


def in_browser(work: Work) -> Callable[[], str]:
    """Decorates a check: it runs in a browser of its own, with a full broker that may be changed."""

    @functools.wraps(work)
    def checked() -> str:
        broker = paged.full()
        try:
            assert broker.control_url
            return asyncio.run(_worked(work, broker, broker.control_url))
        finally:
            broker.stop()

    return checked


async def _worked(work: Work, broker: Embedded, url: str) -> str:
    async with chromium(f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1") as page:
        await page.size(*WIDTHS[0])
        return await work(page, broker, url)


def views(url: str) -> list[str]:
    """Returns the paths of all kinds of pages."""
    found = paged.Visitor(url).crawl()
    return [path for path in found if "sort=" not in path and "before=" not in path]


def kinds(paths: list[str]) -> list[str]:
    """Returns the first of each kind of page, and one that was filtered."""
    found: dict[tuple[str, int, bool], str] = {}
    for path in paths:
        place, _, query = path.partition("?")
        parts = place.split("/")
        found.setdefault((parts[1], len(parts), bool(query)), path)
    return list(found.values())


def file_name(path: str) -> str:
    """Returns the file name of a screenshot."""
    return "".join(letter if letter.isalnum() else "-" for letter in path.strip("/"))[:80] or "overview"


async def fits(page: Page, what: str, width: int) -> None:
    """Checks that the page does not scroll sideways; tables and preformatted text may."""
    wide = await page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    need(wide <= 0, f"{what} is {wide} pixels too wide for a window of {width}: {await page.value(WIDEST)}")


@in_browser
async def each_view(page: Page, broker: Embedded, url: str) -> str:
    """Checks that each view loads without errors, has its contents, and fits into its window."""
    shutil.rmtree(SHOTS, ignore_errors=True)
    paths = views(url)
    for path in paths:
        await page.goto(url + path)
        need(await page.value("document.querySelectorAll('h1').length") == 1, f"{path} has no heading")
        need(await page.value("document.styleSheets[0].cssRules.length > 50"), f"{path} has no style")
        for width, height in WIDTHS:
            await page.screenshot(SHOTS / f"{file_name(path)}-{width}.png", width, height)
            await fits(page, path, width)
        await page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        await fits(page, f"{path} with its forms", NARROW)
        page.quiet(path)
    for path in ("/topics/none", "/topics?page=x"):
        await page.goto(url + path)
        need(await page.value("document.querySelector('h1').textContent") == "Not done", path)
        page.complaints.clear()  # the browser reports each status that is no success
    return f"{len(paths)} views in two widths, nothing that the console complains of"


def axe() -> str:
    """Returns the source of axe-core, from the npm registry."""
    folder = OUT / "axe"
    source = folder / "package" / "axe.min.js"
    if not source.exists():
        npm = program("npm")
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([npm, "pack", "--silent", "axe-core@4"], cwd=folder, capture_output=True, text=True)
        packed = sorted(folder.glob("axe-core-*.tgz"))
        if done.returncode or not packed:
            raise Missing(f"axe-core could not be fetched: {done.stderr[-200:]}")
        shutil.unpack_archive(packed[-1], folder)
    return source.read_text()


@in_browser
async def accessible(page: Page, broker: Embedded, url: str) -> str:
    """Checks that axe-core finds no violations, in a wide light and a narrow dark window, also in open forms and
    dialogs."""
    source = axe()
    run = f"axe.run(document, {{runOnly: {json.dumps(RULES)}}}).then((found) => JSON.stringify(found))"
    paths = kinds(views(url))
    passed = 0
    for scheme, size in zip(("light", "dark"), WIDTHS, strict=True):
        await page.color_scheme(scheme)
        await page.size(*size)
        for path in paths:
            await page.goto(url + path)
            await page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            await page.value(source + "; 1")
            found = json.loads(await page.value(run))
            passed += len(found["passes"])
            for one in found["violations"]:
                where = [node["html"][:150] for node in one["nodes"][:3]]
                raise Failed(f"{path} in {scheme}: {one['id']}: {one['help']}: {where}")
        await page.value("document.querySelector('[data-help]').click()")
        found = json.loads(await page.value(run))
        need(not found["violations"], f"the list of keys in {scheme}: {found['violations']}")
    return f"{len(paths)} views in light, and narrow and dark, {passed} rules passed, none failed"


FOCUS = "document.activeElement"


@in_browser
async def by_keys(page: Page, broker: Embedded, url: str) -> str:
    """Uses the pages by keyboard only."""
    await page.goto(url + "/")
    await page.press("Tab")
    need(await page.value(f"{FOCUS}.textContent") == "Skip to content", "the first stop is no skip link")
    need(await page.value(f"{FOCUS}.getBoundingClientRect().top >= 0"), "the skip link is not to be seen")
    await page.press("Enter")
    need(await page.value(f"{FOCUS}.id") == "main", "the skip link does not skip")
    async with page.opening("topics by keys"):
        await page.press("g", "t")
    need(await page.value("location.pathname") == "/topics", "g t does not lead to the topics")
    await page.press("/")
    need(await page.value(f"{FOCUS}.name") == "q", "/ does not lead to the filter")
    await page.type("ord")
    async with page.opening("a filter by Enter"):
        await page.press("Enter")
    need(await page.value("document.querySelectorAll('tbody tr').length") == 1, "the filter does not filter")
    await page.press("j")
    outline = await page.value(f"getComputedStyle({FOCUS}).outlineStyle")
    need(outline != "none", "the focus is not to be seen")
    async with page.opening("a topic by Enter"):
        await page.press("Enter")
    need(await page.value("location.pathname") == "/topics/orders", "j and Enter do not open the topic")
    await page.press("?")
    need(await page.value("document.querySelector('dialog').open"), "? does not show the keys")
    await page.press("Escape")
    need(not await page.value("document.querySelector('dialog').open"), "Escape does not close the list")
    await page.goto(url + "/messages/orders?partition=0&offset=0&limit=10")
    async with page.opening("the next page"):
        await page.press("n")
    need("offset=10" in await page.value("location.search"), "n does not turn the page")
    async with page.opening("the previous page"):
        await page.press("p")
    need(await page.value("document.querySelector('a[data-row]').textContent") == "0", "p does not turn back")
    # Users who need single keys for something else turn them off; the browser keeps that.
    await page.value("document.querySelector('[data-shortcuts]').click()")
    await page.goto(url + "/topics")
    await page.press("g", "g", "m", "/")
    await asyncio.sleep(0.3)
    need(await page.value("location.pathname + document.activeElement.tagName") == "/topicsBODY", "keys act though off")
    await page.value("localStorage.clear()")
    page.quiet("keys")
    return "skip link, parts, filter, rows, pages, the list of keys, and none of it where it is turned off"


async def fill(page: Page, name: str, text: str) -> None:
    """Types into the field of that name, reached by its label."""
    await page.value(f"document.querySelector('[name={name}]').focus()")
    await page.type(text)


@in_browser
async def by_time(page: Page, broker: Embedded, url: str) -> str:
    """Finds a message by its time, and opens it."""
    for moment in ("2023-11-14T22:13:26.5Z", str(START_MS + 6500)):
        await page.goto(url + "/messages")
        await fill(page, "topic", "orders")
        await fill(page, "partition", "0")
        await fill(page, "time", moment)
        async with page.opening("messages by time"):
            await page.press("Enter")
        first = "document.querySelector('a[data-row]')"
        need(await page.value(f"{first}.textContent") == "7", f"{moment} does not lead to offset 7")
    async with page.opening("the message"):
        await page.value(f"{first}.click()")
    need(await page.value("document.querySelector('h1').textContent") == "Offset 7", "the message does not open")
    shown = await page.value("[...document.querySelectorAll('pre')].map((one) => one.textContent)")
    need(json.loads(shown[-1])["order"] == 7 and "\n" in shown[-1], f"its JSON is not shown: {shown}")
    async with page.opening("its bytes"):
        await page.value("document.querySelector('[name=view]').value = 'hex'; document.forms[0].requestSubmit()")
    need("7b 22 6f 72 64 65 72 22" in await page.value("document.body.textContent"), "no hex")
    await page.goto(url + "/messages/orders?partition=0&offset=0&contains=" + quote('"order": 4'))
    need(await page.value("document.querySelectorAll('a[data-row]').length") == 1, "the text is not found")
    await page.goto(url + "/messages/orders?partition=1")
    need(await page.value("document.body.textContent.includes('<script>alert(1)</script>')"), "contents are not shown")
    page.quiet("messages")
    return "by ISO time and by milliseconds, its JSON and its bytes, one that has a text, one that would hurt"


@in_browser
async def refreshed(page: Page, broker: Embedded, url: str) -> str:
    """Refreshes in place: typed values and the focus stay."""
    await page.goto(url + "/topics/orders")
    await page.value("window.kept = 1; document.querySelectorAll('tbody a')[2].focus()")
    link = await page.value(f"{FOCUS}.getAttribute('href')")
    for number in range(5):
        broker.send("orders", f"more {number}", partition=2)
    await page.press("r")
    reported = "document.querySelector('[data-status]').textContent.startsWith('Refreshed at')"
    await page.until(reported, "it reports the refresh")
    row = "[...document.querySelectorAll('tbody')[0].rows].map((row) => row.cells[5].textContent)"
    need(await page.value(row) == ["14", "1", "6"], f"new records are not shown: {await page.value(row)}")
    need(await page.value("window.kept") == 1, "it loaded the page again")
    need(await page.value(f"{FOCUS}.getAttribute('href')") == link, "the focus went")
    live = await page.value("document.querySelector('[data-status]').getAttribute('aria-live')")
    need(live == "polite", "not announced")
    await page.goto(url + "/topics")
    await page.value("document.querySelector('[data-every]').click()")
    await fill(page, "q", "typed")
    broker.create_topic("appears")
    await asyncio.sleep(2.5)
    need(await page.value("document.querySelector('[name=q]').value") == "typed", "what was typed is gone")
    await page.value(f"{FOCUS}.blur()")
    await page.until("document.body.textContent.includes('appears')", "every two seconds")
    await page.value("localStorage.clear()")
    page.quiet("refreshing")
    return "by a key and every two seconds, with focus and what was typed"


@in_browser
async def written(page: Page, broker: Embedded, url: str) -> str:
    """Sends the forms, also without scripts."""
    await page.do("Emulation.setScriptExecutionDisabled", value=True)
    await page.goto(url + "/topics")
    await page.do("Emulation.setScriptExecutionDisabled", value=False)
    submit = "const form = document.querySelector('{}'); {} form.requestSubmit(form.querySelector('button'));"

    async def sent(path: str, form: str, fields: dict[str, str]) -> str:
        await page.goto(url + path)
        set_all = "".join(
            f"form.elements[{json.dumps(name)}].value = {json.dumps(value)};"
            if value != "on"
            else f"form.elements[{json.dumps(name)}].checked = true;"
            for name, value in fields.items()
        )
        async with page.opening(f"{path} {form}"):
            await page.value(f"(() => {{ {submit.format(form, set_all)} }})()")
        return await page.value("document.querySelector('[role=status]')?.textContent ?? document.body.textContent")

    result = await sent("/topics", "details form", {"name": "made-here", "partitions": "2"})
    need("Topic made-here was created" in result, result)
    result = await sent(
        "/messages/made-here", "details form", {"key": "k", "value": HURTFUL.replace("\x00", ""), "headers": "a: 1"}
    )
    need("appended at offset 0" in result, result)
    (record,) = broker.records("made-here")
    need(record.value == HURTFUL.replace("\x00", "").encode() and record.headers == (("a", b"1"),), f"{record}")
    result = await sent("/faults", "details form", {"action": "error", "code": "UNKNOWN_SERVER_ERROR", "api": "Fetch"})
    need("Fault 2 was added" in result, result)
    result = await sent("/faults", "td form", {})
    need("was removed" in result, result)
    result = await sent("/clock", "section form[class=inline]", {})
    need("The clock runs" in result, result)
    result = await sent("/clock", "section form:not([class])", {"by": "8d"})
    need("advanced by 8d" in result, result)
    result = await sent("/topics/made-here", "details form", {"sure": "on"})
    need("Topic made-here was deleted" in result, result)
    page.quiet("forms")
    await page.do("Emulation.setScriptExecutionDisabled", value=True)
    await page.goto(url + "/topics?q=pai")
    page.quiet("without scripts")
    source = (await page.do("DOM.getDocument", depth=-1))["root"]
    need("paid" in json.dumps(source), "a filter needs scripts")
    await page.do("Emulation.setScriptExecutionDisabled", value=False)
    return "a topic, a record, a fault, the clock, a deletion; a filter without scripts"


@in_browser
async def administered(page: Page, broker: Embedded, url: str) -> str:
    """Changes offsets, configs and access control lists with forms, in a narrow window."""
    await page.size(NARROW, 800)

    async def submit(form: str, fields: dict[str, str], button: str = "button") -> str:
        values = "".join(
            f"form.elements[{json.dumps(name)}].value = {json.dumps(text)};" for name, text in fields.items()
        )
        async with page.opening(form):
            await page.value(
                f"(() => {{ const form = document.querySelector({json.dumps(form)}); {values}"
                f"form.requestSubmit(form.querySelector({json.dumps(button)})); }})()"
            )
        await fits(page, f"after {form}", NARROW)
        return await page.value("document.querySelector('main').textContent")

    await page.goto(url + "/groups/a%2Fb")
    result = await submit("form[action='/groups/reset']", {"to": "latest"})
    need("nothing has changed yet" in result and broker.group("a/b").committed["orders", 0] == 1, result)
    await page.screenshot(SHOTS / "reset-400.png", NARROW, 800)
    result = await submit("form[action='/groups/reset']", {})
    need("The offsets of 1 partition were reset" in result, result)
    need(broker.group("a/b").committed["orders", 0] == 14, "the offset is not set")
    await page.goto(url + "/groups/readers")
    result = await submit("form[action='/groups/reset']", {"to": "earliest"})
    need("Assignments can only be reset if the group 'readers' is inactive" in result, result)
    page.complaints.clear()  # of the status of what was refused
    await page.goto(url + "/topics/orders/configs?change=retention.ms")
    result = await submit("details form", {"value": "86400000"}, "[value=change]")
    need("retention.ms was changed" in result and broker.topic("orders").configs["retention.ms"] == "86400000", result)
    await page.goto(url + "/topics/orders/configs?change=retention.ms")
    result = await submit("details form", {"value": "soon"}, "[value=check]")
    need("INVALID_CONFIG" in result, result)
    page.complaints.clear()
    await page.goto(url + "/acls")
    result = await submit("details form", {"principal": "User:alice", "resource_name": "orders"})
    need("An entry for User:alice was added" in result and len(broker.acls()) == 2, result)
    result = await submit("td form", {})
    need("1 entry was removed" in result and len(broker.acls()) == 1, result)
    page.quiet("administration")
    return "offsets with a preview and Kafka's refusal, a config with a check, an entry, all at 400 pixels"


@in_browser
async def followed(page: Page, broker: Embedded, url: str) -> str:
    """Follows the live tail: it shows new records, can be paused, and resumes where it stopped."""
    count = "document.querySelectorAll('[data-tail] tbody tr').length"
    printed = "document.querySelector('[data-tail-status]').textContent"
    await page.goto(url + "/messages/empty/tail")
    await page.until(f"{printed}.startsWith('Live')", "it shows that it is live")
    broker.send("empty", HURTFUL.replace("\x00", ""), partition=1)
    await page.until(f"{count} === 1", "a record that came is shown")
    need(await page.value("document.querySelector('[data-tail] script') === null"), "a record ran")
    broker.send("empty", "second", partition=0)
    await page.until("document.querySelector('[data-tail] tbody tr').textContent.includes('second')", "newest first")
    await page.screenshot(SHOTS / "tail-400.png", NARROW, 800)
    await fits(page, "the live tail", NARROW)
    await page.value("document.querySelector('[data-pause]').click()")
    need((await page.value(printed)).startswith("Paused"), "it does not show that it is paused")
    for number in range(3):
        broker.send("empty", f"while paused {number}", partition=0)
    await asyncio.sleep(1.5)
    need(await page.value(count) == 2, "it is not paused")
    await page.value("document.querySelector('[data-pause]').click()")
    await page.until(f"{count} === 5", "it resumes where it stopped")
    page.quiet("the live tail")
    await page.do("Emulation.setScriptExecutionDisabled", value=True)
    await page.goto(url + "/messages/empty/tail")
    source = json.dumps((await page.do("DOM.getDocument", depth=-1))["root"])
    need("while paused 2" in source and "Refresh" in source, "without scripts it shows nothing")
    await page.do("Emulation.setScriptExecutionDisabled", value=False)
    return "new records on top, paused, resumed without a gap; the newest without scripts"


@contextmanager
def another_site(body: str) -> Iterator[str]:
    """Runs a web server of another site; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = body.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@in_browser
async def strangers(page: Page, broker: Embedded, url: str) -> str:
    """Opens a page of another site, and one whose own name leads here (DNS rebinding)."""
    before = [topic.name for topic in broker.topics()]
    form = f'<form method="post" action="{html.escape(url)}/topics"><input name="name" value="stolen"></form>'
    form += (
        f'<form method="post" action="{html.escape(url)}/topics/orders/delete"><input name="sure" value="yes"></form>'
    )
    with another_site(f"<!doctype html><body>{form}<iframe src='{url}/'></iframe>") as site:
        for number in range(2):
            await page.goto(site)
            async with page.opening("a form of another site"):
                await page.value(f"document.forms[{number}].submit()")
            need(
                "pages of other sites are refused" in await page.value("document.body.textContent"), "a form was served"
            )
        await page.goto(site)
        for requested in (
            "{}",
            "{method: 'POST', body: 'name=stolen'}",
            "{method: 'DELETE'}",
            "{mode: 'no-cors', method: 'POST'}",
        ):
            for path in ("/topics", "/v1/topics", "/v1/topics/orders"):
                outcome = f"fetch('{url}{path}', {requested}).then((one) => one.type + one.status, () => 'refused')"
                need(await page.value(outcome) in ("refused", "opaque0"), f"{requested} of {path} got a response")
        framed = await page.value("document.querySelector('iframe').contentDocument === null")
        need(framed, "the frame is open to the page around it")
    page.complaints.clear()  # of all that was refused
    await page.goto(url.replace("127.0.0.1", FOREIGN))
    result = await page.value("document.body.textContent")
    need("is not a name of this control plane" in result and "orders" not in result, f"rebound: {result[:200]}")
    outcome = "fetch('/v1/topics', {headers: {'User-Agent': 'curl/8'}}).then((one) => one.status)"
    need(await page.value(outcome) == 403, "a rebound script is served")
    need([topic.name for topic in broker.topics()] == before, "something was changed")
    return "forms, fetches and frames of another site and a name that was rebound: refused, nothing changed"


async def _give(page: Page, token: str, opened: str) -> None:
    """Sends a token with the form, whose field has the focus from the start."""
    await page.until(f"{FOCUS}.name === 'token'", "the focus in the field of the token")
    await page.type(token)
    async with page.opening(opened):
        await page.press("Enter")


async def _logged_in(page: Page, url: str) -> str:
    source = axe()
    run = f"axe.run(document, {{runOnly: {json.dumps(RULES)}}}).then(JSON.stringify)"
    wanted = "/topics/orders?partition=0"
    for scheme, size in zip(("light", "dark"), WIDTHS, strict=True):
        await page.color_scheme(scheme)
        await page.size(*size)
        await page.goto(url + wanted)
        need("orders" not in await page.value("document.querySelector('main').textContent"), "the page shows a topic")
        await fits(page, "the form", size[0])
        await page.value(source + "; 1")
        found = json.loads(await page.value(run))
        need(not found["violations"], f"the form in {scheme}: {found['violations']}")
    page.complaints.clear()  # of the status 401
    await _give(page, "another token", "the form again")
    need("not that of this broker" in await page.value("document.body.textContent"), "a wrong token has no message")
    page.complaints.clear()
    await _give(page, TOKEN, "what was wanted")
    need(await page.value("location.pathname + location.search") == wanted, "the form does not lead to what was wanted")
    need(await page.value("document.querySelector('h1').textContent") == "orders", "the topic is not shown")
    page.quiet("the page with a session")
    shown = "[document.documentElement.outerHTML, document.cookie, location.href, JSON.stringify(localStorage)].join()"
    need(TOKEN not in await page.value(shown), "a script can read the token")
    need(await page.value("document.cookie") == "", "a script can read the cookie")
    await page.goto(url + "/messages/orders?partition=0&offset=0")
    need(await page.value("document.querySelectorAll('a[data-row]').length") == 1, "a message is not shown")
    async with page.opening("the form after the session"):
        await page.value("document.querySelector('form[action=\"/logout\"] button').click()")
    need(await page.value("location.pathname") == "/login", "the session does not end at the form")
    await page.goto(url + wanted)
    await page.until(f"{FOCUS}.name === 'token'", "the form, since the session has ended")
    await page.goto(url + "/login")
    await _give(page, TOKEN, "the overview")
    need(await page.value("location.pathname") == "/", "the form alone does not lead to the overview")
    return "axe-core on the form, a wrong token, the path that was wanted, no script reads token or cookie, and its end"


def logged_in() -> str:
    """Sends the token of a control plane by its form."""

    async def worked(url: str) -> str:
        async with chromium() as page:
            return await _logged_in(page, url)

    with Embedded(control="127.0.0.1:0", control_token=TOKEN) as broker:
        broker.create_topic("orders")
        broker.send("orders", b"one")
        assert broker.control_url
        return asyncio.run(worked(broker.control_url))


CHECKS = [
    Check("page: each view in a browser", each_view),
    Check("page: axe-core in a browser", accessible),
    Check("page: keys in a browser", by_keys),
    Check("page: a message found by time in a browser", by_time),
    Check("page: refreshed in a browser", refreshed),
    Check("page: forms in a browser", written),
    Check("page: administration in a browser", administered),
    Check("page: the live tail in a browser", followed),
    Check("page: strangers in a browser", strangers),
    Check("page: the login form in a browser", logged_in),
]
