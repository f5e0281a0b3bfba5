"""How to serve a load: every split of a replica, with prefill beside decode or apart, priced by what a token costs.

    found = plan_serving(fabric, job)
    found.best.split, found.best.tokens_per_s_per_gpu, found.best.usd_per_million

A replica gets as much of the load as it answers within the job's limits; the GPUs are as many as that takes.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.describe.progress import Meter, metered
from syncline.errors import PlanError, SynclineError
from syncline.fabric.fabric import Fabric
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import Prices
from syncline.planning.decide.uncertain import Uncertain, prices_of
from syncline.planning.money import money_of
from syncline.sim.serve.engine import MEMORY_SHARE, Engine, Split, stored_of
from syncline.sim.serve.steady import BUSIEST, Steady, most_batch, most_rate, steady
from syncline.sim.step.machine import Machine, machine_from_fabric
from syncline.sim.uncertainty import Interval, Narrowing, Spread, serve_spread
from syncline.workload.job import Job
from syncline.workload.load import Load
from syncline.workload.parallel import divisors
from syncline.workload.shape import Shape

IGNORES = (
    "other jobs", "prefix caching", "speculative decoding", "uneven replicas and experts",
    "bursts beyond random arrivals", "images and sound",
)  # fmt: skip
#: How busy a replica may be made, from calm to what it can do at most.
SHARES = tuple(0.05 * k for k in range(1, 20))


@dataclass(frozen=True)
class ServingOption:
    """One way to serve the load, and what users and the bill see of it."""

    split: Split
    apart: bool
    num_replicas: int  # that decode; with prefill apart there are others beside them
    num_gpus: int
    load: Load
    at: Steady
    most_rate: float  # requests a second of one replica that is never idle
    most_batch: float
    usd_per_gpu_hour: float | None
    parts_s: dict[str, float]  # of one decode pass
    keeps_slo: bool
    all_gpus: int  # of the cluster
    over: float  # how far past the limits: the larger of latency / limit; at most 1 within them
    floor_s: float  # no token comes sooner after the one before it

    @property
    def num_prefill(self) -> int:
        """Replicas that do nothing but prefill."""
        return self.num_gpus // self.split.num_gpus - self.num_replicas

    @property
    def enough(self) -> bool:
        """Whether the cluster has as many GPUs as the load takes."""
        return self.num_gpus <= self.all_gpus

    @property
    def serves(self) -> bool:
        """Whether the load is served within its limits on the GPUs that there are."""
        return self.keeps_slo and self.enough

    @property
    def saturates_at(self) -> float:
        """Requests a second at which the replicas are never idle; past that queues grow without end."""
        return self.load.rate / self.at.busy

    @property
    def tokens_per_s(self) -> float:
        """Answered tokens a second, all replicas."""
        return self.load.rate * self.load.answer.mean

    @property
    def tokens_per_s_per_gpu(self) -> float:
        return self.tokens_per_s / self.num_gpus

    @property
    def usd_per_million(self) -> float | None:
        """Dollars per million answered tokens."""
        if self.usd_per_gpu_hour is None:
            return None
        return self.num_gpus * self.usd_per_gpu_hour / 3600 / self.tokens_per_s * 1e6

    @property
    def size(self) -> str:
        """How one replica is laid out."""
        pp = f", pp {self.split.pp}" if self.split.pp > 1 else ""
        spread = ", attention by request" if self.split.spread else ""
        return f"tp {self.split.tp}{pp}{spread}"

    @property
    def label(self) -> str:
        return f"{self.size}{', prefill apart' if self.apart else ''}"

    def to_json(self) -> JsonObject:
        """Return the figures as plain data."""
        return {
            "tp": self.split.tp, "pp": self.split.pp, "attention_by_request": self.split.spread,
            "prefill_apart": self.apart, "replicas": self.num_replicas, "prefill_replicas": self.num_prefill,
            "gpus": self.num_gpus, "tokens_per_s": self.tokens_per_s, "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "usd_per_million_tokens": self.usd_per_million, "most_requests_per_s_per_replica": self.most_rate,
            "sequences": self.at.batch, "most_sequences": self.most_batch, "busy": self.at.busy,
            "first_token_p50_s": self.at.first_token_p50_s, "first_token_p99_s": self.at.first_token_p99_s,
            "between_tokens_p50_s": self.at.between_p50_s, "between_tokens_p99_s": self.at.between_p99_s,
            "saturates_at_requests_per_s": self.saturates_at,
            "network_share": self.at.network_share, "cache_sent_s": self.at.cache_sent_s,
            "decode_pass_s": self.parts_s, "keeps_slo": self.keeps_slo, "enough_gpus": self.enough,
        }  # fmt: skip


@dataclass(frozen=True)
class Serving:
    """The best way to serve a load, and the runners-up."""

    cluster: str
    job: Job
    gpu: str
    best: ServingOption
    others: tuple[ServingOption, ...]
    unlimited: ServingOption | None  # the best on a network without limits
    note: str
    basis: str  # of the price: owned, or who rents; empty: not priced
    prices: tuple[Uncertain, ...] = ()  # what is uncertain about it
    least_s: tuple[float, float] = (0.0, 0.0)  # first token and between tokens, p99: the shortest that any way has

    @property
    def question(self) -> str:
        """The model and the load, in words."""
        load = self.job.load
        assert load is not None
        return (
            f"{self.job.model.name}, {load.rate:g} requests/s, prompts of {load.prompt.mean:,.0f} tokens "
            f"(p99 {load.prompt.p99:,.0f}), answers of {load.answer.mean:,.0f}"
        )

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the job leaves unsaid, and how to say it."""
        load, said = self.job.load, []
        assert load is not None
        if load.prompt.p99 <= load.prompt.mean:
            mean = load.prompt.mean
            said.append(
                f"every prompt has {mean:,.0f} tokens, so the p99 of the first token knows no long ones; where they "
                f"differ, write load.prompt as {{mean: {mean:.0f}, p99: {4 * mean:.0f}}}"
            )
        if "engine" not in self.job.model_fields_set:
            said.append("a tuned engine; write `engine: {name: vllm, tuned: false}` for one at its defaults")
        if "precision" not in self.job.model_fields_set:
            kept = stored_of(self.job)
            part = "experts' weights" if kept.experts_only else "weights"
            own = " as the checkpoint keeps them" if self.job.model.stored is not None else ""  # type: ignore[union-attr]
            said.append(f"{part} in {kept.weights}{own}; `precision: fp8` says otherwise")
        return tuple(said)

    def _spread(self, what: str) -> Spread:
        """Return how far off the rate, the time of a token or of the first may be."""
        kind = "dense" if self.job.model.moe is None else "experts"  # type: ignore[union-attr]
        return serve_spread(what, kind, self.job.engine.name, self.job.engine.tuned)

    @property
    def cost_interval(self) -> Interval | None:
        """Where the dollars per million tokens lie: published rates of such engines around the model's."""
        usd = self.best.usd_per_million
        if usd is None:
            return None
        measure = Narrowing("one run of the engine at this load", "`vllm bench serve`, trtllm-bench or their like", 1.1)
        return replace(self._spread("rate").inverse().of(usd), narrower=measure)

    @property
    def token_interval(self) -> Interval:
        """Where the median time between tokens lies: weights pass through memory for each."""
        return self._spread("token").of(self.best.at.between_p50_s).above(self.best.floor_s)

    @property
    def chance(self) -> float:
        """How likely the replicas keep up with the load, by what published rates were off."""
        return 1 - self._spread("rate").of(1.0).chance_below(self.best.at.busy)

    @property
    def network_usd_share(self) -> float:
        """The part of the GPUs that a network without limits would save."""
        return 0.0 if self.unlimited is None else 1 - self.unlimited.num_gpus / self.best.num_gpus

    def to_json(self) -> JsonObject:
        """Return the object that `syncline plan --json` prints for a serving job."""
        load, slo = self.job.load, self.job.slo
        assert load is not None
        return {
            "kind": "serve", "cluster": self.cluster, "job": self.job.name, "model": self.job.model.name,
            "gpu": self.gpu, "load": load.model_dump(), "slo": slo.model_dump(), "best": self.best.to_json(),
            "usd_per_million_tokens_interval": None if self.cost_interval is None else asdict(self.cost_interval),
            "between_tokens_p50_interval": asdict(self.token_interval), "chance_to_keep_up": self.chance,
            "served": self.best.serves, "least_first_token_p99_s": self.least_s[0],
            "least_between_tokens_p99_s": self.least_s[1], "basis": self.basis, "engine": self.job.engine.model_dump(),
            "weights": stored_of(self.job).weights,
            "others": [other.to_json() for other in self.others], "network_usd_share": self.network_usd_share,
            "note": self.note, "assumed": list(self.assumed), "ignores": list(IGNORES),
        }  # fmt: skip


