"""A rehearsal of the user's own script: previewed on this machine's processors, run over the emulated fabric, compared.

found = rehearse_script("cluster.yaml", ["torchrun", "--nnodes", "4", "train.py"])
found.predicted_s, found.measured_s, found.account.causes

What the script computes is timed on this machine by as many ranks at once as will run, without a network; what gloo's
calls cost is timed in the lab. The step of both together is predicted before the script runs there.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from syncline.describe import units
from syncline.describe.model import reported
from syncline.errors import BenchError, UsageError
from syncline.explaining.explain import Explanation, explain_recordings
from syncline.explaining.reading import read_recordings
from syncline.fabric import load
from syncline.lab import RunResult, draft
from syncline.previewing import cpus
from syncline.previewing.account import account_of_run
from syncline.previewing.capture.rehearsed import BEFORE, LEAST
from syncline.previewing.child import OtherWorldError, time_kernels
from syncline.previewing.execute import NetworkUse
from syncline.previewing.exposed import collectives, exposed_s
from syncline.previewing.launch import ScriptLaunch, read_launch
from syncline.previewing.measured import OwnHost, read_kernel_times
from syncline.previewing.price import Pricer
from syncline.previewing.ranks import Runner
from syncline.previewing.what_if import WhatIfSetting
from syncline.rehearsal.stage import LabStage, followed, open_lab
from syncline.sim.emulate.emulation import HostCosts
from syncline.sim.step.machine import machine_from_fabric
from syncline.timeline.account import AccountDifference, subtract
from syncline.timeline.collective import operation_of

MOST_STEPS, FEWEST_STEPS, RUN_S = 20, 4, 45.0
"""Timed steps in the lab, and about how long all of them may take."""
PROBE_S, PROBE_BYTES = 0.2, (1 << 16, 8 << 20)
"""How long the network is sent through to learn what its calls cost, and bytes between which that is."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
BUSY = 0.1
"""Share by which ranks take longer for other programs from which on it is said."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class RehearsedCollective:
    """One operation in a step: as it was predicted, and as it was traced in the lab."""

    operation: str
    predicted_calls: float
    calls: float
    predicted_s: float
    measured_s: float
    """Of all its calls in a step, hidden or not, with what was waited for other ranks in them."""


@dataclass(frozen=True)
class ScriptRehearsal:
    """A step of a script as it was predicted and as it ran; its fields are the JSON."""

    cluster: str
    script: str
    launcher: str
    ranks: int
    hosts: int
    rates_scaled_by: float
    cores: int
    threads: int
    """Of each rank."""
    others: float
    """How much longer ranks took for what else ran on the machine, before the script ran in the lab."""
    predicted_s: float
    interval_s: tuple[float, float]
    quiet_s: float
    """As predicted where nothing else runs on the machine."""
    alone_s: float
    """What a rank computes in a step on a core of its own."""
    measured_s: float
    """The median step."""
    low_s: float
    high_s: float
    steps: int
    account: AccountDifference
    """From the predicted step to one that was traced."""
    collectives: tuple[RehearsedCollective, ...]
    notes: tuple[str, ...]

    @reported
    def gap(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class _Prediction:
    setting: WhatIfSetting
    own: OwnHost
    cores: cpus.SharedCores

    @property
    def step_s(self) -> float:
        return self.setting.executed.step_time_s

    @cached_property
    def quiet_s(self) -> float:
        """The step on a machine on which nothing else runs."""
        network = replace(self.setting.network, cores=replace(self.cores, others=1.0))
        return replace(self.setting, network=network).executed.step_time_s


def rehearse_script(
    cluster: str,
    command: Sequence[str],
    *,
    scale: float | None = None,
    hosts: int | None = None,
    timeout_s: float = 600.0,
    tell: Tell = lambda text: None,
    warn: Tell = lambda text: None,
) -> ScriptRehearsal:
    """Predict a step of a script on the processors and the network of a lab, run it there, and compare."""
    fabric = load(cluster)
    blueprint = draft(fabric, scale=scale, hosts=hosts)
    devices = [max(1, blueprint.boxes[host].num_devices) for host in blueprint.hosts]
    launch = read_launch(command, devices[0])
    if launch.launcher == "python" and launch.world == 1:
        launch = replace(launch, gpus=devices[0]).resized(sum(devices))
    launch.seats(devices, fabric.name)
    if len(devices) < 2:
        raise UsageError(
            f"{fabric.name} has one host: there is no network to rehearse.", hint="Name a cluster of two or more."
        )
    launch = replace(launch, environment=ONE_THREAD | launch.environment)
    cores = len(os.sched_getaffinity(0))
    with open_lab(cluster, scale=scale, hosts=hosts) as stage:
        for line in _sharing(launch, cores):
            warn(line)
        predicted = _predict(stage, launch, cores, timeout_s, tell)
        for line in _others(predicted):
            warn(line)
        steps = int(min(MOST_STEPS, max(FEWEST_STEPS, RUN_S / predicted.step_s)))
        tell(f"predicted {units.show_time(predicted.step_s)} a step; running {BEFORE + steps} steps in the lab")
        marks, explained = _run(stage, launch, steps, timeout_s, tell)
        return _compared(stage, launch, predicted, marks, explained)


def _sharing(launch: ScriptLaunch, cores: int) -> Iterable[str]:
    """Yield who shares the cores: it is said before anything runs."""
    threads = int(launch.environment["OMP_NUM_THREADS"])
    wanted = launch.world * threads
    if wanted > cores:
        yield (
            f"{launch.world} ranks of {threads} thread{'s' if threads > 1 else ''} share {cores} cores: each computes "
            f"at {cores / wanted:.0%} of a core's speed a thread, which the prediction counts"
        )


def _others(predicted: _Prediction) -> Iterable[str]:
    """Yield that others want the cores too: it is said before the script runs in the lab."""
    if predicted.cores.others > 1 + BUSY:
        yield (
            f"other programs run on this machine: ranks that only compute take {predicted.cores.others:.1f} times as "
            f"long for them, and so it is predicted; without them a step would take "
            f"{units.show_time(predicted.quiet_s)}. Run it again when the machine is quiet"
        )


def _predict(stage: LabStage, launch: ScriptLaunch, cores: int, timeout_s: float, tell: Tell) -> _Prediction:
    """Return the step that the parts make: the script's own work on shared cores, and gloo's calls on the network."""
    fabric = stage.placement.fabric
    machine = machine_from_fabric(fabric)
    runner = Runner(machine.gpu, timeout_s, 16 << 30, tell, device="cpu")
    folder = stage.folder / "captured"
    try:
        captures = runner.stages(launch, folder)
    except OtherWorldError as other:
        raise UsageError(
            f"the script starts {other.world:,} ranks itself.",
            hint="Start it with torchrun, and let it read RANK and WORLD_SIZE.",
        ) from None
    if not any(op.kind in ("collective", "send") for op in captures[0].ops):
        raise UsageError(
            f"{launch.script} sends nothing: there is nothing to rehearse.",
            hint='Let it call torch.distributed.init_process_group("gloo") and wrap its model.',
        )
    tell(f"timing what {launch.world} ranks compute at once on {cores} cores")
    out = stage.folder / "times.json"
    time_kernels(folder, out, timeout_s, tell, launch.world)
    times = read_kernel_times(out)
    own = next(iter(times.own.values()), None)
    if own is None:
        raise BenchError("the script's own steps could not be timed.", detail="\n".join(times.failed.values()))
    tell("timing gloo's calls in the lab")
    shared = _shared(stage, launch, cores, timeout_s, tell)
    shared = replace(shared, others=max(1.0, (1.0 + own.waited_s / own.whole_s) / shared.slower()))
    network = replace(NetworkUse.of(captures), scale=stage.scale, cores=shared)
    setting = WhatIfSetting(captures, fabric, Pricer(machine, times=times), "spray", launch, runner, network)
    return _Prediction(setting, own, shared)


def _shared(stage: LabStage, launch: ScriptLaunch, cores: int, timeout_s: float, tell: Tell) -> cpus.SharedCores:
    """Return what gloo's calls cost ranks in the lab: a small all-reduce, and one that fills the network."""
    slowest_Bps = float(stage.wiring.rate_Bps.min())
    size = int(min(PROBE_BYTES[1], max(PROBE_BYTES[0], slowest_Bps * PROBE_S)))
    found = stage.run("network", {"probe_bytes": size}, timeout_s, tell)
    n, threads = stage.placement.num_ranks, int(launch.environment["OMP_NUM_THREADS"])  # a rank a host
    message_s = found["small_s"] / cpus.messages("all_reduce", n)
    sent = cpus.sent_bytes("all_reduce", size, n)
    wire_s = max(_crossing(stage, n).values(), default=0.0) * sent
    took_s = max(found["large_s"] - found["small_s"], 1e-9)
    costs = HostCosts(latency_s=message_s, post_s=0.0, start_s=0.0, efficiency=min(1.0, wire_s / took_s))
    return cpus.SharedCores(cores, launch.world, threads, found["byte_s"], costs)


