"""Who this process is among its fellows, from the environment that torchrun, Slurm or MPI gives it.

launch = detect(os.environ)
launch.rank, launch.num_ranks, launch.launcher          # 3, 8, "torchrun"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from syncline.describe.hostlist import expand
from syncline.errors import UsageError

DEFAULT_PORT = 29400
"""Where rank 0 listens when the launcher names no port: Slurm and MPI do not."""

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
_HYDRA = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
_SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
LAUNCHERS = {"torchrun": _TORCHRUN, "mpirun": _OPEN_MPI, "mpiexec": _HYDRA, "srun": _SLURM}
"""Launcher -> the variables of rank, ranks, rank on this host, ranks on this host, in the order they are looked for.

MPI stands before Slurm: mpirun inside a Slurm job sees Slurm's variables too, but they describe the job step, not the
ranks that mpirun made. Of Slurm the step's own count is read, which srun alone sets: a batch script has SLURM_PROCID=0
and SLURM_NTASKS of the whole job as well, and is no rank of anything.
"""


@dataclass(frozen=True)
class Launch:
    """One process's place: its rank among `num_ranks`, its rank on its host, and where rank 0 listens."""

    launcher: str
    rank: int
    num_ranks: int
    local_rank: int = 0
    master: str = "127.0.0.1"
    port: int = DEFAULT_PORT

    @property
    def init_method(self) -> str:
        """The rendezvous as torch.distributed wants it."""
        host = f"[{self.master}]" if ":" in self.master else self.master
        return f"tcp://{host}:{self.port}"

    def at(self, master: str, port: int) -> Launch:
        """Return the same place with another rendezvous."""
        return replace(self, master=master, port=port)


def detect(environ: Mapping[str, str]) -> Launch | None:
    """Return this process's place, or None when no launcher started it."""
    for launcher, names in LAUNCHERS.items():
        if environ.get(names[0], "") and environ.get(names[1], ""):
            return _read(launcher, names, environ)
    return None


def _read(launcher: str, names: tuple[str, ...], environ: Mapping[str, str]) -> Launch:
    rank, num_ranks = _number(environ, names[0]), _number(environ, names[1])
    if not 0 <= rank < num_ranks:
        raise UsageError(f"{names[0]} is {rank}, but {names[1]} says there are {num_ranks} ranks.",
                         where=f"environment of {launcher}")  # fmt: skip
    local = _number(environ, names[2]) if environ.get(names[2], "").isdigit() else 0
    master = environ.get("MASTER_ADDR", "") or _first_host(launcher, environ, num_ranks)
    return Launch(launcher, rank, num_ranks, local, master, _port(environ))


def _first_host(launcher: str, environ: Mapping[str, str], num_ranks: int) -> str:
    """Return where rank 0 runs: Slurm lists its hosts, MPI does not, so there only one host can be guessed."""
    listed = environ.get("SLURM_STEP_NODELIST", "") or environ.get("SLURM_JOB_NODELIST", "")
    if listed:
        return first_of_hostlist(listed)
    local_size = environ.get(LAUNCHERS[launcher][3], "")
    if local_size.isdigit() and int(local_size) == num_ranks:
        return "127.0.0.1"
    raise UsageError(
        "MASTER_ADDR is not set, and the ranks are on more than one host.",
        where=f"environment of {launcher}",
        hint=f"Give every rank the address of rank 0's host: {_how_to_set(launcher)}",
    )


def _how_to_set(launcher: str) -> str:
    return {
        "mpirun": "mpirun -x MASTER_ADDR=host-0 -x MASTER_PORT=29400 ...",
        "mpiexec": "mpiexec -genv MASTER_ADDR host-0 -genv MASTER_PORT 29400 ...",
    }.get(launcher, "export MASTER_ADDR=host-0 MASTER_PORT=29400")


def first_of_hostlist(text: str) -> str:
    """Return the first host of Slurm's short form: "gpu[007-010,12],login" is "gpu007"."""
    names = expand(text, "environment of srun")
    if not names:
        raise UsageError(f'"{text:.60}" is not a list of hosts.', where="environment of srun")
    return names[0]


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ[name]
    if not text.isdigit():
        raise UsageError(f'{name} is "{text:.40}", which is not a number.', where="environment")
    return int(text)


def _port(environ: Mapping[str, str]) -> int:
    if environ.get("MASTER_PORT"):
        return _number(environ, "MASTER_PORT")
    # Jobs that share a host must not share a port.
    job = environ.get("SLURM_JOB_ID", "")
    return DEFAULT_PORT + int(job) % 10_000 if job.isdigit() else DEFAULT_PORT
