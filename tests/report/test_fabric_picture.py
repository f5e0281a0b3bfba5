from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from tests.report.clusters import MAKERS, cluster, fabric, hosts

from syncline.describe import raster
from syncline.errors import FabricError, FileError, PictureError
from syncline.fabric.fabric import DeviceKind, Tier
from syncline.report.chart.svg import num
from syncline.report.fabric_picture import draw_html, draw_svg, write_png
from syncline.report.picture.grid import block_shape
from syncline.report.picture.palette import SIZES
from syncline.report.picture.scene import fit, text_width
from syncline.report.picture.wording import short_names

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert(1)</script> & \"quotes\" ]]> \x07 'x'"


@cache
def svg_of(name: str) -> str:
    return draw_svg(cluster(name))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)


class Drawn(NamedTuple):
    """A wire or box as drawn: its element, what colours it and what hovering over it says."""

    element: ET.Element
    look: str
    title: str

    @property
    def tier(self) -> int:
        return int(self.element.get("data-tier", -1))

    @property
    def ends(self) -> tuple[str | None, str | None]:
        return self.element.get("data-a"), self.element.get("data-b")

    @property
    def path(self) -> str:
        return self.element.get("d", "")


def wires(svg: str) -> list[Drawn]:
    paths = [path for path in parsed(svg).iter(f"{SVG}path") if path.get("data-a")]
    return [Drawn(path, path.get("class", "").removeprefix("w "), path.findtext(f"{SVG}title", "")) for path in paths]


def boxes_of(svg: str) -> dict[str, Drawn]:
    """Return the boxes that have a key."""
    found = {}
    for thing in parsed(svg).iter(f"{SVG}g"):
        if key := thing.get("data-key"):
            rect = thing.find(f"{SVG}rect")
            assert rect is not None and key not in found
            found[key] = Drawn(rect, rect.get("class", ""), thing.findtext(f"{SVG}title", ""))
    return found


