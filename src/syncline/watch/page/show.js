// How quantities are shown, and how elements are made: text is always text, never markup.
function el(tag, given, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given || {})) { if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act); else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value === true ? "" : String(value)); }
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== "") node.append(child);
  return node;
}
function fill(id, ...children) { $(id).replaceChildren(...children.flat().filter(c => c !== null && c !== undefined && c !== "")); }
function rate(v) { if (!(v >= 0)) return "–"; const b = v * 8; for (const [f, u] of [[1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"]]) if (b >= f) return (b / f).toPrecision(3) + " " + u; return b.toFixed(0) + " b/s"; }
function time(v) { if (v === null || v === undefined || isNaN(v)) return "–"; for (const [f, u] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) if (v >= f) return (v / f).toPrecision(3) + " " + u; return v === 0 ? "0 s" : (v * 1e9).toFixed(0) + " ns"; }
const percent = v => v >= 0 ? (100 * v).toFixed(v < 0.1 ? 1 : 0) + " %" : "–";
const money = v => "$" + (v >= 100 ? Math.round(v).toLocaleString("en") : v.toFixed(2));
function difference(v) { if (isNaN(v)) return ""; const n = Math.round(100 * v); return (n > 0 ? "+" : n < 0 ? "−" : "") + Math.abs(n) + " %"; }
function size(v) { for (const [f, u] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (v >= f) return (v / f).toPrecision(3) + " " + u; return v.toFixed(0) + " B"; }
// In a replay moments are those of the run, which may have lasted microseconds.
const clock = s => S.hello.replay ? time(Math.max(0, s - S.hello.replay.origin_s) / S.hello.replay.slow) : new Date(s * 1000).toLocaleTimeString([], {hour12: false});
function ago(s) { if (S.hello.replay) return time(s / S.hello.replay.slow); return s < 90 ? Math.max(0, s).toFixed(0) + " s" : s < 5400 ? (s / 60).toFixed(0) + " min" : s < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(1) + " d"; }

// Blue to orange to vermillion: told apart with every common kind of colour blindness; size and marks say it again.
const STOPS = [[0, [185, 198, 214]], [0.05, [140, 176, 214]], [0.4, [47, 111, 176]], [0.7, [120, 110, 140]], [0.8, [230, 159, 0]], [0.95, [213, 94, 0]], [1.05, [150, 30, 20]]];
const DARK = [[0, [86, 101, 122]], [0.05, [58, 100, 152]], [0.4, [90, 162, 236]], [0.7, [170, 160, 170]], [0.8, [240, 180, 41]], [0.95, [255, 120, 40]], [1.05, [255, 80, 60]]];
function loadColour(u) {
  if (!(u >= 0)) return css("--idle");
  const stops = isDark() ? DARK : STOPS;
  for (let k = 1; k < stops.length; k++) if (u <= stops[k][0] || k === stops.length - 1) {
    const [a, ca] = stops[k - 1], [b, cb] = stops[k], t = Math.min(1, Math.max(0, (u - a) / (b - a)));
    return `rgb(${ca.map((v, j) => Math.round(v + t * (cb[j] - v))).join()})`;
  }
}
const COLOURS = new Map();
function colour(u) { const key = u >= 0 ? Math.min(105, Math.round(u * 100)) : -1; if (!COLOURS.has(key)) COLOURS.set(key, loadColour(u)); return COLOURS.get(key); }
function isDark() { if (matchMedia("print").matches) return false; const t = document.documentElement.dataset.theme; return t === "dark" || (t === "auto" && matchMedia("(prefers-color-scheme: dark)").matches); }
function forgetColours() { COLOURS.clear(); STYLE.clear(); }
