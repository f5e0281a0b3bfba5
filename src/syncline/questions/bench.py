"""What do collectives give on a live cluster, or in a log, beside what its topology should give?"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from syncline.bench.expect import Oracle
from syncline.bench.measured import NAMES
from syncline.bench.nccl_json import document
from syncline.bench.nccl_log import read_log
from syncline.bench.nccl_run import NcclTestRun
from syncline.bench.price import Loss, loss
from syncline.bench.ranks.launched import described, flat, join
from syncline.bench.sizes import between, nccl_size, sizes_of
from syncline.bench.straggler import findings as slow_ranks
from syncline.bench.straggler import stragglers
from syncline.bench.verdict import Judgement, findings, judge, priced
from syncline.codec.names import scheme
from syncline.describe.model import Handle, handle
from syncline.describe.plain import JsonObject
from syncline.errors import SimulationError, UsageError
from syncline.fabric import Fabric, load
from syncline.finding import Finding, worst
from syncline.planning.cost.prices import load_prices
from syncline.planning.cost.renting import gpu_models, rent
from syncline.program import Placement, packed, place
from syncline.questions.answer import Answer, OptionGroup, Output, Parameter, SaidElsewhere, page_output, question
from syncline.questions.simulated.log_ranks import check_gpu
from syncline.questions.within.tournament import (
    BackendOption,
    CheckOption,
    DescribedOption,
    LocalOption,
    SeatOption,
    started_here,
    tournament,
)
from syncline.schedule import FAMILIES
from syncline.sim.flow.routing import NetworkOptions
from syncline.sim.transport import transport_on
from syncline.timeline import Timeline, save
from syncline.version import __version__

if TYPE_CHECKING:
    from syncline.bench.sweep import SweepAnswer, SweepQuestion

EXPOSED = 0.2


@dataclass(frozen=True)
class JudgingQuestion:
    """What is said of a gap, and how it ends."""

    cost: Annotated[bool, Parameter("Price the gap: GPU-hours and dollars a day.", names=("--cost",))] = False
    exposed: Annotated[float, Parameter("With `cost`: share of a step that waits for communication.", rare=True)] = (
        EXPOSED
    )
    gpu_hour: Annotated[float | None, Parameter("With `cost`: dollars a GPU-hour (or a cloud's).")] = None
    check: CheckOption = False

    def price(self, cluster: str | None) -> tuple[float | None, str]:
        """Return dollars a GPU-hour: as given, or what the cheapest cloud asks for this cluster's GPUs."""
        if self.gpu_hour is not None:
            if not 0 < self.gpu_hour < inf:
                raise UsageError(f"a GPU-hour cannot cost {self.gpu_hour:g} dollars.", hint="Set `gpu_hour` to 2.5.")
            return self.gpu_hour, "as given"
        if cluster is None:
            return None, "no cluster and no price of a GPU-hour was given"
        models = gpu_models(load(cluster))
        quotes = rent(models, load_prices())
        if not quotes:
            return None, f"no cloud rents {' and '.join(models)}; give a GPU-hour's price"
        return quotes[0].usd_per_gpu_hour, quotes[0].label

    def judged(
        self, rows: Sequence[Judgement], num_ranks: int, cluster: str | None, found: Sequence[Finding]
    ) -> tuple[tuple[Finding, ...], Loss | None]:
        """Return the findings, with what the gap costs where that is asked for."""
        if not self.cost:
            return tuple(found), None
        lost = loss(rows, num_ranks, self.exposed, *self.price(cluster))
        usd = None if lost is None else lost.usd_per_day
        return tuple(found if usd is None else priced(found, usd)), lost


JudgingArgument = Annotated[JudgingQuestion | None, OptionGroup(JudgingQuestion)]