def places(svg: str) -> list[tuple[float, float, float, float, str]]:
    """Return the box of every text, in the coordinates of the whole picture."""
    found = []
    for part in parsed(svg).findall(f"{SVG}g"):
        dx, dy = map(float, re.findall(r"[\d.]+", part.get("transform", "0 0")))
        for text in part.iter(f"{SVG}text"):
            size = max(SIZES[look] for look in text.get("class", "").split() if look in SIZES)
            width = text_width(text.text or "", size) * 0.93  # the estimate is on the safe side
            back = {None: 0.0, "middle": width / 2, "end": width}[text.get("text-anchor")]
            left, y = float(text.get("x", 0)) - back + dx, float(text.get("y", 0)) + dy
            found.append((left, y - 0.74 * size, left + width, y + 0.2 * size, text.text or ""))
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_every_layout_is_a_small_well_formed_self_contained_picture(name: str) -> None:
    svg = svg_of(name)
    root = parsed(svg)
    assert root.tag == f"{SVG}svg"
    assert sum(1 for _ in root.iter()) < 5000
    rest = svg.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|href|url\(|@import|<image|<script|nan|inf\b", rest)
    assert svg == draw_svg(cluster(name))


@pytest.mark.parametrize("name", MAKERS)
def test_texts_do_not_overlap_and_stay_on_the_sheet(name: str) -> None:
    svg = parsed(svg_of(name))
    width, height = float(svg.get("width", 0)), float(svg.get("height", 0))
    texts = sorted(places(svg_of(name)))
    for i, (left, top, right, bottom, text) in enumerate(texts):
        assert left >= 0 and top >= 0 and right <= width + 1 and bottom <= height, text
        for other in texts[i + 1 :]:
            if other[0] >= right:
                break
            assert other[1] >= bottom or other[3] <= top, f"{text!r} overlaps {other[4]!r}"


@pytest.mark.parametrize("name", MAKERS)
def test_wires_join_boxes_that_are_drawn(name: str) -> None:
    root = parsed(svg_of(name))
    keys = {thing.get("data-key") for thing in root.iter(f"{SVG}g") if thing.get("data-key")}
    ends = {path.get(end) for path in root.iter(f"{SVG}path") for end in ("data-a", "data-b")} - {None}
    assert ends <= keys
    if len(cluster(name).links):
        assert ends


@pytest.mark.parametrize("name", ["one host", "eight hosts, rails", "eight hosts, racks", "mixed hosts", "explicit"])
def test_a_small_fabric_shows_every_device_and_cable(name: str) -> None:
    one = cluster(name)
    inside = int((one.devices.host >= 0).sum())
    assert len(boxes_of(svg_of(name))) == inside + one.num_hosts + int((one.devices.host < 0).sum())
    pairs = {tuple(sorted(pair)) for pair in zip(one.links.src.tolist(), one.links.dst.tolist(), strict=True)}
    assert len(wires(svg_of(name))) == len(pairs)


def test_64_hosts_show_every_cable_between_hosts_and_leaves() -> None:
    drawn = wires(svg_of("64 hosts, rails"))
    assert sum(wire.tier == Tier.ACCESS for wire in drawn) == 512
    assert sum(wire.tier == Tier.LEAF_SPINE for wire in drawn) == 16 * 8
    assert {wire.look for wire in drawn if wire.tier == Tier.ACCESS} == {f"l{rail}" for rail in range(8)}


def test_title_counts_and_legend() -> None:
    texts = [text for *_, text in places(draw_svg(hosts(64, "rail-optimized NDR", name="my cluster")))]
    assert "my cluster" in texts
    assert "64 hosts, 512 GPUs, 16 leaf switches, 8 spine switches, 1,024 cables" in texts
    assert "access: 512 × 400 Gb/s NDR" in texts
    assert "scale-up: 512 × 3.6 Tb/s NVLink4" in texts
    assert {f"rail {rail}" for rail in range(8)} <= set(texts)
    assert "scalable unit 1: 32 hosts, 256 GPUs" in texts
    assert texts.count("256 × 400 Gb/s") == 4  # of each unit, below and above its leaves


def test_a_large_fabric_is_counted() -> None:
    texts = [text for *_, text in places(svg_of("1,024 hosts, rails"))]
    for line in ("8 × pod: 128 hosts, 1,024 GPUs", "4 × scalable unit: 32 hosts, 256 GPUs", "32 × host", "128 × core"):
        assert line in texts
    assert "8,192 × 400 Gb/s" in texts


def test_failed_links_are_red_and_dashed_and_degraded_ones_amber() -> None:
    drawn = wires(svg_of("64 hosts, faults"))
    assert sorted(wire.tier for wire in drawn if wire.look == "down") == [Tier.ACCESS, Tier.LEAF_SPINE]
    assert [wire.tier for wire in drawn if wire.look == "slow"] == [Tier.ACCESS]
    assert drawn[-1].look == "down"  # on top of the rest
    svg = svg_of("64 hosts, faults")
    assert "6 cables down, 1 cable degraded" in svg
    assert "host-40/nic-5 – leaf-13\n100 Gb/s NDR, access\ndegraded" in svg
    assert ".down{stroke-dasharray:5 3}" in svg and ".down{stroke:#d1242f}" in svg


def test_failed_links_of_a_large_fabric_are_drawn_beside_the_good_ones() -> None:
    drawn = wires(draw_svg(hosts(1000, "fat-tree NDR", faults=[{"device": "host-900/nic-1"}])))
    (bad,) = [wire for wire in drawn if wire.look == "down"]
    good = [wire for wire in drawn if wire.ends == bad.ends and wire is not bad]
    assert good and good[0].path != bad.path


def test_a_fabric_with_faults_everywhere_stays_small() -> None:
    faults = [{"device": f"host-{host:03d}/nic-{host % 8}"} for host in range(0, 1000, 7)]
    svg = draw_svg(hosts(1000, "fat-tree NDR", faults=faults))
    assert "too uneven to show its groups" in svg
    assert svg.count("<path") < 200


def test_link_load_colours_links() -> None:
    one = cluster("64 hosts, rails")
    load = np.zeros(len(one.links))
    busy = int(one.out_links(one.device("leaf-00"))[0])
    load[busy] = 1.0
    drawn = wires(draw_svg(one, link_load=load))
    assert sorted({wire.look for wire in drawn}) == ["u0", "u7"]
    assert [wire.title.splitlines()[-1] for wire in drawn if wire.look == "u7"] == ["load 100%"]
    assert "load of a link, from" in draw_svg(one, link_load=load)


def test_link_load_must_have_one_value_per_link() -> None:
    with pytest.raises(FabricError, match=r"link_load has shape \(3,\); cluster has 58 links\."):
        draw_svg(cluster("one host"), link_load=[0, 1, 0])


def test_hostile_names_are_escaped() -> None:
    one = fabric(hosts=1, host="dgx-h100", name=NASTY)
    root = parsed(draw_svg(one))
    assert "<script>alert(1)</script> & \"quotes\" ]]> \ufffd 'x'" in [text.text for text in root.iter(f"{SVG}text")]
    assert not list(root.iter(f"{SVG}script"))


def test_page_escapes_names_and_facts() -> None:
    page = draw_html(
        fabric(hosts=1, host="dgx-h100", name=NASTY), {NASTY: NASTY, "bill": [{"part": NASTY, "count": 1}]}
    )
    counter = TagCounter()
    counter.feed(page)
    assert counter.tags["script"] == 1
    assert "alert(1)" not in "".join(counter.scripts)


class TagCounter(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.attributes += attrs
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts.append(data)


def test_page_is_self_contained_and_forbids_loading() -> None:
    page = draw_html(cluster("64 hosts, rails"), {})
    counter = TagCounter()
    counter.feed(page)
    assert not {name for name, _ in counter.attributes} & {"src", "href", "xlink:href", "srcset"}
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import", page)
    assert "default-src 'none'" in page
    assert not {"link", "iframe", "img", "object"} & set(counter.tags)


def test_page_has_filters_and_facts() -> None:
    facts = {
        "gpus": 512, "bisection_Bps": 12.8e12, "price_usd": 22_376_320.0, "power_w": 686_600.0, "unpriced": [],
        "oversubscription": {"leaf": 1.0}, "reconfiguration_s": 0.01,
        "bill": [{"part": "QM9700", "count": 24, "price_usd": 1_200_000.0, "estimate": True, "source": "list"}],
    }  # fmt: skip
    page = draw_html(cluster("64 hosts, rails"), facts)
    for rail in range(8):
        assert f'data-kind="lane" value="{rail}"' in page
    assert f'data-kind="tier" value="{int(Tier.ACCESS)}"' in page
    rows = re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', page)
    assert rows == [
        ("GPUs", "512"), ("bisection", "12.8 TB/s"), ("price", "$22.4 M"), ("power", "686.6 kW"), ("leaf", "1:1"),
        ("reconfiguration", "10 ms"), ("24 × QM9700", "≈ $1.2 M"),
    ]  # fmt: skip
    assert "<table>" not in draw_html(cluster("one host"), {})


def test_torus_wires_join_neighbours() -> None:
    for name, count in (("2D torus", 512), ("3D torus", 192)):
        drawn = wires(svg_of(name))
        assert len(drawn) == count
        assert min(int(wire.element.get("data-lane", -1)) for wire in drawn) == 0
        wrapping = [wire for wire in drawn if "wrap" in wire.look]
        assert len(wrapping) == {"2D torus": 32, "3D torus": 48}[name]


def test_tpu_hosts_of_two_by_two_chips_are_where_the_builder_put_them() -> None:
    host = {"gpu": "TPU v4", "gpus": 4, "scale_up": "torus", "nics": 0}
    network = {"topology": "torus", "shape": [4, 4], "host_shape": [2, 2]}
    drawn = wires(draw_svg(fabric(hosts=4, host=host, network=network)))
    straight = [wire for wire in drawn if "wrap" not in wire.look]
    assert len(straight) == 24
    lengths = {tuple(map(float, re.findall(r"[\d.]+", wire.path))) for wire in straight}
    assert {round(abs(x1 - x0) + abs(y1 - y0)) for x0, y0, x1, y1 in lengths} == {44}


def test_blocks_of_a_torus() -> None:
    assert block_shape((4, 4, 4)) == (1, 1, 1)
    assert block_shape((16, 16, 16)) == (4, 4, 4)
    assert block_shape((16, 20, 28), (4, 4, 4)) == (4, 4, 4)
    assert block_shape((64, 64)) == (4, 4)
    assert block_shape((101, 101)) == (101, 101)


def test_dragonfly_shows_groups_switches_and_hosts() -> None:
    sheet = svg_of("dragonfly")
    drawn = wires(sheet)
    assert sum(wire.tier == Tier.GROUP_GLOBAL for wire in drawn) == 36  # each of two cables
    assert sum(wire.tier == Tier.GROUP_LOCAL for wire in drawn) == 9 * 6
    texts = [text for *_, text in places(sheet)]
    assert {f"group {i}" for i in range(9)} <= set(texts)
    assert texts.count("4 switches, 8 hosts") == 9


def test_optical_switches_stand_above_the_pods() -> None:
    sheet = svg_of("optical")
    boxes = [box for box in boxes_of(sheet).values() if box.look == "box ocs"]
    assert len(boxes) == int((cluster("optical").devices.kind == DeviceKind.OCS).sum())
    tops = {box.look: float(box.element.get("y", 0)) for box in boxes_of(sheet).values()}
    assert tops["box ocs"] < tops["box switch"]


@pytest.mark.slow
def test_sixteen_thousand_hosts_are_a_small_picture() -> None:
    one = hosts(16384, "fat-tree NDR", {"model": "dgx-h100", "nics": 4})
    assert draw_svg(one).count("<path") < 100


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    target = tmp_path / "fabric.png"
    try:
        write_png(draw_svg(cluster("one host")), target)
    except PictureError as error:
        pytest.skip(error.message)
    assert target.read_bytes().startswith(b"\x89PNG")
    assert len(target.read_bytes()) > 20_000
    with pytest.raises(FileError, match="is a directory"):
        write_png("<svg/>", tmp_path)
    with pytest.raises(FileError, match="cannot write"):
        write_png(draw_svg(cluster("one host")), tmp_path / "missing" / "fabric.png")


def test_png_without_resvg_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(PictureError) as error:
        write_png("<svg/>", tmp_path / "x.png")
    assert str(error.value) == (
        "writing a PNG needs resvg-py, which is not installed.\n"
        '  Install it with `pip install "syncline[png]"`, or write SVG or HTML instead.'
    )


def test_png_without_fonts_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blind = SimpleNamespace(svg_to_bytes=lambda **_: b"the same")
    monkeypatch.setattr(raster, "_resvg", lambda: blind)
    with pytest.raises(PictureError, match=r"no font is installed, so a PNG would have no text\."):
        write_png("<svg/>", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


def test_short_names() -> None:
    assert short_names(["host-00", "host-01", "host-10"]) == ["00", "01", "10"]
    assert short_names(["leaf", "leaf-1"]) == ["leaf", "leaf-1"]
    assert short_names(["rail-0/leaf-00"]) == ["leaf-00"]
    assert short_names(["plane-0/spine-00", "plane-1/spine-00"]) == ["0/spine-00", "1/spine-00"]


def test_fit_and_numbers() -> None:
    assert fit("leaf", 100, 10) == "leaf"
    assert fit("a-very-long-name", 40, 10).endswith("…")
    assert text_width(fit("a-very-long-name", 40, 10), 10) <= 40
    assert fit("name", 1, 10) == ""
    assert [num(v) for v in (1.0, 0.04, -0.04, 2.25, -3.5)] == ["1", "0", "0", "2.2", "-3.5"]
