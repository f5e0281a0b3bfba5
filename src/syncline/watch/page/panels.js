// The panels that are made of elements: cards, alerts, links, collectives, the gap, what is not here yet.
const ROW = 26;
function drawCards() {
  const f = S.frame, known = [...S.use].filter(u => u >= 0), mean = known.length ? known.reduce((a, b) => a + b, 0) / known.length : NaN, down = S.sparse.up ? S.sparse.up.size : 0;
  const s = f.job.steps, last = s[s.length - 1], planned = (S.hello.expected || {}).step_s, cost = S.cost || 0;
  const card = (name, value, bad) => el("span", {class: bad ? "bad" : ""}, name + " ", el("b", {}, value));
  fill("cards", card("alerts", String(f.alerts.filter(a => !noteOf(a)).length), f.alerts.some(a => a.severity === "critical" && !noteOf(a))), cost > 0 ? card("losing", money(cost) + " an hour", true) : null,
    f.health.num_silent >= 0 ? card("hosts", `${f.health.num_hosts} of ${f.health.num_hosts + f.health.num_silent} live`, f.health.num_silent > 0) : null, card("links", `${S.num - down} of ${S.num} up`, down > 0), isNaN(mean) ? null : card("average use", percent(mean)), last ? card("step", time(last.step_s) + (planned ? ` (predicted ${time(planned)})` : ""), planned && last.step_s > 1.25 * planned) : null,
    f.job.phase ? card("the job says", f.job.phase) : null);
}
// Incidents come with their effects and their cost, the worst first; those with a note go to the end.
const grouped = alerts => alerts.map(a => ({alert: a, effects: a.effects || [], cost: a.cost_usd_per_hour || 0})).sort((a, b) => Number(!!noteOf(a.alert)) - Number(!!noteOf(b.alert)));
const severityClass = a => a.severity === "critical" ? "critical" : a.severity === "warning" ? "warning" : "unknown";
function alertBody({alert: a, effects, cost}) {
  const note = noteOf(a), key = alertKey(a), seen = a.expected ? `${a.observed}; expected ${a.expected}` : a.observed;
  const act = (kind, text) => el("button", {type: "button", "data-act": kind, "data-key": key}, text);
  return [
    el("p", {}, seen + ".", a.since_s ? ` Since ${clock(a.since_s)} (${ago(S.frame.wall_s - a.since_s)}${a.times > 1 ? `, opened ${a.times} times` : ""}).` : ""),
    a.fix ? el("p", {class: "fix"}, el("b", {}, "Fix: "), a.fix) : null, a.meaning ? el("p", {}, a.meaning) : null,
    a.evidence && a.evidence.length ? el("p", {class: "evidence"}, "Evidence: " + a.evidence.join("; ")) : null,
    effects.length ? el("ul", {class: "effects"}, effects.slice(0, 6).map(e => el("li", {}, `${e.rule} at ${e.place}: ${e.observed}`)), effects.length > 6 ? el("li", {}, `and ${effects.length - 6} more effects`) : null) : null,
    note ? el("p", {class: "said"}, `${note.kind} by ${note.by || "somebody"} at ${clock(note.at_s)}${note.until_s ? `, until ${new Date(note.until_s * 1000).toLocaleString([], {hour12: false})}` : ""}: ${note.reason}`) : null,
    el("div", {class: "acts"}, S.index.has(a.place) ? act("show", "Show the link") : null, note ? act("none", "Take the note back") : [act("acknowledged", "Acknowledge"), act("silenced", "Silence")]),
  ];
}
function alertHead({alert: a, cost}) {
  return [el("span", {class: "sev"}, a.severity), el("span", {class: "place"}, a.place), el("span", {class: "rule"}, a.rule + (a.host && !a.place.startsWith(a.host) ? ` · ${a.host}` : "")), cost > 0 ? el("span", {class: "cost"}, `${money(cost)} an hour`) : null];
}
let alertsKey = "", alertsAt = 0;
function drawAlerts() {
  const groups = grouped(S.frame.alerts), key = groups.map(g => alertKey(g.alert) + g.alert.severity + g.effects.length + (noteOf(g.alert) ? noteOf(g.alert).kind : "")).join() + S.travel + S.events.length;
  if (key === alertsKey && performance.now() - alertsAt < 1000) return; alertsKey = key; alertsAt = performance.now();
  S.cost = Math.max(0, ...groups.filter(g => !noteOf(g.alert)).map(g => g.cost));
  const box = $("alerts"), open = new Set([...box.querySelectorAll("details[open]")].map(d => d.dataset.key)), focus = document.activeElement, held = box.contains(focus) ? [focus.dataset.key, focus.dataset.act] : null;
  const made = groups.slice(0, 40).map((group, n) => { const a = group.alert, note = noteOf(a), k = alertKey(a), cls = `alert ${severityClass(a)}${note ? " quiet" : ""}`;
    return n === 0 && !note ? el("article", {class: cls, "data-place": a.place, "data-key": k}, el("div", {class: "top"}, alertHead(group)), alertBody(group))
      : el("details", {class: cls, "data-place": a.place, "data-key": k, open: open.has(k)}, el("summary", {"data-key": k, "data-act": "summary"}, alertHead(group).flatMap(node => [node, " "]), el("span", {}, a.observed + (note ? ` (${note.kind})` : ""))), alertBody(group)); });
  const active = groups.filter(g => !noteOf(g.alert)).length;
  fill("alerts", active ? null : el("div", {class: "calm"}, "Nothing to report: every link and rank that is watched runs as it should."), made, groups.length > 40 ? el("p", {}, `and ${groups.length - 40} more`) : null,
    S.events.length ? el("ul", {class: "events", "aria-label": "What happened"}, S.events.slice(0, 4).map(e => el("li", {}, `${clock(e.wall_s)} ${e.event} ${e.rule} ${e.place}`))) : null);
  if (held && held[0] !== undefined) { const again = [...box.querySelectorAll("[data-key]")].find(node => node.dataset.key === held[0] && node.dataset.act === held[1]); if (again) again.focus(); }
  // The worst thing selects itself, until the reader chooses.
  if (!S.chosen && groups.length && S.index.has(groups[0].alert.place) && S.index.get(groups[0].alert.place) !== S.selected) select(S.index.get(groups[0].alert.place), true);
}
const COLUMNS = [["name", "link", "c-name"], ["use", "use", "c-use"], ["peak", "peak", "c-peak"], ["rate", "rate", "c-rate"], ["plan", "predicted", "c-plan"], ["drops", "drops/s", "c-drops"]];
function drawColumns() {
  fill("link-columns", COLUMNS.map(([id, text, cls]) => el("div", {role: "columnheader", class: cls, "aria-sort": S.sort === id ? (S.down ? "descending" : "ascending") : "none"}, el("button", {type: "button", "data-sort": id}, text + (S.sort === id ? (S.down ? " ↓" : " ↑") : "")))));
}
let orderKey = "", orderAt = 0;
function chooseOrder() {
  // A list that jumps twice a second cannot be read: it is sorted anew every three seconds, or when asked.
  const asked = `${S.filter}|${S.sort}|${S.down}|${S.zoom}|${S.layout && S.layout.version}|${S.travel}`;
  if (!S.layout || !S.use || (asked === orderKey && performance.now() - orderAt < 3000)) return; orderKey = asked; orderAt = performance.now();
  const words = S.filter.toLowerCase().split(/\s+/).filter(Boolean), order = [], group = S.zoom >= 0 && viewOf() === "groups" ? S.layout.picture.group_of : null;
  for (let i = 0; i < S.num; i++) if ((!group || group[i] === S.zoom) && words.every(w => matches(i, w))) order.push(i);
  const by = {use: i => S.use[i] >= 0 ? S.use[i] : -1, peak: i => S.peak[i], rate: i => S.rate[i], plan: i => S.planned[i], drops: i => S.sparse.drops_per_s.get(i) || 0}[S.sort], sign = S.down ? 1 : -1, bad = alertLinks();
  if (by) { const key = new Float64Array(S.num); for (const i of order) { const v = by(i); key[i] = v >= 0 ? v : -1; if (S.down && (isDown(i) || bad.has(i))) key[i] += 1e18; } order.sort((a, b) => sign * (key[b] - key[a]) || a - b); }
  else order.sort((a, b) => -sign * S.layout.names[a].localeCompare(S.layout.names[b], undefined, {numeric: true}));
  S.order = order; if (S.selected < 0 && order.length && !S.selectedName) select(order[0], true); $("link-count").textContent = order.length === S.num ? `${S.num}` : `${order.length} of ${S.num}`;
}
function matches(i, word) {
  if (word.startsWith(">") && word.length > 1) return S.use[i] * 100 > +word.slice(1) || S.peak[i] * 100 > +word.slice(1);
  if (word.startsWith("rail:")) return String(S.layout.rail[i]) === word.slice(5);
  if (word === "down") return isDown(i); if (word === "drops") return S.sparse.drops_per_s.has(i); if (word === "bursts") return S.sparse.bursts.has(i);
  return S.lower[i].includes(word);
}
const pool = [];
function newRow() {
  const cell = (cls, ...inside) => el("div", {role: "cell", class: cls}, ...inside), row = el("div", {class: "row", role: "row"}, cell("c-name", el("bdi")), el("div", {role: "cell", class: "track c-use"}, el("i"), el("u")), cell("c-peak"), cell("c-rate"), cell("c-plan"), cell("c-drops"));
  $("pad").append(row); pool.push(row);
}
function drawLinks() {
  const list = $("links"), pad = $("pad"); pad.style.height = S.order.length * ROW + "px";
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4), count = Math.min(S.order.length - first, Math.ceil(list.clientHeight / ROW) + 8);
  while (pool.length < count) newRow();
  pool.forEach((row, k) => {
    row.hidden = k >= count; row.style.display = row.hidden ? "none" : ""; if (row.hidden) return; const i = S.order[first + k], u = S.use[i], p = S.peak[i], down = isDown(i), drops = S.sparse.drops_per_s.get(i);
    row.style.top = (first + k) * ROW + "px"; row.dataset.link = i; row.id = "link-" + i; row.setAttribute("aria-selected", i === S.selected); row.setAttribute("aria-rowindex", first + k + 1);
    const [name, track, peak, speed, plan, lost] = row.children, [bar, mark] = track.children;
    if (name.firstChild.textContent !== S.layout.names[i]) { name.firstChild.textContent = S.layout.names[i]; row.title = S.layout.names[i]; }
    bar.style.width = Math.min(100, 100 * (u >= 0 ? u : 0)) + "%"; bar.style.background = colour(u); mark.style.left = p >= 0 ? `calc(${Math.min(100, 100 * p)}% - 2px)` : "-9px"; track.title = u >= 0 ? percent(u) : "capacity not known";
    peak.textContent = p >= 0 ? percent(p) : "–"; speed.textContent = down ? "down" : rate(S.rate[i]); speed.className = "c-rate" + (down ? " flag" : u >= 0 ? "" : " unknown"); plan.textContent = S.planned[i] >= 0 ? rate(S.planned[i]) : "–"; plan.title = S.planned[i] >= 0 && S.mean[i] >= 0 ? `${rate(S.mean[i])} over ten seconds` : ""; lost.textContent = drops ? drops.toFixed(drops < 10 ? 1 : 0) : ""; lost.className = "c-drops" + (drops ? " flag" : "");
  });
}
function drawCollectives() {
  const rows = S.frame.job.collectives; $("panel-collectives").hidden = !rows.length; if (!rows.length) return;
  if (!S.collective || !rows.some(c => c.key === S.collective)) S.collective = rows[0].key;
  const focus = document.activeElement, held = $("collectives").contains(focus) ? focus.dataset.coll : undefined;
  fill("collectives", el("table", {}, el("thead", {}, el("tr", {}, ["collective", "p50", "p99", "predicted", "gap"].map(t => el("th", {scope: "col"}, t)))), el("tbody", {}, rows.slice(0, 16).map(c => {
    const gap = c.predicted_s ? c.recent_s / c.predicted_s - 1 : NaN;
    return el("tr", {"data-coll": c.key, "aria-selected": c.key === S.collective}, el("td", {}, el("button", {type: "button", "data-coll": c.key}, c.key)), el("td", {}, time(c.p50_s)), el("td", {}, time(c.p99_s)), el("td", {title: c.is_told === false ? "of another size, in proportion" : ""}, c.predicted_s ? (c.is_told === false ? "≈ " : "") + time(c.predicted_s) : "not predicted"), el("td", {class: gap > .25 ? "slow" : gap <= .25 ? "fine" : ""}, difference(gap))); }))));
  if (held !== undefined) { const again = [...$("collectives").querySelectorAll("button")].find(b => b.dataset.coll === held); if (again) again.focus(); }
}
// Where the gap to the prediction is; what is lost is said where its cause is.
function drawGap() {
  const x = S.hello.expected || {}, job = S.frame.job, steps = job.steps.slice(-5), middle = v => v.slice().sort((a, b) => a - b)[v.length >> 1], rows = [];
  if (!x.source) { $("panel-gap").hidden = true; document.querySelector("main").classList.remove("with-gap"); return; }
  $("gap-source").textContent = x.source; let step = NaN;
  if (steps.length && x.step_s) { step = middle(steps.map(s => s.step_s)); rows.push(["step", step, x.step_s, 1]); const e = middle(steps.map(s => s.exposed_s)), late = middle(steps.map(s => s.late_s || 0)); if (x.exposed_s !== null && x.exposed_s !== undefined) rows.push(["exposed network", Math.max(0, e - late), x.exposed_s, 1]); if (late > .02 * step) rows.push(["waiting for the last rank", late, 0, 1]); if (x.step_s && x.exposed_s !== null) rows.push(["computing and the rest", step - e, x.step_s - x.exposed_s, 1]); }
  const colls = job.collectives.filter(c => c.predicted_s).map(c => [c.key, c.recent_s, c.predicted_s, c.num]); colls.sort((a, b) => b[3] * (b[1] - b[2]) - a[3] * (a[1] - a[2])); rows.push(...colls.slice(0, 5));
  const apart = i => Math.abs(S.mean[i] - S.planned[i]) / (S.capacity[i] > 0 ? S.capacity[i] : S.planned[i] || 1);
  const late = [...S.planned.keys()].filter(i => S.planned[i] >= 0 && S.mean[i] >= 0).sort((a, b) => apart(b) - apart(a)).slice(0, 3).map(i => [S.layout.names[i], S.mean[i], S.planned[i]]);
  const lost = step > x.step_s ? 1 - x.step_s / step : 0, worst = rows.filter(r => r[0] !== "step").sort((a, b) => b[3] * (b[1] - b[2]) - a[3] * (a[1] - a[2]))[0];
  const sum = !rows.length && !late.length ? "Nothing that was predicted has been seen yet." : lost > .02 ? `The step takes ${difference(step / x.step_s - 1)} against the plan; most of it in ${worst ? worst[0] : "the step"}.` : step <= x.step_s * 1.02 ? "The step keeps to its prediction." : "Measured beside predicted:";
  const line = (name, now, planned, show) => { const gap = now / planned - 1; return el("tr", {}, el("td", {}, name), el("td", {}, show(now)), el("td", {}, planned > 0 ? show(planned) : ""), el("td", {class: gap > .25 ? "slow" : "fine"}, planned > 0 ? difference(gap) : "")); };
  fill("gap", el("p", {class: "sum"}, sum), rows.length || late.length ? el("table", {}, el("thead", {}, el("tr", {}, ["", "measured", "predicted", "gap"].map(t => el("th", {scope: "col"}, t || el("span", {class: "sr"}, "what"))))), el("tbody", {}, rows.map(r => line(r[0], r[1], r[2], time)), late.map(r => el("tr", {}, el("td", {}, r[0]), el("td", {}, rate(r[1])), el("td", {}, rate(r[2])), el("td", {}, difference(r[1] / r[2] - 1)))))) : null);
  $("panel-gap").hidden = false; document.querySelector("main").classList.add("with-gap");
}
// A panel without anything to show takes one line, which names the command that would fill it.
const FILLS = {
  "panel-collectives": ["Collectives", "train with syncline.torch.synchronize, or --inspector FOLDER (NCCL), --flight-recorder FOLDER (PyTorch)"], "panel-steps": ["Steps", "train with syncline.torch.synchronize"],
  "panel-heat": ["Rank to rank", "train with syncline.torch.synchronize"], gap: ["Beside what was predicted", "syncline plan CLUSTER JOB --save plan.json, then --expect plan.json"], past: ["Time travel", "--history watch.db"], rate: ["Use in per cent", "--links links.yaml or --cluster cluster.yaml (capacities are not known)"],
};
let emptyKey = "";
function drawEmpties() {
  const job = S.frame.job; $("panel-steps").hidden = !job.steps.length; $("panel-heat").hidden = !job.pairs_Bps.length;
  const missing = ["panel-collectives", "panel-steps", "panel-heat"].filter(id => $(id).hidden && !S.hello.replay);
  if (!(S.hello.expected || {}).source && S.hello.mode === "live") missing.push("gap"); if (!S.hello.replay && !S.extent.first_s) missing.push("past");
  if (S.num && ![...S.capacity].some(c => c > 0)) missing.push("rate");
  const key = missing.join(); if (key === emptyKey) return; emptyKey = key; $("panel-empty").hidden = !missing.length;
  fill("empties", missing.map(id => el("li", {}, FILLS[id][0] + ": ", el("code", {}, FILLS[id][1]))));
}
function drawNotes() {
  const f = S.frame, h = f.health || {}, problems = Object.entries(h.problems || {}).map(([k, v]) => `${k}: ${v}`), past = h.history || {};
  if (past.problem) problems.push("history: " + past.problem);
  $("health").textContent = [h.host, h.cpu_share >= 0 ? `agent ${(100 * h.cpu_share).toFixed(1)} % of a core` : "", h.sampled ? `${h.sampler} on ${h.sampled.length} interfaces` : "", h.num_hosts ? `${h.num_hosts} hosts` : "", h.crowded || "", ...problems].filter(Boolean).join(" · ");
  const s = f.job.steps, last = s[s.length - 1]; $("step-note").textContent = last ? `step ${last.step}, ${last.num_ranks} ranks` : "";
  if (S.selected >= 0) { const i = S.selected, extra = [["bursts", "bursts"], ["drops_per_s", "drops/s"], ["errors_per_s", "errors/s"], ["pauses_per_s", "pauses/s"], ["backlog_bytes", "waiting", size]].map(([k, t, show]) => S.sparse[k].has(i) ? `${(show || String)(S.sparse[k].get(i))} ${t}` : "").filter(Boolean);
    $("link-name").textContent = [S.selectedName, isDown(i) ? "DOWN" : rate(S.rate[i]) + (S.capacity[i] > 0 ? ` of ${rate(S.capacity[i])}` : ", capacity not known"), ...extra].filter(Boolean).join(" · "); }
}
function legend() {
  drawScale(); const key = (cls, t) => el("span", {class: cls}, t);
  fill("link-key", key("k-bar", "mean"), key("k-peak", "peak"), key("dash", "predicted"));
  fill("step-key", key("k-compute", "computing"), key("k-exposed", "exposed network"), key("k-late", "waiting for the last rank"), key("k-other", "other"), key("dash", "predicted"));
}