@dataclass(frozen=True, eq=False)
class BenchAnswer(Answer):
    """Collectives by size, measured beside what this topology should give, with findings; JSON as nccl-tests has it."""

    schema_name: ClassVar[str] = "bench"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write a page: measured and predicted, findings.")

    rows: tuple[Judgement, ...]
    cluster: str | None
    ranks: int
    library: str
    hosts: int
    unpredicted: dict[str, str]
    findings: tuple[Finding, ...]
    loss: Loss | None
    judging: JudgingQuestion
    notes: tuple[str, ...] = ()
    more: JsonObject | None = None
    """What else the JSON has: of the log, or of how the sweep ran."""
    last: Handle[Timeline | None] = handle()

    @property
    def exit_status(self) -> int:
        return int(worst(list(self.findings))) if self.judging.check else 0

    def to_json(self) -> JsonObject:
        told = document(list(self.rows), [], f"syncline {__version__}")
        told |= {"cluster": self.cluster, "ranks": self.ranks, "library": self.library}
        told |= {"unpredicted": dict(self.unpredicted), "hosts": self.hosts, **(self.more or {})}
        told |= {"cost": self.loss.to_json() if self.loss else None} if self.judging.cost else {}
        return told | {"findings": [finding.to_json() for finding in self.findings]}


@dataclass(frozen=True, eq=False)
class MeasuredBench(BenchAnswer):
    """The same, measured here."""

    outputs: ClassVar[Mapping[str, Output]] = {
        **BenchAnswer.outputs,
        "trace": Output(
            "Write the last repetition's timeline (.json, .parquet).", lambda answer, path: save(answer.timeline, path)
        ),
    }

    @property
    def timeline(self) -> Timeline:
        """What every rank did in the last repetition."""
        if self.last is None:
            raise UsageError("the backend's own algorithm leaves no timeline.",
                             hint="Name a family too: `algorithm` vendor,ring.")  # fmt: skip
        return self.last


@question(
    "syncline bench --read all_reduce_perf.log --cluster h100-64-rail --cost",
    line="Judge a log of nccl-tests or rccl-tests (`syncline bench --read LOG`).",
)
def log(
    *,
    read: Annotated[Path | None, Parameter("The log, as text or JSON.", metavar="LOG")] = None,
    cluster: DescribedOption = None,
    collective: Annotated[str | None, Parameter("The collective, where the log does not say it.")] = None,
    ranks: Annotated[int | None, Parameter("The ranks, where the log does not say them.")] = None,
    judging: JudgingArgument = None,
) -> BenchAnswer:
    """Judge a log of nccl-tests or rccl-tests: what was measured beside what this topology should give."""
    if read is None:
        raise UsageError("say what to measure, or give a log with `read`.", hint="Try: syncline bench --help")
    if collective is not None and collective not in NAMES:
        raise UsageError(f'no collective is called "{collective}".', hint=f"One of: {', '.join(NAMES)}.")
    asked = judging or JudgingQuestion()
    ran = read_log(read, kind=NAMES[collective] if collective else None, num_ranks=ranks or 0)
    if cluster is not None:
        check_gpu(ran, load(cluster))
    rows, note = _judge_log(ran, cluster)
    found, lost = asked.judged(rows, ran.num_ranks, cluster, findings(rows))
    devices: list[JsonObject] = [{"rank": d.rank, "hostname": d.host, "device_info": d.name} for d in ran.devices]
    return BenchAnswer(
        tuple(rows), cluster, ran.num_ranks, ran.library, ran.num_hosts, {"vendor": note} if note else {}, found, lost,
        asked, tuple(ran.notes),
        {"log": str(read), "version": ran.version, "notes": list(ran.notes), "devices": devices},
    )  # fmt: skip


