"""Topology files are read without loss and refused safely."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.describe.safe_xml import MAX_DEPTH, Comment, Element
from syncline.errors import DescriptionError, FileError
from syncline.fabric.formats.nccl_xml import NcclTopology, parse_nccl, read_nccl, write_nccl

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
    assert [child.tag for child in topology.root.elements] == ["quantum", "cpu"]
    assert topology.root.elements[0].attributes == (("b", "2"), ("a", "1"))
    assert write_nccl(topology) == text


def test_lines_are_known_but_do_not_count_in_comparisons():
    one, other = parse_nccl("<system/>"), parse_nccl("\n\n<system/>")
    assert (one.root.line, other.root.line) == (1, 3)
    assert one == other
    assert hash(one) == hash(other)


names = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
values = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


def elements(children):
    pairs = st.dictionaries(names, values, max_size=4).map(lambda d: tuple(d.items()))
    comments = st.builds(Comment, st.text(string.ascii_letters + " =/<>", max_size=10))
    return st.builds(Element, names, pairs, st.lists(children | comments, max_size=4).map(tuple))


@given(st.recursive(st.builds(Element, names), elements, max_leaves=25), st.text(st.characters(categories=["Cc"])))
def test_any_tree_survives_writing_and_reading(tree, control):
    topology = NcclTopology(Element("system", (("version", "1"),), (tree,)))
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
        ('<system version="1">\n  <cpu numaid="0">\n', "NCCL topology line 3: not well-formed XML: no element found."),
        ("<system>\n&nosuch;</system>", "NCCL topology line 2: not well-formed XML: undefined entity."),
        ("\x00\x01\x02PNG", "NCCL topology line 1: not well-formed XML"),
        ("", "NCCL topology line 1: not well-formed XML: no element found."),
        ("<system>words</system>", 'the XML has text between its elements ("words").'),
        ('<system a="1" a="2"/>', "not well-formed XML: duplicate attribute."),
        ("<graphs version='1'/>", "the root element is <graphs>, not <system>: this is not an NCCL topology."),
        ("<a>" * (MAX_DEPTH + 1), f"the XML is nested more than {MAX_DEPTH} elements deep."),
        (f'<system a="{"x" * 2_000_000}"/>', "the XML has an attribute of 2,000,000 characters"),
        ("<system>" + "<cpu/>" * 60_000 + "</system>", "the XML has more than 50,000 elements."),
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
