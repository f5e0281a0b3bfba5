"""How a cluster is put up, as one screen of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from syncline.describe import units
from syncline.install.installation import Installation, InstallationFigures
from syncline.install.qos import CLASSES
from syncline.questions.clusters.build import BuildCheck, FabricBuild

MOST_ARITHMETIC = 2


def build_lines(found: Installation, figures: InstallationFigures) -> list[str]:
    """Return racks, cables, addresses, classes and the buffer's arithmetic."""
    racks = found.floor.racks
    fullest = max(racks, key=lambda rack: rack.power_w)
    sold = f", {found.floor.num_sold:,} of them sold as one" if found.floor.num_sold else ""
    lines = [
        f"{found.fabric.name}: {found.fabric.num_hosts:,} hosts, {len(found.wiring.switch_names):,} switches, "
        f"{len(found.cables):,} cables",
        "",
        f"  racks      {len(racks):,} in {_rows(max(rack.row for rack in racks) + 1)}{sold}, "
        f"{units.show_power(figures.power_w)} in all; fullest {fullest.name} draws "
        f"{units.show_power(fullest.power_w)}, heaviest {figures.heaviest_kg:,.0f} kg",
        f"  cables     {units.show_money(figures.billed_cable_price_usd)} by the lengths that `cost` and `design` "
        f"assume, {units.show_money(figures.cable_price_usd)} as they run here; longest "
        f"{figures.longest_cable_m:g} m; "
        + ", ".join(f"{count:,} {kind or 'of unknown kind'}" for kind, count in _kinds(found)),
    ]
    if found.plan:
        leaves = [switch for switch in found.plan.switches.values() if switch.prefix]
        lines.append(
            f"  addresses  {len(found.plan.switches):,} loopbacks, {len(found.plan.ports):,} host ports in "
            f"{len(leaves):,} prefixes, an AS a leaf (BGP unnumbered between switches)"
        )
    systems = ", ".join(f"{count:,} {system}" for system, count in figures.systems.items())
    widths = ", ".join(f"{tier} {width}" for tier, width in figures.ecmp_width.items())
    lines.append(f"  switches   {systems}; equal paths: {widths}")
    lines += [f"  assumed    {text}" for text in figures.assumed]
    lines += [f"  left out   {what}: {why}" for what, why in found.skipped.items()]
    if found.plan:
        lines += ["", "class      DSCP  queue  share   loss    why"]
        lines += [
            f"{c.name:<9} {c.dscp[0]:>5}  {c.queue:>5}  {share:<6}  {'never' if c.lossless else 'may':<6}  {c.why}"
            for c in CLASSES
            for share in (f"{c.weight_percent} %" if c.weight_percent else "strict",)
        ]
    for buffer in figures.buffers[:MOST_ARITHMETIC]:
        lines += ["", f"buffer of {buffer.switch} ({buffer.part}):"]
        lines += [f"  {line}" for line in buffer.arithmetic]
    folders = "switches/, hosts/" if found.plan else "opensm/, hosts/"
    return [*lines, "", f"{figures.files:,} files: racks.csv, cables.csv, pictures, {folders}"]


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _kinds(found: Installation) -> list[tuple[str, int]]:
    names = {"dac": "copper", "aec": "active copper", "aoc": "active optical", "multimode": "multimode",
             "single_mode": "single mode", "twisted_pair": "twisted pair", "wan": "WAN"}  # fmt: skip
    return Counter(names.get(row.kind, row.kind) for row in found.cables).most_common()


def text(answer: FabricBuild | BuildCheck, width: int) -> Iterable[str]:
    """Return racks, cables and files, or how a folder differs from them."""
    match answer:
        case FabricBuild():
            return build_lines(answer.installation, answer.figures)
        case BuildCheck():
            return answer.differences or (f"{answer.files:,} files are as they should be",)
