"use strict";
// What the page knows: the layout, the newest frame, a ring of the last looks of every link, and what the reader chose.
const RING = 240;
const S = {layout: null, frame: null, num: 0, use: null, peak: null, rate: null, sparse: {}, ring: null, peakRing: null, ringAt: 0, ringCount: 0,
  ringTime: new Float64Array(RING), selected: -1, selectedName: "", collective: "", coll: new Map(), filter: "", order: [], sort: "use", paused: false,
  travel: null, hello: {}, events: [], extent: {}, series: null, lastFrame: 0, frames: 0, drawMs: 0};
const $ = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function floats(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}
function sparse(rows) { const map = new Map(); for (const [i, v] of rows || []) map.set(i, v); return map; }

function takeLayout(layout) {
  S.layout = layout; S.num = layout.names.length;
  S.capacity = Float64Array.from(layout.capacity_Bps, c => c === null ? NaN : c);
  S.lower = layout.names.map(n => n.toLowerCase());
  S.ring = new Float32Array(S.num * RING).fill(NaN); S.peakRing = new Float32Array(S.num * RING).fill(NaN);
  S.ringAt = 0; S.ringCount = 0;
  S.selected = layout.names.indexOf(S.selectedName);
  S.geometry = null;
}
function takeFrame(frame, live) {
  S.frame = frame;
  S.rate = floats(frame.rate_Bps); S.peakRate = floats(frame.peak_Bps);
  const n = Math.min(S.num, S.rate.length);
  S.use = new Float32Array(S.num); S.peak = new Float32Array(S.num);
  for (let i = 0; i < n; i++) { S.use[i] = S.rate[i] / S.capacity[i]; S.peak[i] = S.peakRate[i] / S.capacity[i]; }
  for (const name of ["saturated", "bursts", "drops_per_s", "errors_per_s", "pauses_per_s", "backlog_bytes", "up"]) S.sparse[name] = sparse(frame[name]);
  if (!live) return;
  const at = S.ringAt;
  for (let i = 0; i < n; i++) { S.ring[i * RING + at] = S.rate[i]; S.peakRing[i * RING + at] = S.peakRate[i]; }
  S.ringTime[at] = frame.wall_s; S.ringAt = (at + 1) % RING; S.ringCount = Math.min(RING, S.ringCount + 1);
  for (const c of frame.job.collectives) {
    if (!S.coll.has(c.key)) S.coll.set(c.key, []);
    const past = S.coll.get(c.key); past.push([frame.wall_s, c.p50_s, c.p99_s, c.predicted_s]); if (past.length > RING) past.shift();
  }
  S.frames++;
}
function ringOf(link, ring) {
  const out = []; for (let k = 0; k < S.ringCount; k++) { const at = (S.ringAt - S.ringCount + k + RING) % RING; out.push([S.ringTime[at], ring[link * RING + at]]); }
  return out;
}
const isDown = i => S.sparse.up && S.sparse.up.get(i) === 0;

// How quantities are shown: bits for links, seconds with their unit.
function rate(v) { if (!(v >= 0)) return "–"; const b = v * 8; for (const [f, u] of [[1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]]) if (b >= f) return (b / f).toPrecision(3) + " " + u; return b.toFixed(0) + " b/s"; }
function time(v) { if (v === null || v === undefined || isNaN(v)) return "–"; for (const [f, u] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) if (v >= f) return (v / f).toPrecision(3) + " " + u; return v === 0 ? "0 s" : (v * 1e9).toFixed(0) + " ns"; }
const percent = v => v >= 0 ? (100 * v).toFixed(v < 0.1 ? 1 : 0) + " %" : "–";
// In a replay moments are those of the run, which may have lasted microseconds.
const clock = s => S.hello.replay ? time(Math.max(0, s - S.hello.replay.origin_s) / S.hello.replay.slow) : new Date(s * 1000).toLocaleTimeString([], {hour12: false});
function ago(s) { if (S.hello.replay) return time(s / S.hello.replay.slow); return s < 90 ? s.toFixed(0) + " s" : s < 5400 ? (s / 60).toFixed(0) + " min" : (s / 3600).toFixed(1) + " h"; }
function escape(text) { return String(text).replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";"); }

// Blue to orange to vermillion: told apart with every common kind of colour blindness; width and marks say it again.
const STOPS = [[0, [185, 196, 209]], [0.05, [140, 176, 214]], [0.4, [47, 111, 176]], [0.7, [120, 110, 140]], [0.8, [230, 159, 0]], [0.95, [213, 94, 0]], [1.05, [150, 30, 20]]];
const DARK = [[0, [60, 72, 86]], [0.05, [44, 84, 132]], [0.4, [90, 162, 236]], [0.7, [170, 160, 170]], [0.8, [240, 180, 41]], [0.95, [255, 120, 40]], [1.05, [255, 80, 60]]];
function loadColour(u) {
  if (!(u >= 0)) return css("--c0");
  const stops = isDark() ? DARK : STOPS;
  for (let k = 1; k < stops.length; k++) if (u <= stops[k][0] || k === stops.length - 1) {
    const [a, ca] = stops[k - 1], [b, cb] = stops[k], t = Math.min(1, Math.max(0, (u - a) / (b - a)));
    return `rgb(${ca.map((v, j) => Math.round(v + t * (cb[j] - v))).join()})`;
  }
}
const COLOURS = new Map();
function colour(u) { const key = u >= 0 ? Math.min(105, Math.round(u * 100)) : -1; if (!COLOURS.has(key)) COLOURS.set(key, loadColour(u)); return COLOURS.get(key); }
function isDark() { const t = document.documentElement.dataset.theme; return t === "dark" || (t === "auto" && matchMedia("(prefers-color-scheme: dark)").matches); }
