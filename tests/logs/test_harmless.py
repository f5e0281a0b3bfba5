"""Lines that look like trouble and are none, and who may speak of a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.describe.own_data import parsed
from syncline.diagnosis import shipped_rules
from syncline.diagnosis.examples import found_in
from syncline.logs.emitter import heeds

LINES: dict[str, list[str]] = parsed(Path(__file__).with_name("harmless.yaml").read_text("utf-8"))
NODES = "n1:33:33 [0] NCCL INFO comm 0x55 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"
BRIDGE = "n1:33:33 [0] NCCL INFO NET/Socket : Using [0]eth0:10.5.6.3<0> [1]br-50a6a39f12ff:172.18.0.1<0>\n"


@pytest.mark.parametrize("who", LINES)
def test_harmless_lines_raise_nothing(who: str) -> None:
    book = shipped_rules()
    assert {line: rules for line in LINES[who] if (rules := found_in(line + "\n", book))} == {}


def test_hints_about_the_network_between_hosts_need_hosts_or_trouble() -> None:
    book = shipped_rules()
    assert found_in(BRIDGE, book) == []
    assert "net.interface.wrong" in found_in(NODES + BRIDGE, book)
    refused = "n1:33:33 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 172.18.0.1<4100> failed : "
    refused += "Connection refused\n"
    assert "net.interface.wrong" in found_in(BRIDGE + refused, book)


def test_an_abort_or_an_end_alone_is_told_as_a_consequence() -> None:
    abort = "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:825, unhandled system error, NCCL version 2.7.8\n"
    assert found_in(abort, shipped_rules()) == ["log.unexplained", "nccl.abort"]
    ended = "srun: error: node7: tasks 2-7: Exited with exit code 1\n"
    assert found_in(ended, shipped_rules()) == ["log.unexplained", "torch.process.failed"]


@pytest.mark.parametrize(
    ("line", "general"),
    [
        ("[   12.300112] ipmi_si IPI0001:00: Could not set up I/O space", False),
        ("I1115 05:30:00.123456       1 controller.go:211] failed to sync", False),
        ("2026-11-15 INFO launcher: RuntimeError: mat1 and mat2 shapes cannot be multiplied", True),
        ("[   99.123456] mlx5_core 0000:13:00.0: failed to do something", True),
    ],
)
def test_what_is_general_listens_to_fewer_lines(line: str, general: bool) -> None:
    assert heeds("signal.error", line, general=True) is general
    assert heeds("kernel.nic.probe", line, general=False)
