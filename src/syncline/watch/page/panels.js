// The parts that are text: cards, alerts, the list of links, collectives, health.
function alertLinks() { const found = new Set(); if (!S.frame || !S.layout) return found; const index = S.index || (S.index = new Map());
  if (index.layout !== S.layout) { index.clear(); S.layout.names.forEach((n, i) => index.set(n, i)); index.layout = S.layout; }
  for (const a of S.frame.alerts) if (index.has(a.place)) found.add(index.get(a.place)); return found; }

function card(value, label, kind = "") { return `<div class="card ${kind}" title="${label}"><b>${value}</b><span>${label}</span></div>`; }
function drawCards() {
  const f = S.frame; if (!f || !S.use) return; let sum = 0, cap = 0, peak = 0, known = 0;
  for (let i = 0; i < S.num; i++) if (S.capacity[i] > 0 && S.rate[i] >= 0) { sum += S.rate[i]; cap += S.capacity[i]; known++; if (S.peak[i] > peak) peak = S.peak[i]; }
  const total = name => { let s = 0; for (const v of S.sparse[name].values()) s += v; return s; };
  const down = [...S.sparse.up.values()].filter(v => v === 0).length, steps = f.job.steps, last = steps.slice(-5), mid = key => last.length ? last.map(s => s[key]).sort((a, b) => a - b)[last.length >> 1] : NaN;
  const step = mid("step_s"), share = mid("network_share"), planned = (S.hello.expected || {}).step_s, money = f.alerts.reduce((s, a) => Math.max(s, a.cost_usd_per_hour || 0), 0);
  const critical = f.alerts.filter(a => a.severity === "critical").length, average = known ? sum / cap : NaN, drops = total("drops_per_s");
  $("cards").innerHTML = card(f.alerts.length || "none", f.alerts.length ? `alerts, ${critical} critical` : "alerts", critical ? "crit" : f.alerts.length ? "warn" : "ok")
    + card(money > 0 ? "$" + money.toFixed(money < 10 ? 2 : 0) : "–", "lost an hour (worst alert)")
    + card(`${S.num - down} / ${S.num}`, "links up", down ? "crit" : "") + card(percent(average), "average use (60–80 % good)", average > .8 ? "warn" : "")
    + card(percent(peak || NaN), "highest peak", peak > .95 ? "warn" : "") + card(`${total("bursts").toFixed(0)} · ${drops.toFixed(drops < 10 ? 1 : 0)}`, "bursts · drops a second", drops > 1 ? "warn" : "")
    + card(time(step), planned ? `step (plan ${time(planned)}, ${difference(step / planned - 1)})` : "step", planned && step > 1.25 * planned ? "warn" : "")
    + card(percent(share), "exposed network of a step", share > .25 ? "warn" : "");
}
function difference(share) { if (isNaN(share)) return "–"; const p = Math.round(100 * share); return `${p > 0 ? "+" : ""}${p || 0} %`; }
let alertsKey = "";
function drawAlerts() {
  const alerts = S.frame ? S.frame.alerts : [], now = S.frame ? S.frame.wall_s : 0;
  $("alert-count").textContent = alerts.length ? `${alerts.length} active` : "";
  const recent = S.travel === null ? S.events.filter(e => e.event === "cleared" && now - e.wall_s < 120).slice(0, 6) : [];
  const html = (alerts.length ? "" : `<li class="none">Nothing to report.</li>`) + alerts.map(a => item(a, now)).join("") + recent.map(e => `<li class="gone" data-place="${escape(e.place)}"><span class="rule">✓ ${escape(e.rule)}</span> <span class="place">${escape(e.place)}</span> <span class="meta">cleared ${clock(e.wall_s)}</span></li>`).join("");
  if (html !== alertsKey) { alertsKey = html; $("alerts").innerHTML = html; }
}
function item(a, now) {
  const cost = a.cost_usd_per_hour != null ? ` · $${a.cost_usd_per_hour.toFixed(2)} an hour` : "";
  return `<li class="${a.severity}" data-place="${escape(a.place)}" title="${escape([a.meaning, a.fix].filter(Boolean).join("\n"))}"><span class="rule">${a.severity === "critical" ? "▲" : "△"} ${escape(a.rule)}</span> <span class="place">${escape(a.place)}</span>
    <div>${escape(a.observed)}${a.expected ? `, expected ${escape(a.expected)}` : ""}</div><div class="meta">since ${clock(a.since_s)} (${ago(Math.max(0, now - a.since_s))})${cost}${a.evidence.length ? " · " + escape(a.evidence.join("; ")) : ""}</div><div class="meta">${escape(a.meaning)}</div></li>`;
}
// The list shows what fits the window, whatever the number of links.
const ROW = 26;
let orderKey = "", orderAt = 0;
function chooseOrder() {
  // A list that jumps twice a second cannot be read: it is sorted anew every three seconds, or when asked.
  const asked = `${S.filter}|${S.sort}|${S.layout && S.layout.version}|${S.travel}`;
  if (!S.layout || !S.use || (asked === orderKey && performance.now() - orderAt < 3000)) return; orderKey = asked; orderAt = performance.now(); const words = S.filter.toLowerCase().split(/\s+/).filter(Boolean), order = [];
  for (let i = 0; i < S.num; i++) if (words.every(w => matches(i, w))) order.push(i);
  const by = {use: i => S.use[i], peak: i => S.peak[i], bursts: i => S.sparse.bursts.get(i) || 0, drops: i => S.sparse.drops_per_s.get(i) || 0}[S.sort];
  if (by) { const key = new Float64Array(S.num); for (const i of order) { const v = by(i); key[i] = v >= 0 ? v : -1; if (isDown(i)) key[i] = 1e9; } order.sort((a, b) => key[b] - key[a] || a - b); }
  else order.sort((a, b) => S.layout.names[a].localeCompare(S.layout.names[b], undefined, {numeric: true}));
  S.order = order; $("link-count").textContent = order.length === S.num ? `${S.num}` : `${order.length} of ${S.num}`;
}
function matches(i, word) {
  if (word.startsWith(">") && word.length > 1) return S.use[i] * 100 > +word.slice(1) || S.peak[i] * 100 > +word.slice(1);
  if (word.startsWith("rail:")) return String(S.layout.rail[i]) === word.slice(5);
  if (word === "down") return isDown(i); if (word === "drops") return S.sparse.drops_per_s.has(i); if (word === "bursts") return S.sparse.bursts.has(i);
  return S.lower[i].includes(word);
}
const pool = [];
function drawLinks() {
  const list = $("links"), pad = $("pad"); pad.style.height = S.order.length * ROW + "px";
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4), count = Math.min(S.order.length - first, Math.ceil(list.clientHeight / ROW) + 8);
  while (pool.length < count) { const row = document.createElement("div"); row.className = "row"; row.setAttribute("role", "option");
    row.innerHTML = `<span class="n"><bdi></bdi></span><span class="track"><i></i><u></u></span><span class="v"></span>`; pad.append(row); pool.push(row); }
  pool.forEach((row, k) => {
    row.hidden = k >= count; if (row.hidden) return; const i = S.order[first + k], u = S.use[i], p = S.peak[i], down = isDown(i), drops = S.sparse.drops_per_s.get(i);
    row.style.top = (first + k) * ROW + "px"; row.dataset.link = i; row.id = "link-" + i; row.className = "row" + (down ? " down" : ""); row.setAttribute("aria-selected", i === S.selected);
    const [name, bar, mark, value] = [row.firstChild.firstChild, row.children[1].children[0], row.children[1].children[1], row.children[2]];
    if (name.textContent !== S.layout.names[i]) { name.textContent = S.layout.names[i]; row.title = S.layout.names[i]; }
    bar.style.width = Math.min(100, 100 * (u || 0)) + "%"; bar.style.background = colour(u); mark.style.left = p >= 0 ? `calc(${Math.min(100, 100 * p)}% - 2px)` : "-9px";
    value.className = drops || down ? "v flag" : "v"; value.textContent = down ? "down" : drops ? drops.toFixed(0) + " dr/s" : u >= 0 ? (100 * u).toFixed(0) + " %" : S.rate[i] >= 0 ? rate(S.rate[i]) : "–";
  });
  $("links").setAttribute("aria-activedescendant", S.selected >= 0 ? "link-" + S.selected : "");
}
function drawCollectives() {
  const rows = S.frame ? S.frame.job.collectives : [];
  if (!S.collective || !rows.some(c => c.key === S.collective)) S.collective = rows.length ? rows[0].key : S.collective;
  $("collectives").innerHTML = rows.length ? `<table><tr><th>collective</th><th>p50</th><th>p99</th><th>predicted</th><th>gap</th></tr>` + rows.slice(0, 12).map(c => {
    const gap = c.predicted_s ? c.transfer_s / c.predicted_s - 1 : NaN; return `<tr data-key="${escape(c.key)}" aria-selected="${c.key === S.collective}"><td>${escape(c.key)}</td><td>${time(c.p50_s)}</td><td>${time(c.p99_s)}</td><td>${time(c.predicted_s)}</td>
      <td class="${gap > .25 ? "slow" : gap <= .25 ? "fine" : ""}">${difference(gap)}</td></tr>`; }).join("") + "</table>" : "";
}
function drawNotes() {
  const f = S.frame, h = f.health || {}, problems = Object.entries(h.problems || {}).map(([k, v]) => `${k}: ${v}`), past = h.history || {};
  if (past.problem) problems.push("history: " + past.problem);
  $("health").textContent = $("health").title = [h.host, h.cpu_share >= 0 ? `agent ${(100 * h.cpu_share).toFixed(1)} % of a core` : "", h.sampled ? `1 ms on ${h.sampled.length} interfaces (${h.sampler})` : "", h.num_hosts ? `${h.num_hosts} hosts` : "", ...problems].filter(Boolean).join(" · ");
  const s = f.job.steps, last = s[s.length - 1]; $("step-note").textContent = last ? `step ${last.step}, ${last.num_ranks} ranks` : "";
  if (S.selected >= 0) { const i = S.selected, extra = [["bursts", "bursts"], ["drops_per_s", "drops/s"], ["errors_per_s", "errors/s"], ["pauses_per_s", "pauses/s"], ["backlog_bytes", "B waiting"]].map(([k, t]) => S.sparse[k].has(i) ? `${S.sparse[k].get(i)} ${t}` : "").filter(Boolean);
    $("link-name").textContent = [S.selectedName, isDown(i) ? "DOWN" : rate(S.rate[i]) + (S.capacity[i] > 0 ? ` of ${rate(S.capacity[i])}` : ""), ...extra].filter(Boolean).join(" · "); }
}
function legend() {
  const ramp = [0, .2, .4, .6, .8, .95, 1.05].map(u => loadColour(u)).join(); $("scale").innerHTML = `0 %<i class="ramp" style="background:linear-gradient(90deg,${ramp});margin-left:4px"></i>100 % &nbsp; ▲ alert &nbsp; ┄ down`;
  const key = (c, t) => `<i style="background:var(${c})"></i>${t}`; $("link-key").innerHTML = key("--bar", "mean") + key("--peak", "peak") + `<i class="dash"></i>predicted`;
  $("step-key").innerHTML = key("--compute", "computing") + key("--exposed", "exposed network") + key("--other", "other") + `<i class="dash"></i>predicted`;
}
