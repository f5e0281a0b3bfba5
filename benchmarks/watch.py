"""What watching costs: the 1 ms loop by two means, one look of the agent, looks at many links, and the page's server.

Shares are of one core, over wall time.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


@contextmanager
def cables(num: int) -> Iterator[dict[str, Any]]:
    """Give so many real veth interfaces in a network namespace of their own, their far ends in a second one."""
    from syncline.watch.sampler import InterfacePlace

    held = [subprocess.Popen(["unshare", "-n", "sleep", "600"]) for _ in range(2)]
    try:
        time.sleep(0.5)
        near, far = (str(each.pid) for each in held)
        for i in range(num):
            end = ["peer", "name", f"w{i}", "netns", far]
            subprocess.run(
                ["nsenter", "-t", near, "-n", "ip", "link", "add", f"v{i}", "type", "veth", *end], check=True
            )
            for pid, name in ((near, f"v{i}"), (far, f"w{i}")):
                subprocess.run(["nsenter", "-t", pid, "-n", "ip", "link", "set", name, "up"], check=True)
        asked = ["nsenter", "-t", near, "-n", "ip", "-j", "link"]
        told = json.loads(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        numbers = {row["ifname"]: row["ifindex"] for row in told if row["ifname"].startswith("v")}
        yield {name: InterfacePlace(f"/proc/{near}/ns/net", number) for name, number in numbers.items()}
    finally:
        for each in held:
            each.kill()
            each.wait()


def on_cables(num: int = 8, rounds: int = 5) -> dict[str, Any]:
    """Return the share of a core that sampling real veth interfaces takes, in turns with a loop that only sleeps."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return {"missing": "root, iproute2 and util-linux"}
    from syncline.watch.sampler import BurstSampler

    with cables(num) as places:
        shares, rates = [], []
        for _ in range(rounds):
            sampler = BurstSampler(places)
            sampler.take()
            cpu = time.process_time()
            time.sleep(4.0)
            shares.append((time.process_time() - cpu) / 4.0)
            rates.append(len(sampler.take().time_s) / 4.0)
            sampler.close()
    return {"num_interfaces": num, "share_median": round(statistics.median(shares), 4),
            "share_worst": round(max(shares), 4), "rows_per_s": round(statistics.median(rates), 1)}  # fmt: skip


def share_of_core(seconds: float, places: int, *, native: bool | None) -> dict[str, float]:
    """Return the processor time of sampling so many interfaces, and how late the samples came; None: only sleeping."""
    from tests.watch.python_sampler import PythonLoop

    from syncline.watch.sampler import BurstSampler, InterfacePlace

    if native is None:
        begun, cpu = time.monotonic(), time.process_time()
        next_s = begun
        while next_s < begun + seconds:
            next_s += 1e-3
            time.sleep(max(0.0, next_s - time.monotonic()))
        return {"share": round((time.process_time() - cpu) / seconds, 4)}
    sampler = BurstSampler(
        {f"lo-{i}": InterfacePlace(None, 1) for i in range(places)}, start=None if native else PythonLoop
    )
    sampler.take()
    cpu = time.process_time()
    time.sleep(seconds)
    used = time.process_time() - cpu
    rows = sampler.take()
    sampler.close()
    gaps = np.diff(rows.time_s)
    return {
        "share": round(used / seconds, 4),
        "rows_per_s": round(len(rows.time_s) / seconds, 1),
        "gap_p99_ms": round(float(np.percentile(gaps, 99)) * 1e3, 3),
        "gap_worst_ms": round(float(gaps.max()) * 1e3, 3),
    }


def whole_agent(seconds: float) -> dict[str, float]:
    """Return the share of a core of the whole agent on this host, sampling one interface every millisecond."""
    import threading

    from syncline.watch.setup import WatchConfig, make_agent

    agent = make_agent(WatchConfig(host="here", interfaces=".*"))
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    time.sleep(2.0)
    cpu = time.process_time()
    time.sleep(seconds)
    used = time.process_time() - cpu
    stop.set()
    thread.join()
    agent.close()
    return {"share": round(used / seconds, 4), "looks_per_s": 4.0}


def looks(num_links: int, count: int = 40) -> dict[str, float]:
    """Return the time of one look at so many links: rules, JSON and packed form."""
    from tests.watch.scenes import frame, load, table

    from syncline.watch.rules.engine import RuleEngine

    links, engine = table(num_links, num_rails=8), RuleEngine()
    rng = np.random.default_rng(0)
    frames = [frame(k, links, load(links, 0.5 + 0.05 * rng.standard_normal(num_links))) for k in range(count)]
    times: dict[str, list[float]] = {"rules_ms": [], "json_ms": [], "pack_ms": []}
    for each in frames:
        for name, act in (
            ("rules_ms", lambda f=each: engine.update(f)),
            ("json_ms", lambda f=each: json.dumps(f.to_json())),
            ("pack_ms", each.pack),
        ):
            begun = time.thread_time()  # of the processor: others may have it meanwhile
            act()
            times[name].append((time.thread_time() - begun) * 1e3)
    found = {name: round(statistics.median(values), 2) for name, values in times.items()}
    return {**found, "json_kB": round(len(json.dumps(frames[-1].to_json())) / 1e3, 1)}


