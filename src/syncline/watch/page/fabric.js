// The fabric: cells in groups (pod, rail, tier, direction) for any number of links, or a diagram while there are few.
const FEW = 150;
const viewOf = () => S.view !== "auto" ? S.view : S.num <= FEW ? "diagram" : "groups";
function drawFabric() {
  const [g, w, h] = surface("fabric"); if (!S.layout || !S.layout.picture || !S.use) { say(g, w, h, "no links yet"); return; }
  const view = viewOf(); $("view").textContent = view === "groups" ? "Diagram" : "Groups"; $("zoom-out").hidden = view !== "groups" || S.zoom < 0;
  if (!S.geometry || S.geometry.w !== w || S.geometry.h !== h || S.geometry.view !== view || S.geometry.zoom !== S.zoom) S.geometry = view === "groups" ? cells(w, h) : diagram(w, h);
  if (view === "groups") drawCells(g); else drawDiagram(g, w);
  const down = S.sparse.up ? S.sparse.up.size : 0; $("fabric-note").textContent = `${S.num} links${down ? `, ${down} down` : ""}`;
}
// Groups side by side in boxes whose area follows their number of links; cells as large as then fit.
function cells(w, h) {
  const p = S.layout.picture, names = p.groups || [{name: "links"}], members = names.map(() => []);
  for (let i = 0; i < S.num; i++) members[p.group_of ? p.group_of[i] : 0].push(i);
  const shown = members.map((list, k) => [k, list]).filter(([k, list]) => list.length && (S.zoom < 0 || k === S.zoom));
  const HEAD = 16, GAP = 8; let size = 30, boxes = [];
  for (; size > 2; size -= size > 8 ? 1 : .5) {
    boxes = []; let x = 0, y = 0, row = 0;
    for (const [k, list] of shown) {
      // As wide as it is high, but never wider than the panel; a group alone takes the panel.
      const across = Math.min(Math.max(Math.ceil(Math.sqrt(list.length * 2.2)), Math.ceil(92 / size)), Math.max(1, Math.floor(w / size))), rows = Math.ceil(list.length / across);
      const bw = across * size, bh = HEAD + rows * size; if (x && x + bw > w) { x = 0; y += row + GAP; row = 0; }
      boxes.push({group: k, list, x, y, across, bw, bh}); x += bw + GAP; row = Math.max(row, bh);
    }
    if (y + row <= h) break;
  }
  const at = new Float32Array(2 * S.num).fill(-1);
  for (const b of boxes) b.list.forEach((i, k) => { at[2 * i] = b.x + (k % b.across) * size; at[2 * i + 1] = b.y + HEAD + Math.floor(k / b.across) * size; });
  return {w, h, view: "groups", zoom: S.zoom, boxes, at, size, names, HEAD};
}
function drawCells(g) {
  const {boxes, at, size, names, HEAD} = S.geometry, gap = size > 7 ? 1.5 : size > 4 ? 1 : .5, inner = Math.max(1, size - gap), bad = alertLinks();
  g.textBaseline = "alphabetic"; g.textAlign = "left"; g.fillStyle = css("--soft");
  for (const b of boxes) { let text = `${names[b.group].name} (${b.list.length})`; while (text.length > 3 && g.measureText(text).width > b.bw + 4) text = text.slice(0, -2) + "…"; g.fillText(text, b.x, b.y + HEAD - 5); }
  // Cells of one colour in one path: ten thousand fills would take ten times as long.
  const groups = new Map(), down = [];
  for (const b of boxes) for (const i of b.list) { if (isDown(i)) { down.push(i); continue; } const u = S.use[i], key = u >= 0 ? Math.round(Math.min(1.05, u) * 20) : S.rate[i] > 0 ? -1 : -2; if (!groups.has(key)) groups.set(key, []); groups.get(key).push(i); }
  for (const [key, list] of groups) { g.fillStyle = key < 0 ? css(key === -1 ? "--other" : "--idle") : colour(key / 20); g.beginPath(); for (const i of list) g.rect(at[2 * i], at[2 * i + 1], inner, inner); g.fill(); }
  g.strokeStyle = css("--crit"); g.lineWidth = size > 8 ? 2 : 1; g.beginPath();
  for (const i of down) { const x = at[2 * i], y = at[2 * i + 1]; g.rect(x + .5, y + .5, inner - 1, inner - 1); g.moveTo(x, y); g.lineTo(x + inner, y + inner); g.moveTo(x + inner, y); g.lineTo(x, y + inner); } g.stroke();
  for (const [i, severity] of bad) { if (at[2 * i] < 0) continue; const x = at[2 * i] + inner / 2, y = at[2 * i + 1] + inner / 2, r = Math.max(5, inner * .7); g.strokeStyle = css(severity === "critical" ? "--crit" : "--warn"); g.lineWidth = 2.5; g.beginPath(); g.arc(x, y, r, 0, 7); g.stroke();
    g.fillStyle = g.strokeStyle; g.beginPath(); g.moveTo(x, y - r - 8); g.lineTo(x + 5, y - r); g.lineTo(x - 5, y - r); g.closePath(); g.fill(); }
  if (S.selected >= 0 && at[2 * S.selected] >= 0) { g.strokeStyle = css("--ink"); g.lineWidth = 2; g.strokeRect(at[2 * S.selected] - 1, at[2 * S.selected + 1] - 1, inner + 2, inner + 2); }
}
// A diagram: levels of devices, both directions of a cable side by side.
function diagram(w, h) {
  const p = S.layout.picture, rows = p.num_levels, count = new Array(rows).fill(0); for (const d of p.devices) count[d.level]++;
  const spot = p.devices.map(d => [14 + d.x * (w - 28), h - 22 - (rows > 1 ? d.level * (h - 52) / (rows - 1) : (h - 52) / 2)]);
  const ends = p.links.map(([a, b]) => { const [x1, y1] = spot[a], [x2, y2] = spot[b], l = Math.hypot(x2 - x1, y2 - y1) || 1, o = 3;
    const nx = (y1 - y2) / l * o, ny = (x2 - x1) / l * o; return [x1 + nx, y1 + ny, x2 + nx, y2 + ny]; });
  return {w, h, view: "diagram", zoom: S.zoom, spot, ends, count};
}
function drawDiagram(g, w) {
  const {ends, spot, count} = S.geometry, many = ends.length > 400, bad = alertLinks(), groups = new Map();
  for (let i = 0; i < ends.length; i++) { const u = S.use[i], key = isDown(i) ? -2 : u >= 0 ? Math.round(Math.min(1.05, u) * 20) : -1; if (!groups.has(key)) groups.set(key, []); groups.get(key).push(i); }
  for (const key of [...groups.keys()].sort((a, b) => a - b)) {
    g.strokeStyle = key === -2 ? css("--crit") : key < 0 ? css("--idle") : colour(key / 20); g.lineWidth = key === -2 ? 1.8 : (many ? .7 : 1.4) + Math.max(0, key) / 20 * 3;
    g.setLineDash(key === -2 ? [4, 4] : []); g.beginPath(); for (const i of groups.get(key)) { const e = ends[i]; g.moveTo(e[0], e[1]); g.lineTo(e[2], e[3]); } g.stroke();
  }
  g.setLineDash([]);
  for (const [i, severity] of bad) { const e = ends[i]; if (!e) continue; g.strokeStyle = css(severity === "critical" ? "--crit" : "--warn"); g.lineWidth = 2; g.setLineDash([2, 3]); g.beginPath(); g.moveTo(e[0], e[1]); g.lineTo(e[2], e[3]); g.stroke(); g.setLineDash([]);
    const x = (e[0] + e[2]) / 2, y = (e[1] + e[3]) / 2; g.fillStyle = g.strokeStyle; g.beginPath(); g.moveTo(x, y - 7); g.lineTo(x + 7, y + 6); g.lineTo(x - 7, y + 6); g.closePath(); g.fill(); }
  if (S.selected >= 0 && ends[S.selected]) { const e = ends[S.selected]; g.strokeStyle = css("--ink"); g.lineWidth = 6; g.globalAlpha = .35; g.beginPath(); g.moveTo(e[0], e[1]); g.lineTo(e[2], e[3]); g.stroke(); g.globalAlpha = 1; }
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
  const G = S.geometry; if (!G) return -1;
  if (G.view === "groups") { for (const b of G.boxes) { const col = Math.floor((x - b.x) / G.size), row = Math.floor((y - b.y - G.HEAD) / G.size); if (col >= 0 && row >= 0 && col < b.across && x < b.x + b.bw && y < b.y + b.bh) { const i = b.list[row * b.across + col]; return i === undefined ? -1 : i; } } return -1; }
  let best = -1, least = 64;
  G.ends.forEach(([x1, y1, x2, y2], i) => { const dx = x2 - x1, dy = y2 - y1, t = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
    const d = (x - x1 - t * dx) ** 2 + (y - y1 - t * dy) ** 2; if (d < least) { least = d; best = i; } });
  return best;
}
let groupsKey = "";
function drawGroups() {
  const p = S.layout.picture; if (!p || !p.groups || p.groups.length < 2 || viewOf() !== "groups") { if (groupsKey) { fill("groups"); groupsKey = ""; } return; }
  const num = p.groups.map(() => 0), sum = p.groups.map(() => 0), hurt = p.groups.map(() => 0), bad = alertLinks();
  for (let i = 0; i < S.num; i++) { const k = p.group_of[i]; num[k]++; if (S.use[i] >= 0) sum[k] += S.use[i]; if (isDown(i) || bad.has(i)) hurt[k]++; }
  const rows = p.groups.map((group, k) => `${group.name}: ${percent(sum[k] / num[k])}${hurt[k] ? `, ${hurt[k]} in trouble` : ""}`), key = rows.join() + S.zoom; if (key === groupsKey) return; groupsKey = key;
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.group : undefined;
  fill("groups", rows.map((text, k) => el("li", {}, el("button", {type: "button", "data-group": k, "aria-pressed": k === S.zoom ? "true" : "false", class: hurt[k] ? "hurt" : ""}, text))));
  if (focused !== undefined) { const again = document.querySelector(`#groups button[data-group="${+focused}"]`); if (again) again.focus(); }
}
