"""Random clusters, and what must hold of the price of a collective on each of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from syncline.bench.expect import Oracle
from syncline.fabric import Fabric, build
from syncline.fabric.spec import ClusterSpec
from syncline.program import Placement, packed, place
from syncline.questions.simulate import simulate
from syncline.schedule import Kind
from syncline.sim.collective.price import CollectivePricer, price
from syncline.sim.nccl.graph import search
from syncline.sim.nccl.job import NcclOperation
from syncline.sim.nccl.predict import chosen_pairs, times_us
from syncline.sim.step.arithmetic.params import stage_params
from syncline.sim.step.executed.execute import execute
from syncline.sim.step.step import step
from syncline.workload.read_job import load_job

TIE = 0.01
"""How much slower a better network may be."""
SLOWER = {"NDR": "HDR", "HDR": "EDR", "400GbE": "200GbE", "200GbE": "100GbE"}
HOSTS = ("dgx-a100", "dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "dgx-1-v100", {"model": "dgx-a100", "nics": 1},
         {"model": "dgx-h100", "gpus": 4, "nics": 2})  # fmt: skip
KINDS = {
    "allreduce": Kind.ALL_REDUCE, "allgather": Kind.ALL_GATHER, "reducescatter": Kind.REDUCE_SCATTER,
    "alltoall": Kind.ALL_TO_ALL, "broadcast": Kind.BROADCAST,
}  # fmt: skip
JOB: dict[str, Any] = {"model": "llama3.2-1b", "parallel": {"tp": 1, "zero": "none"}, "overlap": {"dp": False}}


EXCHANGED: dict[str, dict[str, Any]] = {
    "experts": {"ep": True}, "heads": {"cp": True, "context": "ulysses"}, "keys and values": {"cp": True},
    "activations": {"pp": True},
}  # fmt: skip
"""What the ranks of one group exchange in a layer, and the split that makes one group of all ranks."""


def described(seed: int) -> dict[str, Any]:
    """Return a random cluster: one network, or two sites; some with two kinds of hosts, or a port that fails."""
    draw = random.Random(seed)
    host, link = draw.choice(HOSTS), draw.choice(tuple(SLOWER))
    topology = draw.choice(("leaf-spine", "rail-optimized", "rail-only", "dragonfly"))
    network: dict[str, Any] = {"topology": topology, "link": link}
    if topology == "leaf-spine":
        network |= {"oversubscription": draw.choice(("1:1", "2:1", "4:1")), "hosts_per_leaf": 2}
    hosts = draw.choice((2, 3, 4, 6, 8))
    if draw.random() < 0.25 and topology != "dragonfly":
        sites = [{"name": name, "hosts": max(1, hosts // parts), "host": host, "network": network}
                 for name, parts in (("a", 1), ("b", draw.choice((1, 2))))]  # fmt: skip
        wan = {"rate": draw.choice(("100Gbps", "1.6Tbps")), "latency": draw.choice(("50us", "5ms"))}
        return {"sites": sites, "wan": wan}
    if draw.random() < 0.2 and host in HOSTS[:4]:
        others = {"host": draw.choice(("dgx-a100", "dgx-b200")), "count": draw.choice((1, 2))}
        return {"hosts": [{"host": host, "count": hosts}, others], "network": network}
    port = draw.choice(({"device": "host-00/nic-0"}, {"device": "host-00/nic-0", "rate": "10Gbps"}, None, None))
    alone = host == HOSTS[-2] and port is not None and "rate" not in port  # a host whose one port is down has none
    return {"hosts": hosts, "host": host, "network": network, "faults": [port] if port and not alone else []}


def fabric_of(data: dict[str, Any]) -> Fabric:
    """Return the cluster, built."""
    return build(ClusterSpec.model_validate(data))


def slower(data: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster with the next slower link."""
    if "sites" in data:
        return {**data, "sites": [slower(site) for site in data["sites"]]}
    return {**data, "network": {**data["network"], "link": SLOWER[data["network"]["link"]]}}


def turned(data: dict[str, Any]) -> dict[str, Any]:
    """Return a cluster with its sites, or its kinds of hosts, in the other order."""
    return {name: each[::-1] if name in ("sites", "hosts") and isinstance(each, list) else each
            for name, each in data.items()}  # fmt: skip


def as_chosen_s(kind: Kind, size: int, placed: Placement, elsewhere: Placement) -> float:
    """Return what NCCL takes with the algorithm, protocol and channels that it chooses on another network.

    It chooses by its own table, on a better network sometimes worse: more channels, whose messages a proxy posts.
    """
    here, there = (CollectivePricer(kind, each) for each in (placed, elsewhere))
    job, sizes = NcclOperation(here.system, kind.value), np.array([float(size)])
    object.__setattr__(job, "graphs", search(there.system))
    pairs, _ = chosen_pairs(there.system, kind.value, sizes)
    return max(float(times_us(job, pairs, sizes)[0]) / 1e6, here.bound.at(size))