def _crossing(stage: LabStage, n: int) -> Mapping[int, float]:
    """Return the seconds of each link for a byte that every rank of a ring sends to the next one."""
    found: dict[int, float] = {}
    for rank in range(n):
        for link in stage.wiring.links(rank, (rank + 1) % n):
            found[link] = found.get(link, 0.0) + 1.0 / float(stage.wiring.rate_Bps[link])
    return found


def _run(
    stage: LabStage, launch: ScriptLaunch, steps: int, timeout_s: float, tell: Tell
) -> tuple[list[list[float]], Explanation]:
    """Run the script in the lab; return the moments at which each rank's steps began, and its traces explained."""
    folder = stage.folder / "run"
    folder.mkdir()
    spec = folder / "spec.json"
    what = {"script": launch.script, "module": launch.module, "args": list(launch.args)}
    spec.write_text(json.dumps({"folder": str(folder), "steps": steps, "command": what}), "utf-8")
    rank = [sys.executable, "-m", "syncline.previewing.capture.rehearsed", str(spec)]
    try:
        with followed(folder / "progress", tell):
            each, env = launch.per_host, launch.environment
            ran = stage.lab.run(rank, timeout_s=timeout_s, ranks_per_host=each, num_ranks=launch.world, env=env)
    except TimeoutError:
        raise BenchError(
            f"{launch.script} did not make {BEFORE + steps} steps in the lab within {timeout_s:.0f} s.",
            hint="Take a smaller model, or a larger --scale.",
        ) from None
    if ran.exit_code:
        raise _failure(launch, ran)
    marks = [json.loads((folder / f"rank{rank}.json").read_text("utf-8"))["marks"] for rank in range(launch.world)]
    made = min(map(len, marks)) - 1
    if made < BEFORE + LEAST:
        raise UsageError(
            f"{launch.script} trained {max(made, 0)} steps; a rehearsal needs {BEFORE + LEAST}.",
            hint="Let it train longer: more epochs, or more data.",
        )
    explained = explain_recordings(read_recordings([folder / f"trace{rank}.json" for rank in range(launch.world)]))
    return marks, explained


