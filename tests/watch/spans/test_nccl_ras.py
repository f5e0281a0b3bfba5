"""Hangs named by NCCL itself: its RAS service and its log."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from syncline.errors import WatchError
from syncline.watch.clock import Clock
from syncline.watch.frame import Frame
from syncline.watch.job import JobView
from syncline.watch.rules.engine import RuleEngine
from syncline.watch.spans import nccl_log
from syncline.watch.spans.event import Hang, StuckEvent
from syncline.watch.spans.nccl_log import NcclLogSpans
from syncline.watch.spans.nccl_ras import RasJudge, RasSpans, RasVerdict, ask, read_status

HEALTHY = """Job summary
===========
  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8
Communicators... (0.00s)
=============
Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         8         8   RUNNING  OK
Errors
======
Warnings
========
"""
STRAGGLER = """
Warnings
========

#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation {ahead}
  Rank 7 has launched up to operation {behind} -- GPU 3 managed by process 1650386 on node node1
"""
SEVERAL = """
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
"""
DEAD = """Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

Warnings
========
"""


def test_what_ras_says() -> None:
    assert read_status(HEALTHY) == RasVerdict()
    (row,) = read_status(STRAGGLER.format(ahead=64, behind=60)).behind
    assert row == ("#0-0", "AllReduce", 60, 64, (7,))
    (row,) = read_status(SEVERAL).behind
    assert row == ("#0-0", "collective", 6649, 6650, (0, 2))
    assert read_status(DEAD).gone == {"process 3487984 on 172.16.64.213 (GPU 5)"}
    assert read_status("\x00garbage\n#0-0 (zz) MISMATCH\nRank 99999 --\n" * 50) == RasVerdict()


def test_ranks_that_move_are_no_hang_and_one_that_stands_still_is() -> None:
    judge = RasJudge()
    for k in range(6):
        assert judge.take(read_status(STRAGGLER.format(ahead=64 + k, behind=60 + k))) == ()
    stuck = [judge.take(read_status(STRAGGLER.format(ahead=80 + k, behind=66))) for k in range(3)]
    assert [len(hangs) for hangs in stuck] == [0, 0, 1]
    assert stuck[2][0].ranks == (7,)
    assert stuck[2][0].text.startswith("rank 7 of communicator #0-0 stopped after AllReduce 66, others went on to 82")
    assert judge.take(read_status(HEALTHY)) == ()


def test_the_service_is_asked_and_one_that_never_ends_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for text in (HEALTHY.encode(), None):
                line, _ = server.accept()
                with line:
                    asked = line.recv(100)
                    if text is not None:
                        assert asked == b"VERBOSE STATUS\n"
                        line.sendall(text)
                    else:
                        line.recv(1)  # says nothing until the other gives up

        thread = threading.Thread(target=answer)
        thread.start()
        at = server.getsockname()
        assert ask(at) == HEALTHY
        with pytest.raises(OSError, match="timed out"):
            ask(at, patience_s=0.2)
        thread.join(60)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(WatchError, match='"nowhere" is not a RAS address'):
        RasSpans("nowhere")


def line(rank: int, number: int, what: str = "AllReduce") -> str:
    head = f"node{rank // 2}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL INFO"
    return (
        f"{head} {what}: opCount {number:x} sendbuff 0x7f recvbuff 0x7f count 1048576 datatype 7 op 0 root 0 "
        f"comm 0x55{rank} [nranks=4] stream 0x1\n"
    )


def begin(rank: int) -> str:
    head = f"node{rank // 2}:{100 + rank}:{200 + rank} [{rank % 2}] NCCL INFO"
    return f"{head} ncclCommInitRank comm 0x55{rank} rank {rank} nranks 4 cudaDev 0 commId 0x65e0 - Init COMPLETE\n"


def test_a_rank_behind_in_a_log_that_stands_still_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = NcclLogSpans(tmp_path, Clock())
    for rank in range(4):
        last = 0x1A if rank == 2 else 0x1B
        text = begin(rank) + "".join(line(rank, number) for number in range(0x18, last + 1))
        (tmp_path / f"nccl.{rank}").write_text(text + "node:1:1 [0] NCCL INFO AllReduce: opCount zz\n")
    (said,) = source.read()
    assert said.hangs == ()  # it may still move
    monkeypatch.setattr(nccl_log, "QUIET_S", 0.0)
    (said,) = source.read()
    (hang,) = said.hangs
    assert hang.ranks == (2,)
    assert "all-reduce/4MiB" in hang.text
    assert "ranks 0, 1, 3 wait" in hang.text
    assert source.num_bad == 4
    for rank in range(4):
        with (tmp_path / f"nccl.{rank}").open("a") as file:
            file.write(line(rank, 0x1C, "AllGather"))
    (said,) = source.read()
    assert said.hangs == ()  # all at the same call


def test_what_nccl_says_is_an_alert_without_a_single_span(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.watch.scenes import frame, load, table

    links, view, engine = table(2), JobView(), RuleEngine()

    def look(number: int) -> Frame:
        from dataclasses import replace

        made = frame(number, links, load(links, 0.1))
        return replace(made, job=view.state(made.mono_s))

    engine.update(look(0))
    view.add([StuckEvent("nccl-ras", (Hang((7,), "AllReduce", (), "rank 7 stopped after AllReduce 66"),))])
    engine.update(look(1))
    (found,) = engine.alerts()
    assert (found.rule, found.meaning) == ("job.stalled", "Rank 7 stopped after AllReduce 66.")
    view.add([StuckEvent("nccl-ras", ())])
    for k in range(2, 12):
        engine.update(look(k))
    assert engine.alerts() == ()
