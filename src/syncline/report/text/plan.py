"""The answer of `syncline plan` as one screen of text: answer, limit, first three actions with their worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from syncline.describe import units
from syncline.planning.answer import PlanResult
from syncline.planning.compare import FabricRanking
from syncline.planning.decide.prospects import Prospects
from syncline.planning.money import Money
from syncline.planning.plan import Plan
from syncline.planning.sensitivity import Improvement
from syncline.questions.plan import ClusterAnswer, FabricComparison, PlanAnswer
from syncline.report.text.check.run import option_table, recovery_line, run_lines, spare_table
from syncline.report.text.clusters.side_by_side import cluster_lines
from syncline.report.text.lines import between, chance_words, folded, interval_lines, per_million
from syncline.sim.step.step import IGNORES
from syncline.sim.uncertainty import Interval
from syncline.timeline.account import Account, StepCause

GIB = 2**30
YEAR_DAYS = 365.0
_AXES = {"zero": "ZeRO", "sp": "sequence parallelism", "tp_overlap": "overlap", "dp_overlap": "overlap"}
NOT_THE_LIMIT = 0.03  # a network that costs less of the time is not what to work on
_PARTS = {
    "compute": "arithmetic", "tp": "tensor-parallel exchange", "cp": "context-parallel exchange",
    "ep": "expert exchange", "host": "waiting for the host",
    "fsdp": "parameter gathering", "dp": "gradient exchange", "p2p": "between stages",
    "bubble": "pipeline bubble", "optimizer": "optimizer", "fixed": "fixed", "codec": "encoding", "storage": "storage",
}  # fmt: skip


def part_name(part: str) -> str:
    """Return a part of the step in words."""
    return _PARTS.get(part, part)


def plan_lines(answer: PlanResult, more: bool = True) -> list[str]:
    """Return the answer in about ten lines, and with `more` everything under it."""
    lines = [headline(answer.best), "", *first_lines(answer)]
    lines += ["", *more_lines(answer)] if more else ["  more       --more shows all of it, --html PAGE writes it"]
    return [part for line in lines for part in folded(line)]


def first_lines(answer: PlanResult) -> list[str]:
    """Return date, money and chances; whether it fits; how it runs; what limits it; what to do; what is assumed."""
    plan, run = answer.best, answer.run
    p, cost = plan.predicted, plan.cost
    lines = [f"  warning    {text}" for text in answer.notes if text.startswith("the start ")]
    lines += [f"  warning    {text}" for text in p.warnings]
    lines += [f"  faults     {text}" for text in fault_lines(answer)]
    lines += run_lines(run) if run is not None else []
    priced = f"; {per_million(cost.cost_per_token_usd)} per million tokens" if cost else ""
    lines.append(f"  step       {speed_words(plan)}; {_nine(p.interval, units.show_time)}{priced}")
    if cost is not None and answer.money is not None:
        lines.append(f"  GPU-hour   {answer.money.hour_words}; goodput {cost.goodput:.1%}{lost_words(answer)}")
    else:
        lines.append(f"  cost       {cost_line(answer)}")
    lines.append(f"  fits       {memory_words(plan)}")
    lines.append(f"  layout     {plan.decision.label}")
    if answer.given is not None:
        lines.append(f"  job file   {given_line(answer)}")
    elif answer.given_problem:
        lines.append(f"  job file   its own split does not work: {answer.given_problem}")
    lines.append(f"  limit      {limit_line(plan)}")
    lines.append(f"  do first   {'; '.join(do_first(answer, 1)[: 1 if answer.worthwhile else 2]).removeprefix('1. ')}")
    lines += [f"  assumed    {text}" for text in assumed_words(answer)]
    if p.interval.narrower is not None:
        narrower = p.interval.narrower
        lines.append(f"  narrower   {narrower.measure}: 9 of 10 steps within x{narrower.width:.1f}; {narrower.command}")
    return lines


def more_lines(answer: PlanResult) -> list[str]:
    """Return what the answer rests on, and what else was tried."""
    plan, found = answer.best, answer.recovery
    lines = [f"  {'' if k else 'step':<10} {text}" for k, text in enumerate(answer_lines(plan))]
    lines.append(f"  time       {time_line(plan.predicted.account)}")
    lines.append(f"  memory     {memory_line(plan)}")
    lines.append(f"  cost       {cost_line(answer)}")
    if found is not None:
        lines.append(f"  goodput    {recovery_line(found)}")
    lines += [f"  assumed    {text}" for text in answer.assumed]
    lines += ["", "  do first", *(f"    {text}" for text in do_first(answer))]
    if answer.run is not None:
        lines += ["", *option_table(answer.run), "", *spare_table(answer.run.now.forecast)]
    return [*lines, "", *other_lines(answer), *point_lines(answer), *foot_lines(answer)]


def speed_words(plan: Plan) -> str:
    """Return how fast a plan is."""
    p = plan.predicted
    return f"{units.show_time(p.step_time_s)}, {p.tokens_per_s:,.0f} tokens/s, MFU {p.mfu:.1%}"


def _nine(interval: Interval, show: Callable[[float], str]) -> str:
    low, high = (show(end) for end in interval.p90)
    return f"9 of 10 from {low} to {high}"


def lost_words(answer: PlanResult) -> str:
    """Return what takes the rest of the time, the largest first."""
    found = answer.recovery
    lost = sorted(found.lost_by.items(), key=lambda item: -item[1]) if found is not None else []
    words = ", ".join(f"{value:.1%} {name}" for name, value in lost if value >= 5e-4)
    return f": {words}" if words else ""


def assumed_words(answer: PlanResult) -> list[str]:
    """Return what stands in for what neither file says: spare hosts, and the rest of it counted."""
    found, lines = answer.recovery, []
    if found is not None and found.parts.spares is None and not found.parts.rents and found.standby.losses_per_s:
        bare, enough = found.with_spares(0), found.standby.enough
        days = answer.run.now.forecast.work_days / bare.goodput if answer.run else None
        took = f" and the run takes {days:,.0f} days" if days else ""
        if enough:
            waits = f"with none it waits for repairs, {found.standby.repair_s / 3600:,.0f} h each as published"
            ends = f"goodput is then {bare.goodput:.0%}{took}"
            lines.append(f"a spare host whenever one fails (`spares: {enough}` does); {waits}: {ends}")
    if answer.assumed:
        rest = f", and {len(answer.assumed) - 1} more (--more)" if len(answer.assumed) > 1 else ""
        lines.append(f"{answer.assumed[0]}{rest}")
    return lines


def headline(plan: Plan) -> str:
    """Return who is asked about what."""
    idle = plan.num_gpus - plan.decision.num_gpus
    spare = f" ({idle:,} idle)" if idle > 0 else ""
    return (
        f"{plan.model} on {plan.cluster}: {plan.num_gpus:,} {plan.gpu}{spare}, {plan.tokens_per_step:,} tokens a step"
    )


def answer_lines(plan: Plan) -> list[str]:
    """Return how fast, and how the job is run."""
    p = plan.predicted
    lines = [f"{speed_words(plan)} (predicted)", *interval_lines(p.interval, units.show_time)]
    if p.closed_form_s is not None:
        gap = p.step_time_s / p.closed_form_s - 1
        lines.append(f"executed at flow level; the closed form says {units.show_time(p.closed_form_s)} ({gap:+.1%})")
    if plan.decision.algorithm:
        bucket = units.show_size(plan.decision.bucket_bytes)
        lines.append(
            f"gradients: {plan.decision.algorithm} exchange in buckets of {bucket}{_bought(plan)}; {_placed(plan)}"
        )
    return lines


def fault_lines(answer: PlanResult) -> list[str]:
    """Return what the cluster file says is broken, and what that costs against the healthy cluster."""
    if not answer.faults:
        return []
    repaired = next((action for action in answer.actions if action.name == "repair"), None)
    if repaired is None or repaired.saving <= 0:
        return [f"{answer.faults}; the healthy cluster would not be faster"]
    now, healthy = answer.best.predicted.step_time_s, repaired.step_time_s
    words = f"{answer.faults}: {units.show_time(now)} a step, {units.show_time(healthy)} on the healthy cluster"
    cost = worth_words(repaired, answer.run)
    return [f"{words} ({repaired.saving:.1%} less{f', {cost}' if cost else ''})"]


def _bought(plan: Plan) -> str:
    """Return what the choice of algorithm and bucket saves, where that can be seen."""
    saved = plan.exchange.saved_s if plan.exchange else 0.0
    if abs(saved) < 0.0005 * plan.predicted.step_time_s:
        return ""
    words = "less" if saved > 0 else "more"
    return f" ({units.show_time(abs(saved))} {words} than a ring of 25 MiB)"


def _placed(plan: Plan) -> str:
    known = {
        "packed": "ranks packed by rack",
        "stages": "stages on different sites",
        "spread": "hosts spread over racks",
    }
    return known.get(plan.decision.placement, f"ranks {plan.decision.placement}")


def limit_line(plan: Plan) -> str:
    """Return what limits the step, and what comes next."""
    limit = plan.limit
    link = f" over {limit.then_link}" if limit.then_link else ""
    words = f"{limit.words}, {limit.share:.0%} of the step"
    if limit.then != limit.what:
        words += f"; then {limit.then_words}{link}, {limit.then_share:.1%}"
    return words


def time_line(account: Account, most: int = 4) -> str:
    """Return the largest lines of a step's account, and what a network without limits saves with this split."""
    step_s = account.step_s
    ranked = sorted(account.lines, key=lambda line: -line.seconds)[:most]
    words = [
        f"{line.what} {line.seconds / account.step_s:.1%}" for line in ranked if line.seconds > 5e-4 * account.step_s
    ]
    removal = account.removal(StepCause.NETWORK)
    if removal is not None and removal.saves_s > 0.005 * step_s:
        words.append(f"networks without limits, in hosts and between them, would save {removal.saves_s / step_s:.1%}")
    return ", ".join(words)


