from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedule import msccl_files as files

from syncline.errors import NotProvedError, ScheduleError
from syncline.schedule import Kind, ring, verify
from syncline.schedule.counts import counted_cost
from syncline.schedule.family.families import FAMILIES, Options
from syncline.schedule.formats.msccl_read import read_msccl
from syncline.schedule.formats.msccl_write import write_msccl


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("channels", [1, 2])
def test_fused_rings(n: int, channels: int) -> None:
    schedule = verify(read_msccl(files.fused_ring(n, channels))).schedule
    assert counted_cost(schedule) == counted_cost(ring(n))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_all_pairs_over_scratch(n: int) -> None:
    schedule = verify(read_msccl(files.all_pairs(n))).schedule
    direct = FAMILIES["direct"].make(Options(n, Kind.ALL_REDUCE))
    assert counted_cost(schedule).sent_max == counted_cost(direct).sent_max
    assert schedule.num_helpers == n * (n - 1)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_chain_that_passes_sums_on(n: int) -> None:
    verify(read_msccl(files.chain(n)))


def test_out_of_place() -> None:
    schedule = verify(read_msccl(files.out_of_place_gather())).schedule
    assert schedule.collective.kind is Kind.ALL_GATHER


def test_every_type_of_step_is_covered() -> None:
    text = files.fused_ring(3, 1) + files.all_pairs(3) + files.chain(3) + files.out_of_place_gather()
    for kind in ("s", "r", "cpy", "rcs", "rrc", "rrs", "rrcs", "re", "nop"):
        assert f'type="{kind}"' in text


def test_a_deadlock_is_refused_naming_gpu_block_and_step() -> None:
    with pytest.raises(NotProvedError) as caught:
        read_msccl(files.receive_first(3), "ring.xml")
    assert caught.value.message == "gpu 0 thread block 0 step 0 (r) waits forever: deadlock."
    assert "waits for data from gpu 2 to gpu 0 on channel 0" in caught.value.detail
    assert caught.value.where == "ring.xml"


def test_steps_in_no_fixed_order_are_refused() -> None:
    text = files.chain(3).replace('depid="0" deps="0"', 'depid="-1" deps="-1"')
    with pytest.raises(NotProvedError, match="in no fixed order"):
        read_msccl(text)


def test_reductions_that_do_not_wait_are_refused() -> None:
    with pytest.raises(
        NotProvedError, match=r"\(re\) and gpu \d thread block \d step 1 \(r\) touch chunk 0 of buffer s"
    ):
        read_msccl(files.all_pairs(3, wait=False))


def test_reading_scratch_that_nobody_wrote_is_refused() -> None:
    text = files.fused_ring(3, 1).replace('s_chunks="0"', 's_chunks="3"')
    text = text.replace('type="s" srcbuf="i"', 'type="s" srcbuf="s"')
    with pytest.raises(
        NotProvedError, match=r"gpu 0 thread block 0 step 0 \(s\) reads chunk 0 of buffer s, which noth"
    ):
        read_msccl(text)


def test_a_wrong_sum_is_refused() -> None:
    text = files.fused_ring(4, 1).replace('type="rrcs"', 'type="rcs"', 1)
    with pytest.raises(NotProvedError, match="does not end with the right chunk"):
        verify(read_msccl(text))


