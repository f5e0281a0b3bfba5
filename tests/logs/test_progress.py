"""A job that goes on after a line that looked like trouble has none; an exception stays one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syncline.diagnosis import shipped_rules
from syncline.diagnosis.examples import found_in
from syncline.logs.checks.steps import TAIL_BYTES, LogEnd

SKIPPED = (
    "transport.cpp:nvshmemi_transport_init:282: init failed for transport: IBGDA\n"
    "WARN: device mlx5_3 cannot allocate buffer on the specified memory type. Skipping...\n"
)
STEPS = "iteration 101/ 5000 | lm loss: 2.1\niteration 102/ 5000 | lm loss: 2.0\n"


def _went_on(text: str, block: int = 1 << 22) -> int:
    def blocks() -> Iterator[bytes]:
        data = text.encode()
        for at in range(0, len(data), block):
            yield data[at : at + block]

    end = LogEnd()
    assert b"".join(end.passing(blocks())) == text.encode()
    return end.went_on(text.count("\n") + (not text.endswith("\n")))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\nstep 1\nstep 2\n", 3),
        ("a\nstep 1\nb\nstep 2\nc", 2),
        ("step 7\nstep 7\nstep 7\n", 0),  # every rank prints the same one
        ("Epoch [1][50/100] x\nEpoch [2][50/100] x\n", 1),
        (" 50%|##   | 5/10 [00:01<00:01]\n 60%|###  | 6/10 [00:01<00:01]\n", 1),
        ("[rank 0] bandwidth: 99.1 GB/s\n[rank 1] bandwidth: 99.2 GB/s\n", 1),
        ("Stage 3: Data\nUnable to get 4 GPUs\nStage 6: Training\ninitialized host n1 as rank 3\n", 3),
        ("zero stage: 3\nStage 6: Training\nUnable to get 4 GPUs\n", 0),
        ("no step\nand no result\n", 0),
        ("", 0),
    ],
)
def test_two_steps_or_results_say_that_a_job_went_on(text: str, line: int) -> None:
    assert _went_on(text) == line
    assert _went_on(text, block=3) == line


def test_the_end_of_a_long_log_is_enough() -> None:
    text = "step 1\nstep 2\n" + "x\n" * TAIL_BYTES
    assert _went_on(text, block=1 << 12) == 0
    assert _went_on(text + "step 3\nstep 4\n", block=1 << 12) == 2 + TAIL_BYTES + 1


def test_a_transport_that_is_passed_over_is_silent_where_the_job_goes_on() -> None:
    book = shipped_rules()
    assert found_in(SKIPPED, book) == ["nvshmem.setup"]
    assert found_in(SKIPPED + STEPS, book) == []
    assert found_in(STEPS + SKIPPED, book) == ["nvshmem.setup"]


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\n  File 'a.py', line 3, in b\nFancyError: it is broken\n",
        "srun: error: node3: task 3: Segmentation fault\n",
    ],
)
def test_a_traceback_or_a_crash_is_told_whatever_follows(line: str) -> None:
    book = shipped_rules()
    alone = found_in(line, book)
    assert alone
    assert found_in(line + STEPS, book) == alone


def test_a_line_that_no_rule_knows_is_silent_where_the_job_goes_on() -> None:
    book, line = shipped_rules(), "ERROR widget: the frobnicator is not there\n"
    assert found_in(line, book) == ["log.unexplained"]
    assert found_in(line + STEPS, book) == []
