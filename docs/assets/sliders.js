"use strict";
(() => {
  const box = document.getElementById("sliders");
  if (!box) return;
  const SVG = "http://www.w3.org/2000/svg";
  const field = (root, name) => root.querySelector(`[name=${name}]`);
  const put = (id, text) => { document.getElementById(id).textContent = text; };
  const told = (s) => s >= 1 ? s.toFixed(2) + " s" : s >= 1e-3 ? (s * 1e3).toPrecision(3) + " ms" : (s * 1e6).toPrecision(3) + " µs";
  const size = (b) => b >= 2 ** 30 ? (b / 2 ** 30).toPrecision(3) + " GiB" : (b / 2 ** 20).toPrecision(3) + " MiB";
  const draw = (parent, name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
  };

  /* The time of a ring at a size between two of the table: straight in logarithms. */
  function ringAt(table, point, bytes) {
    const at = Math.min(Math.max(Math.log2(bytes / table.sizes[0]) / 2, 0), table.sizes.length - 1);
    const low = Math.min(Math.floor(at), table.sizes.length - 2), part = at - low;
    return Math.exp(Math.log(point.ring_s[low]) * (1 - part) + Math.log(point.ring_s[low + 1]) * part);
  }

  /* The bound of a direct all-to-all: its messages one after another, or the bytes on the busiest link. */
  function pairsAt(table, point, bytes) {
    const [least, most] = point.pairs_s;
    return Math.max(least, most * bytes / table.sizes[table.sizes.length - 1]);
  }

  function curve(table, point, bytes) {
    const svg = document.getElementById("curve");
    svg.replaceChildren();
    const xs = table.sizes.map(Math.log2), all = table.points.flatMap((p) => p.ring_s).map(Math.log);
    const x = (b) => 50 + 550 * (Math.log2(b) - xs[0]) / (xs[xs.length - 1] - xs[0]);
    const low = Math.min(...all), high = Math.max(...all);
    const y = (s) => 190 - 170 * (Math.log(s) - low) / (high - low);
    draw(svg, "rect", { width: 640, height: 220, fill: "#f7f8fa" });
    draw(svg, "polyline", { fill: "none", stroke: "#3f51b5", "stroke-width": 2,
      points: table.sizes.map((b, i) => `${x(b).toFixed(1)},${y(point.ring_s[i]).toFixed(1)}`).join(" ") });
    table.sizes.forEach((b, i) => {
      draw(svg, "text", { x: x(b), y: 210, "text-anchor": "middle", "font-size": 11 }, size(b));
      draw(svg, "circle", { cx: x(b), cy: y(point.ring_s[i]), r: 3, fill: "#3f51b5" });
      draw(svg, "text", { x: x(b), y: y(point.ring_s[i]) - 10, "text-anchor": "middle", "font-size": 11 }, told(point.ring_s[i]));
    });
    const now = ringAt(table, point, bytes);
    draw(svg, "circle", { cx: x(bytes), cy: y(now), r: 6, fill: "#b3261e" });
    draw(svg, "text", { x: 12, y: 16, "font-size": 12 }, "all-reduce time by size, logarithmic");
  }

  function show(table) {
    const pick = (name) => Number(field(box, name).value);
    const rate = table.rates[pick("rate")], ratio = table.ratios[pick("ratio")], fault = table.faults[pick("fault")];
    const bytes = table.sizes[0] * 2 ** pick("size");
    const point = table.points.find((p) => p.rate === rate && p.ratio === ratio && p.fault === fault);
    const words = { rate, size: size(bytes), ratio: `${ratio}:1`, fault: `${fault * 100} %` };
    for (const [name, text] of Object.entries(words)) field(box, name).nextElementSibling.textContent = text;
    put("ring", told(ringAt(table, point, bytes)));
    put("ring-link", point.ring_link);
    put("pairs", told(pairsAt(table, point, bytes)));
    put("pairs-link", point.pairs_link);
    put("step", told(point.step_s));
    put("step-link", `${told(point.waiting_s)} of it waiting for gradients`);
    curve(table, point, bytes);
  }

  /* What rank r holds of chunk c after a number of rounds of a ring all-reduce: how many contributions. */
  function held(n, round, rank, chunk) {
    if (round <= n - 1) {
      const distance = (rank - chunk + n) % n;
      return distance <= round ? distance + 1 : 1;
    }
    const owner = (chunk + n - 1) % n;
    const away = (rank - owner + n) % n;
    return away <= round - (n - 1) ? n : (rank - chunk + n) % n + 1;
  }

  function rounds() {
    const root = document.getElementById("ring-sliders"), svg = document.getElementById("rounds");
    const n = Number(field(root, "ranks").value), last = 2 * (n - 1);
    field(root, "round").max = last;
    const round = Math.min(Number(field(root, "round").value), last);
    field(root, "ranks").nextElementSibling.textContent = n;
    field(root, "round").nextElementSibling.textContent = `${round} of ${last}`;
    svg.replaceChildren();
    const side = Math.min(36, 230 / n);
    for (let rank = 0; rank < n; rank++) {
      draw(svg, "text", { x: 8, y: 20 + side * (rank + 0.65), "font-size": 11 }, `rank ${rank}`);
      for (let chunk = 0; chunk < n; chunk++) {
        const many = held(n, round, rank, chunk);
        draw(svg, "rect", { x: 60 + side * chunk, y: 20 + side * rank, width: side - 2, height: side - 2,
          fill: many === n ? "#1b7f3b" : "#3f51b5", "fill-opacity": many === n ? 1 : 0.12 + 0.7 * many / n });
        draw(svg, "text", { x: 60 + side * (chunk + 0.46), y: 20 + side * (rank + 0.65), "text-anchor": "middle",
          "font-size": 11, fill: many > n / 2 ? "#fff" : "#222" }, many);
      }
    }
  }

  /* The row of a table that a set of sliders points at; what each stands for is written beside it. */
  function chosen(root, part, shown) {
    const at = {};
    for (const [name, values] of Object.entries(shown)) {
      at[name] = values[Number(field(root, name).value)];
      field(root, name).nextElementSibling.textContent = name === "ratio" ? `${at[name]}:1` : name === "hosts" && part.models ? `${at[name]} (${8 * at[name]} GPUs)` : at[name];
    }
    return part.points.find((p) => Object.entries(at).every(([name, value]) => p[name] === value));
  }

  const PARTS = { compute: ["arithmetic", "#3f51b5"], tp: ["tensor parallel", "#e08a00"], cp: ["context parallel", "#c96b00"], ep: ["experts", "#a34f00"],
    dp: ["gradients", "#b3261e"], fsdp: ["parameters", "#d0574f"], host: ["the host", "#4b5563"], p2p: ["between stages", "#8e44ad"], bubble: ["pipeline fill", "#9aa3ad"], fixed: ["fixed", "#6b7280"] };

  function plan(part) {
    const root = document.getElementById("plan-sliders"), svg = document.getElementById("plan-parts");
    const point = chosen(root, part, { model: part.models, hosts: part.hosts, rate: part.rates, ratio: part.ratios });
    put("plan-step", told(point.step_s));
    put("plan-range", `90 %: ${told(point.p90[0])} to ${told(point.p90[1])}`);
    put("plan-mfu", `${(100 * point.mfu).toFixed(1)} %`);
    put("plan-tokens", `${Math.round(point.tokens / point.step_s).toLocaleString("en")} tokens/s`);
    put("plan-usd", `$${point.usd.toFixed(3)}`);
    put("plan-split", point.split);
    put("plan-memory", `${point.memory.toFixed(1)} GiB`);
    svg.replaceChildren();
    draw(svg, "rect", { width: 640, height: 92, fill: "#f7f8fa" });
    const sum = Object.values(point.parts).reduce((a, b) => a + b, 0);
    let x = 10, line = 0;
    for (const [name, seconds] of Object.entries(point.parts).sort((a, b) => b[1] - a[1])) {
      const [title, fill] = PARTS[name] ?? [name, "#444"], width = 620 * seconds / sum;
      draw(svg, "rect", { x, y: 8, width, height: 26, fill });
      draw(svg, "rect", { x: 12 + 155 * (line % 4), y: 46 + 22 * Math.floor(line / 4), width: 10, height: 10, fill });
      draw(svg, "text", { x: 26 + 155 * (line % 4), y: 55 + 22 * Math.floor(line / 4), "font-size": 12 }, `${title} ${(100 * seconds / sum).toFixed(1)} %`);
      x += width; line += 1;
    }
  }

  function lab(part) {
    const root = document.getElementById("lab-sliders"), svg = document.getElementById("lab-curve");
    const point = chosen(root, part, { hosts: part.hosts, rate: part.rates, algorithm: part.algorithms });
    const here = point.hosts === 4 && point.rate === "1GbE" ? part.measured.filter((m) => m.algorithm === point.algorithm) : [];
    const all = part.points.flatMap((p) => p.time_s).map(Math.log), low = Math.min(...all), high = Math.max(...all);
    const first = Math.log2(part.sizes[0]), last = Math.log2(part.sizes[part.sizes.length - 1]);
    const x = (b) => 50 + 550 * (Math.log2(b) - first) / (last - first), y = (s) => 190 - 165 * (Math.log(s) - low) / (high - low);
    svg.replaceChildren();
    draw(svg, "rect", { width: 640, height: 220, fill: "#f7f8fa" });
    draw(svg, "text", { x: 12, y: 16, "font-size": 12 }, here.length ? "predicted (line) and measured (dots), logarithmic" : "predicted, logarithmic; measured: 4 hosts of 1GbE");
    draw(svg, "polyline", { fill: "none", stroke: "#3f51b5", "stroke-width": 2, points: part.sizes.map((b, i) => `${x(b).toFixed(1)},${y(point.time_s[i]).toFixed(1)}`).join(" ") });
    part.sizes.forEach((b) => draw(svg, "text", { x: x(b), y: 210, "text-anchor": "middle", "font-size": 11 }, b < 2 ** 20 ? `${b / 1024} KiB` : size(b)));
    part.sizes.forEach((b, i) => draw(svg, "text", { x: x(b), y: y(point.time_s[i]) - 10, "text-anchor": "middle", "font-size": 11 }, told(point.time_s[i])));
    here.forEach((m) => draw(svg, "circle", { cx: x(m.size), cy: y(m.time_s), r: 5, fill: "#b3261e" }));
    const at = part.sizes.length - 1, seen = here.find((m) => m.size === part.sizes[at]);
    put("lab-predicted", told(point.time_s[at]));
    put("lab-measured", seen ? told(seen.time_s) : "not run");
    put("lab-gap", seen ? `${(100 * (point.time_s[at] / seen.time_s - 1)).toFixed(1)} %` : "");
  }

  const here = document.querySelector("script[src*='sliders.js']").src;
  fetch(new URL("../interactive/table.json", here)).then((answer) => answer.json()).then((table) => {
    const parts = { sliders: () => show(table), "plan-sliders": () => plan(table.plan), "lab-sliders": () => lab(table.lab) };
    for (const [id, draw] of Object.entries(parts)) {
      document.getElementById(id).addEventListener("input", draw);
      draw();
    }
  }).catch(() => {
    const said = "No table could be read: a page opened as a file may not read others. In the folder of the site: ";
    for (const id of ["sliders", "plan-sliders", "lab-sliders"]) {
      const line = document.createElement("p"), command = document.createElement("code");
      command.textContent = "python3 -m http.server --bind 127.0.0.1";
      line.append(said, command);
      document.getElementById(id).prepend(line);
    }
  });
  document.getElementById("ring-sliders").addEventListener("input", rounds);
  rounds();
})();
