"""The site builds strictly, runs the commands of its pages, and fetches nothing from anywhere else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytest.importorskip("mkdocs", reason='the site needs mkdocs: pip install "syncline[docs]"')
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    settings = {"NO_MKDOCS_2_WARNING": "1", "SYNCLINE_SITE": ""}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def text_of(site: Path, page: str) -> str:
    return (site / page / "index.html").read_text("utf-8")


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"?(https?://[^\" >]+)")
    found = {url for page in site.rglob("*.html") for url in fetched.findall(page.read_text("utf-8"))}
    assert found == set()


def test_commands_were_run_and_pictures_made(site: Path) -> None:
    page = text_of(site, "learn/cluster")
    assert "oversubscription" in page
    assert re.search(r'src="[./]*pictures/[0-9a-f]+\.svg"', page)
    for path in (site / "pictures").glob("*.svg"):
        assert path.read_text("utf-8").startswith("<svg"), path.name


def test_no_page_shows_a_fence(site: Path) -> None:
    assert [str(page.relative_to(site)) for page in site.rglob("*.html") if "```" in page.read_text("utf-8")] == []


def test_every_claim_has_its_verdict_and_command(site: Path) -> None:
    page = text_of(site, "claims")
    assert len(re.findall(r'class="?verdict', page)) == 70
    assert page.count("<code>") > 70
    told = re.findall(r"(\d+) (?:reproduced|conditional|refuted|undecided|not here)\b", page)
    assert sum(map(int, told)) == 70


def test_every_example_and_notebook_is_in_the_gallery(site: Path) -> None:
    page = text_of(site, "gallery")
    stems = [p.stem for p in (ROOT / "examples").iterdir() if p.suffix in (".py", ".sh")]
    stems += [p.stem for p in (ROOT / "examples" / "notebooks").glob("*.ipynb")]
    assert len(stems) >= 24
    assert [stem for stem in stems if f"thumbnails/{stem}.svg" not in page] == []


def test_reference_has_every_verb_name_and_schema(site: Path) -> None:
    import syncline
    from syncline.cli.shell.verbs import VERBS

    assert all((site / "reference" / "cli" / verb / "index.html").exists() for verb in VERBS)
    api = text_of(site, "reference/api")
    assert "<blockquote>" not in api, "examples are code, not quotations"
    assert [name for name in syncline.__all__ if not name.startswith("_") and f'id="{name.lower()}"' not in api] == []
    schemas = text_of(site, "reference/schemas")
    assert all(path.name in schemas for path in (ROOT / "docs" / "reference" / "schemas").glob("*.json"))


def test_each_person_has_five_pages() -> None:
    for page in (ROOT / "docs" / "people").glob("[!i]*.md"):
        path = page.read_text("utf-8").split("## Your five pages")[1]
        assert re.findall(r"^(\d)\.", path, re.MULTILINE) == ["1", "2", "3", "4", "5"], page.name


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_output(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells), "the build runs them: keep the sources alone"


def test_the_table_of_the_sliders_is_what_syncline_says() -> None:
    sys.path.insert(0, str(ROOT / "tools" / "site"))
    import table

    kept = json.loads(table.PATH.read_text("utf-8"))
    asked = {(p["rate"], p["ratio"], p["fault"]): p for p in kept["points"]}
    assert len(asked) == len(table.RATES) * len(table.RATIOS) * len(table.FAULTS)
    for setting in (("100GbE", 1, 1.0), ("400GbE", 4, 0.5)):
        assert json.loads(json.dumps(table.point(*setting))) == asked[setting], "run python tools/site/table.py"
    now = json.loads(json.dumps(table.planned("llama3-8b", 16, "400GbE", 1)))
    where = ("model", "hosts", "rate", "ratio")
    then = next(p for p in kept["plan"]["points"] if all(p[name] == now[name] for name in where))
    for name in ("p50", "p90"):  # intervals move a little with every published row
        assert then.pop(name) == pytest.approx(now.pop(name), rel=0.2), "run python tools/site/table.py"
    assert then == now, "run python tools/site/table.py"
    lab = json.loads(json.dumps(table.rehearsed(4, "1GbE", "ring")))
    assert lab in kept["lab"]["points"], "run python tools/site/table.py"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; on Debian: apt install chromium")
def test_sliders_move_the_numbers(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="drives the browser")
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/interactive/")
        playwright.expect(page.locator("#ring")).not_to_have_text("", timeout=100_000)
        before = page.inner_text("#pairs"), page.inner_text("#ring")
        page.locator("#sliders [name=ratio]").fill("2")
        four = page.inner_text("#pairs"), page.inner_text("#ring")
        assert four[0] != before[0], "oversubscription moves an all-to-all"
        assert four[1] == before[1], "and no ring"
        page.locator("[name=fault]").fill("2")
        assert page.inner_text("#ring") != before[1], "a slow NIC moves a ring"
        page.locator("[name=round]").fill("10")
        assert page.locator("#rounds rect[fill='#1b7f3b']").count() == 36
        before = page.inner_text("#plan-step"), page.inner_text("#plan-split")
        page.locator("#plan-sliders [name=hosts]").fill("0")
        assert page.inner_text("#plan-step") != before[0], "fewer GPUs take longer"
        assert page.inner_text("#lab-measured") != "not run"
        assert page.locator("#lab-curve circle").count() == 5
        page.locator("#lab-sliders [name=hosts]").fill("3")
        assert page.inner_text("#lab-measured") == "not run"
        browser.close()
    server.shutdown()
    server.server_close()
