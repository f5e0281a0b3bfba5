"""Faults as text: read, checked, written back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.errors import FaultError
from syncline.fault.fault import HOST_KINDS, Fault, FaultKind, parse_fault, parse_faults


def test_a_link_that_goes_down_and_comes_back() -> None:
    fault = parse_fault("host-01:eth0 down at 5s for 2s")
    assert fault == Fault("host-01:eth0", FaultKind.DOWN, start_s=5, duration_s=2)
    assert fault.end_s == 7
    assert parse_fault("host-01:eth0 down for 2s at 5s") == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("leaf-00 <-> spine-01 rate 25% at 2s", Fault("leaf-00 <-> spine-01", FaultKind.RATE, share=0.25, start_s=2)),
        ("leaf-00 -> spine-01 rate 100Mbps", Fault("leaf-00 -> spine-01", FaultKind.RATE, rate_Bps=12.5e6)),
        ("h1/nic-0 loss 0.1%", Fault("h1/nic-0", FaultKind.LOSS, share=0.001)),
        ("h0 -> h3 traffic 40% for 1min", Fault("h0 -> h3", FaultKind.TRAFFIC, share=0.4, duration_s=60)),
        ("h1 kill at 500ms", Fault("h1", FaultKind.KILLED, start_s=0.5)),
        ("h1 PAUSED", Fault("h1", FaultKind.PAUSED)),
        ("h1 slow 4x", Fault("h1", FaultKind.SLOW, share=0.25)),
        ("h1 slow 50%", Fault("h1", FaultKind.SLOW, share=0.5)),
        ("h1:eth0 mtu 1500", Fault("h1:eth0", FaultKind.MTU, mtu_bytes=1500)),
    ],
)
def test_every_kind_reads(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault


def test_without_a_duration_it_lasts() -> None:
    assert parse_fault("h1 paused").end_s == math.inf
    assert parse_fault("a <-> b down").ends() == ("a", "b", True)
    assert parse_fault("a -> b loss 100%").ends() == ("a", "b", False)


def test_several_in_one_text() -> None:
    assert [f.kind.value for f in parse_faults(["h1 paused; h2 killed", "# nothing\nh3:eth0 down\n"])] == [
        "paused",
        "killed",
        "down",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'cannot read the fault ""'),
        ("down", 'cannot read the fault "down"'),
        ("h1 explodes", '"explodes" in "h1 explodes" is not a kind of fault'),
        ("h1 down at noon", '"noon" after `at` is not a time'),
        ("h1 down at 1s at 2s", "says `at` twice"),
        ("h1 down 50%", '"down" takes no value'),
        ("h1:eth0 loss", '"loss" needs a percentage'),
        ("h1:eth0 loss 100Mbps", '"loss" needs a percentage'),
        ("h1:eth0 loss 200%", "out of range"),
        ("h1:eth0 rate", '"rate" needs a rate or a percentage'),
        ("h1:eth0 rate fast", '"fast" is neither a rate nor a percentage'),
        ("h1:eth0 rate 0Mbps", "a rate of 0 is a link that is down"),
        ("h1:eth0 mtu big", "an mtu is a number of bytes"),
        ("h1 slow 0.5x", "out of range"),
        ("h1 killed for 2s", "does not come back"),
        ("h1:eth0 paused", 'only a host can be paused, not "h1:eth0"'),
        ("h1 traffic 40%", "traffic goes from one host to another"),
        ("a <-> down", "names only one end"),
    ],
)
def test_a_fault_that_cannot_be_says_why(text: str, message: str) -> None:
    with pytest.raises(FaultError) as caught:
        parse_fault(text)
    assert message in caught.value.message
    assert "Write " in caught.value.hint


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from(FaultKind))
    name = st.from_regex(r"[a-z]{1,6}-[0-9]{1,2}", fullmatch=True)
    target = draw(name) if kind in HOST_KINDS else f"{draw(name)} -> {draw(name)}"
    share = draw(st.integers(1, 1000)) / 1000
    values: dict[str, float | int] = {}
    if kind in (FaultKind.LOSS, FaultKind.SLOW):
        values = {"share": share}
    elif kind in (FaultKind.RATE, FaultKind.TRAFFIC):
        values = draw(st.sampled_from([{"share": share}, {"rate_Bps": float(draw(st.integers(1, 10**12)))}]))
    elif kind is FaultKind.MTU:
        values = {"mtu_bytes": draw(st.integers(68, 65_535))}
    duration = None if kind is FaultKind.KILLED else draw(st.none() | st.integers(0, 10**6).map(lambda ms: ms / 1000))
    return Fault(target, kind, start_s=draw(st.integers(0, 10**6)) / 1000, duration_s=duration, **values)  # type: ignore[arg-type]


@given(faults())
def test_text_and_back(fault: Fault) -> None:
    back = parse_fault(fault.text)
    assert (back.target, back.kind, back.mtu_bytes) == (fault.target, fault.kind, fault.mtu_bytes)
    for name in ("share", "rate_Bps", "start_s", "duration_s"):
        assert getattr(back, name) == pytest.approx(getattr(fault, name))


@given(st.text())
def test_any_text_reads_or_is_refused(text: str) -> None:
    try:
        fault = parse_fault(text)
    except FaultError:
        return
    assert isinstance(fault, Fault)
