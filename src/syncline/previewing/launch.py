"""The command that starts a training job: which script, how many ranks, how many on a host.

launch = read_launch(["torchrun", "--nnodes", "4", "--nproc-per-node=8", "train.py", "--lr", "1"], gpus_per_host=8)
launch.world, launch.per_host, launch.script, launch.args      # 32, 8, "train.py", ("--lr", "1")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from syncline.errors import UsageError
from syncline.fabric.fabric import Fabric
from syncline.host.launcher import torchrun_environment

TORCHRUN_FLAGS = {"--standalone", "--no-python", "--module", "-m", "--run-path", "--use-env"}
DEEPSPEED_FLAGS = {
    "--module", "--no_python", "--no_local_rank", "--no_ssh_check", "--force_multi", "--save_pid",
    "--enable_each_rank_log",
}  # fmt: skip
ACCELERATE_FLAGS = {
    "--cpu", "--multi_gpu", "--tpu", "--use_mps_device", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm",
    "--quiet", "-q", "--same_network", "--module", "-m", "--no_python", "--debug", "--use_xpu",
}  # fmt: skip
MPI_FLAGS = {
    "--allow-run-as-root", "--oversubscribe", "--tag-output", "--report-bindings", "--display-map", "--bind-to-core",
    "-q", "--quiet", "-v", "--verbose",
}  # fmt: skip
SHORT = {"-N": "nodes", "-n": "ntasks", "-np": "ntasks", "-m": "module"}
#: Of mpirun: `-N` counts ranks a host, and `--mca NAME VALUE` has two words.
MPI_SHORT = {**SHORT, "-N": "ntasks-per-node", "--npernode": "ntasks-per-node", "-npernode": "ntasks-per-node"}
MPI_PAIRS = ("--mca", "-mca", "--prtemca", "--pmixmca")


@dataclass(frozen=True)
class ScriptLaunch:
    """A script and the world it is started in."""

    launcher: str
    script: str
    args: tuple[str, ...]
    world: int
    per_host: int
    module: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    gpus: int = 0  # that a host has, whether or not every one of them has a rank

    @property
    def visible_gpus(self) -> int:
        """Return how many GPUs a process sees: a host's, or those that CUDA_VISIBLE_DEVICES names."""
        named = self.environment.get("CUDA_VISIBLE_DEVICES")
        return max(self.gpus, self.per_host) if named is None else len([each for each in named.split(",") if each])

    def of_rank(self, rank: int) -> dict[str, str]:
        """Return the variables that the launcher would set for a rank."""
        local, host = rank % self.per_host, rank // self.per_host
        hosts = -(-self.world // self.per_host)
        own = torchrun_environment(rank, self.world, local, self.per_host, host, hosts, "preview")
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        if self.launcher == "python":  # the script starts its ranks itself
            own = {name: value for name, value in own.items() if not name.startswith("TORCHELASTIC_")}
        if self.launcher == "srun":
            own |= {"SLURM_PROCID": rank, "SLURM_NTASKS": self.world, "SLURM_LOCALID": local, "SLURM_NODEID": host}
        if self.launcher in ("mpirun", "mpiexec"):
            own |= {
                "OMPI_COMM_WORLD_RANK": rank,
                "OMPI_COMM_WORLD_SIZE": self.world,
                "OMPI_COMM_WORLD_LOCAL_RANK": local,
            }
        return {name: str(value) for name, value in own.items()} | self.environment

    def resized(self, world: int) -> ScriptLaunch:
        """Return the same script in a world of another size; where one rank was, ranks fill their hosts."""
        per_host = max(self.gpus, 1) if self.launcher == "python" or self.world == 1 else self.per_host
        return replace(self, world=world, per_host=min(per_host, world))

    def moved(self, gpus_per_host: int) -> ScriptLaunch:
        """Return the same world on other hosts: ranks that filled theirs fill these."""
        per_host = gpus_per_host if self.per_host >= self.gpus else min(self.per_host, gpus_per_host)
        return replace(self, gpus=gpus_per_host, per_host=min(per_host, self.world))

    def seats(self, room: Sequence[int], cluster: str) -> npt.NDArray[np.int64]:
        """Return each rank's place among the GPUs of all hosts: `per_host` on every host that has room for them."""
        rank, sizes = np.arange(self.world), np.array(room, dtype=np.int64)
        able = np.flatnonzero(sizes >= self.per_host)
        if rank[-1] // self.per_host < len(able):
            return np.asarray((np.cumsum(sizes) - sizes)[able[rank // self.per_host]] + rank % self.per_host)
        raise UsageError(
            f"the command starts {self.world:,} ranks, {self.per_host:,} a host, but {cluster} has {len(able):,} hosts "
            f"with room for {self.per_host:,}.",
            hint=f"A host there has room for {sizes.max(initial=0):,}: start fewer ranks, or name a larger cluster.",
        )

    def devices(self, fabric: Fabric, dies: int = 1) -> npt.NDArray[np.int64]:
        """Return the GPU of each rank; a GPU of several dies runs a rank on each."""
        seats = self.seats((np.bincount(fabric.gpu_host) * max(dies, 1)).tolist(), fabric.name)
        return fabric.gpus.astype(np.int64)[seats // max(dies, 1)]


def read_launch(command: Sequence[str], gpus_per_host: int, world: int = 0) -> ScriptLaunch:
    """Return what a command line starts; `world` overrides its number of ranks."""
    words = list(command)
    environment: dict[str, str] = {}
    while words and "=" in words[0] and not words[0].startswith("-") and "/" not in words[0].split("=")[0]:
        name, value = words.pop(0).split("=", 1)
        environment[name] = value
    if not words:
        raise UsageError(
            "no training command was given.",
            hint="Put it after `--`: syncline preview CLUSTER -- torchrun ... train.py",
        )
    found = _read(words, gpus_per_host)
    found = replace(found, environment={**environment, **found.environment}, gpus=gpus_per_host)
    found = found.resized(world) if world else found
    if not found.module and not Path(found.script).is_file():
        raise UsageError(f'there is no script "{found.script}" here.', hint=f"Paths are relative to {os.getcwd()}.")
    return found


def _read(words: list[str], gpus_per_host: int) -> ScriptLaunch:
    name = Path(words[0]).name
    if name == "torchrun" or words[1:3] in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"]):
        return _torchrun(words[1 if name == "torchrun" else 3 :], gpus_per_host)
    if name == "accelerate" and words[1:2] == ["launch"]:
        return _accelerate(words[2:], gpus_per_host)
    if name == "deepspeed":
        return _deepspeed(words[1:], gpus_per_host)
    if name in ("srun", "mpirun", "mpiexec"):
        return _tasks(name, words[1:], gpus_per_host)
    if name.startswith("python"):
        rest = [word for word in words[1:] if word not in ("-u", "-O", "-B")]
        module = rest[:1] == ["-m"]
        rest = rest[1:] if module else rest
        if not rest:
            raise UsageError("python is started without a script.", hint="Give it one: -- python train.py")
        return ScriptLaunch("python", rest[0], tuple(rest[1:]), 1, 1, module)
    if name.endswith(".py"):
        return ScriptLaunch("python", words[0], tuple(words[1:]), 1, 1)
    raise UsageError(
        f'"{words[0]}" is not a launcher that syncline knows.',
        hint="Known: torchrun, python -m torch.distributed.run, accelerate launch, deepspeed, srun, mpirun, python.",
    )


def _options(words: list[str], flags: set[str], launcher: str) -> tuple[dict[str, str], list[str]]:
    """Return a launcher's own options and what follows them: the script and its arguments."""
    found: dict[str, str] = {}
    rest: Iterator[str] = iter(words)
    known = {flag.replace("_", "-") for flag in flags}
    short = MPI_SHORT if launcher.startswith("mpi") else SHORT
    for word in rest:
        if not word.startswith("-"):
            return found, [word, *rest]
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        key = short.get(option, option.lstrip("-"))
        if equals:
            found[key] = value
        elif option in known:
            found[key] = "1"
        elif short is MPI_SHORT and option in MPI_PAIRS:
            found[f"{key} {next(rest, '')}"] = next(rest, "")
        elif launcher == "srun" and len(option) > 2 and option[:2] in SHORT and option[1] != "-":
            found[SHORT[option[:2]]] = option[2:]
        else:
            found[key] = next(rest, "")
    raise UsageError(f"{launcher} is given no script.", hint="Put the script after the launcher's own options.")


def _count(text: str, what: str) -> int:
    try:
        number = int(text.split(":")[-1])
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f'{what} must be a number from 1, got "{text}".', hint="Give the launcher a number.")
    return number


def _torchrun(words: list[str], gpus_per_host: int) -> ScriptLaunch:
    options, rest = _options(words, TORCHRUN_FLAGS, "torchrun")
    each = options.get("nproc-per-node", "1")
    per_host = gpus_per_host if each in ("gpu", "auto") else _count(each, "--nproc-per-node")
    hosts = _count(options.get("nnodes", "1"), "--nnodes")
    return ScriptLaunch("torchrun", rest[0], tuple(rest[1:]), hosts * per_host, per_host, "module" in options)


def _accelerate(words: list[str], gpus_per_host: int) -> ScriptLaunch:
    options, rest = _options(words, ACCELERATE_FLAGS, "accelerate launch")
    config: dict[str, object] = {}
    if "config-file" in options:
        config = _config(Path(options["config-file"]))
    world = _count(options.get("num-processes", str(config.get("num_processes", gpus_per_host))), "--num_processes")
    hosts = _count(options.get("num-machines", str(config.get("num_machines", 1))), "--num_machines")
    if world % hosts:
        text = f"--num_processes {world} counts all ranks, and is no multiple of --num_machines {hosts}."
        raise UsageError(text, hint=f"{-(-world // hosts) * hosts} works.")
    precision = options.get("mixed-precision", str(config.get("mixed_precision", "")))
    environment = {"ACCELERATE_MIXED_PRECISION": precision} if precision not in ("", "no") else {}
    if "cpu" in options or config.get("use_cpu"):
        environment["ACCELERATE_USE_CPU"] = "true"
    return ScriptLaunch("accelerate", rest[0], tuple(rest[1:]), world, world // hosts, "module" in options, environment)


def _config(path: Path) -> dict[str, object]:
    """Return the settings of an accelerate configuration file."""
    import yaml

    from syncline.describe.document import read_text

    loaded = yaml.safe_load(read_text(path))
    return dict(loaded) if isinstance(loaded, dict) else {}


def _deepspeed(words: list[str], gpus_per_host: int) -> ScriptLaunch:
    options, rest = _options(words, DEEPSPEED_FLAGS, "deepspeed")
    slots = _slots(options, gpus_per_host)
    per_host = _count(options["num-gpus"], "--num_gpus") if "num-gpus" in options else max(slots.values())
    hosts = _count(options["num-nodes"], "--num_nodes") if "num-nodes" in options else len(slots)
    if "num-gpus" not in options and len(set(slots.values())) > 1:
        text = f"--hostfile and --include give hosts between {min(slots.values())} and {per_host} GPUs."
        raise UsageError(text, hint="A preview has as many ranks on every host: name as many GPUs of each.")
    return ScriptLaunch("deepspeed", rest[0], tuple(rest[1:]), hosts * per_host, per_host, "module" in options)


def _slots(options: dict[str, str], gpus_per_host: int) -> dict[str, int]:
    """Return the hosts that DeepSpeed's launcher uses, with the GPUs of each: those of the file, then the named."""
    found = {"localhost": gpus_per_host}
    if path := options.get("hostfile"):
        from syncline.describe.document import read_text

        rows = [line.split("#")[0].split() for line in read_text(Path(path)).splitlines()]
        found = {row[0]: _count(row[1].removeprefix("slots="), f"slots of {row[0]}") for row in rows if len(row) > 1}
        if not found:
            raise UsageError(f"{path} names no host.", hint="Each line is a host and its GPUs: worker-1 slots=8")
    for option in ("include", "exclude"):
        named = [part.partition(":") for part in options.get(option, "").split("@") if part]
        counts = {host: len(gpus.split(",")) if gpus else 0 for host, _, gpus in named}
        if option == "include" and counts:
            found = {host: count or found.get(host, gpus_per_host) for host, count in counts.items()}
        elif counts:
            left = {host: slots - (counts.get(host, 0) or slots * (host in counts)) for host, slots in found.items()}
            found = {host: slots for host, slots in left.items() if slots > 0}
    if not found:
        raise UsageError("--exclude leaves no GPU.", hint="Leave out fewer hosts.")
    return found


def _tasks(name: str, words: list[str], gpus_per_host: int) -> ScriptLaunch:
    options, rest = _options(words, set() if name == "srun" else MPI_FLAGS, name)
    hosts = _count(options.get("nodes", "1"), "--nodes")
    if options.get("map-by", "").startswith("ppr:"):  # ppr:8:node
        options["ntasks-per-node"] = options["map-by"].split(":")[1]
    per_host = _count(options["ntasks-per-node"], "--ntasks-per-node") if "ntasks-per-node" in options else 0
    tasks = _count(options["ntasks"], "--ntasks") if "ntasks" in options else hosts * (per_host or 1)
    inner = _read(rest, gpus_per_host)
    if inner.launcher == "torchrun":  # one launcher a host
        return replace(inner, world=max(inner.world, hosts * inner.per_host))
    full = -(-tasks // hosts) if "nodes" in options else per_host or gpus_per_host
    return replace(inner, launcher=name, world=tasks, per_host=min(full, tasks))
