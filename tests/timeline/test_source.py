from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import TimelineError
from syncline.timeline import Source, SourceKind
from syncline.timeline.source import json_safe


def test_the_label_says_who_and_what_is_ignored(source: Source) -> None:
    assert source.label() == "simulated-flow: syncline flow 0.1, seed 7; ignores packet loss, host jitter"
    assert Source(SourceKind.LAB, "lab").label() == "lab: lab"


def test_kinds_may_be_given_as_text() -> None:
    assert Source("runtime", "torch").kind is SourceKind.RUNTIME  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": "guess"}, "source kind 'guess' is unknown."),
        ({"name": ""}, "source name is empty."),
        ({"name": None}, "source name None is not text."),
        ({"ignores": "loss"}, "source ignores must be a list of texts, not one text."),
        ({"ignores": (1,)}, "source ignores 1 is not text."),
        ({"seed": True}, "source seed True is not a whole number of 64 bits."),
        ({"seed": 2**64}, "source seed 18446744073709551616 is not"),
    ],
)
def test_a_bad_source_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(TimelineError) as caught:
        Source(**{"kind": SourceKind.LAB, "name": "x", **fields})
    assert str(caught.value).startswith(text)


def test_metadata_is_copied_and_tuples_become_lists() -> None:
    inner = [1]
    copy = json_safe({"a": (1, 2.5, None), "b": inner})
    inner.append(2)
    assert copy == {"a": [1, 2.5, None], "b": [1]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": float("nan")}, 'metadata["a"] holds nan (float), which JSON cannot keep.'),
        ({"a": [object]}, "metadata[\"a\"][0] holds <class 'object'> (type), which JSON cannot keep."),
        ({1: 2}, "metadata key 1 is not text."),
        ({"a": 2**64}, 'metadata["a"] holds 18446744073709551616 (int), which JSON cannot keep.'),
        ({"a": "\udc80"}, "metadata[\"a\"] '\\udc80' is not valid Unicode text."),
    ],
)
def test_metadata_that_json_would_lose_is_refused(value: Any, text: str) -> None:
    with pytest.raises(TimelineError) as caught:
        json_safe(value)
    assert str(caught.value).startswith(text)


def test_endless_metadata_is_refused() -> None:
    knot: dict[str, Any] = {}
    knot["k"] = knot
    with pytest.raises(TimelineError, match="nested deeper than 32 levels"):
        json_safe(knot)
