"""A fabric's inventory as one screen of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from syncline.describe import units
from syncline.fabric.bill import BillLine
from syncline.fabric.inventory import Inventory
from syncline.questions.fabric import (
    ExportedFabric,
    ImportedFabric,
    InventoryAnswer,
    LinkList,
    PartKinds,
    PartList,
    PresetList,
    RouteAnswer,
)
from syncline.report.table import columns, table


def inventory_lines(inventory: Inventory) -> list[str]:
    """Return the summary: what it is, what joins it, how fast, how far, how much."""
    models = " + ".join(f"{count:,} {model}" for model, count in inventory.gpu_models.items())
    hosts = units.counted(inventory.hosts, "host")
    lines = [f"{inventory.name}: {models} in {hosts}, {inventory.topology}", ""]
    lines += [_row("network", _network(inventory)), _row("bandwidth", _bandwidth(inventory))]
    if inventory.hops:
        lines.append(_row("paths", _paths(inventory)))
    if inventory.nvlink_domains_by_gpus:
        lines.append(_row("scale-up", _scale_up(inventory)))
    if inventory.max_endpoints:
        lines.append(_row("room", f"{inventory.endpoints:,} of at most {inventory.max_endpoints:,} endpoints used"))
    if inventory.faults or inventory.links_down:
        lines.append(_row("faults", inventory.faults or f"{units.counted(inventory.links_down // 2, 'cable')} down"))
    lines.append(_row("price", _price(inventory)))
    lines.append(_row("power", f"{units.show_power(inventory.power_w)} (hosts at their rated maximum)"))
    return lines


def bill_table(bill: Sequence[BillLine]) -> Table:
    """Return the bill of materials as a table; the numbers in its last column are those of `bill_notes`."""
    table = columns([], ("part", "count", "each", "total", "power", "price from"), right=(1, 2, 3, 4))
    sources = _sources(bill)
    for line in bill:
        known = line.unit_price_usd is not None
        each = units.show_money(line.unit_price_usd) if line.unit_price_usd is not None else "-"
        total = units.show_money(line.price_usd) if known else "-"
        note = f"[{sources.index(_source(line)) + 1}]" if known else "no price known"
        table.add_row(line.part, f"{line.count:,}", each, total, units.show_power(line.power_w), note)
    return table


def bill_notes(bill: Sequence[BillLine]) -> list[str]:
    """Return where the prices of a bill come from."""
    return [f"[{number}] {source}" for number, source in enumerate(_sources(bill), start=1)]


def part_rows(part: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the fields of a catalogue part for people, without those that are empty; estimates with their range."""
    ranges = {row["figure"]: (row["low"], row["high"]) for row in part.get("estimates", ())}
    rows = [(key, _field(key, value)) for key, value in part.items() if key != "estimates"]
    return [(key, f"{shown}{_range(key, *ranges[key]) if key in ranges else ''}") for key, shown in rows if shown]


#: Kind of part -> what one chooses it by; all else stands in the view of one part.
_CHOSEN_BY: Mapping[str, Sequence[str]] = {
    "gpu": ("memory_bytes", "memory_Bps", "scale_up", "pcie", "power_w", "price_usd"),
    "scale_up": ("family", "link_Bps", "latency_s"),
    "scale_up_switch": ("link", "num_ports", "max_domain_gpus"),
    "pcie": ("num_lanes", "lane_usable_Bps", "latency_s"),
    "link": ("family", "rate_Bps", "usual_switch"),
    "nic": ("vendor", "num_ports", "max_Bps", "pcie", "power_w", "price_usd"),
    "switch": ("vendor", "modes", "power_w", "price_usd"),
    "cable": ("kind", "rate_Bps", "reach_m", "price_per_end_usd", "power_per_end_w"),
    "host": ("num_gpus", "gpu", "num_nics", "nic", "link", "power_w", "price_usd"),
}