def fleet(num_agents: int = 64, links_each: int = 157, seconds: float = 10.0) -> dict[str, Any]:
    """Return how a page of 64 agents and 10,000 links does: the server's share of a core, the browser's drawing."""
    import threading

    from tests.watch.scenes import frame, load, table

    from syncline.watch.feed import Feed
    from syncline.watch.fleet.door import ForeignFrame
    from syncline.watch.fleet.fleet import Fleet
    from syncline.watch.fleet.presence import HostFrame
    from syncline.watch.foreign import admit
    from syncline.watch.serve.access import Access
    from syncline.watch.serve.server import Server, make_app

    class Reader:
        every_s = 0.5

        def __init__(self, k: int) -> None:
            self.name = f"agent-{k}"
            base = table(links_each, num_rails=8)
            names = tuple(f"rack-{k:02d}-{name}" for name in base.names)
            src, dst = tuple(f"rack-{k:02d}-{s}" for s in base.src), tuple(f"leaf-{k:02d}" for _ in base.dst)
            columns = {f: getattr(base, f) for f in base.__dataclass_fields__}
            self.table = type(base)(**{**columns, "names": names, "src": src, "dst": dst})
            self.number = 0

        async def read(self, wait_s: float = 0.0) -> list[Any]:
            self.number += 1
            rng = np.random.default_rng(self.number)
            now = frame(self.number, self.table, load(self.table, rng.random(links_each)))
            text = json.dumps(now.to_json())  # what an agent sends, and what the door makes of it
            told = admit(ForeignFrame, text.encode())
            alerts = tuple(alert.incident() for alert in told.alerts)
            return [HostFrame(self.name, told.wall_s, self.table, told.load(), told.job.state(), alerts)]

        async def close(self) -> None:
            """Nothing is open."""

    made = Fleet([Reader(k) for k in range(num_agents)], every_s=1.0)
    stop = threading.Event()
    thread = threading.Thread(target=made.run, args=(stop,))
    thread.start()
    access = Access(port=0)
    server = Server(make_app(Feed(made.hub, None, "fleet"), access), access)
    port = server.start()
    try:
        cpu = time.process_time()
        drawn = _browse(f"http://127.0.0.1:{port}/", seconds)
        used = (time.process_time() - cpu) / seconds
        frame_now = made.hub.frame
        return {"num_agents": num_agents, "num_links": len(frame_now.table) if frame_now else 0,
                "server_share": round(used, 3), **drawn}  # fmt: skip
    finally:
        stop.set()
        thread.join()
        server.close()


def _browse(url: str, seconds: float) -> dict[str, Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        time.sleep(seconds)
        return {"browser": "not measured: chromium is not installed (Debian: apt install chromium)"}
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(url)
        page.wait_for_selector("body[data-frames]", timeout=60_000)
        draws: list[float] = []
        filters: list[float] = []
        meter = page.context.new_cdp_session(page)
        meter.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
        meter.send("Performance.enable")
        begun, first = _cpu_ms(meter), int(page.get_attribute("body", "data-frames") or 0)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            draws.append(float(page.get_attribute("body", "data-draw-ms") or 0))
            page.fill("#filter", f"rack-{len(draws) % 64:02d}")
            time.sleep(0.4)
            # From the key to the drawn list, as the page itself measures it.
            filters.append(float(page.get_attribute("body", "data-input-ms") or 0))
            page.fill("#filter", "")
            time.sleep(0.2)
        frames = int(page.get_attribute("body", "data-frames") or 0)
        used_ms = _cpu_ms(meter) - begun
        browser.close()
    return {
        "draw_median_ms": round(statistics.median(draws), 1),
        "draw_worst_ms": round(max(draws), 1),
        "key_to_drawn_median_ms": round(statistics.median(filters), 1),
        "key_to_drawn_worst_ms": round(max(filters), 1),
        "frames": frames,
        # All of the page's thread: what it drew unasked, both keys of each filter, and this benchmark's questions.
        "cpu_ms_per_drawing": round(used_ms / max(1, frames - first + 2 * len(filters)), 1),
    }


def _cpu_ms(meter: Any) -> float:
    """Return what the page's thread has had of a processor."""
    found = {row["name"]: row["value"] for row in meter.send("Performance.getMetrics")["metrics"]}
    return float(found["TaskDuration"]) * 1e3


def run() -> dict[str, Any]:
    """Return every figure."""
    if not hasattr(socket, "AF_NETLINK"):
        return {"skipped": "netlink is Linux's"}
    return {
        "python_sleeping": share_of_core(5.0, 1, native=None),
        "native_1_interface": share_of_core(5.0, 1, native=True),
        "native_2_interfaces": share_of_core(5.0, 2, native=True),
        "native_8_interfaces": share_of_core(5.0, 8, native=True),
        "veth_8_interfaces": on_cables(),
        "load_average": os.getloadavg()[0],
        "python_1_interface": share_of_core(5.0, 1, native=False),
        "whole_agent_1_sampled": whole_agent(8.0),
        "looks_1000_links": looks(1000),
        "looks_10000_links": looks(10_000),
        "fleet": fleet(),
        "max_memory_MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
