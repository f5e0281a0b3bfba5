"""What would this training script do on that cluster: run as it is, on a CPU, as one rank of its world?"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe import units
from syncline.describe.files import write_text
from syncline.describe.model import Handle, handle
from syncline.fabric import Fabric
from syncline.previewing import cpus
from syncline.previewing.account import account_of_run
from syncline.previewing.beside import BesideStep, SeenStep, beside_step
from syncline.previewing.child import OtherWorldError, time_kernels
from syncline.previewing.execute import IGNORES, GraphRun, NetworkUse
from syncline.previewing.export import save_chakra, timeline_of
from syncline.previewing.exposed import CollectiveUse, collectives, exposed_s, talking
from syncline.previewing.graph import StepGraph
from syncline.previewing.holders import PeakMemory
from syncline.previewing.job_of import CapturedJob, job_of, reaching
from syncline.previewing.launch import ScriptLaunch, read_launch
from syncline.previewing.measured import GpuKernelTimes, read_kernel_times
from syncline.previewing.price import pricer_of
from syncline.previewing.ranks import Runner
from syncline.previewing.record import Capture, read_captures
from syncline.previewing.same import differences
from syncline.previewing.suggest import Suggestion
from syncline.previewing.suggest import suggest as suggestions_of
from syncline.previewing.what_if import DEFAULT, Alternative, WhatIfSetting
from syncline.questions.answer import Answer, Output, Parameter, page_output, question
from syncline.questions.inputs import ClusterArgument, built
from syncline.sim.flow.routing import Routing
from syncline.sim.profile import load_profile
from syncline.sim.step.machine import machine_from_fabric
from syncline.sim.step.step import step as price_step
from syncline.sim.uncertainty import Interval, Spread, generation_of, preview_spread
from syncline.timeline import Timeline, save
from syncline.timeline.account import Account, StepCause
from syncline.workload.graph import save_workload
from syncline.workload.read_job import load_job

CONVOLVED = 0.1  # of the time of kernels from which on convolutions decide how far off it may be
HOST_WORDS = "the host launches small kernels, and one kind of host was measured"
PACKED = "the launcher leaves GPUs of its hosts without a rank; `step` and `plan` fill one host after the other"
OWN_WORDS = "the host launches small kernels, and its own steps differed so much"


@dataclass(frozen=True)
class PreviewedModel:
    """The model that a script builds."""

    name: str
    parameters: int
    layers: int
    """Of its longest list of modules."""
    dtypes: tuple[str, ...]


@dataclass(frozen=True)
class MeasuredKernels:
    """Where kernels were timed, and how many of a step's; an empty device where none were."""

    device: str
    gpu: str
    torch: str
    kernels: int
    host_s: float
    """What the script's own host does in a step, on that machine; 0 where it was not timed."""
    scaled: bool
    not_timed: dict[str, str]


@dataclass(frozen=True)
class UnpricedKernel:
    """A kernel that the price list does not know: its time is guessed by its bytes."""

    name: str
    calls: int
    guessed_s: float


@dataclass(frozen=True)
class StandIn:
    """A value that the script reads and that does not exist without a GPU."""

    what: str
    value: str
    line: str
    times: int


@dataclass(frozen=True)
class PreviewReport:
    """What a preview says: its fields are the JSON."""

    cluster: str
    script: str
    launcher: str
    ranks: int
    ranks_per_host: int
    model: PreviewedModel | None
    optimizer: str
    torch: str
    captured_ranks: tuple[int, ...]
    checked_ranks: tuple[int, ...]
    differences: tuple[str, ...]
    steps: int
    operations: int
    """Kernels of one step on the first rank."""
    step_time_s: float
    interval_s: tuple[float, float]
    interval: Interval
    flops_per_rank: float
    account: Account
    """Where the step goes on the rank that waits most for the network."""
    exposed_s: float
    kernels_s: dict[str, float]
    measured: MeasuredKernels
    collectives: tuple[CollectiveUse, ...]
    memory: PeakMemory
    what_if: tuple[Alternative, ...]
    suggested: tuple[Suggestion, ...]
    """What saves time, best first; empty where it was not asked for."""
    beside_step: BesideStep | None
    """`step` of the job file, where that was asked for."""
    unpriced: tuple[UnpricedKernel, ...]
    stand_ins: tuple[StandIn, ...]
    notes: tuple[str, ...]
    ignores: tuple[str, ...] = IGNORES


