"""A cost statement as one screen of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from rich.table import Table

from syncline.describe import units
from syncline.planning.cost.assumptions import Assumption
from syncline.planning.cost.break_even import BreakEven
from syncline.planning.cost.owning import Owning
from syncline.planning.cost.statement import IGNORES, Charge, Statement
from syncline.planning.decide.forecast import owned_interval
from syncline.questions.cost import CostAnswer
from syncline.report.table import columns
from syncline.report.text.check.run import forecast_lines, recovery_line
from syncline.report.text.lines import between

_WRAP = 107
FIRST_OF_FAILURES = 1
FIRST_OF_PRICES = 2


def first_lines(account: Statement, most: int | None) -> list[str]:
    """Return the answer: own or rent, what a GPU-hour costs, where the money goes, what failures take, what it buys."""
    models = " + ".join(f"{count:,} {gpu}" for gpu, count in account.gpus.items())
    owned, a = account.owned, account.owned.assumptions
    lines = [f"{account.name}: {models} in {owned.num_hosts:,} hosts", "", *wrapped("answer", _answer(account))]
    rents = [point.quote.hour_words(a.utilisation) for point in account.break_evens[:1]]
    known = f"{between(owned_interval(owned), _cents)}, as far as the ranges of the assumptions hold"
    lines += wrapped("GPU-hour", "; ".join([owned.hour_words, *rents]))
    lines += wrapped("", f"owned, {known}")
    largest = sorted(owned.yearly().items(), key=lambda item: -item[1])[:4]
    parts = ", ".join(f"{name} {usd / owned.usd_per_year:.0%}" for name, usd in largest)
    bought = f"{_to_buy(owned)} ({owned.network_share_of_capital:.0%} network)"
    lines += wrapped("owning", f"{bought}, {units.show_money(owned.usd_per_year)} a year: {parts}")
    return [*lines, *failure_lines(account)[:FIRST_OF_FAILURES], *run_lines(account, most)]


def comparison_table(account: Statement) -> Table:
    """Return owning against every cloud: price, saving, and where it breaks even."""
    a = account.owned.assumptions
    heads = ("", "$ a GPU-hour", "owning saves", "cheaper above", "after", "price of")
    table = columns([], heads, right=(1, 2, 3, 4))
    owned = f"owned, {a.years:g} years, {a.utilisation:.0%} used"
    table.add_row(owned, _cents(account.owned.usd_per_gpu_hour), "", "", "", "the assumptions below")
    for point in account.break_evens:
        table.add_row(point.quote.label, *_against(point, a.utilisation))
    return table


def money_table(account: Statement) -> Table:
    """Return where the money of an owner goes, with what each line follows from."""
    owned, a = account.owned, account.owned.assumptions
    left = f"over {a.years:g} years" + (f", resold at {a.resale:.0%}" if a.resale else "")
    why = {
        "hosts": f"{units.show_money(owned.hosts_usd)} {left}",
        "network": f"{units.show_money(owned.network_usd)} {left}: {owned.network_share_of_capital:.0%} of capital, "
        f"{owned.network_share_with_nics:.0%} with NICs, {owned.network_share_of_total:.0%} of all with its upkeep",
        "financing": f"{a.financing_rate:.1%} a year",
        "maintenance": f"{a.maintenance_rate:.1%} of capital a year",
        "facility": f"{units.show_power(owned.rated_power_w)} x ${a.facility_usd_per_kW:,.0f}/kW over "
        f"{a.facility_years:g} years; {_racks(owned)}",
        "racks": f"{owned.num_racks:,} racks x ${a.rack_usd_per_month:,.0f} a month",
        "power": f"{units.show_power(owned.mean_power_w)} on average x PUE {a.pue:g} x ${a.power_usd_per_kWh:g}/kWh",
        "wan": f"lines between sites, ${a.wan_usd_per_Gbps_month:g} per Gb/s and month unless stated",
        "people": f"{owned.num_ftes:.1f} people x {units.show_money(a.fte_usd_per_year)}, "
        f"one for {a.hosts_per_fte:g} hosts",
    }
    total = owned.usd_per_year
    rows = [
        (name, units.show_money(usd), f"{usd / total:.0%}", why[name])
        for name, usd in sorted(owned.yearly().items(), key=lambda item: -item[1])
        if usd
    ]
    rows.append(("total", units.show_money(total), "", _to_buy(owned)))
    return columns(rows, ("owned", "a year", "share", "from"), right=(1, 2))


def _to_buy(owned: Owning) -> str:
    spares = owned.spare_hosts
    return f"{units.show_money(owned.to_buy_usd)} to buy" + (
        f", {spares} spare host{'s' * (spares != 1)} with it" if spares else ""
    )


def _racks(owned: Owning) -> str:
    others, most = owned.num_racks - owned.whole_racks, f"of up to {owned.assumptions.rack_kW:g} kW"
    if not owned.whole_racks:
        return f"{others:,} rack{'' if others == 1 else 's'} {most}"
    each = units.show_power(owned.whole_racks_power_w / owned.whole_racks)
    sold = f"{owned.whole_racks:,} rack{'' if owned.whole_racks == 1 else 's'} of {each} as sold"
    return sold + (f" and {others:,} {most}" if others else "")


def failure_lines(account: Statement) -> list[str]:
    """Return what failures do to the job: goodput, and where it comes from."""
    losses, found = account.failures, account.failures.recovery
    lost = ", ".join(f"{value:.1%} {name}" for name, value in found.lost_by.items())
    money = f"{units.show_money(losses.lost_usd)} a year"
    share = found.rate.network_share
    network = f"; {share:.0%} of failures are the network's" if share is not None else ""
    parts = f"{account.cable_failures:,.1f} cables and switches fail a year{network}"
    return [
        f"  {'failures':<10} goodput {found.goodput:.1%} of {losses.job} on {found.parts.num_gpus:,} GPUs; "
        f"the rest is worth {money}",
        *wrapped("", f"goodput {recovery_line(found)}"),
        *wrapped("", f"lost: {lost}; {parts}"),
    ]


def run_lines(account: Statement, most: int | None = None) -> list[str]:
    """Return what the job costs, what a budget buys and when an upgrade pays back: at the first prices, or at all."""
    lines: list[str] = []
    if account.budget_usd is not None and not account.bought:
        lines += wrapped("budget", "no cloud of the price table rents these GPUs, and it does not buy them")
    if account.run is not None:
        days = account.run_days
        time = f"step {units.show_time(account.run.step_time_s)}" + (f", run {days:,.1f} days" if days else "")
        lines += wrapped("job", f"{time}; goodput {account.failures.goodput:.1%} counted in tokens and runs")
        lines += [line for charge in account.charges[:most] for line in wrapped("", _charge(charge))]
    for number, (basis, bought) in enumerate(account.bought[:most]):
        more = f", {bought.num_steps:,} steps" if bought.num_steps is not None else ""
        more += f", {units.show_count(bought.tokens)} tokens" if bought.tokens is not None else ""
        text = f"{basis}: {bought.gpu_hours:,.0f} GPU-hours, {bought.days:,.1f} days of the cluster{more}"
        lines += wrapped("" if number else "budget", text)
    for number, (basis, upgrade) in enumerate(account.upgrades[:most]):
        months = f"{upgrade.months:,.1f} months" if math.isfinite(upgrade.months) else "never"
        worth = f"saves {upgrade.time_saved:.1%}, {units.show_money(upgrade.usd_per_day)} a day"
        text = f"{basis}: {worth}; pays back: {months}"
        lines += wrapped("" if number else "upgrade", text)
    return lines


def assumption_lines(account: Statement) -> list[str]:
    """Return the assumptions by who answers for them, and what is left out."""
    rows = [row for row in account.assumptions if row.value is not None]
    mine = [row for row in rows if row.origin != "default"]
    guessed = [row for row in rows if row.origin == "default" and row.source.startswith("assumed")]
    sourced = [row for row in rows if row.origin == "default" and not row.source.startswith("assumed")]
    lines = wrapped("yours", _values(mine)) if mine else []
    lines += wrapped("assumed", _values(guessed))
    lines += wrapped("sourced", f"{_values(sourced)}; prices: {account.prices_source}")
    lines += [line for note in account.owned.notes for line in wrapped("note", note)]
    if account.owned.unpriced:
        lines += wrapped("no price", f"{', '.join(account.owned.unpriced)}: counted as 0")
    return [*lines, *wrapped("left out", ", ".join(IGNORES))]


def assumption_table(account: Statement) -> Table:
    """Return every assumption with its source."""
    rows = [(row.name, _value(row), row.unit, row.source) for row in account.assumptions]
    return columns(rows, ("assumption", "value", "unit", "source"), right=(1,))


def wrapped(label: str, text: str) -> list[str]:
    """Return a labelled paragraph, its later lines under the first word."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= _WRAP:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [f"  {label if not number else '':<10} {line}" for number, line in enumerate(lines)]