def plan_serving(
    fabric: Fabric, job: Job, assumptions: Assumptions | None = None, prices: Prices | None = None,
    meter: Meter | None = None,
) -> Serving:  # fmt: skip
    """Return the cheapest way to serve a job's load within its limits."""
    if job.load is None or not isinstance(job.model, Shape):
        raise PlanError(
            "serving needs a transformer and a load.", hint="Add `load: {rate: 20, prompt: 1500, answer: 300}`."
        )
    money, note = money_of(fabric, job, assumptions, prices)
    usd, machine = money.usd_per_gpu_hour if money else None, machine_from_fabric(fabric)
    found = [
        way
        for split in metered(_splits(fabric, job), meter)
        for apart in (False, True)
        for way in _ways(fabric, job, machine, split, apart, usd)
    ]
    if not found:
        raise _nothing(fabric, job)
    ranked = sorted(found, key=_order)
    best = ranked[0]
    others = {way.label: way for way in ranked if way.label != best.label}
    unlimited = _ways(fabric, job, machine, best.split, best.apart, usd, network=False)
    calm = [_calmest(fabric, job, machine, way) for way in found]
    least = min(at.first_token_p99_s for at in calm), min(at.between_p99_s for at in calm)
    free = [way for way in unlimited if way.keeps_slo == best.keeps_slo]
    return Serving(
        fabric.name, job, machine.gpu.name, best, tuple(others.values())[:4],
        min(free, key=lambda way: way.num_gpus, default=None), note, money.basis if money else "",
        tuple(prices_of(money)) if money else (), least,
    )  # fmt: skip


