from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from syncline.cli.shell.app import run
from syncline.questions.schedule import families_beginning
from syncline.schedule import FAMILIES


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    assert run(["schedule", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def text(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert run(["schedule", *arguments]) == status
    captured = capsys.readouterr()
    return captured.out if status == 0 else captured.err


def test_list_names_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    names = [family["name"] for family in answer(capsys, "list")["families"]]
    assert {"ring", "double-tree", "hierarchical", "in-network", "balanced"} <= set(names)
    assert "hierarchical" in text(capsys, "list")


def test_show_prints_rounds_and_what_they_cost(capsys: pytest.CaptureFixture[str]) -> None:
    out = text(capsys, "show", "ring", "--ranks", "8")
    assert "rounds       14" in out
    assert "+7>1" in out
    assert "sent         7/4 of the buffer" in out


def test_show_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    svg, html = tmp_path / "a.svg", tmp_path / "a.html"
    text(capsys, "show", "tree", "--ranks", "5", "--svg", str(svg), "--html", str(html))
    assert svg.read_text().startswith("<svg")
    assert svg.read_text().count("<line class=") > 8
    assert "in all       8 buffers" in html.read_text()
    assert "too many to draw" in text(capsys, "show", "ring", "-n", "4096", "--svg", str(svg), status=2)


def test_show_says_in_json_what_it_wrote(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    svg = str(tmp_path / "a.svg")
    assert answer(capsys, "show", "ring", "-n", "3", "--svg", svg)["written"] == [svg]
    assert "written" not in answer(capsys, "show", "ring", "-n", "3")


def test_a_crowded_round_without_numbers_is_owned_up_to(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    svg = tmp_path / "a.svg"
    text(capsys, "show", "double-tree", "-n", "16", "--svg", str(svg))
    assert "left out in crowded rounds" in svg.read_text()
    text(capsys, "show", "ring", "-n", "8", "--svg", str(svg))
    assert "left out" not in svg.read_text()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_column_of_a_table_is_lost_or_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = text(capsys, "show", "double-tree", "--ranks", "16").split("strand 1")[0].splitlines()
    headings = [line.split() for line in lines if line.startswith("round ")]
    assert [rank for words in headings for rank in words[1:]] == [str(rank) for rank in range(16)]
    assert all(words[0] == "round" for words in headings)
    tables = [line for line in lines if line.startswith("round ") or line.lstrip()[:1].isdigit()]
    assert not any("…" in line for line in tables)
    assert max(len(line) for line in tables) <= width


def test_show_of_a_large_schedule_stays_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(text(capsys, "show", "ring", "--ranks", "100").splitlines()) < 60
    assert len(text(capsys, "show", "hierarchical", "--shape", "512x8").splitlines()) < 60


@pytest.mark.parametrize(
    ("arguments", "moves"),
    [
        (("ring", "--ranks", "4096"), 2 * 4095 * 4096),
        (("hierarchical", "--hosts", "64", "--per-host", "8"), 523264),
        (("torus", "--shape", "4x4x4"), None),
        (("direct", "--collective", "all-to-all", "--ranks", "9"), 72),
        (("ring", "--ranks", "1"), 0),
        (("ring", "--ranks", "7", "--rates", "100Gbps,400Gbps"), None),
        (("balanced", "--speeds", "100Gbps,400Gbps,200Gbps"), None),
    ],
)
def test_verify(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], moves: int | None) -> None:
    found = answer(capsys, "verify", *arguments)
    assert found["ok"] is True
    assert found["seconds"] > 0
    assert moves is None or found["moves"] == moves


def test_verify_refuses_a_wrong_file_with_the_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    text(capsys, "export", "ring", str(right), "--ranks", "4")
    found = json.loads(right.read_text())
    found["kernels"][0]["rounds"][0]["repeat"] = 2
    wrong.write_text(json.dumps(found))
    refused = answer(capsys, "verify", str(wrong), status=2)
    assert refused["error"] == "NotProvedError"
    assert "missing" in refused["detail"]
    assert "NotProvedError: ring" in text(capsys, "verify", str(wrong), status=2)


def test_cost_has_what_it_should(capsys: pytest.CaptureFixture[str]) -> None:
    levels = answer(capsys, "cost", "hierarchical", "--cluster", "h100-64-rail", "--size", "1GiB")["cost"]
    flat = answer(capsys, "cost", "ring", "--cluster", "h100-64-rail", "--size", "1GiB", "--placement", "spread")[
        "cost"
    ]
    assert levels["rounds"] == 140
    assert levels["sent_bytes_per_rank"] == flat["sent_bytes_per_rank"] == (1 << 30) * 2 * 511 // 512

    def across(found: Any) -> int:
        return int(found["link_bytes"]["inside_rack"] + found["link_bytes"]["across"])

    assert 8.0 < across(flat) / across(levels) < 8.2
    assert flat["tier_bytes"]["access"] / levels["tier_bytes"]["access"] == pytest.approx(8.11, abs=0.01)


def test_cost_on_a_torus_uses_every_link(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "cost", "torus", "--cluster", "tpu-v4-pod", "--size", "64MiB")
    assert found["placement"] == "grid"
    assert found["cost"]["links_used"]["scale_up"] == [24576, 24576]


@pytest.mark.slow
def test_cost_on_a_dragonfly_uses_every_global_link(capsys: pytest.CaptureFixture[str]) -> None:
    used = answer(capsys, "cost", "dragonfly", "--cluster", "polaris")["cost"]["links_used"]
    assert used["group_global"] == [640, 640]
    assert used["group_local"][0] == used["group_local"][1]


def test_weighted_ring_meets_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "cost", "ring", "--ranks", "8", "--rates", "100Gbps,400Gbps", "--size", "1GiB")["bound"]
    assert found["time_s"] == pytest.approx(found["bound_s"])
    assert found["bound_s"] == pytest.approx(1.75 * (1 << 30) / 62.5e9)
    assert "bound" in text(capsys, "cost", "ring", "--ranks", "8", "--rates", "100Gbps,400Gbps")


def test_options_that_matter_are_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = answer(capsys, "show", "ring", "-n", "4", "-c", "broadcast", "--root", "2", "--chunks", "3")
    assert found["collective"] == {"kind": "broadcast", "num_ranks": 4, "root": 2}
    target = str(tmp_path / "a.json")
    assert answer(capsys, "export", "hierarchical", target, "--hosts", "4", "--per-host", "2")["written"] == target
    assert answer(capsys, "verify", target)["moves"] == 112


def test_families_complete_in_the_shell() -> None:
    assert families_beginning("hi") == ["hierarchical"]
    assert families_beginning("") == list(FAMILIES)


def test_convert_there_and_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    xml, back = tmp_path / "a.xml", tmp_path / "a.json"
    text(capsys, "export", "halving-doubling", str(xml), "--ranks", "6", "--protocol", "LL")
    assert 'proto="LL"' in xml.read_text()
    assert answer(capsys, "convert", str(xml), str(back))["written"] == str(back)
    assert answer(capsys, "verify", str(back))["ok"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verify", "ring", "--ranks", "0"), "at least one rank"),
        (("verify", "ring", "--ranks", "1000000000"), "1,000,000,000 ranks are more than the 1,048,576"),
        (("show", "nope"), 'no family of schedules is called "nope"'),
        (("show", "ring", "--collective", "gossip"), 'no collective is called "gossip"'),
        (("show", "torus", "--shape", "4xx"), 'cannot read the shape "4xx"'),
        (("show", "hierarchical", "--hosts", "4"), "--hosts and --per-host go together"),
        (("verify", "missing.json"), 'cannot read "missing.json"'),
        (("cost", "ring", "--ranks", "1024"), "do not fit the 512 GPUs"),
        (("cost", "ring", "--placement", "odd"), 'no placement is called "odd"'),
        (("cost", "dragonfly"), "no dragonfly groups"),
        (("convert", "a.txt", "b.json"), "neither .json nor .xml"),
        (("verify", "ring", "-n", "8", "--chunks", "3"), '"chunks" changes nothing in ring for all_reduce'),
        (("verify", "ring", "-n", "8", "--chunks", "-3"), "a pipeline has at least one chunk, not -3"),
        (("verify", "tree", "-n", "8", "--root", "3"), '"root" changes nothing in tree for all_reduce'),
        (("cost", "ring", "--radix", "4"), '"radix" changes nothing in ring for all_reduce'),
        (("verify", "ring", "--speeds", "1Gbps,2Gbps"), '"speeds" changes nothing in ring'),
        (("verify", "a.xml", "--per-host", "3", "--hosts", "2"), "--hosts shapes a family; a.xml is a file"),
    ],
)
def test_wrong_words_are_refused(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    assert message in text(capsys, *arguments, status=2)