def memory_words(plan: Plan) -> str:
    """Return how full the fullest GPU is, and how likely it fits."""
    p = plan.predicted
    share = p.memory_bytes / p.memory_available_bytes if p.memory_available_bytes else 0.0
    held = f"{p.memory_bytes / GIB:.1f} of {p.memory_available_bytes / GIB:.0f} GiB a GPU ({share:.0%})"
    return f"{held}, fits with {chance_words(p.fit_chance)}"


def memory_line(plan: Plan) -> str:
    """Return what the fullest GPU holds."""
    p = plan.predicted
    ranked = sorted(((v, k) for k, v in p.memory_by.items()), reverse=True)[:3]
    largest = ", ".join(f"{name} {value / GIB:.0f}" for value, name in ranked)
    return f"{memory_words(plan)}: {largest}; {between(p.memory_interval, units.show_size)}"


def cost_line(answer: PlanResult) -> str:
    """Return the money of the best plan."""
    cost = answer.best.cost
    if cost is None:
        return answer.notes[0] if answer.notes else "not priced"
    step = units.show_money(cost.usd_per_step)
    sure = answer.cost_interval
    known = f" ({between(sure, per_million)})" if sure else ""
    return (
        f"{per_million(cost.cost_per_token_usd)} per million tokens{known}, {step} a step, goodput {cost.goodput:.1%}; "
        f"a GPU-hour {answer.money.hour_words if answer.money else cost.basis}"
    )


