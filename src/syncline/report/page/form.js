"use strict";
const at = (id) => document.getElementById(id);
let turn = 0, timer = 0;

function choices() {
  const found = {};
  for (const field of at("form").elements) {
    if (!field.name) continue;
    found[field.name] = field.type === "number" ? Number(field.value) : field.value;
  }
  return found;
}

async function ask(path, body) {
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error || response.statusText);
  return answer;
}

function offer(files) {
  at("files").replaceChildren(...Object.entries(files).map(([name, text]) => {
    const link = document.createElement("a");
    link.href = "data:text/plain;charset=utf-8," + encodeURIComponent(text);
    link.download = name;
    link.textContent = name;
    return link;
  }));
}

function rule(field) {
  const name = field.closest("label").firstChild.textContent.trim();
  return `${name}: ${field.value || "nothing"} is not a whole number from ${field.min} to ${field.max}.`;
}

function refuse(message) {
  at("headline").textContent = "";
  at("plan").textContent = "";
  at("error").textContent = message;
  at("error").hidden = false;
  at("state").textContent = "no answer";
  document.body.classList.remove("planning");
}

async function refresh() {
  const mine = ++turn, body = JSON.stringify(choices());
  document.body.classList.add("stale");
  const wrong = at("form").querySelector("input:invalid");
  if (wrong) { refuse(rule(wrong)); return; }
  at("state").textContent = "drawing …";
  try {
    const cluster = await ask("api/cluster", body);
    if (mine !== turn) return;
    at("cluster").textContent = cluster.text;
    at("cost").textContent = cluster.cost;
    at("picture").src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(cluster.svg);
    offer(cluster.files);
    document.body.classList.replace("stale", "planning");
    at("state").textContent = "planning …";
    const plan = await ask("api/plan", body);
    if (mine !== turn) return;
    at("headline").textContent = plan.headline;
    at("plan").textContent = plan.text;
    offer({ ...cluster.files, "plan.json": JSON.stringify(plan.plan, null, 1) });
    at("error").hidden = true;
    at("state").textContent = "done";
    document.body.classList.remove("planning");
  } catch (error) {
    if (mine === turn) refuse(error.message);
  }
}

at("form").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(refresh, 400); });
at("form").addEventListener("submit", (event) => event.preventDefault());
refresh();
