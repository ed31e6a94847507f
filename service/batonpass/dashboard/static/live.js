// Keeps a page fresh. The server says when something happened (an event stream) and renders the page anew; what differs
// is changed in place, so that focus, selection, scrolling and what somebody types stay where they are.
"use strict";
(() => {
  const root = document.body.dataset.root;
  const standing = document.getElementById("standing");
  const alarm = document.getElementById("alarm");
  const QUICK_MS = 400;
  const SLOW_MS = 5000;
  const HIDDEN_MS = 30000;
  // Longer than the time between two messages of the stream, so that one comes while an answer is awaited; and not the
  // same in all windows, of which one that gives up is enough.
  const ANSWER_MS = 12000 + 6000 * Math.random();
  const SILENT_MS = 30000;
  const LEVELS = ["trouble", "attention", "moving", "at-rest", "not-deployed"];
  const middle = document.getElementById("middle");
  let asked = false, again = false, timer = 0, silence = 0, source = null, heardAt = 0, ahead = 0, lastAt = 0;
  let heard = { live: false, why: "the dashboard is being asked" }, refused = "";

  // ---- what differs is changed in place ----
  const keyOf = (node) => (node.nodeType === 1 ? node.dataset.key || node.id || "" : "");

  function same(a, b) {
    if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName || keyOf(a) !== keyOf(b)) return false;
    return a.nodeType !== 1 || a.classList[0] === b.classList[0];
  }

  function dress(old, fresh) {
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
    }
    for (const { name, value } of [...fresh.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  }

  function morph(old, fresh) {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.nodeName === "FORM" && old.contains(document.activeElement)) return;
    dress(old, fresh);
    const known = new Map();
    for (const child of old.childNodes) {
      const key = keyOf(child);
      if (key) known.set(child.nodeName + key, child);
    }
    let place = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const key = keyOf(wanted);
      const moved = key ? known.get(wanted.nodeName + key) : undefined;
      if (moved) {
        known.delete(wanted.nodeName + key);
        if (moved === place) place = place.nextSibling;
        else old.insertBefore(moved, place);
        morph(moved, wanted);
      } else if (place && same(place, wanted)) {
        const here = place;
        place = place.nextSibling;
        morph(here, wanted);
      } else {
        old.insertBefore(wanted, place);
      }
    }
    while (place) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
  }

  // ---- how fresh is it ----
  const zone = document.body.dataset.zone;
  let clock = (at) => `${new Intl.DateTimeFormat("en-GB", { timeZone: zone, dateStyle: "medium", timeStyle: "medium" }).format(at).replace(",", "")} ${zone}`;
  // The dashboard's machine may know zones that this browser does not.
  try { clock(0); } catch { clock = (at) => new Date(at).toUTCString(); }

  function say() {
    const isLive = heard.live && !refused;
    standing.dataset.live = isLive ? "yes" : "no";
    standing.className = `standing ${isLive ? "t-ok" : "t-warn"}`;
    standing.querySelector(".said").textContent = isLive ? "Live" : "Not live";
    standing.title = isLive ? "Events are heard as they happen" : refused || heard.why;
    const said = refused || (heard.live || heard.quiet ? "" : `${capital(heard.why)}. This page asks every ${SLOW_MS / 1000} seconds instead.`);
    alarm.hidden = !said;
    alarm.textContent = said ? `Not live: ${said} What you see is of ${clock(lastAt)}.` : "";
    document.getElementById("as-of").textContent = clock(lastAt);
    document.title = (refused ? "Not live · " : "") + middle.dataset.title;
  }

  // The page says what time it is where its instants are from: this machine's clock may be off.
  function setClock() { lastAt = Date.parse(middle.dataset.now); ahead = lastAt - Date.now(); }

  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

  function span(seconds) {
    const parts = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
    for (const [size, large, part, small] of parts) {
      if (seconds >= size) {
        const rest = Math.floor((seconds % size) / part);
        return Math.floor(seconds / size) + " " + large + (rest ? " " + rest + " " + small : "");
      }
    }
    return seconds + " s";
  }

  function tick() {
    for (const one of document.querySelectorAll("time[data-rel]")) {
      const seconds = Math.round((Date.now() + ahead - Date.parse(one.dateTime)) / 1000);
      const text = seconds === 0 || (seconds > 0 && one.dataset.rel === "soon") ? "now" : seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
      if (one.textContent !== text) one.textContent = text;
    }
  }

  // ---- telling those who do not look that it is otherwise now ----
  const mayNotify = () => "Notification" in window && Notification.permission === "granted";

  function tell(before, now) {
    const icon = document.querySelector("link[rel=icon]");
    if (icon.getAttribute("href") !== now.icon) icon.href = now.icon;
    if (before.said === now.said) return;
    document.getElementById("told").textContent = now.said;
    const isWorse = before.level && LEVELS.indexOf(now.level) < LEVELS.indexOf(before.level);
    if (isWorse) notify(now.title, now.said);
  }

  function notify(title, body) {
    if (document.hidden && mayNotify()) new Notification(title, { body, tag: middle.dataset.group, icon: middle.dataset.icon });
  }

  const asks = document.getElementById("notify");
  const offer = () => { asks.hidden = !("Notification" in window && Notification.permission === "default" && middle.dataset.level); };
  asks.addEventListener("click", () => Notification.requestPermission().then(offer));
  offer();

  // ---- asking for the page again ----
  async function refresh() {
    clearTimeout(timer);
    if (asked) { again = true; return; }
    asked = true;
    again = false;
    const wasRefused = refused, began = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { "X-Part": "1" }, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(ANSWER_MS) });
      if (answer.type === "opaqueredirect") {
        refused = "What answers leads elsewhere, as to where one signs in. Load the page again.";
      } else if ((answer.headers.get("content-type") || "").startsWith("application/json")) {
        const problem = await answer.json();
        refused = `${problem.said} ${problem.todo}`;
      } else {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("middle");
        if (fresh) {
          const said = document.querySelector("#middle > .flash[data-stays]");
          const focused = document.activeElement;
          const before = { ...middle.dataset };
          morph(middle, fresh);
          tell(before, fresh.dataset);
          // What was moved to another place has lost the focus.
          if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
          if (said && !document.querySelector("#middle > .flash")) middle.prepend(said);
          refused = "";
          // What kept the answers away is over, and was not only that there are many windows.
          if (wasRefused && !source && !document.hidden) listen();
          setClock();
        } else {
          refused = `What answers is not this page (HTTP ${answer.status}). Load it again, and look at what lies in between.`;
        }
      }
    } catch (error) {
      if (error.name === "TimeoutError" && source && heardAt > began) {
        // The stream speaks, so nothing is broken: streams of other windows leave this one no connection to ask on.
        hush();
        heard = { live: false, why: "too many windows of this browser show the dashboard, or it is slow" };
      } else {
        refused = "The dashboard itself does not answer. Start it again, or look at your connection.";
      }
    }
    asked = false;
    say();
    tick();
    if (refused && !wasRefused) notify(document.title, refused);
    later(again ? QUICK_MS : pause());
  }

  const pause = () => {
    const every = Number(middle.dataset.everyMs) || 2000;
    return refused || !heard.live ? Math.max(every, SLOW_MS) : every;
  };

  function later(ms) {
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(refresh, ms);
    else if (mayNotify()) timer = setTimeout(refresh, HIDDEN_MS);
  }

  // ---- hearing that something happened ----
  function hush() {
    clearTimeout(silence);
    if (source) source.close();
    source = null;
  }

  // A connection that was forgotten on the way is silent, and never breaks.
  function awaitMore() {
    clearTimeout(silence);
    silence = setTimeout(() => {
      heard = { live: false, why: `nothing has come from the dashboard for ${SILENT_MS / 1000} seconds` };
      listen();
      say();
    }, SILENT_MS);
  }

  function listen() {
    hush();
    awaitMore();
    const group = middle.dataset.group;
    source = new EventSource(`${root}/live${group ? `?group=${encodeURIComponent(group)}` : ""}`);
    const hear = (name, then) => source.addEventListener(name, (message) => { heardAt = performance.now(); awaitMore(); then(message); });
    hear("standing", (message) => { heard = JSON.parse(message.data); say(); });
    hear("change", () => { if (asked) again = true; else later(QUICK_MS); });
    source.onerror = () => {
      heard = { live: false, why: "the connection to the dashboard broke" };
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, SLOW_MS);
      say();
    };
  }

  // ---- themes ----
  const button = document.getElementById("theme");
  const themes = ["system", "light", "dark"];
  function wear(name) {
    theme.wear(name);
    theme.keep(name);
    button.textContent = `Theme: ${name}`;
    button.onclick = () => wear(themes[(themes.indexOf(name) + 1) % themes.length]);
  }
  button.hidden = false;
  wear(theme.kept() || "system");

  const own = document.createElement("option");
  own.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  document.getElementById("zones").append(own);
  const tab = document.querySelector(".tabs [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - (tab.parentElement.clientWidth - tab.offsetWidth) / 2;
  setClock();
  tick();
  setInterval(tick, 1000);
  if (middle.dataset.live !== "yes") return;
  // A page that nobody looks at holds no connection, and asks only now and then, if it may notify whoever left it open.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { later(HIDDEN_MS); hush(); }
    else { listen(); refresh(); }
  });
  heard.quiet = true;
  listen();
  later(Number(middle.dataset.everyMs) || 2000);
})();