def _judge_log(log: NcclTestRun, cluster: str | None) -> tuple[list[Judgement], str]:
    inside = {row.size_bytes: row.timing.median_s for row in log.rows if row.in_place}
    outside = [replace(row, other_s=inside.get(row.size_bytes)) for row in log.rows if not row.in_place]
    rows = outside or list(log.rows)
    if cluster is None:
        return [judge(row, None) for row in rows], "no cluster was given (--cluster), so nothing is predicted"
    fabric = load(cluster)
    if log.num_ranks > fabric.num_gpus:
        raise UsageError(
            f"the log has {log.num_ranks} ranks, {cluster} only {fabric.num_gpus} GPUs.",
            hint="Give the cluster that the log was taken on as `cluster`, or none to read the log alone.",
        )
    oracle = Oracle(fabric, packed(fabric, log.num_ranks))
    try:
        expected = oracle.nccl(log.kind, [row.size_bytes for row in rows], num_ranks=log.num_ranks)
    except SimulationError as error:
        return [judge(row, None) for row in rows], error.message
    named = [replace(one, link=_as_in_log(one.link, log, fabric)) for one in expected]
    return [judge(row, one) for row, one in zip(rows, named, strict=True)], ""


def _as_in_log(link: str, log: NcclTestRun, fabric: Fabric) -> str:
    """Return a link by the names of the log's hosts, which stand for the cluster's in the order of their ranks."""
    theirs = dict.fromkeys(device.host for device in log.devices if device.host)
    names = dict(zip(fabric.host_names, theirs, strict=False))
    ends = [end.split("/") for end in link.split(" -> ")]
    return " -> ".join("/".join([names.get(end[0], end[0]), *end[1:]]) for end in ends)


@question(
    "syncline bench {0} --local 4 --size 64KiB..4MiB --algorithm vendor,direct",
    "mpirun -n 8 syncline bench {0} --cluster cluster.yaml -b 1K -e 1G -f 4 --json",
    help="Measure this collective by algorithm and size, under torchrun, srun, mpirun or --local N.",
    line="Measure {0}.",
)
def measure(
    collective: str,
    *,
    cluster: DescribedOption = None,
    size: Annotated[
        str, Parameter("Sizes: one, several with commas, or a range that doubles (1KiB..1GiB).")
    ] = "1KiB..16MiB",
    begin: Annotated[str | None, Parameter("Smallest size, as nccl-tests writes it (8, 32M).", names=("-b",))] = None,
    end: Annotated[str | None, Parameter("Largest size, as nccl-tests writes it.", names=("-e",))] = None,
    factor: Annotated[
        int | None, Parameter("Each size is this many times the last (default 2).", names=("-f",))
    ] = None,
    step: Annotated[str | None, Parameter("Each size is this many bytes more than the last.", names=("-i",))] = None,
    algorithm: Annotated[
        str, Parameter("vendor (the backend's own), families; by commas.", names=("--algorithm", "-a"))
    ] = "vendor",
    dtype: Annotated[
        str,
        Parameter("float, double, half, bfloat16, int32, int64 or uint8.", names=("--dtype", "-d"), rare=True),
    ] = "float",
    codec: Annotated[str, Parameter("The codec in which families send: raw, int8, bf16 ...")] = "raw",
    backend: BackendOption = None,
    warm_up: Annotated[
        int, Parameter("Repetitions that do not count.", names=("--warm-up", "-w"), min=0, rare=True)
    ] = 2,
    repeats: Annotated[int, Parameter("Repetitions that count.", names=("--repeats", "-n"), min=1)] = 10,
    budget: Annotated[float, Parameter("Seconds for one size; fewer repetitions past it.", min=0, rare=True)] = 20.0,
    local: LocalOption = None,
    placement: SeatOption = None,
    routing: Annotated[str, Parameter("How the fabric routes: ecmp, adaptive, spray or static.", rare=True)] = "auto",
    transport: Annotated[
        str | None, Parameter("rdma, efa, tcp or ideal (default: tcp, on nccl rdma).", rare=True)
    ] = None,
    judging: JudgingArgument = None,
    tell: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
) -> MeasuredBench | SaidElsewhere:
    """Measure a collective by algorithm and size on the ranks that were launched together."""
    kind, asked = NAMES[collective], judging or JudgingQuestion()
    if begin or end:
        low, high = nccl_size(begin or end or ""), nccl_size(end or begin or "")
        sizes = between(low, high, factor=factor or 0, step=nccl_size(step) if step else 0)
    else:
        sizes = sizes_of(size, factor=factor or 0, step=step or "")
    names = _algorithms(algorithm, codec)
    if (elsewhere := started_here(local, warn)) is not None:
        return elsewhere
    from syncline.bench.sweep import SweepQuestion, sweep
    from syncline.runtime.execute.executor import Executor
    from syncline.runtime.execute.trial import elements

    elements(min(sizes), dtype)
    question = SweepQuestion(kind, names, tuple(sizes), dtype, codec, warm_up, repeats, budget)
    with join(backend) as group:
        placed, oracle = _oracle(cluster, placement, group.size, group.backend, routing, transport)
        with Executor(group) as executor:
            found = sweep(executor, question, placed, oracle, tell=tell if group.rank == 0 else lambda text: None)
        hosts = group.texts(os.uname().nodename)
        first, library = group.rank == 0, group.backend
    return _measured(question, found, cluster, placed, hosts, library, asked) if first else SaidElsewhere(0)


