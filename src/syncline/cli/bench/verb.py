"""`syncline bench`: measure collectives and links, and hold them against what this topology should give."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from syncline.cli.bench.answer import answer_of, finish
from syncline.cli.bench.options import (
    Algorithm,
    Backend,
    Begin,
    Budget,
    Check,
    Cluster,
    CodecName,
    Collective,
    Cost,
    Deadline,
    Dtype,
    End,
    Exposed,
    Factor,
    GpuHour,
    Html,
    Local,
    PlacementName,
    Ranks,
    Read,
    Repeats,
    Routing,
    Size,
    Step,
    Trace,
    Transport,
    WarmUp,
)
from syncline.cli.bench.start import described, flat, join, start_here, teller
from syncline.cli.bench.tournament import tournament
from syncline.cli.shell.derive import GroupedCommand
from syncline.cli.shell.output import JsonOption, examples
from syncline.describe.plain import JsonObject

if TYPE_CHECKING:
    from syncline.bench.expect import Oracle
    from syncline.bench.sweep import SweepAnswer, SweepQuestion
    from syncline.bench.verdict import Judgement
    from syncline.finding import Finding
    from syncline.program import Placement
    from syncline.runtime.group import Group


class BenchGroup(TyperGroup):
    """`syncline bench FILE` is short for `syncline bench --read FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `--read` in front of a file."""
        if args and args[0] not in self.commands and Path(args[0]).is_file():
            args = ["--read", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=BenchGroup,
    help="Measure collectives and links on a live cluster, beside what its topology should give.",
    epilog=examples(
        "syncline bench allreduce --local 4 --size 1KiB..1MiB --algorithm vendor,ring",
        "torchrun --nproc-per-node 8 ... -m syncline bench allreduce --cluster cluster.yaml",
        "mpirun -n 8 syncline bench alltoall --cluster cluster.yaml -b 8 -e 128M -f 2",
        "syncline bench --read all_reduce_perf.log --cluster h100-64-rail --cost",
        "syncline bench tournament --cluster cluster.yaml",
    ),
)


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    read: Read = None,
    cluster: Cluster = None,
    collective: Collective = None,
    ranks: Ranks = 0,
    cost: Cost = False,
    exposed: Exposed = 0.2,
    gpu_hour: GpuHour = None,
    check: Check = False,
    html: Html = None,
    json: JsonOption = False,
) -> None:
    """Measure collectives and links on a live cluster, beside what its topology should give."""
    from syncline.errors import UsageError

    if context.invoked_subcommand is not None:
        if read or cluster:
            raise UsageError("--read, and --cluster before the collective, are for a log.",
                             hint="Put --cluster after the collective, or drop the collective.")  # fmt: skip
        return
    if read is None:
        raise UsageError("say what to measure, or give a log with --read.", hint="Try: syncline bench --help")
    from syncline.bench.measured import NAMES
    from syncline.bench.nccl_log import read_log

    if collective is not None and collective not in NAMES:
        raise UsageError(f'no collective is called "{collective}".', hint=f"One of: {', '.join(NAMES)}.")
    log = read_log(read, kind=NAMES[collective] if collective else None, num_ranks=ranks)
    _check_gpu(log, cluster)
    rows, note = _judge_log(log, cluster)
    payload = answer_of(rows, {"vendor": note} if note else {}, cluster, log.num_ranks, log.library)
    payload |= {"log": str(read), "hosts": log.num_hosts, "version": log.version, "notes": list(log.notes)}
    payload["devices"] = [{"rank": d.rank, "hostname": d.host, "device_info": d.name} for d in log.devices]
    finish(payload, rows, cluster, log.num_ranks, cost, exposed, gpu_hour, check, json, html=html)


def _check_gpu(log: Any, cluster: str | None) -> None:
    """Refuse a log of other GPUs than the cluster's: what is predicted would be for those."""
    if cluster is None:
        return
    from syncline.errors import UsageError
    from syncline.fabric import load
    from syncline.planning.cost.renting import gpu_models

    models = list(gpu_models(load(cluster)))
    names = {device.name for device in log.devices if device.name}
    words = [model.split("-")[0] for model in models]
    if not names or any(re.search(rf"(?<![a-z0-9]){word}(?![a-z0-9])", min(names), re.IGNORECASE) for word in words):
        return
    raise UsageError(
        f"the log is of {min(names)}, and {cluster} has {' and '.join(models)}.",
        hint="Give the cluster that the log was taken on with --cluster, or none to read the log alone.",
    )


def _judge_log(log: Any, cluster: str | None) -> tuple[list[Judgement], str]:
    from syncline.bench.expect import Oracle
    from syncline.bench.verdict import judge
    from syncline.errors import SimulationError, UsageError
    from syncline.fabric import load
    from syncline.program import packed

    inside = {row.size_bytes: row.timing.median_s for row in log.rows if row.in_place}
    outside = [replace(row, other_s=inside.get(row.size_bytes)) for row in log.rows if not row.in_place]
    rows = outside or list(log.rows)
    if cluster is None:
        return [judge(row, None) for row in rows], "no cluster was given (--cluster), so nothing is predicted"
    fabric = load(cluster)
    if log.num_ranks > fabric.num_gpus:
        raise UsageError(
            f"the log has {log.num_ranks} ranks, {cluster} only {fabric.num_gpus} GPUs.",
            hint="Give the cluster that the log was taken on with --cluster, or none to read the log alone.",
        )
    oracle = Oracle(fabric, packed(fabric, log.num_ranks))
    try:
        expected = oracle.nccl(log.kind, [row.size_bytes for row in rows], num_ranks=log.num_ranks)
    except SimulationError as error:
        return [judge(row, None) for row in rows], error.message
    named = [replace(one, link=_as_in_log(one.link, log, fabric)) for one in expected]
    return [judge(row, one) for row, one in zip(rows, named, strict=True)], ""


def _as_in_log(link: str, log: Any, fabric: Any) -> str:
    """Return a link by the names of the log's hosts, which stand for the cluster's in the order of their ranks."""
    theirs = dict.fromkeys(device.host for device in log.devices if device.host)
    names = dict(zip(fabric.host_names, theirs, strict=False))
    ends = [end.split("/") for end in link.split(" -> ")]
    return " -> ".join("/".join([names.get(end[0], end[0]), *end[1:]]) for end in ends)


def measure(
    context: typer.Context,
    cluster: Cluster = None,
    size: Size = "1KiB..16MiB",
    begin: Begin = None,
    end: End = None,
    factor: Factor = 0,
    step: Step = None,
    algorithm: Algorithm = "vendor",
    dtype: Dtype = "float",
    codec: CodecName = "raw",
    backend: Backend = None,
    warm_up: WarmUp = 2,
    repeats: Repeats = 10,
    budget: Budget = 20.0,
    deadline: Deadline = 60.0,
    local: Local = None,
    placement: PlacementName = None,
    routing: Routing = "auto",
    transport: Transport = None,
    cost: Cost = False,
    exposed: Exposed = 0.2,
    gpu_hour: GpuHour = None,
    trace: Trace = None,
    check: Check = False,
    html: Html = None,
    json: JsonOption = False,
) -> None:
    """Measure this collective by algorithm and size, under torchrun, srun, mpirun or --local N."""
    from syncline.bench.measured import NAMES
    from syncline.bench.sizes import between, nccl_size, sizes_of

    kind = NAMES[str(context.info_name)]
    if begin or end:
        low, high = nccl_size(begin or end or ""), nccl_size(end or begin or "")
        sizes = between(low, high, factor=factor, step=nccl_size(step) if step else 0)
    else:
        sizes = sizes_of(size, factor=factor, step=step or "")
    names = _algorithms(algorithm, codec)
    start_here(context, local)
    from syncline.bench.sweep import SweepQuestion, sweep
    from syncline.runtime.execute.executor import Executor
    from syncline.runtime.execute.trial import elements

    smallest = min(sizes)
    elements(smallest, dtype)
    question = SweepQuestion(kind, names, tuple(sizes), dtype, codec, warm_up, repeats, budget)
    with join(backend) as group:
        placed, oracle = _oracle(cluster, placement, group, routing, transport)
        with Executor(group, deadline_s=deadline) as executor:
            answer = sweep(executor, question, placed, oracle, tell=teller(group))
        hosts = group.texts(os.uname().nodename)
        first = group.rank == 0
        backend_name = group.backend
    if not first:
        return
    payload = _measured_payload(question, answer, cluster, placed, hosts, backend_name)
    if trace and answer.last is not None:
        from syncline.timeline import save

        save(answer.last, trace)
        payload["trace"] = str(trace)
    extra = _stragglers(answer, hosts)
    finish(
        payload,
        list(answer.rows),
        cluster,
        placed.num_ranks,
        cost,
        exposed,
        gpu_hour,
        check,
        json,
        extra,
        answer.blamed,
        html,
    )


def _algorithms(text: str, codec: str) -> tuple[str, ...]:
    """Return the algorithms by name, and refuse what no rank will know."""
    from syncline.codec.names import scheme
    from syncline.errors import UsageError
    from syncline.schedule import FAMILIES

    known = ("vendor", *FAMILIES, "rail-rings", "hierarchical-halving")
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None or not names:
        raise UsageError(f'no algorithm is called "{unknown or text}".', hint=f"One of: {', '.join(known)}.")
    if codec != "raw":
        scheme(codec)
    return names


def _oracle(
    cluster: str | None, placement: str | None, group: Group, routing: str, transport: str | None
) -> tuple[Placement, Oracle | None]:
    from syncline.bench.expect import Oracle
    from syncline.program import place
    from syncline.sim.flow.routing import NetworkOptions
    from syncline.sim.transport import transport_on

    if cluster is None:
        return place("packed", flat(group.size), group.size), None
    fabric = described(cluster)
    name = placement or ("spread" if group.size <= fabric.num_hosts else "packed")
    placed = place(name, fabric, group.size)
    carrier = transport_on(transport or ("auto" if group.backend == "nccl" else "tcp"), fabric)
    options = NetworkOptions(routing=routing, transport=carrier)  # type: ignore[arg-type]
    return placed, Oracle(fabric, placed, options)


def _stragglers(answer: SweepAnswer, hosts: list[str]) -> list[Finding]:
    from syncline.bench.straggler import findings, stragglers

    slow = findings(stragglers(answer.work_s, least_s=1e-3), hosts, "its own work (packing, adding, coding)")
    late = findings(stragglers(answer.late_s, least_s=5e-3), hosts, "its delay at the common start")
    return [*slow, *late]


def _measured_payload(
    question: SweepQuestion, answer: SweepAnswer, cluster: str | None, placed: Placement, hosts: list[str], backend: str
) -> JsonObject:
    payload = answer_of(list(answer.rows), answer.unpredicted, cluster, placed.num_ranks, backend)
    payload["devices"] = [{"rank": rank, "hostname": host} for rank, host in enumerate(hosts)]
    payload |= {"backend": backend, "codec": question.codec, "placement": placed.name, "hosts": len(set(hosts))}
    payload["warm_up"] = question.warm_up
    return payload


for _name in (
    "allreduce",
    "allgather",
    "reducescatter",
    "broadcast",
    "reduce",
    "alltoall",
    "gather",
    "scatter",
    "sendrecv",
):
    _manual = examples(
        f"syncline bench {_name} --local 4 --size 64KiB..4MiB --algorithm vendor,direct",
        f"mpirun -n 8 syncline bench {_name} --cluster cluster.yaml -b 1K -e 1G -f 4 --json",
    )
    app.command(_name, short_help=f"Measure {_name}.", epilog=_manual, cls=GroupedCommand)(measure)

app.command(
    "tournament",
    short_help="Test pairs of hosts; name the slow host, link, leaf or spine.",
    epilog=examples(
        "syncline bench tournament --local 4",
        "srun -N 16 --ntasks-per-node 1 syncline bench tournament --cluster cluster.yaml",
        "mpirun -n 8 syncline bench tournament --cluster cluster.yaml --paths paths.json --json",
    ),
)(tournament)
