"""A hostile fleet in a real browser: is anything executed, and does the agent beside it keep looking?

One real agent of this host, and forty strangers that answer as agents do: script in every name, frames with random
damage, redirects, bodies that drip, garbage. Meanwhile random datagrams go to the agent's socket and 1,000 connections
to its page say half a request and nothing more. A browser shows the fleet's page for half a minute.

    python benchmarks/watch_hostile.py
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SECONDS = 30.0
NUM_HALF_OPEN = 1000
SCRIPT = "<img src=x onerror=document.body.dataset.pwned=1>\"'><script>document.body.dataset.pwned=1</script>"
ALERT = {**dict.fromkeys(("rule", "place", "observed", "expected", "meaning", "fix", "severity", "host"), SCRIPT),
         "evidence": [SCRIPT], "since_s": 1.0, "cause": SCRIPT, "cost_usd_per_hour": 1.0}  # fmt: skip


def damaged(text: str, rng: random.Random) -> str:
    """Return a document with a value or some characters replaced by what does not belong there."""
    if rng.random() < 0.5:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(['"', "{", "1e999", "\\u0000", "null", "-", "9" * 400]) + text[at + 5 :]
    data = json.loads(text)
    data[rng.choice(sorted(data))] = rng.choice([None, -1, 1e308, "x" * 5000, [], {}, [[None] * 50], SCRIPT, True])
    return json.dumps(data)


def strangers(kit: Any, rng: random.Random) -> tuple[Any, list[str]]:
    """Return servers that pass for agents, and their addresses."""
    evil = json.dumps(kit.body(alerts=[ALERT], health={"host": SCRIPT}))
    layout = kit.LINKS.to_json()
    layout["names"] = [SCRIPT + name for name in layout["names"]]
    layout["src"] = layout["dst"] = [SCRIPT] * len(layout["names"])
    names = json.dumps(layout)

    async def scripted(writer: asyncio.StreamWriter, path: str) -> None:
        writer.write(kit.plain(evil if path == "/api/frame" else names))
        await writer.drain()

    async def fuzzed(writer: asyncio.StreamWriter, path: str) -> None:
        writer.write(kit.plain(damaged(evil if path == "/api/frame" else names, rng)))
        await writer.drain()

    made = kit.Strangers()
    manners = [scripted] * 10 + [fuzzed] * 20 + [kit.drip] * 4
    manners += [kit.says(kit.plain("", "302 Found", "Location: http://127.0.0.1:1/\r\n"))] * 3
    manners += [kit.says(rng.randbytes(500)) for _ in range(3)]
    return made, [made.serve(each) for each in manners]


def datagrams(path: str, stop: threading.Event, rng: random.Random) -> None:
    """Send what is no span to the agent's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        while not stop.wait(0.01):
            good = {"rank": 0, "name": SCRIPT, "start_s": time.monotonic() - 1, "end_s": time.monotonic()}
            odd = {**good, rng.choice(sorted(good)): rng.choice([None, "9" * 400, -1, [], 1e300, {"a": {}}])}
            deep = b"[" * 20_000
            with suppress(OSError):
                out.sendto(
                    rng.choice([json.dumps(odd).encode(), json.dumps(good).encode(), deep, rng.randbytes(99)]), path
                )


def half_open(port: int) -> list[socket.socket]:
    """Open many connections that begin a request and never end it; those that are refused are left out."""
    held = []
    for _ in range(NUM_HALF_OPEN):
        with suppress(OSError):
            one = socket.create_connection(("127.0.0.1", port), timeout=1.0)
            one.sendall(b"GET / HTTP/1.1\r\nHost: 127")
            held.append(one)
    return held


def asked_s(url: str) -> float | None:
    """Return how long a page took to answer; None where it did not within ten seconds."""
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:  # noqa: S310
            answer.read()
    except OSError:
        return None
    return round(time.monotonic() - begun, 3)


def browsed(url: str, chromium: str) -> dict[str, Any]:
    """Return what a browser that shows the page for a while was made to do."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        errors: list[str] = []
        dialogs: list[str] = []
        asked: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))

        def dismiss(dialog: Any) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", dismiss)
        page.on("request", lambda request: asked.append(request.url))
        page.goto(url)
        page.wait_for_selector("body[data-frames]", timeout=120_000)
        page.wait_for_timeout(SECONDS * 1000)
        words = page.inner_text("body")
        found = {
            "executed": page.get_attribute("body", "data-pwned"), "images": page.locator("img").count(),
            "dialogs": len(dialogs), "page_errors": errors[:3], "script_shown_as_text": "onerror" in words,
            "requests_elsewhere": len([one for one in asked if not one.startswith(url)]),
            "frames_drawn": int(page.get_attribute("body", "data-frames") or 0),
        }  # fmt: skip
        browser.close()
        return found


def run() -> dict[str, Any]:
    """Return what came of it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return {"missing": ["chromium is not installed (Debian: chromium)"]}
    from tests.watch.fleet import test_hostile as kit

    from syncline.cli.frames.feed import of_agent
    from syncline.watch.fleet.fleet import Fleet
    from syncline.watch.fleet.sources import AgentReader
    from syncline.watch.serve.access import Access
    from syncline.watch.serve.server import Feed, Server, make_app
    from syncline.watch.setup import Wish, make_agent

    rng, stop = random.Random(7), threading.Event()  # noqa: S311
    with ExitStack() as opened, tempfile.TemporaryDirectory() as folder:
        spans = f"{folder}/spans.sock"
        agent = make_agent(Wish(host="here", interfaces=".*", bursts="lo", spans_socket=spans))
        opened.callback(agent.close)
        moments: list[float] = []
        own = Server(make_app(of_agent(agent), access := Access(port=0)), access)
        port = own.start()
        opened.callback(own.close)
        made, urls = strangers(kit, rng)
        opened.callback(made.close)
        fleet = Fleet([AgentReader(f"http://127.0.0.1:{port}"), *map(AgentReader, urls)], every_s=1.0, deadline_s=3.0)
        page = Server(make_app(Feed(fleet.hub, None, "fleet"), reach := Access(port=0)), reach)
        url = f"http://127.0.0.1:{page.start()}/"
        opened.callback(page.close)

        def looks() -> None:
            while not stop.wait(0.25):
                moments.append(agent.tick().mono_s)

        work = [threading.Thread(target=looks), threading.Thread(target=fleet.run, args=(stop,)),
                threading.Thread(target=datagrams, args=(spans, stop, rng))]  # fmt: skip
        for thread in work:
            thread.start()
        held = half_open(port)
        answers = [asked_s(f"http://127.0.0.1:{port}/metrics")]
        seen = browsed(url, chromium)
        answers.append(asked_s(f"http://127.0.0.1:{port}/metrics"))
        frame = fleet.hub.frame
        stop.set()
        for thread in work:
            thread.join()
        for one in held:
            one.close()
        gaps = [after - before for before, after in pairwise(moments)]
        return {
            "seconds": SECONDS, "num_strangers": len(urls), "half_open": len(held), "browser": seen,
            "agent": {"looks": len(moments), "longest_gap_s": round(max(gaps), 3), "failures": agent.num_failures,
                      "bad_spans": sum(source.num_bad for source in agent._spans)},
            "metrics_answered_after_s": answers,
            "fleet": {"hosts_live": frame.health["num_hosts"] if frame else 0,
                      "problems_told": len(frame.health["problems"]) if frame else 0},
            "load_average": round(os.getloadavg()[0], 1),
        }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
