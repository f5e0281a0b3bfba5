"""Who a process is, from what torchrun, Slurm and MPI put in its environment."""

from __future__ import annotations

import pytest

from syncline.errors import UsageError
from syncline.runtime.launch import Launch, detect, first_of_hostlist

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "host-0", "MASTER_PORT": "29500"}  # fmt: skip
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}  # fmt: skip
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "1",
         "SLURM_STEP_NODELIST": "gpu[007-010],gpu12", "SLURM_JOB_ID": "41234"}  # fmt: skip


def test_nobody_launched_this() -> None:
    assert detect({"HOME": "x"}) is None


def test_torchrun() -> None:
    assert detect(TORCHRUN) == Launch("torchrun", 3, 8, 1, "host-0", 29500)


def test_open_mpi_on_one_host_meets_on_loopback() -> None:
    assert detect(OPEN_MPI) == Launch("mpirun", 2, 4, 2, "127.0.0.1", 29400)


def test_mpi_on_several_hosts_must_be_told_where_rank_0_is() -> None:
    several = OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    with pytest.raises(UsageError, match="MASTER_ADDR is not set, and the ranks are on more than one host") as caught:
        detect(several)
    assert "mpirun -x MASTER_ADDR=host-0" in caught.value.hint
    assert detect(several | {"MASTER_ADDR": "10.0.0.1"}) == Launch("mpirun", 2, 4, 2, "10.0.0.1", 29400)


def test_slurm_lists_its_hosts_and_gives_each_job_a_port() -> None:
    assert detect(SLURM) == Launch("srun", 5, 16, 1, "gpu007", 29400 + 1234)


def test_a_batch_script_is_no_rank_of_srun() -> None:
    """The variables of a shell inside an allocation, as Slurm 17 to 24 set them."""
    batch = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "4",
             "SLURM_JOB_NODELIST": "gnode[10,20,25,37]", "SLURM_NNODES": "4", "SLURM_JOB_ID": "200505"}  # fmt: skip
    assert detect(batch) is None


def test_mpirun_inside_a_slurm_job_is_mpirun() -> None:
    found = detect(SLURM | OPEN_MPI)
    assert found is not None and (found.launcher, found.rank, found.num_ranks) == ("mpirun", 2, 4)


def test_hydra() -> None:
    found = detect({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"})
    assert found == Launch("mpiexec", 1, 2, 1, "127.0.0.1", 29400)


@pytest.mark.parametrize(
    ("text", "first"), [("a1", "a1"), ("n[3,5-9]", "n3"), ("x-[001-128]-y", "x-001-y"), ("a,b,c", "a")]
)
def test_first_of_a_hostlist(text: str, first: str) -> None:
    assert first_of_hostlist(text) == first


@pytest.mark.parametrize(
    ("change", "message"),
    [({"RANK": "8"}, "RANK is 8, but WORLD_SIZE says there are 8 ranks"), ({"RANK": "x"}, 'RANK is "x"'),
     ({"MASTER_PORT": "http"}, 'MASTER_PORT is "http", which is not a number')],
)  # fmt: skip
def test_an_environment_that_makes_no_sense_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        detect(TORCHRUN | change)


def test_an_address_of_version_6_is_bracketed() -> None:
    assert Launch("torchrun", 0, 1).at("fd00::1", 5).init_method == "tcp://[fd00::1]:5"