@dataclass(frozen=True)
class PreviewAnswer(Answer):
    """A step of a script on a cluster: its time, what waits, what fills the memory, and what would change it."""

    schema_name: ClassVar[str] = "preview"
    outputs: ClassVar[Mapping[str, Output]] = {
        "trace": Output(
            "Write the timeline (.json or .json.gz for Perfetto, .parquet).",
            lambda answer, path: save(answer.timeline, path),
        ),
        "workload": Output(
            "Write the step's graph, which `syncline.workload` reads.",
            lambda answer, path: save_workload(answer.graph.workload, path),
        ),
        "job": Output(
            "Write the job file (shape, split, batch); say how `step` of it differs.",
            lambda answer, path: write_text(path, answer.job.to_yaml(answer.launch.script)),
            sets="beside",
        ),
        "chakra": Output(
            "Write Chakra execution traces of the step into this folder.",
            lambda answer, path: save_chakra(answer.graph, path) and None,
            folder=True,
        ),
        **page_output("Write a page: two steps of every captured rank, and all numbers."),
    }

    content: ClassVar[str] = "report"

    report: PreviewReport = field(init=False)
    fabric: Handle[Fabric] = handle()
    launch: Handle[ScriptLaunch] = handle()
    captures: Handle[tuple[Capture, ...]] = handle()
    executed: Handle[GraphRun] = handle()
    collectives: Handle[tuple[CollectiveUse, ...]] = handle()
    memory: Handle[PeakMemory] = handle()
    alternatives: Handle[tuple[Alternative, ...]] = handle()
    suggested: Handle[tuple[Suggestion, ...]] = handle()
    checked: Handle[tuple[int, ...]] = handle()
    """Other ranks that were run and compared."""
    differences: Handle[tuple[str, ...]] = handle()
    times: Handle[GpuKernelTimes | None] = handle()
    """Times of kernels on a real GPU."""
    asks_step: Handle[bool] = handle()
    """Whether `step` of the job file stands beside it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "report", self._reported())

    @property
    def step_time_s(self) -> float:
        return self.executed.step_time_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """Return where nine of ten such steps lie."""
        return self.step_time_s * self.spread.low_90, self.step_time_s * self.spread.high_90

    @property
    def spread(self) -> Spread:
        """How far off the step time may be: as previewed steps that were measured, and its communication as NCCL's."""
        whole, here = machine_from_fabric(self.fabric), self.launch.per_host
        machine = replace(whole, gpus_per_host=here, domain=whole.domain * here // whole.gpus_per_host)
        own = next(iter(self.times.own.values()), None) if self.times is not None else None
        if self.captures[0].on_cpu:
            return cpus.cpu_spread(own)
        generation = generation_of(machine.gpu.architecture, machine.gpu.vendor)
        convolved = self.graph.prices.get("convolution", 0.0) > CONVOLVED * self.graph.kernels_s
        kernels = preview_spread(generation, self.launch.world, "convolutions" if convolved else "products")
        host = preview_spread(generation, self.launch.world, "host")
        if own is not None:
            least, most = own.spread
            host = replace(host, low_90=least, low_50=1.0, high_50=1.0, high_90=most)
        both = kernels.longer_of(host, self.graph.kernels_s, self.graph.host_s)
        if both.high_90 * max(self.graph.kernels_s, self.graph.host_s) > kernels.high_90 * self.graph.kernels_s:
            both = replace(both, unmeasured=(*both.unmeasured, OWN_WORDS if own is not None else HOST_WORDS))
        return talking(both, self.step_time_s, self.exposed_s, self.collectives, machine)

    @property
    def operations(self) -> int:
        """Kernels of one step on the first rank."""
        first = self.captures[0]
        return sum(op.kind == "kernel" for op in first.ops[slice(*first.steady[-1])])

    @property
    def exposed_s(self) -> float:
        """Return how long the first rank communicates and computes nothing."""
        return max(exposed_s(self.executed, rank) for rank in range(len(self.captures)))

    @property
    def account(self) -> Account:
        """Where the last step goes, and what a network that takes no time would save."""
        rank = max(range(len(self.captures)), key=lambda rank: exposed_s(self.executed, rank))
        free = next((row.step_time_s for row in self.alternatives if row.change == "network=free"), None)
        return account_of_run(self.executed, rank, without={} if free is None else {StepCause.NETWORK: free})

    @property
    def fits(self) -> bool:
        """Whether the fullest captured rank's memory suffices."""
        return self.memory.fits

    @property
    def graph(self) -> StepGraph:
        return self.executed.graph

    @property
    def job(self) -> CapturedJob:
        """The job as a file for the other verbs: the model's shape, its split and its batch."""
        return reaching(job_of(self.captures), self.captures, machine_from_fabric(self.fabric), self.graph.kernels_s)

    @property
    def beside(self) -> BesideStep:
        """The same job priced by `step` from the job file, and why the two differ."""
        job = self.job.data
        seen = SeenStep(self.step_time_s, self.graph.kernels_s, self.exposed_s, self.memory, bool(job["compiled"]))
        found = beside_step(seen, price_step(self.fabric, load_job(job)))
        thin = self.launch.per_host < min(self.launch.gpus, self.launch.world)
        return replace(found, why=(PACKED, *found.why)) if thin else found

    @property
    def timeline(self) -> Timeline:
        """What every captured rank does in the two steps."""
        return timeline_of(self.executed)

    def _measured(self) -> MeasuredKernels:
        times = self.times
        if times is None:
            return MeasuredKernels("", "", "", self.graph.timed, 0.0, False, {})
        there = times.gpu.name if times.gpu is not None else ""
        scaled = bool(there) and there != machine_from_fabric(self.fabric).gpu.name
        host_s = self.graph.host_s if times.own else 0.0
        return MeasuredKernels(
            times.device, there, times.torch, self.graph.timed, host_s, scaled, dict(times.failed)
        )  # fmt: skip

    def _reported(self) -> PreviewReport:
        first, graph = self.captures[0], self.graph
        model = first.facts.get("model")
        return PreviewReport(
            cluster=self.fabric.name,
            script=self.launch.script,
            launcher=self.launch.launcher,
            ranks=self.launch.world,
            ranks_per_host=self.launch.per_host,
            model=model
            and PreviewedModel(model["class"], model["parameters"], model["layers"], tuple(model.get("dtypes", ()))),
            optimizer=first.facts.get("optimizer", ""),
            torch=first.facts.get("torch", ""),
            captured_ranks=tuple(c.rank for c in self.captures),
            checked_ranks=self.checked,
            differences=self.differences,
            steps=len(first.steady),
            operations=self.operations,
            step_time_s=self.step_time_s,
            interval_s=self.interval_s,
            interval=self.spread.of(self.step_time_s),
            flops_per_rank=graph.flops,
            account=self.account,
            exposed_s=self.exposed_s,
            kernels_s=graph.prices,
            measured=self._measured(),
            collectives=self.collectives,
            memory=self.memory,
            what_if=self.alternatives,
            suggested=self.suggested,
            beside_step=self.beside if self.asks_step else None,
            unpriced=tuple(UnpricedKernel(name, calls, s) for name, (calls, s) in graph.unpriced.items()),
            stand_ins=tuple(StandIn(*row) for row in first.stand_ins),
            notes=first.notes,
        )


@question(
    "syncline preview h100-64-rail -- torchrun --nnodes 8 --nproc-per-node 8 train.py --config 8b.toml",
    "syncline preview cluster.yaml --what-if gpu=H200-SXM5-141GB -- srun -N 8 --ntasks-per-node 8 python train.py",
    "syncline preview cluster.yaml --check 1 --html preview.html -- accelerate launch --num_processes 16 train.py",
    "syncline preview cluster.yaml --suggest -- torchrun --nnodes 4 --nproc-per-node 8 train.py",
    "syncline preview lab.yaml --cpu --measure -- torchrun --nnodes 4 train.py",
    help="""Run a training script unmodified, as one rank of its world, and predict its step on a cluster.

    The script runs in one ordinary process with tensors that have shapes and no values, so any world fits a laptop and
    no GPU is needed. Put the command that would start the job after `--`. Every kernel, collective, wait and allocation
    is recorded over a warm-up and two steps, priced for the cluster's GPU and executed on its network. Where the script
    reads a value that does not exist (loss.item()), a stand-in answers and is listed.
    """,
)
def preview(
    cluster: ClusterArgument,
    command: Annotated[
        Sequence[str], Parameter("The command that starts the job: torchrun ... train.py ...", metavar="-- COMMAND")
    ],
    *,
    world: Annotated[int, Parameter("Number of ranks, instead of the launcher's.", min=0, rare=True)] = 0,
    what_if: Annotated[
        Sequence[str] | None,
        Parameter(
            "gpu=NAME, cluster=FILE, codec=NAME, algorithm=ring or tree, network=2x, network=free, fail=LINK, "
            "compiled=yes, shard=host, bucket=SIZE or world=N, several at once with commas; may be repeated."
        ),
    ] = None,
    suggest: Annotated[bool, Parameter("Try what an expert would, and rank what each saves.")] = False,
    check: Annotated[int, Parameter("Run this many other ranks and say whether they do the same.", min=0, max=5)] = 0,
    timeout: Annotated[str, Parameter("The longest that one rank of the script may run.", rare=True)] = "10min",
    memory: Annotated[
        str, Parameter("The most address space that one rank of the script may take.", rare=True)
    ] = "16GiB",
    routing: Annotated[Routing, Parameter("spray (balanced), ecmp (hashed) or static.", kind=str, rare=True)] = "spray",
    measure: Annotated[
        bool, Parameter("Time each distinct kernel once on this machine's GPU (with `cpu`, its CPU).")
    ] = False,
    measured: Annotated[
        Path | None, Parameter("Use kernel times of this file, as `measure` with `keep` leaves it.")
    ] = None,
    profile: Annotated[
        Path | None,
        Parameter("What was measured here (`syncline explain`): its network and host; for kernels, `measure`."),
    ] = None,
    read_only: Annotated[
        bool,
        Parameter(
            "Whether what the script writes is gone when it ends; no socket of other programs answers it then.",
            names=("--read-only/--no-read-only",),
            rare=True,
        ),
    ] = True,
    cpu: Annotated[bool, Parameter("The script computes on the hosts' processors, and talks through gloo.")] = False,
    keep: Annotated[Path | None, Parameter("Keep what was captured in this folder.")] = None,
    captured: Annotated[Path | None, Parameter("Price what `keep` left in this folder; the script is not run.")] = None,
    beside: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> PreviewAnswer:
    """Run a training command as one rank of its world, without a GPU, and predict its step on a cluster.

    `command` is what would start the job: ["torchrun", "--nnodes", "8", "--nproc-per-node", "8", "train.py"]. Ranks
    that the first passes activations to are run too (pipeline stages); `check` more are run to see that they do alike.
    `measure` times each distinct kernel once on this machine's GPU, and the script's host; `measured` is a file of such
    times. `beside` puts `step` of the job file beside it, with the reasons for what differs. `cpu` is for scripts that
    compute on the hosts' processors and talk through gloo; their operators must be measured, on this machine's CPU.
    """
    fabric = built(cluster)
    machine = machine_from_fabric(fabric)
    launch = read_launch(command, machine.gpus_per_host, world)
    launch.devices(fabric, machine.gpu.num_dies)
    if cpu:
        cpus.check_question(measure or measured is not None, beside, what_if or ())
    runner = Runner(
        machine.gpu,
        units.time(timeout),
        int(units.size(memory)),
        tell,
        device="cpu" if cpu else "cuda",
        read_only=read_only,
    )
    with tempfile.TemporaryDirectory(prefix="syncline-kernels-") as scratch:
        folder = captured or keep or (Path(scratch) if measure else None)
        try:
            captures = read_captures(captured, launch.world) if captured is not None else runner.stages(launch, folder)
        except OtherWorldError as other:
            launch = launch.resized(other.world)
            launch.devices(fabric, machine.gpu.num_dies)
            captures = runner.stages(launch, folder)
        if measure and folder is not None:
            measured = measured or folder / "kernel-times.json"
            tell(f"timing the kernels on this machine's {'CPU' if cpu else 'GPU'}")
            time_kernels(folder, measured, units.time(timeout), tell)
        times = read_kernel_times(measured) if measured is not None else None
    others = runner.others(launch, captures, check)
    found = [text for each in others for text in differences(captures, each)]
    cpus.check_device(captures[0], cpu)
    pricer = pricer_of(machine, times, cpu, load_profile(profile) if profile is not None else None)
    setting = WhatIfSetting(captures, fabric, pricer, routing, launch, runner, NetworkUse.of(captures))
    changes = DEFAULT if what_if is None and launch.world > 1 else tuple(what_if or ())
    executed = setting.executed
    return PreviewAnswer(
        fabric=fabric,
        launch=launch,
        captures=captures,
        executed=executed,
        collectives=collectives(executed),
        memory=setting.memory,
        alternatives=tuple(map(setting.alternative, changes)),
        suggested=suggestions_of(setting, tell) if suggest else (),
        checked=tuple(each.rank for each in others),
        differences=tuple(found),
        times=times,
        asks_step=beside,
    )


COMMANDS = {"": preview}
