"use strict";
// What the page knows: the layout, the newest frame, a ring of the last looks of every link, and what the reader chose.
const RING = 240;
const S = {layout: null, frame: null, num: 0, use: null, peak: null, rate: null, sparse: {}, ring: null, peakRing: null, ringAt: 0, ringCount: 0,
  ringTime: new Float64Array(RING), selected: -1, selectedName: "", chosen: false, collective: "", coll: new Map(), filter: "", order: [], sort: "use", down: true, paused: false,
  travel: null, hello: {}, events: [], extent: {}, series: null, lastFrame: 0, frames: 0, drawMs: 0, notes: new Map(), view: "auto", zoom: -1};
const $ = id => document.getElementById(id);
const STYLE = new Map();
const css = name => { if (!STYLE.has(name)) STYLE.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim()); return STYLE.get(name); };

function floats(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}
function sparse(rows) { const map = new Map(); for (const [i, v] of rows || []) map.set(i, v); return map; }

function takeLayout(layout) {
  S.layout = layout; S.num = layout.names.length;
  S.capacity = Float64Array.from(layout.capacity_Bps, c => c === null ? NaN : c);
  S.planned = Float64Array.from(layout.predicted_Bps || [], p => p === null ? NaN : p); S.mean = new Float64Array(S.num).fill(NaN);
  $("links-table").classList.toggle("planned", S.planned.some(p => p >= 0));
  S.lower = layout.names.map(n => n.toLowerCase());
  S.ring = new Float32Array(S.num * RING).fill(NaN); S.peakRing = new Float32Array(S.num * RING).fill(NaN);
  S.ringAt = 0; S.ringCount = 0; S.zoom = -1;
  S.index = new Map(layout.names.map((name, i) => [name, i]));
  S.selected = S.index.has(S.selectedName) ? S.index.get(S.selectedName) : -1;
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
  // What was predicted of a link is its mean over steps, so that is what stands beside it: over ten seconds, not one look.
  const weight = Math.min(1, (frame.interval_s || .25) / 10);
  for (let i = 0; i < n; i++) if (S.rate[i] >= 0) S.mean[i] = S.mean[i] >= 0 ? S.mean[i] + weight * (S.rate[i] - S.mean[i]) : S.rate[i];
  const at = S.ringAt;
  for (let i = 0; i < n; i++) { S.ring[i * RING + at] = S.rate[i]; S.peakRing[i * RING + at] = S.peakRate[i]; }
  S.ringTime[at] = frame.wall_s; S.ringAt = (at + 1) % RING; S.ringCount = Math.min(RING, S.ringCount + 1);
  for (const c of frame.job.collectives) {
    if (!S.coll.has(c.key)) S.coll.set(c.key, []);
    const past = S.coll.get(c.key); past.push([frame.wall_s, c.p50_s, c.p99_s, c.predicted_s]); if (past.length > RING) past.shift();
  }
  // The slider ends now, not at the last time the past was asked for.
  if (S.extent.first_s && frame.wall_s > (S.extent.last_s || 0)) S.extent.last_s = frame.wall_s;
  S.frames++;
}
function ringOf(link, ring) {
  const out = []; for (let k = 0; k < S.ringCount; k++) { const at = (S.ringAt - S.ringCount + k + RING) % RING; out.push([S.ringTime[at], ring[link * RING + at]]); }
  return out;
}
const isDown = i => S.sparse.up && S.sparse.up.get(i) === 0;
const alertKey = a => [a.host || "", a.rule, a.place].join("\u0000");
const noteOf = a => S.notes.get(alertKey(a));
function alertLinks() { const found = new Map(); for (const a of S.frame ? S.frame.alerts.flatMap(one => [...(one.effects || []), one]) : []) { const i = S.index.get(a.place); if (i !== undefined && !noteOf(a)) found.set(i, a.severity); } return found; }
