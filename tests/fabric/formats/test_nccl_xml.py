"""Topology files are read without loss and refused safely."""

from __future__ import annotations

import pickle
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from syncline.errors import DescriptionError, FileError
from syncline.fabric.formats.nccl_xml import laid_out, parse_nccl, read_nccl, write_nccl

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"
FILES = sorted(path.name for path in FIXTURES.glob("*.xml"))


@pytest.mark.parametrize("name", FILES)
def test_a_file_comes_back_with_every_element_attribute_and_comment(name):
    text = (FIXTURES / name).read_text("utf-8")
    topology = parse_nccl(text)
    again = parse_nccl(write_nccl(topology))
    assert again == topology
    assert text.count("<!--") == write_nccl(topology).count("<!--")
    assert text.count('="') == write_nccl(topology).count('="')


@pytest.mark.parametrize("name", [name for name in FILES if name != "aws-p4d.24xl.xml"])
def test_files_laid_out_as_nccl_lays_them_out_come_back_byte_for_byte(name):
    text = (FIXTURES / name).read_text("utf-8")
    assert write_nccl(parse_nccl(text)) == text


def test_unknown_elements_and_attributes_keep_their_order():
    text = '<system version="1" future="x">\n  <quantum b="2" a="1"/>\n  <cpu zz="9" numaid="0"/>\n</system>\n'
    topology = parse_nccl(text)
    assert [child.tag for child in topology.root] == ["quantum", "cpu"]
    assert topology.root[0].attrib.items() == [("b", "2"), ("a", "1")]
    assert write_nccl(topology) == text


def test_layout_does_not_count_in_comparisons():
    one, other = parse_nccl("<system/>", "one"), parse_nccl("\n\n<system></system>", "other")
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one


names = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
values = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@st.composite
def trees(draw, depth=0):
    root = etree.Element(draw(names), draw(st.dictionaries(names, values, max_size=4)))
    for _ in range(draw(st.integers(0, 3)) if depth < 3 else 0):
        comment = draw(st.booleans())
        words = draw(st.text(string.ascii_letters + " =/<>", max_size=10))
        root.append(etree.Comment(words) if comment else draw(trees(depth=depth + 1)))
    return root


@given(trees())
def test_any_tree_survives_writing_and_reading(tree):
    root = etree.Element("system", version="1")
    root.append(tree)
    topology = laid_out(root, "made")
    assert parse_nccl(write_nccl(topology)) == topology


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_one_clear_error(text):
    try:
        parse_nccl(text)
    except DescriptionError as error:
        assert str(error).startswith("NCCL topology line ")


BOMB = (
    '<!DOCTYPE a [<!ENTITY l "lol">'
    + "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "&l;" * 10}">' for i in range(9))
    + ']><system version="&l8;"/>'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "NCCL topology line 1: the XML has a DOCTYPE, which is never read."),
        ('<!DOCTYPE s SYSTEM "file:///etc/passwd"><system/>', "the XML has a DOCTYPE"),
        (
            '<system version="1">\n  <cpu numaid="0">\n',
            "line 3: not well-formed XML: Premature end of data in tag",
        ),
        ("<system>\n&nosuch;</system>", "NCCL topology line 2: not well-formed XML: Entity 'nosuch' not defined."),
        ("\x00\x01\x02PNG", "NCCL topology line 1: not well-formed XML"),
        ("", "NCCL topology line 1: not well-formed XML: Document is empty."),
        ("<system>words</system>", 'the XML has text between its elements ("words").'),
        ('<system a="1" a="2"/>', "not well-formed XML: Attribute a redefined."),
        ("<graphs version='1'/>", "the root element is <graphs>, not <system>: this is not an NCCL topology."),
        ("<a>" * 300, "not well-formed XML: Excessive depth in document: 256"),
        (f'<system a="{"x" * 20_000_000}"/>', "not well-formed XML"),
    ],
)
def test_hostile_and_broken_files_are_refused_by_name(text, message):
    with pytest.raises(DescriptionError) as caught:
        parse_nccl(text)
    assert message in str(caught.value)


def test_files_that_are_not_text_or_far_too_large(tmp_path):
    (tmp_path / "bad.xml").write_bytes(b"\xff\xfe\x00<system/>")
    with pytest.raises(FileError, match="not UTF-8 text"):
        read_nccl(tmp_path / "bad.xml")
    (tmp_path / "big.xml").write_text("<system>" + " " * 9_000_000 + "</system>")
    with pytest.raises(FileError, match="MiB"):
        read_nccl(tmp_path / "big.xml")
    with pytest.raises(FileError, match="directory"):
        read_nccl(tmp_path)
