"""Pages of serving jobs and of runs in phases, and options that are not for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from syncline.cli.shell.app import build

CLUSTER = "hosts: 2\nhost: dgx-h100\nnetwork: rail-optimized NDR\n"
JOBS = {
    "serve": "kind: serve\nmodel: llama3-8b\nload: {rate: 4, prompt: 500, answer: 100}\n",
    "run": "name: two\nmodel: llama3-8b\nphases:\n"
    "  - {name: first <b>, tokens: 1B, batch: {global: 64, sequence: 4096}}\n"
    "  - {name: second, tokens: 1B, frozen: true, batch: {global: 64, sequence: 4096}}\n",
}
SAYS = {"serve": ("first token", "other ways"), "run": ("first &lt;b&gt;", "limited by")}


@pytest.mark.parametrize("kind", JOBS)
def test_a_page_is_written_and_other_options_are_refused(kind: str, tmp_path: Path) -> None:
    for name, text in (("cluster.yaml", CLUSTER), ("job.yaml", JOBS[kind])):
        (tmp_path / name).write_text(text)
    words = ["plan", str(tmp_path / "cluster.yaml"), str(tmp_path / "job.yaml")]
    done = CliRunner().invoke(build(), [*words, "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert all(text in page for text in SAYS[kind]) and "<b></" not in page
    refused = CliRunner().invoke(build(), [*words, "--for", "megatron"])
    assert "--for is not for" in str(refused.exception)
