"""What starts a job: launchers, their options, and worlds."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import UsageError
from syncline.fabric import load
from syncline.previewing.launch import read_launch


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "hosts").write_text("# ours\na slots=4\nb slots=4\n\nc slots=4\n")
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
        ("srun -N 4 -n 4 python train.py", 4, 1),
        ("srun -N 2 -n 4 --ntasks-per-node 8 python train.py", 4, 2),
        ("srun -n 4 --ntasks-per-node 2 python train.py", 4, 2),
        ("mpirun -np 16 python train.py", 16, 8),
        ("mpirun -np 16 -N 4 --allow-run-as-root --mca btl tcp -x A=1 python train.py", 16, 4),
        ("mpirun -np 8 --npernode 2 python train.py", 8, 2),
        ("mpirun -np 8 --map-by ppr:4:node python train.py", 8, 4),
        ("deepspeed --hostfile hosts train.py", 12, 4),
        ("deepspeed --hostfile=hosts --exclude b train.py", 8, 4),
        ("deepspeed --hostfile hosts --include a:0,1@b:2,3 train.py", 4, 2),
        ("deepspeed --hostfile hosts --num_nodes 2 --num_gpus 3 train.py", 6, 3),
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
        ("deepspeed --hostfile hosts --exclude b:0 train.py", "give hosts between 3 and 4 GPUs"),
        ("", "no training command was given"),
        ("accelerate launch --num_processes 10 --num_machines 4 train.py", "--num_processes 10 counts"),
    ],
)
def test_mistakes(command: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_launch(command.split(), 8)


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes 4 --nproc-per-node 2 train.py",
        "python -m torch.distributed.run --nnodes 4 --nproc-per-node 2 train.py",
        "accelerate launch --num_machines 4 --num_processes 8 train.py",
        "deepspeed --num_nodes 4 --num_gpus 2 train.py",
        "srun -N 4 --ntasks-per-node 2 python train.py",
        "srun -N 4 torchrun --nproc-per-node 2 train.py",
    ],
)
def test_ranks_stand_on_the_hosts_that_the_launcher_names(command: str) -> None:
    fabric = load("h100-64-rail")
    devices = fabric.devices
    at = read_launch(command.split(), 8).devices(fabric)
    assert devices.host[at].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert devices.local[at].tolist() == [0, 1] * 4


def test_a_host_without_room_is_passed_over_and_a_gpu_of_two_dies_takes_two_ranks() -> None:
    launch = read_launch(["torchrun", "--nnodes", "2", "--nproc-per-node", "4", "train.py"], 8)
    assert launch.seats([4, 2, 8], "mixed").tolist() == [0, 1, 2, 3, 6, 7, 8, 9]
    fabric = load("h100-64-rail")
    assert fabric.devices.local[launch.devices(fabric, dies=2)].tolist() == [0, 0, 1, 1] * 2


def test_ranks_that_fill_their_hosts_fill_others() -> None:
    full = read_launch(["torchrun", "--nnodes", "2", "--nproc-per-node", "8", "train.py"], 8).moved(4)
    thin = read_launch(["torchrun", "--nnodes", "2", "--nproc-per-node", "2", "train.py"], 8).moved(4)
    assert (full.per_host, thin.per_host) == (4, 2)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("torchrun --nproc-per-node 9 train.py", "9 ranks, 9 a host, but h100-64-rail has 0 hosts with room for 9"),
        ("torchrun --nnodes 65 train.py", "65 ranks, 1 a host, but h100-64-rail has 64 hosts with room for 1"),
        ("srun -N 2 -n 32 python train.py", "32 ranks, 16 a host, but h100-64-rail has 0 hosts"),
    ],
)
def test_more_than_the_cluster_has_is_refused(command: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_launch(command.split(), 8).devices(load("h100-64-rail"))
