"""The planner's form: what it refuses, and what a person sees in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi", reason="the form needs the watch extra")
from syncline.report.page.form import make_form
from syncline.watch.serve.access import Access
from syncline.watch.serve.server import Server

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SMALL = {
    "hosts": 2, "host": "dgx-h100", "topology": "fat-tree", "link": "NDR", "ratio": 1, "model": "gpt3-2.7b",
    "batch": 64, "sequence": 2048,
}  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = Server(make_form(Access(port=0)), Access(port=0))
    yield f"http://127.0.0.1:{server.start()}"
    server.close()


def post(url: str, path: str, body: object, **headers: str) -> httpx.Response:
    return httpx.post(url + path, content=json.dumps(body), headers=headers, timeout=120)


def test_a_cluster_is_drawn_priced_and_written_down(url: str) -> None:
    answer = post(url, "/api/cluster", SMALL).json()
    assert answer["svg"].startswith("<svg")
    assert "16 H100" in answer["text"]
    assert "GPU-hour" in answer["cost"]
    assert "hosts: 2" in answer["files"]["cluster.yaml"]


def test_the_files_are_what_the_command_line_takes(url: str, tmp_path: Path) -> None:
    import syncline
    from syncline.questions.inputs import job_of

    for name, text in post(url, "/api/cluster", SMALL).json()["files"].items():
        (tmp_path / name).write_text(text)
    assert syncline.load(tmp_path / "cluster.yaml").num_gpus == 16
    assert job_of(tmp_path / "job.yaml").batch.global_ == 64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hosts": 0}, "hosts: must be at least 1."),
        ({"hosts": 10**9}, "hosts: must be at most 2048."),
        ({"model": {"hf": "/etc/passwd"}}, "model"),
        ({"host": "../../etc"}, "host"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_no_choice_is_refused(url: str, change: dict[str, object], said: str) -> None:
    answer = post(url, "/api/cluster", SMALL | change)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert "passwd" not in answer.text


def test_other_names_other_pages_and_no_token_are_turned_away(url: str) -> None:
    assert post(url, "/api/cluster", SMALL, Host="evil.example").status_code == 421
    assert post(url, "/api/cluster", SMALL, Origin="http://evil.example").status_code == 403
    guarded = Access(port=0, token="a-token-of-sixteen")
    server = Server(make_form(guarded), guarded)
    try:
        there = f"http://127.0.0.1:{server.start()}"
        assert httpx.get(there).status_code == 401
        assert httpx.get(there, headers={"Authorization": f"Bearer {guarded.token}"}).status_code == 200
    finally:
        server.close()


def test_a_load_is_served_as_the_command_line_serves_it(url: str, tmp_path: Path) -> None:
    import syncline

    asked = SMALL | {"model": "llama3-8b", "rate": 4, "first_ms": 2000}
    answer = post(url, "/api/plan", asked).json()
    (tmp_path / "job.yaml").write_text(post(url, "/api/cluster", asked).json()["files"]["job.yaml"])
    cluster = {
        "name": "my-cluster",
        "hosts": 2,
        "host": {"model": "dgx-h100", "link": "NDR"},
        "network": "fat-tree NDR",
    }
    assert answer["plan"] == json.loads(json.dumps(syncline.serve(cluster, tmp_path / "job.yaml").to_json()))
    assert answer["headline"] == "1 GPU" and "within the limits" in answer["text"]


def test_what_cannot_be_built_says_why(url: str) -> None:
    answer = post(url, "/api/plan", SMALL | {"hosts": 1, "model": "gpt3-175b"})
    assert answer.status_code == 422
    assert "fit" in answer.json()["error"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; on Debian: apt install chromium")
def test_a_person_sees_plan_picture_and_cost_and_can_change_the_cluster(url: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="drives the browser")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        page = browser.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(url)
        for name, value in (("hosts", "2"), ("batch", "64"), ("sequence", "2048")):
            page.fill(f"[name={name}]", value)
        page.select_option("[name=model]", "gpt3-2.7b")
        playwright.expect(page.locator("#cluster")).to_contain_text("16 H100", timeout=200_000)
        playwright.expect(page.locator("#state")).to_have_text("done", timeout=200_000)
        assert "tokens/s" in page.inner_text("#headline")
        assert page.get_attribute("#picture", "src").startswith("data:image/svg+xml")
        assert [link.inner_text() for link in page.query_selector_all("#files a")] == [
            "cluster.yaml", "job.yaml", "plan.json",
        ]  # fmt: skip
        page.fill("[name=hosts]", "0")
        refused = page.locator("#error")
        playwright.expect(refused).to_have_text("hosts: 0 is not a whole number from 1 to 2048.", timeout=200_000)
        browser.close()
    assert complaints == []