def _answer(account: Statement) -> str:
    owned = _cents(account.owned.usd_per_gpu_hour)
    if not account.break_evens:
        return f"A GPU-hour costs {owned} to own. No cloud in {account.prices_source} rents these GPUs."
    a = account.owned.assumptions
    point, budget, capital = account.break_evens[0], account.budget_usd, account.owned.to_buy_usd
    if budget is not None and capital > budget:
        longest = max(account.bought, key=lambda each: each[1].days)
        return (
            f"Rent it: {units.show_money(budget)} does not buy the cluster, which is {units.show_money(capital)}. At "
            f"{longest[0]} it pays for {longest[1].days:,.1f} days of all {longest[1].num_gpus:,} GPUs."
        )
    rent = f"{_cents(point.quote.usd_per_used_gpu_hour(a.utilisation))} at {point.quote.cloud}, the cheapest rent"
    rent = rent if len(account.break_evens) > 1 else rent.replace(", the cheapest rent", "")
    if point.saving >= 0:
        after = f"after {point.years:.1f} years" if math.isfinite(point.years) else "never"
        use = f"above {point.utilisation:.0%} use over {a.years:g} years, or {after} at {a.utilisation:.0%} use"
        use = use if point.utilisation > 0 else f"at any use, {after}"
        return f"Own it: a GPU-hour costs {owned} against {rent} ({point.saving:.0%} less). Cheaper {use}."
    if point.utilisation > 1:
        return (
            f"Rent it: a GPU-hour costs {owned} to own against {rent}, and no use over {a.years:g} years changes that."
        )
    need = f"{point.utilisation:.0%} use; {a.utilisation:.0%} is assumed"
    return f"Rent it: a GPU-hour costs {owned} to own against {rent}. Owning needs {need}."