def _order(way: ServingOption) -> tuple[bool, float, bool, int, float]:
    """Sort what keeps the limits by GPUs, then what comes closest to them."""
    return not way.keeps_slo, max(way.over, 1.0), not way.enough, way.num_gpus, way.at.between_p99_s


def _splits(fabric: Fabric, job: Job) -> list[Split]:
    """Return the splits of a replica: those of the job where it says, else tensor ranks that divide the heads."""
    shape, stated = job.model, job.parallel
    assert isinstance(shape, Shape)
    if stated.model_fields_set & {"tp", "pp"}:
        return _both_attentions(Split(stated.tp, stated.pp), shape)
    ranks = [t for t in divisors(shape.heads) if t <= min(fabric.num_gpus, 64) and (t & (t - 1)) == 0]
    stages = [p for p in (1, 2, 4) if shape.layers >= p]
    splits = [Split(t, p) for t in ranks for p in stages if t * p <= fabric.num_gpus]
    return [way for split in splits for way in _both_attentions(split, shape)]


def _both_attentions(split: Split, shape: Shape) -> list[Split]:
    """Return a split and, where there are experts to share, the one whose ranks attend to requests of their own."""
    return [split, replace(split, spread=True)] if shape.moe and split.tp > 1 else [split]


def _ways(
    fabric: Fabric, job: Job, machine: Machine, split: Split, apart: bool, usd: float | None, network: bool = True
) -> list[ServingOption]:
    """Return the busiest that replicas of one split can be within the limits, or the calmest where none keeps them."""
    load = job.load
    assert load is not None
    try:
        engine = (Engine if network else _Unlimited)(fabric, job, split, machine)
        most = most_rate(engine, load)
    except SynclineError:
        return []
    if most <= 0:
        return []
    tried = []
    for share in SHARES:
        rate = share * most
        at = steady(engine, load, rate, apart)
        if at.keeps_up:
            tried.append((_over(job, at), rate, at))
    if not tried:
        return []
    kept = [entry for entry in tried if entry[0] <= 1]
    over, rate, at = kept[-1] if kept else tried[0]
    keeps = over <= 1
    replicas = math.ceil(load.rate / rate - 1e-9)
    at, beside = steady(engine, load, load.rate / replicas, apart), 0
    if apart:  # as few for prefill as keep the limits that one a replica keeps
        fewest = max(1, math.ceil(replicas * at.prefill_share / BUSIEST))
        for beside in range(fewest, max(fewest, replicas) + 1):
            at = steady(engine, load, load.rate / replicas, apart, replicas / beside)
            if _over(job, at) <= 1 or not keeps:
                break
    return [
        ServingOption(split, apart, replicas, (replicas + beside) * split.num_gpus, load, at, most,
                      most_batch(engine, load), usd,
                      engine.decode_parts(at.batch, load.prompt.mean + load.answer.mean / 2), keeps, fabric.num_gpus,
                      over, engine.floor_s)
    ]  # fmt: skip


