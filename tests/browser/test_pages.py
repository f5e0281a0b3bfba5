"""The pages in a real browser: they run without an error, hold what they say and paint something.

Chromium is driven by its own command line, so that the tests need no browser library. Without it they are skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from syncline.cli.shell.app import run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--virtual-time-budget=3000", "--enable-logging=stderr", "--window-size=1400,900",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; on Debian: apt install chromium"),
]

PAGES = {
    "8 hosts": ("fabric show CLUSTER", "hosts: 8\nhost: 8 x H100\nnetwork: leaf-spine NDR 2:1\n", "leaf-00"),
    "1,000 hosts": ("fabric show CLUSTER", "hosts: 1000\nhost: 8 x H100\nnetwork: rail-optimized NDR\n", "128 × core"),
    "dragonfly": ("fabric show CLUSTER", "hosts: 128\nhost: 8 x H100\nnetwork: dragonfly NDR\n", "group 1"),
    "torus": ("fabric show tpu-v4-pod", "", "16 × 16 × 16 torus"),
    "schedule": ("schedule show double-tree --ranks 16", "", "double tree"),
}


def browse(page: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Open a page; returns what chromium printed."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *more, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Return a page as the command writes it, and words that must be on it."""
    command, cluster, words = PAGES[request.param]
    (tmp_path / "cluster.yaml").write_text(cluster)
    target = tmp_path / "page.html"
    given = [str(tmp_path / "cluster.yaml") if word == "CLUSTER" else word for word in command.split()]
    assert run([*given, "--html", str(target)]) == 0
    return target, words


def test_a_page_runs_and_paints(page: tuple[Path, str], tmp_path: Path) -> None:
    path, words = page
    picture = tmp_path / "page.png"
    done = browse(path, tmp_path, "--dump-dom", f"--screenshot={picture}")
    complaints = re.findall(r'CONSOLE[^\n]*"(?:Uncaught|[^"\n]*(?:Error|error))[^\n]*', done.stderr)
    assert complaints == []
    drawn = re.sub(r"<[^>]+>", " ", done.stdout)
    assert words in drawn
    assert done.stdout.count("<svg") >= 1
    assert picture.read_bytes().startswith(b"\x89PNG")
    # An empty page of this size packs to a few kilobytes.
    assert picture.stat().st_size > 20_000


def test_a_page_that_fails_would_be_noticed(tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text("<!doctype html><title>x</title><script>nothing.here()</script>")
    assert "Uncaught ReferenceError" in browse(broken, tmp_path, "--dump-dom").stderr
