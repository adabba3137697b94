"""Debian's Chromium, driven over its DevTools protocol: pages, keys, console messages, screenshots.

Needs nothing but the browser and aiohttp. Every page must load without errors in the console: failing scripts, missing
files, violations of a policy.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from ottla_testing.interop.checks import Failed, Missing

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_SECONDS = 30
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Space": (32, " "),
}


class Page:
    """One page of the browser. Raises Failed if an expected state does not come."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._requested: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        """The browser's errors since they were last read."""
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            result = json.loads(message.data)
            if "id" in result:
                self._requested.pop(result["id"]).set_result(result)
            else:
                self._event(result["method"], result["params"])

    def _event(self, name: str, result: dict[str, Any]) -> None:
        if name == "Page.loadEventFired":
            self._loaded.set()
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(str(result["exceptionDetails"].get("exception", result)))
        elif name == "Runtime.consoleAPICalled" and result["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([one.get("value") for one in result["args"]]))
        elif name == "Log.entryAdded" and result["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{result['entry']['text']} {result['entry'].get('url', '')}")

    async def do(self, method: str, **parameters: Any) -> Any:
        """Sends one command of the protocol."""
        number = next(self._numbers)
        response = self._requested[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        result = await asyncio.wait_for(response, PATIENCE_SECONDS)
        if "error" in result:
            raise Failed(f"{method}: {result['error']}")
        return result["result"]

    async def begin(self) -> None:
        """Listens to what happens."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.do(f"{domain}.enable")

    async def goto(self, url: str) -> None:
        """Opens an address, as one that was typed."""
        self._loaded.clear()
        result = await self.do("Page.navigate", url=url)
        if "errorText" in result:
            raise Failed(f"{url}: {result['errorText']}")
        await self.settled(url)

    async def settled(self, what: str = "a page") -> None:
        """Waits for the page that is under way."""
        try:
            await asyncio.wait_for(self._loaded.wait(), PATIENCE_SECONDS)
        except TimeoutError:
            raise Failed(f"{what} did not load") from None

    @contextlib.asynccontextmanager
    async def opening(self, what: str) -> AsyncIterator[None]:
        """Waits at the end of the block for the page that was opened in it."""
        self._loaded.clear()
        yield
        await self.settled(what)

    async def value(self, expression: str) -> Any:
        """Returns the value of an expression of the page."""
        result = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(f"{expression[:200]}: {result['exceptionDetails']}")
        return result["result"].get("value")

    async def until(self, expression: str, what: str) -> None:
        """Waits until an expression is true."""
        for _ in range(20 * PATIENCE_SECONDS):
            if await self.value(expression):
                return
            await asyncio.sleep(0.05)
        raise Failed(f"never: {what}")

    async def press(self, *keys: str) -> None:
        """Presses keys, one after the other."""
        for key in keys:
            code, text = KEYS[key] if key in KEYS else (ord(key.upper()) if key.isalnum() else 0, key)
            given = {"key": " " if key == "Space" else key, "windowsVirtualKeyCode": code}
            await self.do("Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text else {}))
            await self.do("Input.dispatchKeyEvent", type="keyUp", **given)

    async def type(self, text: str) -> None:
        """Types a text where the focus is."""
        await self.do("Input.insertText", text=text)

    async def screenshot(self, path: Path, width: int, height: int) -> None:
        """Takes a screenshot in a window of that size."""
        await self.size(width, height)
        data = base64.b64decode((await self.do("Page.captureScreenshot", format="png"))["data"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    async def size(self, width: int, height: int) -> None:
        """Sets the window's size."""
        await self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def color_scheme(self, name: str) -> None:
        """Sets the preferred color scheme, `light` or `dark`."""
        await self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def quiet(self, where: str) -> None:
        """Raises Failed where the browser complained of something."""
        complaints, self.complaints = self.complaints, []
        if complaints:
            raise Failed(f"{where}: {'; '.join(complaints)[:1000]}")

    async def close(self) -> None:
        """Listens no more."""
        self._reader.cancel()
        await self._socket.close()


@contextlib.asynccontextmanager
async def chromium(*flags: str) -> AsyncIterator[Page]:
    """Yields a browser with one empty page. Raises Missing if there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise Missing(f"no {NAMES[0]} here")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = [
            found, "--headless=new", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--remote-debugging-port=0", f"--user-data-dir={folder}", *root, *flags,
            "about:blank",
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            port = await _port(Path(folder) / "DevToolsActivePort", process)
            async with aiohttp.ClientSession() as http:
                async with http.get(f"http://127.0.0.1:{port}/json") as response:
                    pages = [one for one in await response.json() if one["type"] == "page"]
                socket = await http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=1 << 28)
                page = Page(socket)
                await page.begin()
                try:
                    yield page
                finally:
                    await page.close()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _port(path: Path, process: asyncio.subprocess.Process) -> int:
    for _ in range(20 * PATIENCE_SECONDS):
        if path.exists() and (lines := path.read_text().split("\n")) and len(lines) > 1:
            return int(lines[0])
        if process.returncode is not None:
            raise Missing(f"the browser ended at once, with {process.returncode}")
        await asyncio.sleep(0.05)
    raise Failed("the browser does not report its address")
