"use strict";
// Refreshes the page in place, and adds keyboard shortcuts. Every page works without this script.
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const status = $("[data-status]"), every = $("[data-every]"), keys = $("[data-keys]"), shortcuts = $("[data-shortcuts]");
  const PARTS = { o: "/", t: "/topics", m: "/messages", g: "/groups", p: "/producers", x: "/transactions", r: "/requests", b: "/broker", a: "/acls", f: "/faults", c: "/clock" };
  const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* not allowed to */ } };
  let busy = false;

  // Makes elements that scroll sideways reachable by keyboard.
  const reach = () => { for (const one of document.querySelectorAll("table, .columns section")) { if (one.scrollWidth > one.clientWidth) one.tabIndex = 0; else one.removeAttribute("tabindex"); } };
  addEventListener("resize", reach);
  reach();

  // Keeps typed and chosen values, opened parts, scroll positions and the focus.
  async function refresh(quietly) {
    if (busy) return;
    busy = true;
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (response.status === 401) { location.reload(); return; }
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      const held = document.activeElement;
      for (const part of document.querySelectorAll("[data-refresh]")) {
        const other = $(`[data-refresh="${part.dataset.refresh}"]`, fresh);
        if (!other || other.innerHTML === part.innerHTML) continue;
        if (part.contains(held) && held.matches("input, select, textarea")) continue;
        const href = part.contains(held) ? held.getAttribute("href") : null;
        const scrolled = [...part.querySelectorAll(".scroll, pre")].map((one) => one.scrollTop);
        part.replaceChildren(...other.childNodes);
        [...part.querySelectorAll(".scroll, pre")].forEach((one, at) => { one.scrollTop = scrolled[at] || 0; });
        if (href) [...part.querySelectorAll("a")].find((one) => one.getAttribute("href") === href)?.focus();
      }
      reach();
      document.title = fresh.title;
      if (!quietly) status.textContent = response.ok ? `Refreshed at ${new Date().toLocaleTimeString()}.` : "This object no longer exists.";
    } catch {
      status.textContent = "No response from the broker.";
    } finally {
      busy = false;
    }
  }

  $("[data-live]").hidden = false;
  $("[data-reload]").addEventListener("click", () => refresh(false));
  $("[data-help]").addEventListener("click", () => keys.showModal());
  every.checked = remembered("every") === "yes";
  every.addEventListener("change", () => {
    remember("every", every.checked ? "yes" : "no");
    status.textContent = every.checked ? "Refreshes every 2 seconds." : "Automatic refresh is off.";
  });
  setInterval(() => { if (every.checked && !document.hidden && !keys.open) refresh(true); }, 2000);
  shortcuts.checked = remembered("keys") !== "no";
  shortcuts.addEventListener("change", () => remember("keys", shortcuts.checked ? "yes" : "no"));

  function step(by) {
    const rows = [...document.querySelectorAll("a[data-row]")];
    if (rows.length) rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(document.activeElement) + by))].focus();
  }

  // The live tail: new records from the broker, until it is paused or the page is hidden.
  const tail = $("[data-tail]");
  if (tail) {
    const tailStatus = $("[data-tail-status]"), pause = $("[data-pause]"), rows = $("tbody", tail), most = Number(tail.dataset.most);
    let source = null, after = "", count = 0, skipped = 0;
    const report = () => { tailStatus.textContent = `${pause.getAttribute("aria-pressed") === "true" ? "Paused" : "Live"}: ${count} new` + (skipped ? `, ${skipped} skipped: more than the page can show.` : "."); };
    const close = () => { source?.close(); source = null; };
    const open = () => {
      if (source) return;
      const url = new URL(tail.dataset.tail, location.href);
      if (after) url.searchParams.set("after", after);
      source = new EventSource(url);
      source.addEventListener("rows", (event) => {
        const batch = JSON.parse(event.data), part = document.createElement("template");
        after = event.lastEventId;
        part.innerHTML = batch.rows;
        count += batch.count; skipped += batch.skipped;
        rows.prepend(...part.content.children);
        while (rows.rows.length > most) rows.lastElementChild.remove();
        $("[data-tail-empty]")?.remove();
        report();
      });
      source.addEventListener("end", (event) => { close(); tailStatus.textContent = JSON.parse(event.data).why; });
      source.onopen = report;
      source.onerror = () => { tailStatus.textContent = "No response from the broker; reconnecting."; if (source.readyState === 2) close(); };
    };
    pause.hidden = false;
    pause.addEventListener("click", () => {
      const paused = pause.getAttribute("aria-pressed") !== "true";
      pause.setAttribute("aria-pressed", paused ? "true" : "false");
      pause.textContent = paused ? "Resume" : "Pause";
      if (paused) close(); else open();
      report();
    });
    document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else if (pause.getAttribute("aria-pressed") !== "true") open(); });
    addEventListener("pagehide", close);
    if (!document.hidden) open();
  }

  let isGoing = 0;
  document.addEventListener("keydown", (event) => {
    if (!shortcuts.checked || event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
    if (event.target.closest("input, select, textarea")) return;
    const key = event.key;
    if (isGoing && Date.now() - isGoing < 1500 && key in PARTS) { isGoing = 0; location.assign(PARTS[key]); return; }
    isGoing = key === "g" ? Date.now() : 0;
    const link = key === "n" ? $('a[rel="next"]') : key === "p" ? $('a[rel="prev"]') : null;
    if (link) link.click();
    else if (key === "/") { const field = $("[data-first]"); if (field) { event.preventDefault(); field.focus(); field.select?.(); } }
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "r") refresh(false);
    else if (key === "?") keys.showModal();
  });
})();
