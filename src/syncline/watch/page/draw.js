// Canvas by hand: charts with a grid, the fabric, the heat map.
function surface(id) {
  const canvas = $(id), box = canvas.getBoundingClientRect(), dpr = window.devicePixelRatio || 1;
  const w = Math.max(10, Math.round(box.width)), h = Math.max(10, Math.round(box.height));
  if (canvas.width !== w * dpr || canvas.height !== h * dpr) { canvas.width = w * dpr; canvas.height = h * dpr; S.geometry = id === "fabric" ? null : S.geometry; }
  const g = canvas.getContext("2d"); g.setTransform(dpr, 0, 0, dpr, 0, 0); g.clearRect(0, 0, w, h);
  g.font = "11px Inter, Arial, sans-serif"; g.lineJoin = "round";
  return [g, w, h];
}
function axes(g, w, h, top, show, left = 58, bottom = 16) {
  g.strokeStyle = css("--grid"); g.fillStyle = css("--soft"); g.lineWidth = 1; g.textAlign = "right"; g.textBaseline = "middle";
  for (let k = 0; k <= 4; k++) { const y = Math.round(6 + (h - 6 - bottom) * k / 4) + .5; g.beginPath(); g.moveTo(left, y); g.lineTo(w - 4, y); g.stroke();
    if (k % 2 === 0 || h > 120) g.fillText(show(top * (1 - k / 4)), left - 6, y); }
  return {x0: left, x1: w - 4, y0: h - bottom, y1: 6};
}
function line(g, box, points, t0, t1, top, style, width = 1.6, dash = []) {
  g.strokeStyle = style; g.lineWidth = width; g.setLineDash(dash); g.beginPath(); let pen = false;
  for (const [t, v] of points) { if (v === null || v === undefined || isNaN(v)) { pen = false; continue; }
    const x = box.x0 + (box.x1 - box.x0) * (t - t0) / Math.max(1e-9, t1 - t0), y = box.y0 - (box.y0 - box.y1) * Math.min(1.05, v / top);
    if (pen) g.lineTo(x, y); else g.moveTo(x, y); pen = true; }
  g.stroke(); g.setLineDash([]);
}
function timeLabels(g, box, t0, t1) {
  g.fillStyle = css("--soft"); g.textBaseline = "alphabetic"; g.textAlign = "left"; g.fillText(clock(t0), box.x0, box.y0 + 13);
  g.textAlign = "right"; g.fillText(clock(t1), box.x1, box.y0 + 13);
}
function empty(g, w, h, text) { g.fillStyle = css("--soft"); g.textAlign = "center"; g.textBaseline = "middle"; g.fillText(text, w / 2, h / 2); }