def _failure(launch: ScriptLaunch, ran: RunResult) -> BenchError:
    rank = ran.first_failure
    lines = [line for line in (rank.stderr if rank else "").splitlines() if line.strip()]
    return BenchError(
        f"rank {rank.rank if rank else 0} of {launch.script} failed in the lab with status {ran.exit_code}.",
        detail=lines[-1][:300] if lines else "It printed nothing.",
        hint="Its preview ran: what differs in the lab is that there are several ranks, and real tensors.",
    )


def _compared(
    stage: LabStage, launch: ScriptLaunch, predicted: _Prediction, marks: Sequence[Sequence[float]],
    explained: Explanation,
) -> ScriptRehearsal:  # fmt: skip
    setting, cores = predicted.setting, predicted.cores
    # Who begins a step early waits the longer in it: the mean over the ranks is what a step adds to the run.
    times = [statistics.fmean(steps) for steps in zip(*(_steps(each) for each in marks), strict=False)]
    run = setting.executed
    rank = max(range(len(setting.captures)), key=lambda rank: exposed_s(run, rank))
    before, spread = account_of_run(run, rank), cpus.cpu_spread(predicted.own, (1.0, 1.0))
    return ScriptRehearsal(
        cluster=stage.placement.fabric.name, script=launch.script, launcher=launch.launcher, ranks=launch.world,
        hosts=len(stage.lab.host_names), rates_scaled_by=stage.scale, cores=cores.cores,
        threads=cores.threads, others=cores.others, predicted_s=predicted.step_s,
        interval_s=(predicted.quiet_s * spread.low_90, predicted.step_s * spread.high_90), quiet_s=predicted.quiet_s,
        alone_s=predicted.own.whole_s, measured_s=statistics.median(times), low_s=min(times), high_s=max(times),
        steps=len(times), account=subtract(before, explained.account),
        collectives=tuple(_collectives(predicted, explained)),
        notes=(*stage.notes, *_sharing(launch, cores.cores), *_others(predicted), *setting.captures[0].notes),
    )  # fmt: skip


def _steps(marks: Sequence[float]) -> list[float]:
    return [end - begin for begin, end in pairwise(marks[BEFORE:])]


def _collectives(predicted: _Prediction, explained: Explanation) -> Iterable[RehearsedCollective]:
    """Yield the operations of both accounts, those first that take longest in the lab."""
    rows: dict[str, list[float]] = {}
    for use in collectives(predicted.setting.executed):
        name = cpus.RUNS_AS.get(use.name, use.name)
        row = rows.setdefault(operation_of(name) or name, [0.0] * 4)
        row[0], row[2] = row[0] + use.calls, row[2] + use.total_s
    for group in explained.collectives:
        row = rows.setdefault(group.operation, [0.0] * 4)
        row[1], row[3] = row[1] + group.calls, row[3] + group.total_s
    for operation, row in sorted(rows.items(), key=lambda item: -max(item[1][2:])):
        yield RehearsedCollective(operation, *row)
