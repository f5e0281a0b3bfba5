"""Names of schemes: one canonical form, and errors that list what there is."""

from __future__ import annotations

import pytest

from syncline.codec import scheme
from syncline.codec.names import EXAMPLES, FAMILIES, canonical
from syncline.errors import CodecError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("int8", "int8"),
        (" INT8 ", "int8"),
        ("int8:block=256", "int8"),
        ("int4:block=256", "int4:block=256"),
        ("sign:block=512", "sign"),
        ("powersgd", "powersgd:rank=4"),
        ("onebit", "sign"),
        ("powersgd:2", "powersgd:rank=2"),
    ],
)
def test_one_canonical_name(text: str, name: str) -> None:
    made = scheme(text)
    assert made.name == name
    assert scheme(name) == made
    assert hash(scheme(name)) == hash(made)
    assert repr(made) == f"scheme('{name}')"


def test_no_codec_has_one_name_too() -> None:
    assert canonical("none") == canonical("RAW") == canonical("plain") == "plain"
    assert canonical("onebit") == "sign"
    with pytest.raises(CodecError, match='there is no codec "zip"'):
        canonical("zip")


def test_examples_of_the_error_text_are_real() -> None:
    assert [scheme(text).name for text in EXAMPLES.split(", ")]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("int9", ['there is no codec "int9".', f"There are: {', '.join(sorted(FAMILIES))}."]),
        ("", ['there is no codec ""', "For example: fp32"]),
        (
            "int8:blok=3",
            ['codec "int8" has no parameter "blok".', "Its parameters: block."],
        ),
        ("fp16:block=3", ['codec "fp16" has no parameter "block".', "Its parameters: none."]),
        ("int8:block=100", ['codec "int8" takes blocks of 32 to 65536 elements, a power of two; got 100.']),
        ("int8:block=x", ['codec parameter block="x" is not a whole number.']),
        ("int8:block", ['"block" in codec "int8:block" is not one parameter=value.']),
        ("int8:block=64,block=64", ["is not one parameter=value"]),
        ("powersgd:rank=0", ['codec "powersgd" takes a rank of 1 to 1024; got 0.']),
        ("int8+sign", ['there is no codec "int8+sign".']),
    ],
)
def test_a_wrong_name_says_what_there_is(text: str, parts: list[str]) -> None:
    with pytest.raises(CodecError) as caught:
        scheme(text)
    for part in parts:
        assert part in str(caught.value)
