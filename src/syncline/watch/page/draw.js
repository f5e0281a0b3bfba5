// Canvas by hand: charts with a grid, the heat map, the GPUs.
function surface(id) {
  const canvas = $(id), box = canvas.getBoundingClientRect(), dpr = window.devicePixelRatio || 1;
  const w = Math.max(10, Math.round(box.width)), h = Math.max(10, Math.round(box.height));
  if (canvas.width !== Math.round(w * dpr) || canvas.height !== Math.round(h * dpr)) { canvas.width = Math.round(w * dpr); canvas.height = Math.round(h * dpr); if (id === "fabric") S.geometry = null; }
  const g = canvas.getContext("2d"); g.setTransform(dpr, 0, 0, dpr, 0, 0); g.clearRect(0, 0, w, h);
  g.font = "11px Inter, Arial, sans-serif"; g.lineJoin = "round";
  return [g, w, h];
}
function round(v) { const p = 10 ** Math.floor(Math.log10(v)), m = v / p; return p * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 2.5 ? 2.5 : m <= 5 ? 5 : 10); }
function axes(g, w, h, top, show, left = 58, bottom = 16, units = 1) { // `units` of what is shown in one of `top`
  if (!(top > 0)) top = 1;
  const step = round(top * units / (h > 120 ? 5 : 2.5)) / units;
  g.strokeStyle = css("--grid"); g.fillStyle = css("--soft"); g.lineWidth = 1; g.textAlign = "right"; g.textBaseline = "middle";
  for (let v = 0; v <= top; v += step) { const y = Math.round(h - bottom - (h - 6 - bottom) * v / top) + .5; g.beginPath(); g.moveTo(left, y); g.lineTo(w - 4, y); g.stroke();
    g.fillText(show(v), left - 6, y); }
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
function say(g, w, h, text) { g.fillStyle = css("--soft"); g.textAlign = "center"; g.textBaseline = "middle"; g.fillText(text, w / 2, h / 2); }

function drawSeries() {
  const [g, w, h] = surface("series");
  if (S.selected < 0 || !S.layout) { say(g, w, h, "choose a link"); return; }
  const i = S.selected, capacity = S.capacity[i];
  let mean, peak;
  if (S.travel !== null && S.series) { mean = S.series.wall_s.map((t, k) => [t, S.series.rate_Bps[k]]); peak = S.series.wall_s.map((t, k) => [t, S.series.peak_Bps[k]]); }
  else {
    mean = ringOf(i, S.ring); peak = ringOf(i, S.peakRing);
    const first = mean.length ? mean[0][0] : Infinity;
    if (S.series && S.series.link === S.selectedName) { const old = S.series.wall_s.map((t, k) => [t, S.series.rate_Bps[k], S.series.peak_Bps[k]]).filter(p => p[0] < first);
      mean = old.map(p => [p[0], p[1]]).concat(mean); peak = old.map(p => [p[0], p[2]]).concat(peak); }
  }
  if (mean.length < 2) { say(g, w, h, "waiting for the next looks"); return; }
  const t0 = mean[0][0], t1 = mean[mean.length - 1][0];
  let top = 0; for (const [, v] of mean.concat(peak)) if (v > top) top = v;
  const p = (S.layout.predicted_Bps || [])[i]; if (capacity > 0) top = Math.max(top, capacity); if (p > 0) top = Math.max(top, p); top = (top || 1) * 1.06;
  const box = axes(g, w, h, top, rate, 76, 16, 8);
  if (capacity > 0) {
    g.fillStyle = isDark() ? "rgba(86,214,176,.10)" : "rgba(11,107,87,.08)"; const y = v => box.y0 - (box.y0 - box.y1) * v / top;
    g.fillRect(box.x0, y(.8 * capacity), box.x1 - box.x0, y(.6 * capacity) - y(.8 * capacity));
    line(g, box, [[t0, capacity], [t1, capacity]], t0, t1, top, css("--soft"), 1, [2, 3]);
  }
  line(g, box, peak, t0, t1, top, css("--peak"), 1.1); line(g, box, mean, t0, t1, top, css("--bar"), 2);
  if (p > 0) line(g, box, [[t0, p], [t1, p]], t0, t1, top, css("--pred"), 1.6, [7, 5]);
  if (S.travel !== null) line(g, box, [[S.travel, 0], [S.travel, top]], t0, t1, top, css("--ink"), 1, [3, 3]);
  timeLabels(g, box, t0, t1);
}
function drawTail() {
  if ($("panel-collectives").hidden) return;
  const [g, w, h] = surface("tail"); const past = S.coll.get(S.collective);
  if (!past || past.length < 2) { say(g, w, h, "waiting"); return; }
  const t0 = past[0][0], t1 = past[past.length - 1][0]; let top = 0;
  for (const [, a, b, p] of past) top = Math.max(top, b, p || 0); top = (top || 1) * 1.1;
  const box = axes(g, w, h, top, time, 62);
  line(g, box, past.map(p => [p[0], p[2]]), t0, t1, top, css("--peak"), 1.2); line(g, box, past.map(p => [p[0], p[1]]), t0, t1, top, css("--bar"), 2);
  line(g, box, past.map(p => [p[0], p[3]]), t0, t1, top, css("--pred"), 1.6, [7, 5]); timeLabels(g, box, t0, t1);
}
function drawSteps() {
  if ($("panel-steps").hidden) return;
  const [g, w, h] = surface("steps"), steps = S.frame.job.steps.slice(-60);
  const planned = (S.hello.expected || {}).step_s, top = Math.max(...steps.map(s => s.step_s), planned || 0) * 1.08;
  const box = axes(g, w, h, top, time, 62, 6), width = (box.x1 - box.x0) / Math.max(steps.length, 12);
  steps.forEach((s, k) => { let y = box.y0; for (const [part, style] of [["compute_s", "--compute"], ["network_s", "--exposed"], ["late_s", "--late"], ["other_s", "--other"]]) {
    const height = (box.y0 - box.y1) * (part === "network_s" ? Math.max(0, s.exposed_s - s.late_s) : s[part]) / top; g.fillStyle = css(style); g.fillRect(box.x0 + k * width + 1, y - height, Math.max(1, width - 2), height); y -= height; } });
  if (planned) line(g, box, [[0, planned], [1, planned]], 0, 1, top, css("--pred"), 1.8, [7, 5]);
}
function drawHeat() {
  if ($("panel-heat").hidden) { S.heatBox = null; return; }
  const [g, w, h] = surface("heat"), m = S.frame.job.pairs_Bps;
  let top = 0; for (const row of m) for (const v of row) if (v > top) top = v;
  const size = Math.min((w - 30) / m.length, (h - 26) / m.length, 40), x0 = 26, y0 = 8; S.heatBox = {x0, y0, size, top};
  m.forEach((row, a) => row.forEach((v, b) => { g.fillStyle = v > 0 ? colour(0.05 + 0.9 * v / top) : css("--cell"); g.fillRect(x0 + b * size, y0 + a * size, Math.max(.6, size - .6), Math.max(.6, size - .6)); }));
  g.fillStyle = css("--soft"); g.textAlign = "right"; g.textBaseline = "middle"; const cell = S.frame.job.ranks_per_cell || 1, every = Math.ceil(14 / size);
  for (let k = 0; k < m.length; k += every) { g.fillText(k * cell, x0 - 4, y0 + (k + .5) * size); }
  g.textAlign = "center"; for (let k = 0; k < m.length; k += Math.ceil(24 / size)) g.fillText(k * cell, x0 + (k + .5) * size, y0 + m.length * size + 9);
  $("heat-note").textContent = `row sends to column, up to ${rate(top)}${cell > 1 ? ", " + cell + " ranks a cell" : ""}`;
}
function drawGpus() {
  const gpus = (S.frame.health || {}).gpus || []; $("panel-gpus").hidden = !gpus.length; if (!gpus.length) return;
  const [g, w, h] = surface("gpus"), size = Math.max(5, Math.min(26, Math.floor(Math.sqrt(w * h / gpus.length)))), across = Math.max(1, Math.floor(w / size));
  gpus.forEach((gpu, k) => { g.fillStyle = gpu.use > 0.02 ? colour(0.7 * gpu.use) : css("--cell"); g.fillRect((k % across) * size, Math.floor(k / across) * size, size - 1, size - 1); });
  const mean = gpus.reduce((sum, gpu) => sum + gpu.use, 0) / gpus.length; $("gpu-note").textContent = `${gpus.length}, ${percent(mean)} busy on average`;
}
function drawMarks() {
  const [g, w] = surface("marks"); const e = S.extent; if (!e.first_s || !(e.last_s > e.first_s)) return;
  const at = t => 8 + (w - 16) * (t - e.first_s) / (e.last_s - e.first_s);
  for (const event of S.events) { g.fillStyle = event.event === "raised" ? css(event.severity === "critical" ? "--crit" : "--warn") : css("--ok"); g.fillRect(at(event.wall_s) - 1, event.event === "raised" ? 0 : 3, 2, event.event === "raised" ? 8 : 5); }
}
function drawScale() {
  const canvas = el("canvas", {width: 110, height: 9, "aria-hidden": "true"}), g = canvas.getContext("2d");
  for (let x = 0; x < 110; x++) { g.fillStyle = loadColour(1.05 * x / 109); g.fillRect(x, 0, 1, 9); }
  fill("scale", "0 %", canvas, "100 %  ▲ alert  ✕ down");
}