def given_line(answer: PlanResult) -> str:
    """Return how the job file's own split does."""
    assert answer.given is not None
    given, best = answer.given, answer.best.predicted.step_time_s
    fits = "" if given.fits else ", and does not fit in memory"
    return f"its own split takes {units.show_time(given.step_time_s)}, {given.step_time_s / best - 1:+.1%}{fits}"


def do_first(answer: PlanResult, most: int = 3) -> list[str]:
    """Return what is worth doing, and whether the network is worth buying at all."""
    worth = answer.worthwhile
    lines = [f"{k}. {action_line(action, answer.money, answer.run)}" for k, action in enumerate(worth[:most], 1)]
    if not worth:
        lines.append(f"nothing: no change that was tried saves more than the answer can tell, {answer.tie_within:.0%}")
    if not any(action.kind == "hardware" for action in worth):
        lines.append(buy_nothing(answer))
    return lines


def buy_nothing(answer: PlanResult) -> str:
    """Return why no hardware is among what to do first."""
    if answer.network_bound is None:
        return "buy nothing: no hardware that was tried earns its price"
    bound = f"without limits it would save {answer.network_bound:.1%} of the time"
    rented = answer.money is not None and not answer.money.owned
    if answer.network_bound < NOT_THE_LIMIT:
        return f"buy nothing: the network between hosts is not your limit ({bound})"
    if rented:
        return f"the network between hosts costs time ({bound}); rented ones cannot be rebuilt: compare instances"
    return f"buy nothing: no network that was tried earns its price ({bound})"


