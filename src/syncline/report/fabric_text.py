"""A fabric's inventory as one screen of text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from syncline import units
from syncline.fabric.bill import Bill
from syncline.fabric.inventory import Inventory


def inventory_lines(inventory: Inventory) -> list[str]:
    """Return the summary: what it is, what joins it, how fast, how far, how much."""
    models = " + ".join(f"{count:,} {model}" for model, count in inventory.gpu_models.items())
    hosts = f"{inventory.num_hosts:,} host{'s' * (inventory.num_hosts != 1)}"
    lines = [f"{inventory.name}: {models} in {hosts}, {inventory.topology}", ""]
    lines += [_row("network", _network(inventory)), _row("bandwidth", _bandwidth(inventory))]
    if inventory.hops:
        mean, most = inventory.hops["mean"], inventory.hops["max"]
        lines.append(_row("paths", f"{mean:.1f} switches between two hosts on average, at most {most:.0f}"))
    if inventory.num_nvswitch_domains:
        lines.append(_row("scale-up", _scale_up(inventory)))
    if inventory.max_endpoints:
        lines.append(_row("room", f"{inventory.num_endpoints:,} of at most {inventory.max_endpoints:,} endpoints used"))
    if inventory.links_down:
        lines.append(_row("faults", f"{inventory.links_down:,} directed links are down"))
    lines.append(_row("price", _price(inventory.bill)))
    lines.append(_row("power", f"{units.show_power(inventory.bill.power_w)} (hosts at their rated maximum)"))
    if inventory.bill.unpriced:
        lines.append(_row("no price", ", ".join(inventory.bill.unpriced)))
    return lines


def bill_table(bill: Bill) -> Table:
    """Return the bill of materials as a table."""
    table = Table(box=None, pad_edge=False)
    for heading in ("part", "count", "each", "total", "power", "price from"):
        table.add_column(heading, justify="left" if heading in ("part", "price from") else "right", overflow="fold")
    for line in bill.lines:
        each = "-" if line.unit_price_usd is None else units.show_money(line.unit_price_usd)
        total = "-" if line.unit_price_usd is None else units.show_money(line.price_usd)
        source = f"estimate: {line.source}" if line.is_estimate else line.source
        table.add_row(line.part, f"{line.count:,}", each, total, units.show_power(line.power_w), source)
    return table


def _row(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _network(inventory: Inventory) -> str:
    count = sum(inventory.switches.values())
    if count == 0 and not inventory.cables:
        return "none"
    tiers = " + ".join(f"{n:,} {name}" for name, n in inventory.switches.items())
    cables = sum(inventory.cables.values())
    optical = f", {inventory.num_optical_switches} optical switches" if inventory.num_optical_switches else ""
    text = f"{count:,} switches ({tiers})" if count else "no switches"
    return f"{text}{optical}, {inventory.num_ports:,} switch ports in use, {cables:,} cables"


def _bandwidth(inventory: Inventory) -> str:
    ratios = ", ".join(f"{tier} {ratio:.3g}:1" for tier, ratio in inventory.oversubscription.items())
    rate = units.show_bandwidth(inventory.bisection.rate_Bps)
    return f"bisection {rate} (halves: {inventory.bisection.split}); oversubscription {ratios or 'none'}"


def _scale_up(inventory: Inventory) -> str:
    size = inventory.num_gpus // inventory.num_nvswitch_domains
    return f"{inventory.num_nvswitch_domains:,} NVLink domains of {size} GPUs"


def _price(bill: Bill) -> str:
    share = bill.network_price_usd / bill.price_usd if bill.price_usd else 0.0
    estimates = "; estimates among the prices, see below" if any(line.is_estimate for line in bill.lines) else ""
    total, network = units.show_money(bill.price_usd), units.show_money(bill.network_price_usd)
    return f"{total}, of which network {network} ({share:.0%}, without NICs){estimates}"


def columns(rows: Sequence[Sequence[str]], headings: Sequence[str]) -> Table:
    """Return plain rows as a borderless table."""
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table
