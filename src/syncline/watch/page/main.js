// The wiring: frames come in, everything is drawn at most once a screen refresh; keys, clicks, notes, time travel.
let wanted = false;
function draw() { if (wanted) return; wanted = true; requestAnimationFrame(() => { wanted = false; if (!S.frame || !S.layout) return; const t = performance.now();
  drawAlerts(); chooseOrder(); drawCards(); drawLinks(); drawCollectives(); drawGap(); drawEmpties(); drawNotes(); drawGroups(); drawFabric(); drawSeries(); drawSteps(); drawTail(); drawHeat(); drawGpus(); drawMarks(); showMode();
  S.drawMs = performance.now() - t; if (S.inputAt) { document.body.dataset.inputMs = (performance.now() - S.inputAt).toFixed(1); S.inputAt = 0; } document.body.dataset.frames = S.frames; document.body.dataset.drawMs = S.drawMs.toFixed(1); }); }
function showMode() {
  const m = $("mode"), late = performance.now() - S.lastFrame > 5000 && S.hello.mode === "live"; m.className = S.travel !== null ? "past" : late ? "lost" : S.paused ? "" : "live";
  const text = S.travel !== null ? `as of ${clock(S.frame.wall_s)}` : S.paused ? "paused" : late ? "no frame for 5 s" : S.hello.mode === "replay" ? `replay ${clock(S.frame.wall_s)}` : `live ${clock(S.frame.wall_s)}`; if (m.textContent !== text) m.textContent = text;
  $("when").textContent = S.hello.replay ? `${clock(S.frame.wall_s)} of ${time(S.hello.replay.length_s)}` : new Date(S.frame.wall_s * 1000).toLocaleString([], {hour12: false});
}
const get = async path => { const answer = await fetch(path, {credentials: "same-origin"}); if (!answer.ok) throw new Error(await answer.text()); return answer.json(); };
let fetching = false;
async function onFrame(frame) {
  S.lastFrame = performance.now();
  if (S.paused || S.travel !== null) { if (S.extent.first_s && frame.wall_s > (S.extent.last_s || 0)) S.extent.last_s = frame.wall_s; return; }
  if (!S.layout || S.layout.version !== frame.layout) { if (fetching) return; fetching = true; try { takeLayout(await get("/api/layout")); } finally { fetching = false; } if (S.layout.version !== frame.layout) return; }
  takeFrame(frame, true); draw();
}
function takeNotes(got) { S.notes = new Map(got.notes.map(n => [alertKey(n), n])); draw(); }
function connect() {
  const source = new EventSource("/api/stream");
  source.addEventListener("frame", e => onFrame(JSON.parse(e.data)).catch(() => 0));
  source.addEventListener("alert", e => { const event = JSON.parse(e.data); S.events.unshift({wall_s: event.wall_s, event: event.event, ...event.alert}); S.events.length = Math.min(S.events.length, 500); draw(); });
  source.addEventListener("notes", e => takeNotes(JSON.parse(e.data)));
  source.onerror = () => { $("mode").className = "lost"; $("mode").textContent = "connection lost, trying again"; };
}
async function refreshPast() { try { const x = await get("/api/extent"); S.extent = {...x, last_s: Math.max(x.last_s || 0, S.frame && S.travel === null && x.first_s ? S.frame.wall_s : 0) || x.last_s}; const got = await get("/api/alerts?limit=500"); S.events = got.alerts; takeNotes(await get("/api/notes")); } catch { /* the past is not vital */ } }
async function select(i, byItself) {
  if (i < 0 || !S.layout) return; if (!byItself) S.chosen = true; S.selected = i; S.selectedName = S.layout.names[i]; S.series = null; draw();
  const at = S.order.indexOf(i), list = $("links"); if (at >= 0 && !byItself) { const y = at * ROW; if (y < list.scrollTop || y > list.scrollTop + list.clientHeight - ROW) list.scrollTop = y - list.clientHeight / 2; }
  await loadSeries();
}
async function loadSeries() {
  if (!S.selectedName) return; const end = S.travel !== null ? S.travel + 60 : 1e12, start = S.travel !== null ? S.travel - 240 : S.frame.wall_s - 600;
  try { S.series = await get(`/api/series?link=${encodeURIComponent(S.selectedName)}&start_s=${start}&end_s=${end}&points=600`); draw(); } catch { S.series = null; }
}
async function travelTo(wall_s) {
  if (!S.extent.first_s) { await refreshPast(); if (!S.extent.first_s) return; }
  S.travel = Math.max(S.extent.first_s, Math.min(S.extent.last_s, wall_s));
  try { const got = await get(`/api/at?wall_s=${S.travel}`); if (JSON.stringify(got.layout.names) !== JSON.stringify(S.layout.names)) takeLayout({...got.layout, version: -2, picture: {devices: [], links: [], num_levels: 1}});
    takeFrame(got.frame, false); $("time").value = 1000 * (S.travel - S.extent.first_s) / Math.max(1e-9, S.extent.last_s - S.extent.first_s); draw(); loadSeries(); } catch { S.travel = null; }
}
function live() { S.travel = null; S.series = null; setPaused(false); $("time").value = 1000; if (S.layout && S.layout.version === -2) S.layout = null; loadSeries(); draw(); }
function setPaused(p) { S.paused = p; $("pause").setAttribute("aria-pressed", p); $("pause").textContent = p ? "Go on" : "Pause"; draw(); }
function theme() { const root = document.documentElement; root.dataset.theme = isDark() ? "light" : "dark"; try { localStorage.setItem("syncline-theme", root.dataset.theme); } catch { /* no storage */ } forgetColours(); legend(); draw(); }
function step(by) { if (!S.order.length) return; const at = S.order.indexOf(S.selected); select(S.order[Math.max(0, Math.min(S.order.length - 1, at + by))]); }
function tip(event, text) { const t = $("tip"); t.hidden = !text; if (text) { t.textContent = text; t.style.left = Math.max(0, Math.min(innerWidth - t.offsetWidth - 8, event.clientX + 14)) + "px"; t.style.top = Math.min(innerHeight - 60, event.clientY + 14) + "px"; } }
function changeView() { S.view = viewOf() === "groups" ? "diagram" : "groups"; S.zoom = -1; S.geometry = null; draw(); }
function zoomTo(k) { S.zoom = S.zoom === k ? -1 : k; S.geometry = null; draw(); }

