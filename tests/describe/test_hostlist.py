"""Host lists expand and compress as Slurm's do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.describe.hostlist import compress, expand
from syncline.errors import DescriptionError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tux[0-3,12,18-20]", ["tux0", "tux1", "tux2", "tux3", "tux12", "tux18", "tux19", "tux20"]),
        ("gpu[08-10],login", ["gpu08", "gpu09", "gpu10", "login"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a[1]-x, b", ["a1-x", "b"]),
        ("", []),
        ("ip-10-1-111-198", ["ip-10-1-111-198"]),
    ],
)
def test_expand(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["host-00", "host-01", "host-02", "host-07"], "host-[00-02,07]"),
        (["h9", "h10", "h11"], "h[9,10-11]"),
        (["one"], "one"),
        (["n5"], "n5"),
        (["a1", "b1", "a2"], "a[1-2],b1"),
        (["a", "a1", "a2"], "a,a[1-2]"),
        ([], ""),
    ],
)
def test_compress(names, text):
    assert compress(names) == text


@given(st.lists(st.from_regex(r"[a-z][a-z-]{0,3}[0-9]{0,4}", fullmatch=True), unique=True))
def test_compressed_lists_name_the_same_hosts(names):
    assert sorted(expand(compress(names))) == sorted(names)


@pytest.mark.parametrize("text", ["a[1-", "a]1[", "a[[1]]", "a[2-1]", "a[x]", "a[]", "a[1-2-3]"])
def test_broken_lists_are_refused(text):
    with pytest.raises(DescriptionError, match="as a list of hosts"):
        expand(text, "topology.conf line 3")


@pytest.mark.parametrize("text", ["a[0-999999999]", "a[0-9999]b[0-9999]"])
def test_lists_too_long_are_refused_before_they_are_made(text):
    with pytest.raises(DescriptionError, match="names more than 1,000,000 hosts"):
        expand(text)