def of_run(action: Improvement, run: Prospects | None) -> float | None:
    """Return what a change that costs nothing saves of a run that is over within a year; None: count by the year."""
    if run is None or action.price_usd or action.usd_per_year is None or run.now.forecast.days >= YEAR_DAYS:
        return None
    return action.saving * run.now.forecast.usd


def worth_words(action: Improvement, run: Prospects | None) -> str:
    """Return what a change saves: of the run where that is shorter than a year, else a year."""
    saved = of_run(action, run)
    if saved is not None:
        return f"{units.show_money(saved)} of this run"
    return "" if action.usd_per_year is None else f"{units.show_money(action.usd_per_year)} a year"


def action_line(action: Improvement, money: Money | None = None, run: Prospects | None = None) -> str:
    """Return one action with its worth."""
    words = ", ".join(filter(None, [f"{action.words}: {action.saving:.1%} less time", worth_words(action, run)]))
    saved = of_run(action, run)
    if saved is not None:
        words += f"; {units.show_money(action.chance * saved)} {_if_it_works(action)}"
        return words + ("; changes training: check convergence" if action.kind == "numerics" else "")
    if action.price_usd:
        never = action.payback_years is None or action.payback_years > 99
        back = "never pays back" if never else f"pays back in {action.payback_years or 0.0:.1f} years"
        words += f"; costs {units.show_money(action.price_usd)}, {back}"
    net = action.net_usd_per_year(money.assumptions.years) if money is not None else None
    if net is not None:
        words += f"; {units.show_money(net)} a year after its price, {_if_it_works(action)}"
    return words + ("; changes training: check convergence" if action.kind == "numerics" else "")


def _if_it_works(action: Improvement) -> str:
    """Say by how much the worth was cut, and that nobody counted how often such changes deliver."""
    return f"assuming that {10 * action.chance:.0f} of 10 such changes deliver"


def other_lines(answer: PlanResult, most: int = 3) -> list[str]:
    """Return the best plans with another split."""
    best = answer.best.predicted.step_time_s
    others = answer.others[:most]
    alike: dict[str, list[Plan]] = {}
    for o in others:
        tie = " (a tie)" if answer.is_tie(o) else ""
        alike.setdefault(f"{o.predicted.step_time_s / best - 1:+.1%}{tie}  {o.decision.label}", []).append(o)
    lines = [
        f"  {'next best ' if not k else '          '} {line}{_differ(found)}"
        for k, (line, found) in enumerate(alike.items())
    ]
    if any(answer.is_tie(o) for o in others):
        known = f"a tie: within {answer.tie_within:.0%}, the usual error between two runs of one published sweep"
        lines.append(f"{'':13}{known}")
    return lines


