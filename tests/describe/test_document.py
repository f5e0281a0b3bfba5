"""YAML from anybody: plain data with lines comes out, or one clear error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from syncline.describe.document import MAX_VALUES, read_document, read_text
from syncline.errors import DescriptionError, FileError


def test_values_and_their_lines() -> None:
    text = "a: 1\nb:\n  - x\n  - {c: 2.5, d: yes, e: ~}\nf: 2020-01-01\n'g': '7'\nh: .inf\n"
    document = read_document(text, "f.yaml")
    assert document.data == {
        "a": 1, "b": ["x", {"c": 2.5, "d": True, "e": None}], "f": "2020-01-01", "g": "7", "h": float("inf"),
    }  # fmt: skip
    assert document.where(("b", 1, "d")) == "f.yaml line 4"
    assert document.where(("b", 1, "zzz")) == "f.yaml line 4"
    assert document.where(("nothing",)) == "f.yaml line 1"


def test_a_ratio_is_not_minutes_and_seconds() -> None:
    assert read_document("a: 3:1\nb: 1:30.5", "f").data == {"a": "3:1", "b": "1:30.5"}


def test_aliases_repeat_values() -> None:
    assert read_document("a: &x {b: [1]}\nc: *x", "f").data == {"a": {"b": [1]}, "c": {"b": [1]}}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{this}: &{this} [{','.join(['*' + before] * 10)}]\n" for before, this in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\na: 2", 2, 'the description has the key "a" twice.'),
        ("a: &a [*a]", 1, "the description is cyclic: an alias refers to something that contains it."),
        ("a: &a {b: {c: *a}}", 1, "the description is cyclic: an alias refers to something that contains it."),
        ("x: 1\na: *b", 2, 'the description uses the alias "*b", which nothing defines before it.'),
        (BOMB, 7, f"the description has more than {MAX_VALUES:,} values (are aliases repeated too often?)."),
        ("[" * 100_000, 1, "the description is nested more than 64 levels deep."),
        ("{a: " * 100_000, 1, "the description is nested more than 64 levels deep."),
        ("\n".join("  " * i + "a:" for i in range(100)), 66, "the description is nested more than 64 levels deep."),
        ("a: !!python/object:os.system {}", 1, 'has the tag "tag:yaml.org,2002:python/object:os.system"; only plain'),
        ("a: !!python/object/apply:os.system [ls]", 1, 'has the tag "tag:yaml.org,2002:python/object/apply:os.system"'),
        ("a: !!binary aGVsbG8=", 1, 'has the tag "tag:yaml.org,2002:binary"; only plain text and numbers are read.'),
        ("a: !mine b", 1, 'has the tag "!mine"'),
        ("!!set {a}", 1, 'has the tag "tag:yaml.org,2002:set"'),
        ("{[a]: 1}", 1, "the description has a key that is not plain text."),
        ("a: !!int xyz", 1, 'has the value "xyz", which cannot be read.'),
        ("a: " + "9" * 5000, 1, "which cannot be read."),
        ("---\na: 1\n---\nb: 2", 3, "ends here, but a second document follows."),
        ("a: [", 2, "not valid YAML: did not find expected node content."),
        ("a: b: c", 1, "not valid YAML: mapping values are not allowed in this context."),
        ("\ta: 1", 1, "not valid YAML: found character that cannot start any token."),
    ],
)
def test_bad_yaml(text: str, line: int, message: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        read_document(text, "f.yaml")
    assert message in caught.value.message
    assert caught.value.where == f"f.yaml line {line}"
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_an_empty_file(text: str) -> None:
    with pytest.raises(DescriptionError, match=r"f\.yaml: the file is empty\.\n  Three lines are enough"):
        read_document(text, "f.yaml")


def test_a_control_character() -> None:
    with pytest.raises(DescriptionError, match=r"not valid YAML: .*control characters|special characters"):
        read_document("a: \x00", "f.yaml")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="ascii")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdefgh", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1), PLAIN, min_size=1))
def test_what_yaml_writes_is_read_back(data: dict[str, Any]) -> None:
    assert read_document(yaml.safe_dump(data), "f").data == data


@given(st.text())
def test_any_text_is_data_or_an_error(text: str) -> None:
    try:
        read_document(text, "f")
    except DescriptionError as error:
        assert error.where.startswith("f")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    with big.open("wb") as file:
        file.truncate(100 * 2**20)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    cases = {
        tmp_path: f'"{tmp_path}" is a directory, not a file.',
        tmp_path / "none.yaml": f'there is no file "{tmp_path / "none.yaml"}".',
        big: f'"{big}" has 100 MiB; a description may have 32 MiB.',
        binary: f'"{binary}" is not UTF-8 text (byte 3).',
        binary / "x.yaml": f'cannot read "{binary / "x.yaml"}": Not a directory.',
        Path("/dev/zero"): '"/dev/zero" has 32 MiB; a description may have 32 MiB.',
    }
    for path, message in cases.items():
        with pytest.raises(FileError) as caught:
            read_text(path)
        assert caught.value.message == message
        assert caught.value.hint
    with pytest.raises(FileError, match=r"cannot read .*: File name too long"):
        read_text(Path("x" * 5000))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("a: 1")
    secret.chmod(0)
    with pytest.raises(FileError, match="Permission denied"):
        read_text(secret)
