"""Everything for one cluster together: variables, topology XML, tuner file, Slurm and Kubernetes files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.advice import snippet
from syncline.advice.host_names import HostNames
from syncline.advice.setting import Setting, cloud_profile, nccl_system, recommend
from syncline.advice.tuning import KeptChoice, TunerRow, judge, tuner_csv, why_no_tuner
from syncline.describe.files import make_folder, write_text
from syncline.describe.model import Handle, reported
from syncline.errors import SynclineError, UsageError
from syncline.fabric import Fabric
from syncline.fabric.bill import model_of_host
from syncline.fabric.catalog import load_catalog
from syncline.fabric.formats import export_text
from syncline.sim.nccl.belief import CHOSEN_OPS
from syncline.workload.job import Job
from syncline.workload.volumes import volumes

RDMA = ("infiniband", "roce")


@dataclass(frozen=True)
class Bundle:
    """What to set and the files that say so; `skipped` are files that this cluster cannot have, with the reason."""

    cluster: str
    nccl: str
    num_hosts: int
    gpus_per_host: int
    collectives: tuple[str, ...]
    settings: tuple[Setting, ...]
    tuner: tuple[TunerRow, ...]
    kept: Handle[tuple[KeptChoice, ...]]
    files: Mapping[str, str]
    skipped: Mapping[str, str]
    assumed: tuple[str, ...]

    def write(self, folder: Path) -> list[Path]:
        """Write all files into a folder, made if need be, and return their paths."""
        make_folder(folder)
        for name, text in self.files.items():
            write_text(folder / name, text)
        return [folder / name for name in self.files]

    @reported
    def tuner_kept(self) -> tuple[str, ...]:
        """Why ranges of sizes are left to NCCL's own choice."""
        return tuple(choice.reason for choice in self.kept)


def bundle(
    fabric: Fabric, job: Job | None = None, *, nccl: str | None = None, ranks: int | None = None, tuner: bool = False,
    host: HostNames | None = None,
) -> Bundle:  # fmt: skip
    """Return what to set for NCCL on this cluster, for this job if one is given, with the names of a `host`.

    `tuner` asks for a tuner file too: what it says is a model's word that nobody has measured here, so it is never
    the default.
    """
    if model_of_host(fabric, 0, load_catalog().with_parts(fabric.spec.parts)).gpu.lower().startswith("tpu"):
        raise UsageError(f"{fabric.name} has TPUs, which do not run NCCL.", hint="Name a cluster of GPUs.")
    if ranks is not None and not 1 <= ranks <= fabric.num_gpus:
        raise UsageError(f"{fabric.name} has {fabric.num_gpus:,} GPUs and cannot run {ranks:,} ranks.",
                         hint=f"Give 1 to {fabric.num_gpus:,} ranks.")  # fmt: skip
    job = job.on(fabric.num_gpus) if job else None
    if job is not None:
        ranks = job.parallel.model_ranks * (job.parallel.dp or 1)
    nccl = nccl or (host.nccl if host else None) or None
    per_host = max(1, fabric.num_gpus // fabric.num_hosts)
    system = nccl_system(fabric, nccl, ranks)
    hosts = system.num_hosts
    gpus = min(per_host, ranks) if ranks else per_host
    ops = _ops(job)
    tuning = judge(fabric, ops=ops, nccl=nccl, ranks=ranks)
    tuned = tuner and bool(tuning.rows)
    settings = recommend(fabric, nccl=nccl, ranks=ranks, tuned=tuned, host=host)
    cloud = cloud_profile(fabric, system)
    rdma = system.network in RDMA
    files = {
        "nccl.env": snippet.env_file(settings, cloud),
        "job.sbatch": snippet.slurm(fabric, hosts, gpus),
        "mpijob.yaml": snippet.mpi_job(fabric, settings, hosts, gpus, nics=system.num_nics, rdma=rdma, cloud=cloud),
        "pytorchjob.yaml": snippet.torch_job(
            fabric, settings, hosts, gpus, nics=system.num_nics, rdma=rdma, cloud=cloud
        ),
        "kueue-topology.yaml": snippet.kueue_topology(fabric),
    }
    skipped: dict[str, str] = {}
    makers: dict[str, Callable[[], str]] = {
        "topology.conf": lambda: export_text(fabric, "slurm-conf"),
        "topology-labels.yaml": lambda: export_text(fabric, "topograph"),
    }
    for name, make in makers.items():
        try:
            files[name] = make()
        except SynclineError as error:
            skipped[name] = error.message
    if host is not None and host.topology:
        files["nccl-topology.xml"] = host.topology + "\n"
    else:
        skipped["nccl-topology.xml"] = (
            "bus ids are a host's own: --host here (or a capture) writes it from the PCI tree, "
            "NCCL_TOPO_DUMP_FILE from a run"
        )
    if tuned:
        files["nccl-tuner.csv"] = tuner_csv(tuning, fabric)
    elif tuning.rows:
        skipped["nccl-tuner.csv"] = f"{len(tuning.rows)} choices of the model, not measured here; --tuner writes them"
    else:
        skipped["nccl-tuner.csv"] = why_no_tuner(system) or f"NCCL chooses well at every size of {', '.join(ops)}"
    return Bundle(fabric.name, f"{system.nccl[0]}.{system.nccl[1]}", hosts, gpus, ops, settings,
                  tuning.rows if tuned else (),
                  tuning.kept, files, skipped, system.assumed)  # fmt: skip


def _ops(job: Job | None) -> tuple[str, ...]:
    """Return the collectives a job uses, as the NCCL model names them."""
    if job is None:
        return CHOSEN_OPS
    named = " ".join(volume.collective for volume in volumes(job)).replace("-", "_").lower()
    return tuple(op for op in ("all_reduce", "all_gather", "reduce_scatter") if op in named) or ("all_reduce",)


def settings_table(settings: Sequence[Setting]) -> list[str]:
    """Return the settings for people to read."""
    lines = []
    for setting in settings:
        note = "   (optional)" if setting.optional else "   (fill in: no host was read)" if setting.open else ""
        lines.append(f"{setting.line}{note}")
        lines.append(f"    why: {setting.reason}")
        lines.append(f"    expected: {setting.changes}")
        lines += [f"    read: {setting.seen}"] if setting.seen else []
    return lines