def _against(point: BreakEven, utilisation: float) -> tuple[str, ...]:
    lease = point.quote.leases[0].price
    above = "never" if point.utilisation > 1 else f"{point.utilisation:.0%} use" if point.utilisation else "any use"
    after = f"{point.years:.1f} years" if math.isfinite(point.years) else "never"
    terms = f"committed, {point.quote.discount:.0%} off" if point.quote.committed else "on demand"
    region = (
        lease.regions[0] + (f" +{len(lease.regions) - 1}" if len(lease.regions) > 1 else "") if lease.region else ""
    )
    made = ", ".join(filter(None, (lease.date or "no date", terms, region)))
    price = _cents(point.quote.usd_per_used_gpu_hour(utilisation))
    return (price, f"{point.saving:.0%}", above, after, made)


def _charge(charge: Charge) -> str:
    parts = [f"{_cents(charge.usd_per_step)} a step"]
    if charge.usd_per_token is not None:
        parts.append(f"{_cents(charge.usd_per_token * 1e6)} a million tokens")
    if charge.usd_per_run is not None:
        parts.append(f"{units.show_money(charge.usd_per_run)} the run")
    return f"{charge.basis}: {', '.join(parts)}"


def _values(rows: Iterable[Assumption]) -> str:
    return ", ".join(f"{row.name} {_value(row)}" for row in rows)


def _value(row: Assumption) -> str:
    if row.value is None:
        return "-"
    return f"{row.value:g}" if isinstance(row.value, float) and row.value < 1e5 else str(row.value).removesuffix(".0")


def _cents(usd: float) -> str:
    return f"${usd:,.2f}" if abs(usd) >= 0.1 else f"${usd:.3g}"


def text(answer: CostAnswer, width: int) -> Iterator[str | Table]:
    """Yield the answer; on demand all of it, every assumption with its source where that was asked for."""
    account = answer.statement
    yield from first_lines(account, None if answer.more else FIRST_OF_PRICES)
    run = forecast_lines(answer.forecast) if answer.forecast else [f"not planned: {answer.note}"] if answer.note else []
    for number, words in enumerate(run):
        yield from wrapped("" if number else "run", words)
    if not answer.more:
        yield from wrapped("more", "--more shows every cloud, where the money goes, failures and assumptions")
        return
    yield from failure_lines(account)[FIRST_OF_FAILURES:]
    yield ""
    yield comparison_table(account)
    yield ""
    yield money_table(account)
    yield ""
    if answer.sources:
        yield assumption_table(account)
    else:
        yield from assumption_lines(account)