def test_a_result_in_the_wrong_place_is_refused() -> None:
    text = files.out_of_place_gather().replace('type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="3"', 'type="nop" '
           'srcbuf="i" srcoff="0" dstbuf="o" dstoff="3"')  # fmt: skip
    with pytest.raises(NotProvedError, match="gpu 3 ends with nothing where chunk 3 must be"):
        read_msccl(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('coll="allreduce"', 'coll="custom"', 'the collective "custom" cannot be read'),
        ('ngpus="3"', 'ngpus="0"', "ngpus=0 is outside"),
        ('ngpus="3"', 'ngpus="4"', "gpu 3 is missing"),
        ('ngpus="3"', "", 'add ngpus="8" and coll="allreduce", say, to <algo>'),
        ('ngpus="3"', 'ngpus="2000000000"', "outside 1 to 16384"),
        ('nchunksperloop="3"', "", '"nchunksperloop" is missing'),
        ('type="rrs"', 'type="boom"', 'step type "boom" is not one of'),
        ('<gpu id="1"', '<gpu id="0"', "gpu 0 comes twice"),
        ('srcoff="0"', 'srcoff="77"', "outside the 3 of buffer i"),
        ('send="1"', 'send="0"', "has itself as a peer"),
        ('send="1"', 'send="-1"', "sends without a peer"),
        ('step s="1"', 'step s="5"', "not numbered 0, 1, 2"),
        ('cnt="1"', 'cnt="x"', 'cnt="x" is not a whole number'),
        ('depid="-1"', 'depid="9"', "which does not exist"),
        ('cnt="1"', 'cnt="16777216"', "the steps move more than 4,194,304 chunks"),
        ('nchunksperloop="3"', 'nchunksperloop="1048576"', "1,048,576 chunks on 3 gpus are too many to follow"),
        ("</algo>", "", "not well-formed XML"),
        ("<algo", '<!DOCTYPE a [<!ENTITY x "y">]><algo', "the XML has a DOCTYPE"),
        ("<gpu", "<thing/><gpu", "<thing> has no place here"),
    ],
)
def test_wrong_files_are_refused_with_the_place(old: str, new: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        read_msccl(files.fused_ring(3, 1).replace(old, new, 1), "bad.xml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("bad.xml")


def test_two_blocks_on_one_connection_are_refused() -> None:
    text = files.fused_ring(3, 2).replace('chan="1"', 'chan="0"')
    with pytest.raises(ScheduleError, match="share the connection send 1 on channel 0"):
        read_msccl(text)


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - {"parameter-server", "in-network", "balanced"}))
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_what_is_written_is_read_back_proved_and_costs_the_same(name: str, n: int) -> None:
    for kind in FAMILIES[name].kinds:
        if kind in (Kind.SCATTER, Kind.GATHER, Kind.SEND_RECV, Kind.ALL_TO_ALLV):
            continue
        schedule = FAMILIES[name].make(Options(n, kind, root=n - 1 if kind in (Kind.BROADCAST, Kind.REDUCE) else 0,
                                               channels=2, chunks=3))  # fmt: skip
        back = verify(read_msccl(write_msccl(schedule))).schedule
        assert back.collective == schedule.collective
        mine, theirs = counted_cost(schedule), counted_cost(back)
        assert (mine.sent_max, mine.sent_total) == (theirs.sent_max, theirs.sent_total)


def test_channels_that_share_no_chunk_do_not_wait_for_each_other() -> None:
    (strand,) = ring(4).strands
    falling = tuple(replace(strand, share=Fraction(3 - k, 6), channel=k) for k in range(3))
    schedule = replace(ring(4), strands=falling)
    read = read_msccl(write_msccl(schedule))
    assert [strand.share for strand in verify(read).schedule.strands] == [strand.share for strand in schedule.strands]
    assert [strand.channel for strand in read.strands] == [0, 1, 2]


def test_servers_on_the_gpus_of_ranks_are_written_and_proved() -> None:
    schedule = FAMILIES["parameter-server"].make(Options(4, Kind.ALL_REDUCE, servers=2, colocated=True))
    assert verify(read_msccl(write_msccl(schedule))).schedule.num_rounds <= schedule.num_rounds + 1


def test_channels_whose_chunks_lie_between_each_other_stay_together() -> None:
    assert [strand.num_chunks for strand in read_msccl(files.fused_ring(4, 2)).strands] == [8]


def test_what_the_format_cannot_hold_is_refused() -> None:
    for name, text in (
        ("parameter-server", "no servers"),
        ("in-network", "no reducing switches"),
        ("direct", "no scatter"),
    ):
        kind = Kind.SCATTER if name == "direct" else None
        with pytest.raises(ScheduleError, match=text):
            write_msccl(FAMILIES[name].make(Options(4, kind)))
    with pytest.raises(ScheduleError, match="allows 256"):
        write_msccl(ring(200))
    with pytest.raises(ScheduleError, match="is not one of Simple, LL, LL128"):
        write_msccl(ring(2), protocol="magic")


@given(text=st.text(alphabet='<>/="algotbsepu 0123456789-\n', max_size=200) | st.binary(max_size=100))
@settings(max_examples=80, deadline=None)
def test_noise_is_refused_and_nothing_else(text: str | bytes) -> None:
    with pytest.raises(ScheduleError):
        read_msccl(text)