def _differ(plans: list[Plan]) -> str:
    """Say in what plans differ whose lines read alike."""
    if len(plans) == 1:
        return ""
    first, *rest = (vars(plan.decision) for plan in plans)
    names = [_AXES.get(name, name.replace("_", " ")) for name in first if any(one[name] != first[name] for one in rest)]
    return f" ({len(plans)} that differ in {' and '.join(names)} alone)" if names else f" ({len(plans)} alike)"


def point_lines(answer: PlanResult) -> list[str]:
    """Return time against money by number of GPUs."""
    if not answer.points:
        return []
    lines = ["", f"  {'GPUs':>8} {'step':>10} {'tokens/s':>12} {'per M tokens':>13}"]
    for point in answer.points:
        money = per_million(point.cost_per_token_usd)
        step = units.show_time(point.step_time_s)
        lines.append(f"  {point.num_gpus:>8,} {step:>10} {point.tokens_per_s:>12,.0f} {money:>13}  {point.label}")
    return lines


def foot_lines(answer: PlanResult) -> list[str]:
    """Return how much was looked at, and what the model ignores."""
    found = answer.found
    rest = "" if found.complete else " before it was interrupted"
    lines = ["", f"  looked at  {found.num_considered:,} configurations, {found.num_fitting:,} fit in memory{rest}"]
    lines += [f"  placement  {text}" for text in answer.notes if text.startswith(("ranks placed", "one "))]
    return [*lines, f"  software   {software_line(answer)}", f"  ignores    {', '.join(IGNORES)}"]


def software_line(answer: PlanResult) -> str:
    """Return what the software is taken to run beside compute, as `syncline step` takes it."""
    facts, job = answer.result.facts, answer.result.job
    named = "" if job.software.framework != "auto" else " (assumed)"
    beside = {}
    if job.parallel.tp > 1:
        beside["tensor-parallel exchange"] = facts.tp_overlap
    if answer.best.decision.num_gpus > job.parallel.tp * job.parallel.pp:
        beside["gradients"] = facts.dp_overlap
    does = [f"{what} {'beside' if hidden else 'not beside'} compute" for what, hidden in beside.items()]
    return (
        f"{facts.framework} of {job.software.year}-{job.software.month:02d}{named}{': ' * bool(does)}{', '.join(does)}"
    )


def comparison_lines(comparison: FabricRanking) -> list[str]:
    """Return fabrics side by side, best first."""
    lines = [comparison.question, ""]
    heads = (
        f"{'step':>9} {'scattered':>9} {'hashed':>9} {'tokens/s':>11} {'capital':>9} {'network':>9} {'$/M tokens':>10}"
    )
    lines.append(f"  {'fabric':<20} {'GPUs':>6} {heads}  split")
    for row in comparison.fabrics:
        money = per_million(row.cost_per_token_usd)
        lines.append(
            f"  {row.name:<20} {row.num_gpus:>6,} {units.show_time(row.step_time_s):>9} "
            f"{units.show_time(row.scattered_step_time_s):>9} {units.show_time(row.hashed_step_time_s):>9} "
            f"{row.tokens_per_s:>11,.0f} "
            f"{units.show_money(row.capital_usd):>9} {units.show_money(row.network_usd):>9} {money:>10}  {row.short}"
        )
    lines += [f"  {each.fabric:<20} {each.reason}" for each in comparison.left_out]
    return [*lines, "", *(f"  {note}" for note in comparison.notes)]


def text(answer: PlanAnswer | FabricComparison | ClusterAnswer, width: int) -> Iterable[str]:
    """Return a plan, or several side by side."""
    match answer:
        case PlanAnswer():
            return plan_lines(answer.result, answer.more)
        case FabricComparison():
            return comparison_lines(answer.result)
        case ClusterAnswer():
            return cluster_lines(answer.result)
