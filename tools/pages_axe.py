"""What axe finds on every page that syncline writes or serves, light and dark; how many sheets the watch page prints.

axe-core is not shipped: `npm install axe-core` somewhere, and AXE_CORE names its axe.min.js. Chromium is driven by
playwright; without one of them the benchmark says which and measures nothing.

    AXE_CORE=node_modules/axe-core/axe.min.js python tools/pages_axe.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")
CLUSTER = "hosts: 8\nhost: 8 x H100\nnetwork: leaf-spine NDR 2:1\n"
JOB = "model: llama3-8b\nbatch: {global: 256, sequence: 4096}\n"
PAGES = {
    "fabric": "fabric show CLUSTER",
    "schedule": "schedule show double-tree --ranks 16",
    "simulate": "simulate allreduce --cluster CLUSTER --size 1MiB..64MiB",
    "flows": "simulate flows --cluster CLUSTER --load 0.3 --duration 1ms",
    "step": "step CLUSTER JOB",
    "plan": "plan CLUSTER JOB",
    "compare": "plan compare CLUSTER h100-64-rail JOB",
    "place": "place CLUSTER JOB --hosts host-00,host-01",
    "audit": "audit",
    "build": "fabric build CLUSTER",
    "bench": "bench --read LOG --cluster CLUSTER --collective allreduce",
    "design": "design JOB --budget 3M --link NDR",
    "share": "share CLUSTER JOBS",
    "preview": "preview CLUSTER -- python SCRIPT",
    "rehearse": "rehearse LAB --scale 0.1",
}
ROOT = Path(__file__).resolve().parents[1]
LOG = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 268435456 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid   1887 on   host-00 device  0 [0x8d] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1888 on   host-00 device  1 [0x91] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    41.20   25.45   25.45      0    40.90   25.64   25.64      0
    16777216       4194304     float     sum      -1    120.1  139.69  139.69      0    119.0  140.98  140.98      0
   268435456      67108864     float     sum      -1   1210.0  221.85  221.85      0   1208.0  222.21  222.21      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 129.20
"""
JOBS = """jobs:
  - {name: text, hosts: "0,2", step: {compute: 60ms, exchange: 500MB}}
  - {name: video, hosts: "1,3", step: {compute: 60ms, exchange: 500MB}, arrives: 1h}
"""


def written(folder: Path) -> dict[str, Path]:
    """Return the pages that commands wrote; those a command does not write with these words are left out by name."""
    from syncline.cli.shell.app import run as syncline

    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "job.yaml").write_text(JOB)
    (folder / "jobs.yaml").write_text(JOBS)
    (folder / "nccl.log").write_text(LOG)
    stand_ins = {"CLUSTER": str(folder / "cluster.yaml"), "JOB": str(folder / "job.yaml"),
                 "JOBS": str(folder / "jobs.yaml"), "LOG": str(folder / "nccl.log"),
                 "SCRIPT": str(ROOT / "examples" / "preview" / "ddp.py"),
                 "LAB": str(ROOT / "examples" / "lab-flat.yaml")}  # fmt: skip
    made = {}
    for name, command in PAGES.items():
        target = folder / f"{name}.html"
        with redirect_stdout(sys.stderr):
            own, dashes, rest = command.partition(" -- ")
            words = [*own.split(), "--html", str(target), *dashes.split(), *rest.split()]
            syncline([stand_ins.get(word, word) for word in words])
        if target.exists():
            made[name] = target
        else:
            print(f"{name}: no page was written", file=sys.stderr)
    return made


def served() -> tuple[str, Any]:
    """Return the address of the watch page with the invented job, and what ends it."""
    from syncline.watch.demonstration.invented import PLAN, Demo
    from syncline.watch.feed import Feed
    from syncline.watch.serve.access import Access
    from syncline.watch.serve.server import Server, make_app

    demo, stop, access = Demo(), threading.Event(), Access(port=0)
    thread = threading.Thread(target=demo.run, args=(stop,))
    thread.start()
    server = Server(make_app(Feed(demo.hub, demo.history, "demo", prediction=PLAN), access), access)
    port = server.start()

    def close() -> None:
        stop.set()
        thread.join()
        server.close()
        demo.close()

    return f"http://127.0.0.1:{port}/", close


def form() -> tuple[str, Any]:
    """Return the address of the planning form, and what ends it."""
    from syncline.report.page.form import make_form
    from syncline.watch.serve.access import Access
    from syncline.watch.serve.server import Server

    access = Access(port=0)
    server = Server(make_form(access), access)
    return f"http://127.0.0.1:{server.start()}/", server.close


def look(browser: Any, url: str, scheme: str, axe: str) -> list[dict[str, Any]]:
    """Return what axe finds on one page: rule, how bad, how often, and the first of it."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(url)
    if url.startswith("http"):
        page.wait_for_selector("body[data-frames], form", timeout=120_000)
    page.evaluate(axe)
    options = {"runOnly": {"type": "tag", "values": list(RULES)}, "resultTypes": ["violations"]}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    context.close()
    return [
        {
            "rule": each["id"],
            "impact": each["impact"],
            "num": len(each["nodes"]),
            "first": each["nodes"][0]["html"][:160],
        }
        for each in found
    ]


def sheets(browser: Any, url: str) -> int:
    """Return on how many sheets of A4 a page prints."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(url)
    page.wait_for_selector("body[data-frames]", timeout=120_000)
    page.wait_for_timeout(3000)
    data = page.pdf(prefer_css_page_size=True)
    page.close()
    return len(re.findall(rb"/Type\s*/Page[^s]", data))


def run() -> dict[str, Any]:
    """Return what was found, page by page."""
    source, chromium = Path(os.environ.get("AXE_CORE", "axe.min.js")), shutil.which("chromium")
    if chromium is None or not source.is_file():
        missing = "chromium is not installed (Debian: chromium)" if chromium is None else "AXE_CORE names no axe.min.js"
        return {"missing": [missing]}
    from playwright.sync_api import sync_playwright

    axe = source.read_text()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        pages = {key: path.as_uri() for key, path in written(Path(name)).items()}
        watch, close = served()
        planning, end = form()
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            for key, url in {"watch": watch, "form": planning, **pages}.items():
                found[key] = {scheme: look(browser, url, scheme, axe) for scheme in ("light", "dark")}
            num_sheets = sheets(browser, watch)
        finally:
            browser.close()
            close()
            end()
    total = sum(each["num"] for schemes in found.values() for rows in schemes.values() for each in rows)
    version = re.search(r"axe v([\d.]+)", axe)
    return {"axe": version[1] if version else "", "pages": len(found), "violations": total,
            "watch_sheets_of_a4": num_sheets, "found": found}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
