"use strict";
(() => {
  const svg = document.querySelector("main .fabric");
  const drawing = svg.querySelector(".drawing");
  const tip = document.getElementById("tip");
  const details = document.getElementById("details");
  const search = document.getElementById("search");
  const [, , fullWidth, fullHeight] = svg.getAttribute("viewBox").split(" ").map(Number);
  let view = { x: 0, y: 0, w: fullWidth, h: fullHeight };
  let pinned = null;

  // Titles become our own tooltips, so that they show at once and do not show twice.
  const words = new Map();
  for (const title of svg.querySelectorAll("title")) {
    words.set(title.parentNode, title.textContent);
    title.parentNode.setAttribute("role", "img");
    title.parentNode.setAttribute("aria-label", title.textContent.replaceAll("\n", ", "));
    title.remove();
  }
  const things = [...drawing.querySelectorAll(".thing[data-key]")].filter((thing) => words.has(thing));
  const wires = [...drawing.querySelectorAll(".w[data-a]")];
  const byKey = new Map([...drawing.querySelectorAll(".thing[data-key]")].map((thing) => [thing.dataset.key, thing]));
  const wiresOf = new Map();
  for (const wire of wires) {
    for (const key of new Set([wire.dataset.a, wire.dataset.b])) {
      if (!wiresOf.has(key)) wiresOf.set(key, []);
      wiresOf.get(key).push(wire);
    }
  }

  // Pan and zoom
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  svg.setAttribute("preserveAspectRatio", "xMidYMid meet");
  svg.setAttribute("tabindex", "0");
  const show = () => svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
  const toPicture = (x, y) => new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
  const zoomAt = (x, y, factor) => {
    const w = Math.min(Math.max(view.w * factor, fullWidth / 40), fullWidth * 3);
    const scale = w / view.w;
    view = { x: x - (x - view.x) * scale, y: y - (y - view.y) * scale, w, h: view.h * scale };
    show();
  };
  const zoom = (factor) => zoomAt(view.x + view.w / 2, view.y + view.h / 2, factor);
  const fit = () => { view = { x: 0, y: 0, w: fullWidth, h: fullHeight }; show(); };
  const pan = (dx, dy) => { view.x += dx * view.w; view.y += dy * view.h; show(); };
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = toPicture(event.clientX, event.clientY);
    zoomAt(at.x, at.y, Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004));
  }, { passive: false });
  const held = new Map();
  let moved = 0;
  svg.addEventListener("pointerdown", (event) => { held.set(event.pointerId, event); moved = 0; });
  window.addEventListener("pointermove", (event) => {
    const last = held.get(event.pointerId);
    if (!last) return;
    const before = toPicture(last.clientX, last.clientY), now = toPicture(event.clientX, event.clientY);
    moved += Math.abs(event.clientX - last.clientX) + Math.abs(event.clientY - last.clientY);
    if (held.size === 2) {
      const other = [...held.values()].find((one) => one.pointerId !== event.pointerId);
      const anchor = toPicture(other.clientX, other.clientY);
      const far = (point) => Math.hypot(point.x - anchor.x, point.y - anchor.y) || 1;
      zoomAt(anchor.x, anchor.y, far(before) / far(now));
    } else if (moved > 3) {
      svg.classList.add("dragging");
      view.x -= now.x - before.x;
      view.y -= now.y - before.y;
      show();
    }
    held.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    window.addEventListener(end, (event) => { held.delete(event.pointerId); svg.classList.remove("dragging"); });
  }

  // What is joined to what
  const light = (thing) => {
    for (const hot of drawing.querySelectorAll(".hot")) hot.classList.remove("hot");
    svg.classList.toggle("focus", Boolean(thing));
    if (!thing) return;
    const keys = thing.dataset.key ? [thing.dataset.key] : [thing.dataset.a, thing.dataset.b];
    const lit = thing.dataset.key ? wiresOf.get(thing.dataset.key) ?? [] : [thing];
    for (const wire of lit) {
      wire.classList.add("hot");
      keys.push(wire.dataset.a, wire.dataset.b);
    }
    for (const key of keys) byKey.get(key)?.classList.add("hot");
  };
  const say = (thing) => {
    const [first, ...rest] = (words.get(thing) ?? "").split("\n");
    const strong = document.createElement("b");
    strong.textContent = first;
    const joined = thing.dataset.key ? (wiresOf.get(thing.dataset.key) ?? []).length : 0;
    details.replaceChildren(strong, rest.join("\n") + (joined ? `\n${joined} line${joined > 1 ? "s" : ""} drawn` : ""));
  };
  const pin = (thing) => {
    pinned = thing;
    light(thing);
    if (thing) say(thing);
    else details.textContent = "Point at a device or a cable; click to keep it.";
  };
  const target = (event) => event.target.closest?.(".drawing .thing, .drawing .w") ?? null;
  svg.addEventListener("pointerover", (event) => {
    const thing = target(event);
    if (!thing || !words.has(thing) || held.size) return;
    tip.textContent = words.get(thing);
    tip.hidden = false;
    if (!pinned) { light(thing); say(thing); }
  });
  svg.addEventListener("pointermove", (event) => {
    const right = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const below = Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 8);
    tip.style.left = `${right}px`;
    tip.style.top = `${below}px`;
  });
  svg.addEventListener("pointerout", (event) => {
    if (target(event) === event.relatedTarget?.closest?.(".thing, .w")) return;
    tip.hidden = true;
    if (!pinned) light(null);
  });
  svg.addEventListener("click", (event) => {
    if (moved > 3) return;
    const thing = target(event);
    pin(thing && words.has(thing) && thing !== pinned ? thing : null);
  });

  // Keys
  const step = (by) => {
    const at = things.indexOf(pinned);
    pin(things[(at + by + things.length) % things.length]);
  };
  svg.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => pan(-0.1, 0), ArrowRight: () => pan(0.1, 0), ArrowUp: () => pan(0, -0.1), ArrowDown: () => pan(0, 0.1),
      "+": () => zoom(0.8), "=": () => zoom(0.8), "-": () => zoom(1.25), 0: fit, Escape: () => pin(null),
      n: () => step(1), p: () => step(-1),
    };
    if (event.ctrlKey || event.metaKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.getElementById("in").addEventListener("click", () => zoom(0.8));
  document.getElementById("out").addEventListener("click", () => zoom(1.25));
  document.getElementById("fit").addEventListener("click", fit);
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  search.addEventListener("input", () => {
    const text = search.value.trim().toLowerCase();
    const name = (thing) => words.get(thing).split("\n")[0].toLowerCase();
    pin(text ? things.find((thing) => name(thing) === text) ?? things.find((thing) => name(thing).includes(text)) ?? null : null);
  });

  // Filters
  for (const box of document.querySelectorAll(".filters input")) {
    box.addEventListener("change", () => {
      const off = (kind) => new Set(
        [...document.querySelectorAll(`.filters input[data-kind=${kind}]:not(:checked)`)].map((one) => one.value));
      const tiers = off("tier"), lanes = off("lane");
      for (const wire of wires) {
        wire.classList.toggle("off", tiers.has(wire.dataset.tier) || lanes.has(wire.dataset.lane));
      }
    });
  }
  pin(null);
})();
