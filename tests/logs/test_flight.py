"""The flight recorder's own files: plain values are read, and nothing in them is run."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path

import pytest

from syncline.diagnosis import diagnose
from syncline.logs.flight import plain_values

VALUE = {
    "entries": [{"collective_seq_id": 70_000, "process_group": ("0", "tp"), "input_sizes": [[4, 300], []], "x": None}],
    "flags": [True, False, 1.5, -3, 1 << 40, "ä" * 300],
    "triples": [(1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ()],
}


class Runs:
    """What a hostile file would hold."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("true",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read_as_they_are(protocol: int) -> None:
    assert plain_values(pickle.dumps(VALUE, protocol=protocol)) == VALUE


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("hostile", [Runs(), {"entries": [Runs()]}, Path("x")], ids=["runs", "runs inside", "path"])
def test_anything_else_is_refused(protocol: int, hostile: object) -> None:
    with pytest.raises(
        ValueError, match=r"imports (posix\.system|pathlib\.PosixPath), which is not a plain value; it is not opened"
    ):
        plain_values(pickle.dumps(hostile, protocol=protocol))


def test_damaged_files_end_in_one_error() -> None:
    whole = pickle.dumps(VALUE, protocol=4)
    dice = random.Random(1)
    for _ in range(400):
        content = bytearray(whole[: dice.randrange(2, len(whole))])
        content[dice.randrange(len(content))] = dice.randrange(256)
        try:
            plain_values(bytes(content))
        except ValueError:
            continue


def test_a_folder_of_the_recorders_own_files_names_the_missing_rank(tmp_path: Path) -> None:
    for rank in range(4):
        rows = [
            {"collective_seq_id": seq, "process_group": ("0", "dp"), "profiling_name": "nccl:all_reduce",
             "input_sizes": [[4]], "state": "started" if seq == 42 else "completed"}
            for seq in range(30, 42 if rank == 2 else 43)
        ]  # fmt: skip
        dump = {"version": "2.10", "pg_config": {}, "entries": rows}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))
    (finding,) = diagnose([tmp_path]).findings
    assert finding.rule == "torch.flight.missing"
    assert "rank 2 stopped at #41 all_reduce; 3 others wait in #42 all_reduce" in finding.observed


def test_a_hostile_dump_is_named_and_not_run(tmp_path: Path) -> None:
    dump = {"entries": [{"collective_seq_id": 1, "x": Runs()}], "pg_config": {}}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, protocol=4))
    (unread,) = diagnose([tmp_path]).unread
    assert "imports posix.system, which is not a plain value; it is not opened" in unread.reason
    assert json.dumps(unread.reason)
