"""The model of NCCL's own parser takes what NCCL takes and names what it cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import DescriptionError
from syncline.fabric.formats.nccl_check import MAX_CHARS, MAX_ELEMENTS, check_nccl_topology

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"
PUBLISHED = ("azure-ndv2", "azure-ndv4", "azure-ndv5", "azure-ncv4", "aws-p4d.24xl", "aws-p5.48xl", "aws-g5.48xl")


def pci(body="", **attributes):
    given_ = {"busid": "0000:01:00.0", "class": "0x030200", "link_speed": "16 GT/s", "link_width": "16"} | attributes
    pairs = "".join(f' {key}="{value}"' for key, value in given_.items())
    return f'<system version="1">\n<cpu numaid="0">\n<pci{pairs}>{body}</pci>\n</cpu>\n</system>\n'


@pytest.mark.parametrize("name", PUBLISHED)
def test_files_that_providers_ship_are_taken(name):
    report = check_nccl_topology((FIXTURES / f"{name}.xml").read_text("utf-8"))
    assert report.num_elements > 10
    assert [w for w in report.warnings if "no class" not in w] == []


def test_counts_are_those_of_the_file():
    report = check_nccl_topology((FIXTURES / "aws-p5.48xl.xml").read_text("utf-8"))
    assert (report.num_elements, report.num_gpus, report.num_nets) == (122, 8, 32)


def test_rccl_files_are_another_version():
    with pytest.raises(DescriptionError, match="the version is 2; NCCL needs 1"):
        check_nccl_topology((FIXTURES / "rccl-4p-942.xml").read_text("utf-8"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '<?xml version="1.0"?>\n<system version="1"/>',
            "line 1: NCCL cannot read this: '<?xml version=\"1.0\"?>' is no tag that it understands",
        ),
        (
            '<system version="1">\n\t<cpu numaid="0"/></system>',
            "line 2: NCCL cannot read this: '\\t<cpu numaid",
        ),
        ('<system version="1">\ntext</system>', "'text</system>' is no tag"),
        ('<system\n version="1"/>', "'<system' is no tag"),
        ('<system version = "1"/>', "'<system version = \"1\"/>' is no tag"),
        ("<system version=1/>", "'<system version=1/>' is no tag"),
        ('<system version="1"></systen>', "</systen> closes <system>"),
        ('<system version="1"></system >', "'</system >' is no tag"),
        ('<system version="1">', "<system> is never closed"),
        ('<system version="1', "is no tag that it understands"),
        ("<!-- never closed <system/>", "'<!-- never closed <system/>' is no tag"),
        ("<!--a=b--><system version='1'/>", "<!--a=b--><system"),
        ("<graphs version='1'/>", "there is no <system> element"),
        ("", "there is no <system> element"),
        ('<system name="x"/>', "<system> has no version"),
        ('<system version="one"/>', 'version="one" is not a number'),
        ('<system version="1"><cpu/></system>', "<cpu> has no numaid"),
        (pci(busid="1:0:0"), 'busid="1:0:0" is not a bus id such as 0000:1a:00.0'),
        (pci('<gpu dev="x"/>'), 'dev="x" is not a number'),
        (pci('<gpu><nvlink target="a" tclass="0x068000"/></gpu>'), "<nvlink> has no count"),
        (pci('<gpu><nvlink count="1"/></gpu>'), "an <nvlink> has no target"),
        (pci('<gpu><c2c count="1"/></gpu>'), "<c2c> has no bw"),
        (pci('<nic><net dev="0"/></nic>'), "a <net> has no name"),
        (pci('<pci busid="0000:01:00.0"/>', **{"class": "0x060400"}), 'busid "0000:01:00.0" is already that of line 3'),
        (pci(x="y" * (MAX_CHARS + 1)), f"an attribute has {MAX_CHARS + 1} characters; NCCL reads {MAX_CHARS}"),
        (pci(**{f"a{i}": "1" for i in range(13)}), "<pci> has 17 attributes; NCCL drops all after the first 16"),
        ("<system version='1'>" + "<x>" * 100, "nested more than 64 elements deep"),
    ],
)
def test_what_nccl_cannot_read_is_named_with_its_line(text, message):
    with pytest.raises(DescriptionError) as caught:
        check_nccl_topology(text, "topo.xml")
    assert message in str(caught.value)
    assert caught.value.where.startswith("topo.xml line ")


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (pci(link_speed="128.0 GT/s PCIe"), 'line 3: link_speed="128.0 GT/s PCIe" is unknown to NCCL'),
        (pci(**{"class": "0x120000"}), "takes it for a PCIe bridge"),
        (pci(busid="0000:AB:00.0"), "has capitals"),
        (pci('<nic><net name="a" speed="-1"/></nic>'), "NCCL counts 10 Gb/s"),
        (pci('<nic><net name="a" keep="1"/></nic>'), 'has keep="1"'),
        (pci('<nic><net name="a"/><net name="a"/></nic>'), "NCCL uses the first"),
        ('<system version="1"><cpu numaid="0" arch="riscv"/></system>', "is none of x86_64, arm64, ppc64"),
    ],
)
def test_what_nccl_reads_otherwise_is_a_warning(text, warning):
    assert any(warning in found for found in check_nccl_topology(text).warnings)


def test_comments_single_quotes_and_unknown_elements_are_taken():
    text = "<!-- a > b / c=d -->\n<system version='1'>\n<later><deep x='1'/></later>\n<cpu numaid='0x0'/>\n</system>\n"
    assert check_nccl_topology(text).num_elements == 2


def test_the_last_slot_of_the_parser_stays_empty():
    def system(count):
        return '<system version="1"><cpu numaid="0">' + "".join(
            f'<pci busid="{i:04x}:00:00.0" class="0x03"/>' for i in range(count - 2)
        ) + "</cpu></system>"  # fmt: skip

    assert check_nccl_topology(system(MAX_ELEMENTS)).num_elements == MAX_ELEMENTS
    with pytest.raises(DescriptionError, match="more than 255 elements"):
        check_nccl_topology(system(MAX_ELEMENTS + 1))


@given(st.text(alphabet="<>/=\"' !-\n\tabsystemvrion1", max_size=80))
def test_any_text_is_taken_or_refused_in_one_clear_error(text):
    try:
        check_nccl_topology(text)
    except DescriptionError as error:
        assert "NCCL cannot" in error.message