// Acknowledge and silence: a reason is asked for, and kept with the alert.
let about = null;
function askNote(kind, key) {
  const alert = S.frame.alerts.find(a => alertKey(a) === key); if (!alert) return; about = {kind, alert};
  if (kind === "none") { sendNote({reason: ""}); return; }
  $("note-head").textContent = kind === "silenced" ? "Silence this alert" : "Acknowledge this alert"; $("note-about").textContent = `${alert.rule} at ${alert.place}`; $("note-for-label").hidden = kind !== "silenced"; $("note-error").textContent = ""; $("note-reason").value = "";
  try { $("note-by").value = localStorage.getItem("syncline-by") || ""; } catch { /* no storage */ } $("note").showModal(); $("note-reason").focus();
}
async function sendNote(more) {
  const a = about.alert, body = {kind: about.kind, rule: a.rule, place: a.place, host: a.host || "", ...more};
  const answer = await fetch("/api/notes", {method: "POST", credentials: "same-origin", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
  if (answer.ok) { takeNotes(await answer.json()); $("note").close(); } else $("note-error").textContent = await answer.text();
}
$("note-form").addEventListener("submit", e => { e.preventDefault(); const by = $("note-by").value.trim(); try { localStorage.setItem("syncline-by", by); } catch { /* no storage */ } sendNote({reason: $("note-reason").value, by, for_s: +$("note-for").value}).catch(error => { $("note-error").textContent = error.message; }); });
$("note-cancel").addEventListener("click", () => $("note").close());

$("filter").addEventListener("input", e => { S.inputAt = performance.now(); S.filter = e.target.value; $("links").scrollTop = 0; draw(); });
$("link-columns").addEventListener("click", e => { const b = e.target.closest("button[data-sort]"); if (!b) return; if (S.sort === b.dataset.sort) S.down = !S.down; else { S.sort = b.dataset.sort; S.down = S.sort !== "name"; } drawColumns(); document.querySelector(`#link-columns button[data-sort="${S.sort}"]`).focus(); draw(); });
$("links").addEventListener("scroll", () => { if (S.use) drawLinks(); });
$("links").addEventListener("click", e => { const row = e.target.closest(".row"); if (row) select(+row.dataset.link); });
$("fabric").addEventListener("click", e => { const box = e.target.getBoundingClientRect(), i = nearestLink(e.clientX - box.left, e.clientY - box.top); if (i >= 0) select(i); });
$("fabric").addEventListener("mousemove", e => { const box = e.target.getBoundingClientRect(), i = nearestLink(e.clientX - box.left, e.clientY - box.top);
  tip(e, i >= 0 ? `${S.layout.names[i]}\n${isDown(i) ? "down" : rate(S.rate[i]) + (S.capacity[i] > 0 ? " of " + rate(S.capacity[i]) : ", capacity not known")}${S.peak[i] >= 0 ? "\npeak " + percent(S.peak[i]) : ""}` : ""); });
$("fabric").addEventListener("mouseleave", e => tip(e, ""));
$("groups").addEventListener("click", e => { const b = e.target.closest("button[data-group]"); if (b) zoomTo(+b.dataset.group); });
$("zoom-out").addEventListener("click", () => zoomTo(-1)); $("view").addEventListener("click", changeView);
$("heat").addEventListener("mousemove", e => { const b = S.heatBox, box = e.target.getBoundingClientRect(); if (!b) return; const m = S.frame.job.pairs_Bps, col = Math.floor((e.clientX - box.left - b.x0) / b.size), row = Math.floor((e.clientY - box.top - b.y0) / b.size);
  tip(e, m[row] && m[row][col] !== undefined ? `rank ${row} to rank ${col}: ${rate(m[row][col])}` : ""); });
$("heat").addEventListener("mouseleave", e => tip(e, ""));
$("alerts").addEventListener("click", e => { const b = e.target.closest("button[data-act]"); if (!b) return; const key = b.dataset.key; if (b.dataset.act === "show") { const a = S.frame.alerts.find(one => alertKey(one) === key); if (a && S.index.has(a.place)) select(S.index.get(a.place)); } else askNote(b.dataset.act, key); });
$("collectives").addEventListener("click", e => { const row = e.target.closest("tr[data-coll]"); if (row) { S.collective = row.dataset.coll; draw(); } });
$("pause").addEventListener("click", () => setPaused(!S.paused)); $("theme").addEventListener("click", theme); $("live").addEventListener("click", live);
$("help").addEventListener("click", () => $("keys").showModal());
$("time").addEventListener("input", e => { const x = S.extent; if (x.first_s) { if (+e.target.value >= 1000) live(); else travelTo(x.first_s + (x.last_s - x.first_s) * e.target.value / 1000); } });
document.addEventListener("keydown", e => {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.target.id !== "time";
  if (e.key === "Escape") { if (typing) { e.target.value = ""; S.filter = ""; e.target.blur(); } else if (S.zoom >= 0) zoomTo(-1); draw(); return; }
  if (typing) return;
  const act = {"/": () => $("filter").focus(), j: () => step(1), k: () => step(-1), ArrowDown: () => step(1), ArrowUp: () => step(-1), " ": () => setPaused(!S.paused), l: live, t: theme, g: changeView, "?": () => $("keys").showModal(),
    ArrowLeft: () => travelTo((S.travel ?? S.frame.wall_s) - 1), ArrowRight: () => S.travel !== null && travelTo(S.travel + 1)}[e.key];
  const onButton = /^(BUTTON|SUMMARY|A)$/.test(e.target.tagName);
  if (act && !(onButton && (e.key === " " || e.key.startsWith("Arrow")))) { e.preventDefault(); act(); }
});
addEventListener("resize", draw); addEventListener("beforeprint", () => { forgetColours(); if (S.frame && S.layout) { S.geometry = null; drawFabric(); drawSeries(); drawSteps(); drawTail(); drawHeat(); drawLinks(); } }); addEventListener("afterprint", () => { forgetColours(); S.geometry = null; draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetColours(); legend(); draw(); });
try { const kept = localStorage.getItem("syncline-theme"); if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept; } catch { /* no storage */ }
if (location.search) history.replaceState(null, "", location.pathname); // the token is in the cookie now
legend(); drawColumns();
get("/api/hello").then(h => { S.hello = h; $("title").textContent = h.title; document.title = `${h.title || "syncline"} · watch`; S.extent = h.history || {}; connect(); refreshPast(); setInterval(refreshPast, 15000); setInterval(() => S.frame && showMode(), 1000); })
  .catch(error => { $("mode").className = "lost"; $("mode").textContent = error.message; });
