"""(DDP, FSDP2 1-D, 2-D) x codecs x (save, kill, resume with as many ranks and with half): bit-equal, or close."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from tests.distributed.cases import grid_cases as cases
from tests.distributed.ranks import PRELOAD, rank_process, run_ranks

from syncline.host.ports import meeting_port

CELLS = [f"{mode} {codec}" for mode in cases.MODES for codec in cases.CODECS]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    folder = tmp_path_factory.mktemp("grid")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    work = partial(cases.run, folder=str(folder), num_ranks=4, resumes=False)
    port = meeting_port()
    killed = [rank_process(context, work, rank, port)[0] for rank in range(4)]
    for process in killed:
        process.join(240)
        assert process.exitcode == 9
    for num_ranks in (4, 2):
        work = partial(cases.run, folder=str(folder), num_ranks=num_ranks, resumes=True)
        run_ranks(num_ranks, work, timeout_s=240)

    def loaded(name: str, num_ranks: int) -> list[Any]:
        return [torch.load(Path(folder, f"{name}-{rank}.pt"), weights_only=True) for rank in range(num_ranks)]

    yield {"before": loaded("before", 4), "same": loaded("after-4", 4), "half": loaded("after-2", 2)}


@pytest.mark.parametrize("cell", CELLS)
def test_as_many_ranks_go_on_bit_for_bit(runs: dict[str, list[Any]], cell: str) -> None:
    for before, after in zip(runs["before"], runs["same"], strict=True):
        assert after[cell]["first"] == cases.SAVED
        assert torch.equal(before[cell]["at"], after[cell]["at"])
        if not cell.endswith("auto"):  # which measures the network anew
            assert torch.equal(before[cell]["end"], after[cell]["end"])


@pytest.mark.parametrize("cell", CELLS)
def test_half_as_many_take_over_weights_and_what_is_owed(runs: dict[str, list[Any]], cell: str) -> None:
    before = runs["before"][0][cell]
    for rank, after in enumerate(runs["half"]):
        found = after[cell]
        assert torch.equal(before["at"], found["at"])
        assert set(found["owed"]) == set(before["owed"])
        for name, part in found["owed"].items():
            torch.testing.assert_close(part.flatten(), before["owed"][name].flatten(), rtol=1e-5, atol=1e-7)
        moved = float((before["end"] - before["at"]).norm())
        apart = float((found["end"] - before["end"]).norm())
        assert apart < 1.2 * moved, "the same way, within what a codec loses"
        assert torch.equal(found["end"], runs["half"][1 - rank][cell]["end"]), "replicas agree"