def parts_table(kind: str, parts: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with one line for each part of a kind: its name, and what it is chosen by."""
    keys = _CHOSEN_BY[kind]
    figures = [
        n for n, key in enumerate(keys, start=1) if any(isinstance(part.get(key), int | float) for part in parts)
    ]
    rows = [(part["name"], *(_gist(key, part.get(key)) for key in keys)) for part in parts]
    return columns(rows, ("name", *keys), right=figures)


def _gist(key: str, value: Any) -> str:
    """Return a field in a few words: of a switch's ways to use its ports the first."""
    if key == "modes":
        return f"{value[0]['num_ports']} x {value[0]['link']}"
    return "-" if value is None else _field(key, value)


def _range(key: str, low: float, high: float) -> str:
    return f" (estimate: {_field(key, low)} to {_field(key, high)})"


def _field(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown}" for name, item in value.items() if (shown := _field(name, item)))
    if isinstance(value, list):
        return "; ".join(_field(key, item) for item in value)
    return units.show_by_name(key, value)


def _sources(bill: Sequence[BillLine]) -> list[str]:
    return list(dict.fromkeys(_source(line) for line in bill if line.unit_price_usd is not None))


def _source(line: BillLine) -> str:
    said = line.source.startswith("estimate")
    return f"estimate: {line.source}" if line.estimate and not said else line.source


def _row(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _network(inventory: Inventory) -> str:
    count, cables, optical = inventory.switches, inventory.cables, inventory.optical_switches
    if count == 0 and not inventory.cables_by_kind and not optical:
        return "none"
    tiers = " + ".join(f"{n:,} {name.removeprefix('switch ')}" for name, n in inventory.switches_by_tier.items())
    texts = [f"{units.counted(count, 'switch')} ({tiers})" if count else "no switches"]
    texts += [units.counted(optical, "optical switch")] if optical else []
    texts += [f"{units.counted(inventory.ports, 'switch port')} in use"] if inventory.ports else []
    texts += [units.counted(cables, "cable")] if cables else []
    return ", ".join(texts)


def _paths(inventory: Inventory) -> str:
    hops = inventory.hops
    passed = "chips" if inventory.topology == "torus" and not inventory.switches_by_tier else "switches"
    if not hops["pairs"]:
        text = "none"
    elif not hops["max"]:
        text = "from NIC to NIC, without a switch"
    else:
        text = f"{hops['mean']:.1f} {passed} between two hosts on average, at most {hops['max']}"
    return text + (
        f"; {hops['cut_off']:,} of {hops['pairs'] + hops['cut_off']:,} pairs are cut off" if hops["cut_off"] else ""
    )


def _bandwidth(inventory: Inventory) -> str:
    ratios = ", ".join(f"{tier} {ratio:.3g}:1" for tier, ratio in inventory.oversubscription.items())
    rate = units.show_bandwidth(inventory.bisection_Bps)
    ratios = ratios or "not defined for this topology"
    return f"bisection {rate} (halves: {inventory.bisection_split}); oversubscription {ratios}"


def _scale_up(inventory: Inventory) -> str:
    return " + ".join(
        f"{units.counted(number, 'NVLink domain')} of {units.counted(size, 'GPU')}"
        for size, number in inventory.nvlink_domains_by_gpus.items()
    )


def _price(bill: Inventory) -> str:
    total, network = units.show_money(bill.price_usd), units.show_money(bill.network_price_usd)
    if bill.unpriced and not bill.price_usd:
        return f"not known: {', '.join(bill.unpriced)}"
    if bill.unpriced:
        return f"{total} without {', '.join(bill.unpriced)}, which have no price; network {network} (without NICs)"
    share = bill.network_price_usd / bill.price_usd if bill.price_usd else 0.0
    return f"{total}, of which network {network} ({share:.0%}, without NICs)"


def text(
    answer: InventoryAnswer
    | PresetList
    | PartKinds
    | PartList
    | RouteAnswer
    | LinkList
    | ExportedFabric
    | ImportedFabric,
    width: int,
) -> Iterator[str | Table]:
    """Yield what a cluster is, or a part of it."""
    match answer:
        case InventoryAnswer():
            counted = answer.inventory
            title, *rest = inventory_lines(counted)
            yield title
            yield ""
            yield from (f"  assumed    {line}" for line in counted.assumed)
            yield from rest
            yield ""
            yield bill_table(counted.bill)
            yield ""
            yield from bill_notes(counted.bill)
        case PresetList():
            yield columns([(preset.name, preset.notes) for preset in answer.presets], ("preset", "what it is"))
        case PartKinds():
            yield columns(
                [(kind, str(len(names))) for kind, names in answer.kinds.items()], ("kind", "parts"), right=(1,)
            )
        case PartList():
            if answer.single:
                yield columns(part_rows(answer.parts[0]), ("field", "value"))
                return
            yield parts_table(answer.kind, answer.parts)
            yield ""
            yield f"syncline fabric parts {answer.kind} NAME: all its numbers, other names and their sources"
        case RouteAnswer():
            for path in answer.paths:
                if path.rate_Bps is None:
                    yield "the same device: no link is crossed"
                    continue
                ends = [name.split(" -> ") for name in path.links]
                yield " -> ".join([ends[0][0], *(end for _, end in ends)])
                yield f"  slowest link {units.show_rate(path.rate_Bps)}, latency {units.show_time(path.latency_s)}"
            if answer.count > 1:
                yield f"{answer.count:,} equal-cost paths"
        case LinkList():
            yield table(
                answer.links,
                {
                    "tier": lambda row: row.tier,
                    "link": lambda row: row.link if row.count == 1 else f"{row.link} and {row.count - 1:,} more",
                    "medium": lambda row: row.medium,
                    "rate": lambda row: units.show_rate(row.rate_Bps),
                    "latency": lambda row: units.show_time(row.latency_s),
                    "count": lambda row: f"{row.count:,}",
                    "up": lambda row: f"{row.up:,}",
                },
                words=("tier", "link", "medium"),
            )
        case ExportedFabric():
            yield f"wrote {answer.written}"
        case ImportedFabric():
            yield f"wrote {answer.written}: {answer.gpus:,} GPUs, {answer.hosts:,} hosts"
            yield from (f"  note: {note}" for note in filter(None, answer.notes.split("; ")))