def _measured(
    question: SweepQuestion, found: SweepAnswer, cluster: str | None, placed: Placement, hosts: list[str], backend: str,
    asked: JudgingQuestion,
) -> MeasuredBench:  # fmt: skip
    slow = slow_ranks(stragglers(found.work_s, least_s=1e-3), hosts, "its own work (packing, adding, coding)")
    late = slow_ranks(stragglers(found.late_s, least_s=5e-3), hosts, "its delay at the common start")
    named = [*findings(found.rows, found.blamed), *slow, *late]
    devices: list[JsonObject] = [{"rank": rank, "hostname": host} for rank, host in enumerate(hosts)]
    return MeasuredBench(
        found.rows, cluster, placed.num_ranks, backend, len(set(hosts)), found.unpredicted,
        *asked.judged(found.rows, placed.num_ranks, cluster, named), asked,
        more={"devices": devices, "backend": backend, "codec": question.codec, "placement": placed.name,
              "warm_up": question.warm_up},
        last=found.last,
    )  # fmt: skip


def _algorithms(text: str, codec: str) -> tuple[str, ...]:
    """Return the algorithms by name, and refuse what no rank will know."""
    known = ("vendor", *FAMILIES, "rail-rings", "hierarchical-halving")
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None or not names:
        raise UsageError(f'no algorithm is called "{unknown or text}".', hint=f"One of: {', '.join(known)}.")
    if codec != "raw":
        scheme(codec)
    return names


def _oracle(
    cluster: str | None, placement: str | None, num_ranks: int, backend: str, routing: str, transport: str | None
) -> tuple[Placement, Oracle | None]:
    if cluster is None:
        return place("packed", flat(num_ranks), num_ranks), None
    fabric = described(cluster)
    placed = place(placement or ("spread" if num_ranks <= fabric.num_hosts else "packed"), fabric, num_ranks)
    carrier = transport_on(transport or ("auto" if backend == "nccl" else "tcp"), fabric)
    options = NetworkOptions(routing=routing, transport=carrier)  # type: ignore[arg-type]
    return placed, Oracle(fabric, placed, options)


COLLECTIVES = (
    "allreduce", "allgather", "reducescatter", "broadcast", "reduce", "alltoall", "gather", "scatter", "sendrecv",
)  # fmt: skip
COMMANDS = {
    "log": log,
    **{name: partial(measure, collective=name) for name in COLLECTIVES},
    "tournament": tournament,
}
UNNAMED = "log"
HELP = "Measure collectives and links on a live cluster, beside what its topology should give."
EXAMPLES = (
    "syncline bench allreduce --local 4 --size 1KiB..1MiB --algorithm vendor,ring",
    "torchrun --nproc-per-node 8 ... -m syncline bench allreduce --cluster cluster.yaml",
    "mpirun -n 8 syncline bench alltoall --cluster cluster.yaml -b 8 -e 128M -f 2",
    "syncline bench --read all_reduce_perf.log --cluster h100-64-rail --cost",
    "syncline bench tournament --cluster cluster.yaml",
)
