// What the pages do beyond HTML: keys, copying, the choices of this browser,
// and pausing what is live. Every page works without it.

const store = {
  get(name) { try { return localStorage.getItem("gatehouse." + name); } catch { return null; } },
  set(name, value) {
    try { value ? localStorage.setItem("gatehouse." + name, value) : localStorage.removeItem("gatehouse." + name); } catch { /* not kept */ }
  },
};

const status = document.createElement("p");
status.className = "toast";
status.setAttribute("role", "status");
document.body.append(status);
let quiet;
function say(text) {
  status.textContent = text;
  clearTimeout(quiet);
  quiet = setTimeout(() => { status.textContent = ""; }, 2000);
}

// Rows: j and k move, Enter opens.
const rows = () => [...document.querySelectorAll("[data-row]")];
let row = -1;
function move(by) {
  const all = rows();
  if (all.length === 0) return;
  all.forEach((r) => r.classList.remove("at"));
  row = Math.min(Math.max(row + by, 0), all.length - 1);
  all[row].classList.add("at");
  all[row].scrollIntoView({ block: "nearest" });
  all[row].querySelector("[data-open]")?.focus({ preventScroll: true });
}

const typing = (el) => el.closest("input, textarea, select, [contenteditable]") !== null;
let go = false;

document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") {
    document.activeElement?.blur();
    rows().forEach((r) => r.classList.remove("at"));
    row = -1;
    go = false;
    return;
  }
  if (e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || store.get("keys") === "off") return;
  if (go) {
    go = false;
    const to = document.querySelector(`[data-go="${CSS.escape(e.key)}"]`);
    if (to) { e.preventDefault(); to.click(); }
    return;
  }
  switch (e.key) {
    case "j": move(1); break;
    case "k": move(-1); break;
    case "g": go = true; setTimeout(() => { go = false; }, 1500); break;
    case "?": location.assign("/ui/help"); break;
    default: {
      const el = document.querySelector(`[data-key="${CSS.escape(e.key)}"]`);
      if (!el) return;
      if (el.matches("input, textarea, select")) el.focus(); else el.click();
    }
  }
  e.preventDefault();
});

// Copying: a click on anything that carries what to copy.
document.addEventListener("click", async (e) => {
  const el = e.target.closest("[data-copy]");
  if (!el || String(getSelection()) !== "") return;
  try {
    await navigator.clipboard.writeText(el.dataset.copy);
    say("Copied");
  } catch {
    say("This browser does not let a page copy");
  }
});

// Live parts: the node says when the chain grew, and htmx fetches the rows that are
// shown, one request at a time. A pause keeps what is on the screen.
let live, paused = false, grown = false, asking = false, total = 0;
const part = () => document.querySelector("[data-live]");
function fetchRows() {
  // Rows that somebody stands on are not taken away.
  if (!grown || asking || paused || document.hidden || !part() || part().contains(document.activeElement)) return;
  grown = false;
  asking = true;
  globalThis.htmx.trigger(part(), "grown");
}
function listen() {
  const el = part();
  if (live || !el || document.hidden) return;
  live = new EventSource(el.dataset.live);
  live.onmessage = (e) => { grown = true; total = Number(e.data); waiting(); fetchRows(); };
  live.addEventListener("end", () => {
    live.close();
    if (!paused) location.reload(); // what can be done with the session changed
  });
}
/** While it is paused the button says how far the page is behind. */
function waiting() {
  const el = document.querySelector("[data-pause]");
  if (!el) return;
  const behind = total - Number(document.querySelector("[data-count]")?.dataset.count ?? total);
  el.textContent = !paused ? "Pause" : behind > 0 ? `Go on, ${behind.toLocaleString("en")} newer` : "Go on";
}
document.addEventListener("htmx:finally:request", () => { asking = false; setTimeout(fetchRows, 250); });
document.addEventListener("focusout", () => setTimeout(fetchRows));
document.addEventListener("visibilitychange", () => {
  // A browser keeps few connections to one origin: what nobody sees gives its back.
  if (document.hidden) { live?.close(); live = undefined; } else { grown = true; listen(); fetchRows(); }
});
document.addEventListener("click", (e) => {
  const el = e.target.closest("[data-pause]");
  if (!el) return;
  paused = !paused;
  el.setAttribute("aria-pressed", String(paused));
  waiting();
  fetchRows();
});
document.querySelectorAll("[data-pause]").forEach((el) => { el.hidden = false; });
listen();

// The choices of this browser.
const settings = document.querySelector("[data-settings]");
if (settings) {
  settings.hidden = false;
  const { keys, theme } = settings.elements;
  keys.checked = store.get("keys") !== "off";
  theme.value = store.get("theme") ?? "";
  settings.addEventListener("change", () => {
    store.set("keys", keys.checked ? "" : "off");
    store.set("theme", theme.value);
    if (theme.value) document.documentElement.dataset.theme = theme.value;
    else delete document.documentElement.dataset.theme;
  });
  settings.addEventListener("submit", (e) => e.preventDefault());
}