def _calmest(fabric: Fabric, job: Job, machine: Machine, way: ServingOption) -> Steady:
    """Return what a single user at a time sees of one replica."""
    assert job.load is not None
    return steady(Engine(fabric, job, way.split, machine), job.load, 1e-3 * way.most_rate, way.apart)


class _Unlimited(Engine):
    """The same replica on a network that takes no time."""

    def _network_s(self, tokens: float) -> float:
        return 0.0

    def send_cache_s(self, tokens: float) -> float:
        return 0.0


def _over(job: Job, at: Steady) -> float:
    """Return the larger of both latencies over their limits; 0 where there are none."""
    first, between = job.slo.first_token, job.slo.between_tokens
    parts = [at.first_token_p99_s / first] if first else []
    return max([*parts, *([at.between_p99_s / between] if between else [])], default=0.0)


def _nothing(fabric: Fabric, job: Job) -> PlanError:
    """Say what is missing: memory for the weights of the widest replica, or for one sequence beside them."""
    shape, load = job.model, job.load
    assert isinstance(shape, Shape) and load is not None
    engines = [Engine(fabric, job, split) for split in _splits(fabric, job)]
    least = min(engines, key=lambda engine: engine.weight_bytes)
    tokens = load.prompt.mean + load.answer.mean
    weights, one = (units.show_size(x) for x in (least.weight_bytes, least.cache_bytes(tokens) + least.state_bytes))
    room = units.show_size(MEMORY_SHARE * least.machine.gpu.memory_bytes)
    stated = "" if job.parallel.model_fields_set & {"tp", "pp"} else ", the widest replica"
    return PlanError(
        f"{shape.name} cannot be served on {fabric.name}.",
        detail=f"On {least.split.num_gpus} GPUs{stated}, weights take {weights} and a sequence of {tokens:,.0f} tokens "
        f"{one} of each; engines have {room} for both.",
        hint="More GPUs, narrower weights (`precision: fp8`), or shorter prompts.",
    )