function drawSeries() {
  const [g, w, h] = surface("series");
  if (S.selected < 0 || !S.layout) { empty(g, w, h, "no link chosen"); return; }
  const i = S.selected, capacity = S.capacity[i];
  let mean, peak;
  if (S.travel !== null && S.series) { mean = S.series.wall_s.map((t, k) => [t, S.series.rate_Bps[k]]); peak = S.series.wall_s.map((t, k) => [t, S.series.peak_Bps[k]]); }
  else {
    mean = ringOf(i, S.ring); peak = ringOf(i, S.peakRing);
    const first = mean.length ? mean[0][0] : Infinity;
    if (S.series && S.series.link === S.selectedName) { const old = S.series.wall_s.map((t, k) => [t, S.series.rate_Bps[k], S.series.peak_Bps[k]]).filter(p => p[0] < first);
      mean = old.map(p => [p[0], p[1]]).concat(mean); peak = old.map(p => [p[0], p[2]]).concat(peak); }
  }
  if (mean.length < 2) { empty(g, w, h, "waiting for the next looks"); return; }
  const t0 = mean[0][0], t1 = mean[mean.length - 1][0];
  let top = 0; for (const [, v] of mean.concat(peak)) if (v > top) top = v;
  if (capacity > 0) top = Math.max(top, capacity); top = (top || 1) * 1.06;
  const box = axes(g, w, h, top, rate, 76);
  if (capacity > 0) {
    g.fillStyle = isDark() ? "rgba(86,214,176,.10)" : "rgba(11,107,87,.08)"; const y = v => box.y0 - (box.y0 - box.y1) * v / top;
    g.fillRect(box.x0, y(.8 * capacity), box.x1 - box.x0, y(.6 * capacity) - y(.8 * capacity));
    line(g, box, [[t0, capacity], [t1, capacity]], t0, t1, top, css("--soft"), 1, [2, 3]);
  }
  line(g, box, peak, t0, t1, top, css("--peak"), 1.1); line(g, box, mean, t0, t1, top, css("--bar"), 2);
  const p = (S.layout.predicted_Bps || [])[i]; if (p > 0) line(g, box, [[t0, p], [t1, p]], t0, t1, top, css("--pred"), 1.6, [7, 5]);
  if (S.travel !== null) line(g, box, [[S.travel, 0], [S.travel, top]], t0, t1, top, css("--ink"), 1, [3, 3]);
  timeLabels(g, box, t0, t1);
}
function drawTail() {
  const [g, w, h] = surface("tail"); const past = S.coll.get(S.collective);
  if (!past || past.length < 2) { empty(g, w, h, S.frame && S.frame.job.collectives.length ? "waiting" : S.hello.replay ? "no collectives in this timeline" : "no spans yet: see docs/guides/watch.md"); return; }
  const t0 = past[0][0], t1 = past[past.length - 1][0]; let top = 0;
  for (const [, a, b, p] of past) top = Math.max(top, b, p || 0); top = (top || 1) * 1.1;
  const box = axes(g, w, h, top, time, 62);
  line(g, box, past.map(p => [p[0], p[2]]), t0, t1, top, css("--peak"), 1.2); line(g, box, past.map(p => [p[0], p[1]]), t0, t1, top, css("--bar"), 2);
  line(g, box, past.map(p => [p[0], p[3]]), t0, t1, top, css("--pred"), 1.6, [7, 5]); timeLabels(g, box, t0, t1);
}
function drawSteps() {
  const [g, w, h] = surface("steps"); const steps = S.frame ? S.frame.job.steps.slice(-40) : [];
  if (!steps.length) { empty(g, w, h, "no steps reported"); return; }
  const planned = (S.hello.expected || {}).step_s; let top = Math.max(...steps.map(s => s.step_s), planned || 0) * 1.08;
  const box = axes(g, w, h, top, time, 62, 6), width = (box.x1 - box.x0) / Math.max(steps.length, 12);
  steps.forEach((s, k) => { let y = box.y0; for (const [part, style] of [["compute_s", "--compute"], ["exposed_s", "--exposed"], ["other_s", "--other"]]) {
    const height = (box.y0 - box.y1) * s[part] / top; g.fillStyle = css(style); g.fillRect(box.x0 + k * width + 1, y - height, Math.max(1, width - 2), height); y -= height; } });
  if (planned) line(g, box, [[0, planned], [1, planned]], 0, 1, top, css("--pred"), 1.8, [7, 5]);
}
function drawHeat() {
  const [g, w, h] = surface("heat"); const m = S.frame ? S.frame.job.pairs_Bps : [];
  if (!m.length) { empty(g, w, h, "no rank has reported what it sent to whom"); $("heat-note").textContent = ""; S.heatBox = null; return; }
  let top = 0; for (const row of m) for (const v of row) if (v > top) top = v;
  const size = Math.min((w - 30) / m.length, (h - 26) / m.length), x0 = 26, y0 = 8; S.heatBox = {x0, y0, size, top};
  m.forEach((row, a) => row.forEach((v, b) => { g.fillStyle = v > 0 ? colour(0.05 + 0.9 * v / top) : css("--grid"); g.fillRect(x0 + b * size, y0 + a * size, Math.max(.6, size - .6), Math.max(.6, size - .6)); }));
  g.fillStyle = css("--soft"); g.textAlign = "right"; g.textBaseline = "middle"; const cell = S.frame.job.ranks_per_cell || 1, every = Math.ceil(14 / size);
  for (let k = 0; k < m.length; k += every) { g.fillText(k * cell, x0 - 4, y0 + (k + .5) * size); }
  g.textAlign = "center"; for (let k = 0; k < m.length; k += Math.ceil(24 / size)) g.fillText(k * cell, x0 + (k + .5) * size, y0 + m.length * size + 9);
  $("heat-note").textContent = `row sends to column, up to ${rate(top)}${cell > 1 ? ", " + cell + " ranks a cell" : ""}`;
}
// The fabric: levels of devices, both directions of a cable side by side.
function geometry(w, h) {
  const p = S.layout.picture, rows = p.num_levels, count = new Array(rows).fill(0); for (const d of p.devices) count[d.level]++;
  const spot = p.devices.map(d => [14 + d.x * (w - 28), h - 22 - (rows > 1 ? d.level * (h - 52) / (rows - 1) : (h - 52) / 2)]);
  const ends = p.links.map(([a, b]) => { const [x1, y1] = spot[a], [x2, y2] = spot[b], l = Math.hypot(x2 - x1, y2 - y1) || 1, o = Math.min(3, 60 / Math.sqrt(p.links.length));
    const nx = (y1 - y2) / l * o, ny = (x2 - x1) / l * o; return [x1 + nx, y1 + ny, x2 + nx, y2 + ny]; });
  return {w, h, spot, ends, count};
}
function drawFabric() {
  const [g, w, h] = surface("fabric"); if (!S.layout || !S.layout.picture || !S.use) { empty(g, w, h, "no links yet"); return; }
  if (!S.geometry || S.geometry.w !== w || S.geometry.h !== h) S.geometry = geometry(w, h);
  const {ends, spot, count} = S.geometry, many = ends.length > 3000, mist = Math.max(.2, Math.min(1, 200 / ends.length)), bad = alertLinks();
  // Lines of one colour in one path: ten thousand strokes would take ten times as long. Many are drawn thin as mist, so that full ones stand out.
  const groups = new Map();
  for (let i = 0; i < ends.length; i++) { const u = S.use[i], key = isDown(i) ? -2 : u >= 0 ? Math.round(Math.min(1.05, u) * 20) : -1; if (!groups.has(key)) groups.set(key, []); groups.get(key).push(i); }
  for (const key of [...groups.keys()].sort((a, b) => a - b)) {
    g.strokeStyle = key === -2 ? css("--crit") : colour(key < 0 ? NaN : key / 20); g.lineWidth = key === -2 ? 1.5 : (many ? .5 : 1) + Math.max(0, key) / 20 * (many ? 1.2 : 3) * (key >= 16 ? 1 : mist);
    g.globalAlpha = key === -2 || key >= 16 ? 1 : mist;
    g.setLineDash(key === -2 ? [4, 4] : []); g.beginPath(); for (const i of groups.get(key)) { const e = ends[i]; g.moveTo(e[0], e[1]); g.lineTo(e[2], e[3]); } g.stroke();
  }
  g.setLineDash([]); g.globalAlpha = 1;
  for (const i of bad) { const e = ends[i]; g.strokeStyle = css("--crit"); g.lineWidth = 2; g.setLineDash([2, 3]); g.beginPath(); g.moveTo(e[0], e[1]); g.lineTo(e[2], e[3]); g.stroke(); g.setLineDash([]);
    const x = (e[0] + e[2]) / 2, y = (e[1] + e[3]) / 2; g.fillStyle = css("--crit"); g.beginPath(); g.moveTo(x, y - 6); g.lineTo(x + 6, y + 5); g.lineTo(x - 6, y + 5); g.closePath(); g.fill(); }
  if (S.selected >= 0 && ends[S.selected]) { const e = ends[S.selected]; g.strokeStyle = css("--ink"); g.lineWidth = 5; g.globalAlpha = .35; g.beginPath(); g.moveTo(e[0], e[1]); g.lineTo(e[2], e[3]); g.stroke(); g.globalAlpha = 1; }
  const p = S.layout.picture; g.textAlign = "center"; g.textBaseline = "middle";
  p.devices.forEach((d, k) => { const [x, y] = spot[k], room = (w - 28) / count[d.level], label = room > 34, bw = label ? Math.min(room - 4, 12 + 6.4 * d.name.length) : Math.max(2, room * .6), bh = label ? 17 : Math.min(12, Math.max(3, room));
    g.fillStyle = css("--card"); g.strokeStyle = css("--soft"); g.lineWidth = 1; g.beginPath(); g.roundRect(x - bw / 2, y - bh / 2, bw, bh, Math.min(4, bw / 3)); g.fill(); g.stroke();
    if (label) { g.fillStyle = css("--ink"); g.fillText(shorter(g, d.name, bw - 4), x, y); } });
}
// What tells devices apart stands at the end of their names.
function shorter(g, name, room) {
  let text = name; if (g.measureText(text).width > room) text = text.replace(/^[A-Za-z]+[-_]?(?=\d)/, "");
  while (text.length > 1 && g.measureText(text).width > room) text = text.slice(1);
  return text;
}
function nearestLink(x, y) {
  if (!S.geometry) return -1; let best = -1, least = 64;
  S.geometry.ends.forEach(([x1, y1, x2, y2], i) => { const dx = x2 - x1, dy = y2 - y1, t = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
    const d = (x - x1 - t * dx) ** 2 + (y - y1 - t * dy) ** 2; if (d < least) { least = d; best = i; } });
  return best;
}
function drawMarks() {
  const [g, w] = surface("marks"); const e = S.extent; if (!e.first_s || !(e.last_s > e.first_s)) return;
  const at = t => 8 + (w - 16) * (t - e.first_s) / (e.last_s - e.first_s);
  for (const event of S.events) { g.fillStyle = event.event === "raised" ? css(event.severity === "critical" ? "--crit" : "--warn") : css("--ok"); g.fillRect(at(event.wall_s) - 1, event.event === "raised" ? 0 : 3, 2, event.event === "raised" ? 8 : 5); }
}
