"""What starts a job: launchers, their options, and worlds."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import UsageError
from syncline.previewing.launch import read_launch


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "world", "per_host"),
    [
        ("torchrun --nnodes 64 --nproc-per-node 8 train.py --config a.toml", 512, 8),
        ("torchrun --nnodes=2 --nproc_per_node=gpu --rdzv-backend c10d train.py", 16, 8),
        ("python -m torch.distributed.run --standalone --nproc-per-node 4 train.py", 4, 4),
        ("accelerate launch --multi_gpu --num_processes 16 --num_machines 2 --mixed_precision bf16 train.py", 16, 8),
        ("deepspeed --num_nodes 2 --num_gpus 8 train.py --deepspeed ds.json", 16, 8),
        ("srun -N 4 --ntasks-per-node=8 python -u train.py", 32, 8),
        ("srun -N4 torchrun --nnodes 4 --nproc-per-node 8 train.py", 32, 8),
        ("mpirun -np 16 python train.py", 16, 8),
        ("OMP_NUM_THREADS=1 python train.py --lr 1", 1, 1),
    ],
)
def test_launchers(command: str, world: int, per_host: int) -> None:
    found = read_launch(command.split(), gpus_per_host=8)
    assert (found.world, found.per_host, found.script) == (world, per_host, "train.py")


def test_a_rank_is_told_who_it_is() -> None:
    own = read_launch(["srun", "-N", "2", "--ntasks-per-node", "8", "python", "train.py"], 8).of_rank(11)
    assert (own["RANK"], own["LOCAL_RANK"], own["WORLD_SIZE"], own["SLURM_PROCID"]) == ("11", "3", "16", "11")


def test_the_scripts_own_arguments_stay_its_own() -> None:
    found = read_launch(["torchrun", "--nproc-per-node", "2", "train.py", "--nnodes", "9", "-m"], 8)
    assert found.args == ("--nnodes", "9", "-m")
    assert found.world == 2


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("horovodrun train.py", '"horovodrun" is not a launcher that syncline knows'),
        ("torchrun --nnodes 2", "torchrun is given no script"),
        ("torchrun --nnodes two train.py", '--nnodes must be a number from 1, got "two"'),
        ("torchrun other.py", 'there is no script "other.py" here'),
        ("", "no training command was given"),
    ],
)
def test_mistakes(command: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_launch(command.split(), 8)
