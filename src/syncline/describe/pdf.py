"""A page as PDF, printed by a browser that is installed: chromium or Chrome, without a window."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from syncline.describe.files import atomic
from syncline.errors import FileError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PRINT_S = 300.0


def browser() -> str:
    """Return the browser that prints, or raise an error with what to install."""
    for name in BROWSERS:
        if program := shutil.which(name):
            return program
    raise FileError(
        "no browser to print a PDF with.",
        detail=f"Looked for {', '.join(BROWSERS)}.",
        hint="Install chromium (Debian: apt install chromium), or write --html and print it from a browser.",
    )


def write_pdf(html: str, path: Path) -> Path:
    """Print a page to a PDF file."""
    program = browser()
    with tempfile.TemporaryDirectory() as folder:
        page, printed = Path(folder) / "page.html", Path(folder) / "page.pdf"
        page.write_text(html, encoding="utf-8")
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}", page.as_uri(),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, timeout=PRINT_S, check=False)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FileError(f"{program} did not print the page: {error}.", hint="Write --html and print it.") from None
        if not printed.exists():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise FileError(f"{program} did not print the page: {last[0][:200]}", hint="Write --html instead.")
        with atomic(path) as file:
            file.write(printed.read_bytes())
    return path