def broken_rules(seed: int) -> list[str]:
    """Return what does not hold of a random cluster: the bound, better is no slower, order, verbs equal."""
    draw, data = random.Random(10_000 + seed), described(seed)
    fabric, verb = fabric_of(data), draw.choice(tuple(KINDS))
    kind, size = KINDS[verb], 1 << draw.choice((10, 16, 20, 24, 28, 31))
    placed = place("packed", fabric)
    found, wrong = price(kind, size, placed), []
    assert found.nccl is not None, found.refused
    time_s = found.nccl.time_s
    if not found.bound_s * (1 - 1e-9) <= found.nccl.low_s <= time_s:
        wrong.append(f"{verb} of {size}: {found.nccl.low_s} to {time_s} s, below the bound {found.bound_s}")
    thin = place("packed", fabric_of(slower(data)))
    worse, better_s = price(kind, size, thin).nccl, as_chosen_s(kind, size, placed, thin)
    assert worse is not None
    if worse.time_s < better_s * (1 - TIE):
        wrong.append(f"{verb} of {size}: {better_s} s, {worse.time_s} s with slower links")
    other = price(kind, size, place("packed", fabric_of(turned(data)))).nccl
    assert other is not None
    if not np.isclose(other.time_s, time_s, rtol=1e-9):
        wrong.append(f"{verb} of {size}: {time_s} s, {other.time_s} s described in another order")
    simulated = simulate(fabric, verb, size, algorithm="nccl").time_s
    (expected,) = Oracle(fabric, placed).vendor(kind, [size], backend="nccl")
    if not simulated == expected.time_s == time_s:
        wrong.append(f"{verb} of {size}: price {time_s}, simulate {simulated}, bench {expected.time_s} s")
    job = load_job({**JOB, "batch": {"global": fabric.num_gpus, "sequence": 2048, "micro": 1}})
    stepped = step(fabric, job)
    assert stepped.case is not None
    gradients = float(stepped.case.grad_bytes * stage_params(stepped.case))
    one = price(Kind.ALL_REDUCE, round(gradients), placed).nccl
    assert one is not None
    if not np.isclose(stepped.parts_s["dp"], one.time_s, rtol=1e-6):
        wrong.append(f"gradients of {gradients:.0f}: step {stepped.parts_s['dp']}, simulate {one.time_s} s")
    executed_s = execute(fabric, stepped).parts_s["dp"]
    if not np.isclose(executed_s, one.time_s, rtol=1e-3):
        wrong.append(f"gradients of {gradients:.0f}: executed step {executed_s}, simulate {one.time_s} s")
    return wrong


def broken_exchanges(seed: int) -> list[str]:
    """Return which exchanges inside a step's layers are not what `simulate` says of the same operation and bytes."""
    draw, wrong = random.Random(20_000 + seed), []
    fabric = fabric_of(described(seed))
    n, placed, top_k = fabric.num_gpus, place("packed", fabric), draw.choice((1, 2, 4))
    dispatcher, sequence = draw.choice(("alltoall", "deepep")), n * 2 ** draw.choice((4, 7, 10, 12))
    model = {"layers": 2, "hidden": 64 * n, "heads": n, "kv_heads": n, "ffn": 1024, "vocab": 1024}
    experts = {"experts": n, "top_k": top_k, "ffn": 512}

    def simulated_s(verb: str, size: float, ranks: Placement) -> float:
        if ranks is placed:
            return simulate(fabric, verb, round(size), algorithm="nccl").time_s
        found = price(KINDS[verb], round(size), ranks).nccl
        return found.time_s if found is not None else 0.0

    for name, split in EXCHANGED.items():
        job: dict[str, Any] = {"model": model, "batch": {"global": 1, "sequence": sequence, "micro": 1}}
        job["parallel"] = {axis: n if size is True else size for axis, size in split.items()}
        if name == "experts":
            job["batch"]["global"] = n
            job |= {"model": model | {"moe": experts}, "dispatcher": dispatcher}
        if name == "activations":
            job["model"] = {**model, "layers": n}
        stepped = step(fabric, load_job(job))
        case, cost = stepped.case, stepped.cost
        assert case is not None and cost is not None
        whole = 2.0 * float(case.tokens) * 64 * n
        if name == "experts":
            near = min(int(case.domain), n)
            domains = n / near
            visited = top_k if dispatcher == "alltoall" else domains * (1 - (1 - 1 / domains) ** top_k)
            copies = n * (1 - (1 - 1 / n) ** top_k) if dispatcher == "deepep" else top_k
            due = max(simulated_s("alltoall", whole * visited, placed),
                      simulated_s("alltoall", whole * copies, packed(fabric, near)))  # fmt: skip
            took = float(cost.ep_call)
        elif name == "heads":
            due = simulated_s("alltoall", 3 * whole, placed) + simulated_s("alltoall", whole, placed)
            took = float(cost.cp_call)
        elif name == "activations":
            due = simulated_s("sendrecv", whole, placed) - float(case.site_s)  # the way between sites comes on top
            took = float(cost.p2p_wire) / 2
        else:
            due, took = (n - 1) * simulated_s("sendrecv", 2 * whole, placed), float(cost.cp_call)
        if not np.isclose(took, due, rtol=1e-6):
            wrong.append(f"{name}, {whole:.0f} bytes a rank, {dispatcher}, top {top_k}: step {took}, simulate {due} s")
    return wrong
