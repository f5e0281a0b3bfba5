"""What should be set for NCCL on a cluster, and does a log show that it took effect?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.advice import Bundle, Effect, bundle
from syncline.advice import check_effect as look
from syncline.advice.host_names import read_names
from syncline.describe.document import read_text
from syncline.host.root import Root
from syncline.logs.source import Unread
from syncline.questions.answer import Answer, Output, Parameter, question
from syncline.questions.inputs import ClusterArgument, ClusterOption, JobSource, built, job_of


@dataclass(frozen=True)
class Advice(Answer):
    """Variables with their reasons, tuner choices, and the files that start a job with them."""

    schema_name: ClassVar[str] = "nccl"
    content: ClassVar[str] = "bundle"
    outputs: ClassVar[Mapping[str, Output]] = {
        "out": Output("Write the files into this folder.", lambda answer, path: answer.write(path), folder=True)
    }

    bundle: Bundle = field(repr=False)

    def write(self, folder: str | Path) -> list[Path]:
        """Write the files into a folder and return their paths."""
        return list(self.bundle.write(Path(folder)))


@dataclass(frozen=True)
class EffectCheck(Answer):
    """Whether what was set took effect, line by line: yes, no or unknown."""

    schema_name: ClassVar[str] = "nccl-check"

    effects: tuple[Effect, ...]
    unread: tuple[Unread, ...]


@question(
    "syncline nccl h100-64-rail",
    "syncline nccl cluster.yaml job.yaml --out nccl-files/",
    "syncline nccl nd-h100-v5 --host here --out nccl-files/",
    "syncline nccl llama3-24k-roce --ranks 2048 --json",
    help="""Print variables and start files, or write them (--out).

    Files: nccl.env, nccl-topology.xml, job.sbatch, mpijob.yaml, pytorchjob.yaml, topology.conf, topology-labels.yaml
    and kueue-topology.yaml; with --tuner also nccl-tuner.csv (where the model says that NCCL's own choice is poor:
    measure it).
    """,
)
def advise(
    cluster: ClusterArgument,
    job: Annotated[JobSource | None, Parameter("A job file: its ranks and collectives.", kind=str)] = None,
    *,
    nccl: Annotated[str | None, Parameter("NCCL release (default: the cluster's, else 2.27).")] = None,
    ranks: Annotated[
        int | None, Parameter("Ranks of the job (default: all, or the job's).", names=("--ranks", "-n"))
    ] = None,
    tuner: Annotated[bool, Parameter("Also write a tuner file: the model's choices, not measured here.")] = False,
    host: Annotated[
        str | None, Parameter("Names of devices from a host: `here`, or a capture.", metavar="HOST")
    ] = None,
) -> Advice:
    """Say what to set for NCCL on a cluster, each line with its reason.

    What names a device, an interface or a file is read on `host`, which is `here` or a capture of a host (`syncline
    audit capture`); without one those lines are comments to be filled in. `tuner` adds a tuner file: choices of the
    model that nobody has measured there.
    """
    chosen = job_of(job) if job is not None else None
    names = read_names(host_root(host)) if host is not None else None
    return Advice(bundle(built(cluster), chosen, nccl=nccl, ranks=ranks, tuner=tuner, host=names))


def host_root(host: str) -> Root:
    """Return this host, or a captured one."""
    return Root.live() if host == "here" else Root.captured(Path(host))


def read_env(path: Path | None) -> dict[str, str]:
    """Read `export NAME='value'` lines of a file; comments and everything else are left out."""
    found = {}
    for line in read_text(path).splitlines() if path is not None else ():
        name, sign, value = line.strip().removeprefix("export ").partition("=")
        if sign and name.isidentifier() and name.isupper():
            found[name] = value.strip().strip("'\"")
    return found


@question(
    "syncline nccl check nccl.log --cluster h100-64-rail",
    "syncline nccl check logs/ --cluster cluster.yaml --env nccl-files/nccl.env --json",
    help="""Say from a log whether what was set took effect: network, GPUDirect, NICs, rails, NVLS, channels, variables.

    Each line is yes, no or unknown. The exit status is always 0.
    """,
)
def check_effect(
    logs: Annotated[
        Sequence[str | Path],
        Parameter("NCCL logs (NCCL_DEBUG=INFO), folders, or -.", metavar="LOG", kind=list[str]),
    ],
    cluster: ClusterOption,
    *,
    host: Annotated[str | None, Parameter("A host of the job: `here`, or a capture.", metavar="HOST")] = None,
    wanted: Annotated[
        Mapping[str, str] | None,
        Parameter("The nccl.env that was meant to be in use.", names=("--env",), kind=Path, read=read_env),
    ] = None,
) -> EffectCheck:
    """Say from NCCL's logs whether network, GPUDirect, NICs, rails, NVLS, channels and variables are as meant."""
    effects, unread = look(
        [str(log) for log in logs], built(cluster), dict(wanted or {}), read_names(host_root(host)) if host else None
    )
    return EffectCheck(tuple(effects), tuple(unread))


COMMANDS = {"show": advise, "check": check_effect}
UNNAMED = "show"
HELP = "What to set for NCCL on a cluster, each line with its reason, and whether a log shows that it took effect."
EXAMPLES = (
    "syncline nccl h100-64-rail",
    "syncline nccl cluster.yaml job.yaml --nccl 2.27 --out nccl-files/",
    "syncline nccl check nccl.log --cluster cluster.yaml --env nccl-files/nccl.env",
)
