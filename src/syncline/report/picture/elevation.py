"""Pictures of an installation: racks from the front, and where the cables run."""

from __future__ import annotations

from collections import Counter

from markupsafe import Markup

from syncline.install.installation import Installation
from syncline.install.rack import Rack
from syncline.install.room import Room
from syncline.report.chart.svg import Svg, num

MOST_RACKS, RACKS_PER_ROW = 32, 8
_U, _WIDTH, _GAP, _TOP, _FOOT = 11, 118, 18, 74, 74
_STYLE = (
    "text{font-family:Inter,Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:9px;fill:#1c2430}"
    ".t{font-size:16px;font-weight:600}.s{font-size:11px;fill:#566170}.r{fill:#f4f6f9;stroke:#8b97a6}"
    ".h{fill:#cfe3c8;stroke:#5b8a4c}.w{fill:#d5dfee;stroke:#51607a}.p{fill:#e6e3da;stroke:#8a8471}"
    ".m{font-size:8px;fill:#566170}"
)
CABLES = {
    "dac": ("copper", "#117733"), "aec": ("active copper", "#8a8a1f"), "aoc": ("active optical", "#4fb0dc"),
    "multimode": ("multimode fibre", "#3b6fb0"), "single_mode": ("single-mode fibre", "#aa4499"),
}  # fmt: skip
"""What kinds of cables are called, and their colours."""


def elevations_svg(made: Installation) -> Markup:
    """Return the racks from the front, those that differ first; alike ones are drawn once with their count."""
    kinds: dict[tuple[object, ...], list[Rack]] = {}
    for rack in made.floor.racks:
        kinds.setdefault(tuple((place.body.part, place.bottom_u) for place in rack.places), []).append(rack)
    drawn = list(kinds.values())[:MOST_RACKS]
    tall = made.floor.room.rack_u * _U + _FOOT
    width = 40 + min(RACKS_PER_ROW, len(drawn)) * (_WIDTH + _GAP)
    power = sum(rack.power_w for rack in made.floor.racks) / 1e3
    note = f"{len(made.floor.racks):,} racks, {power:,.0f} kW at full load; alike racks are drawn once"
    svg = _sheet(width, _TOP + -(-len(drawn) // RACKS_PER_ROW) * tall, f"{made.fabric.name}: racks", note)
    for number, alike in enumerate(drawn):
        row, column = divmod(number, RACKS_PER_ROW)
        _rack(svg, alike, made.floor.room, 24 + column * (_WIDTH + _GAP), _TOP + row * tall)
    return svg.document()


def cables_svg(made: Installation) -> Markup:
    """Return the floor from above: racks as boxes, every bundle of cables between two racks as one line."""
    racks, pitch, depth = made.floor.racks, 30, 60
    columns, rows = max(rack.column for rack in racks) + 1, max(rack.row for rack in racks) + 1
    top = max(_TOP, 54 + 0.75 * (8 + columns * pitch * 0.12))  # the widest arc stays below the title
    note = f"floor from above, {made.floor.room.racks_per_row} racks a row; a line is a bundle, its width the count"
    svg = _sheet(max(560, 60 + columns * pitch + 220), top + rows * depth + 10,
                 f"{made.fabric.name}: {len(made.cables):,} cables", note)  # fmt: skip
    at = {rack.name: (40 + rack.column * pitch, top + rack.row * depth) for rack in racks}
    bundles = Counter((row.ends[0][0], row.ends[1][0], row.kind) for row in made.cables if all(e[0] for e in row.ends))
    most = max(bundles.values(), default=1)
    for (a, b, kind), count in sorted(bundles.items(), key=lambda item: item[1]):
        if a != b:
            (x1, y1), (x2, y2) = at[a], at[b]
            lift = 8 + abs(x1 - x2) * 0.12
            word, colour = CABLES.get(kind, (kind, "#8a8a8a"))
            path = f"M{x1 + 11},{num(y1)} C{x1 + 11},{num(y1 - lift)} {x2 + 11},{num(y2 - lift)} {x2 + 11},{num(y2)}"
            svg.add("path", title=f"{a} to {b}: {count} {word}", d=path, fill="none", stroke=colour,
                    stroke_opacity="0.55", stroke_width=f"{0.5 + 3 * count / most:.2f}")  # fmt: skip
    for rack in racks:
        x, y = at[rack.name]
        look = "h" if any(place.body.is_host for place in rack.places) else "w"
        inside = sum(count for (a, b, _), count in bundles.items() if a == b == rack.name)
        title = f"{rack.name}: {len(rack.places)} boxes, {inside} cables inside"
        svg.add("rect", title=title, class_=look, x=x, y=y, width=22, height=26, rx=2)
        svg.text(x + 11, y + 37, rack.name[1:], class_="m", text_anchor="middle")
    for number, (kind, count) in enumerate(Counter(row.kind for row in made.cables).most_common()):
        left, down = svg.width - 190, _TOP + 4 + number * 16
        word, colour = CABLES.get(kind, (kind or "unknown", "#8a8a8a"))
        svg.add("rect", x=left, y=down, width=12, height=6, fill=colour)
        svg.text(left + 18, down + 7, f"{count:,} {word}")
    return svg.document()


def _rack(svg: Svg, alike: list[Rack], room: Room, x: float, y: float) -> None:
    rack, height = alike[0], room.rack_u * _U
    svg.text(x, y - 6, rack.name if len(alike) == 1 else f"{rack.name} and {len(alike) - 1} like it")
    svg.add("rect", class_="r", x=x, y=y, width=_WIDTH, height=height)
    for place in rack.places:
        body, tall = place.body, place.body.height_u * _U
        top = y + height - (place.bottom_u - 1) * _U - tall
        look = "h" if body.is_host else "p" if body.part == "power shelf" else "w"
        title = f"{place.name}: {body.part}, {body.power_w:,.0f} W, {body.weight_kg:g} kg"
        svg.add("rect", title=title, class_=look, x=x + 3, y=top + 0.5, width=_WIDTH - 6, height=tall - 1, rx=1)
        name = place.name.removeprefix(f"{rack.name}/")
        svg.text(x + 7, top + tall / 2 + 3, name, style=f"font-size:{min(11, tall - 2.5)}px")
    power = f"{rack.power_w / 1e3:.1f}" + (" kW, as sold" if rack.sold_as else f" of {room.filled_power_w / 1e3:g} kW")
    used = (f"{rack.used_u} of {room.rack_u} U", power, f"{rack.weight_kg:,.0f} of {room.rack_weight_kg:,.0f} kg")
    for number, text in enumerate(used):
        svg.text(x, y + height + 12 + 11 * number, text, class_="m")


def _sheet(width: float, height: float, title: str, note: str) -> Svg:
    svg = Svg(width, height, title, is_fixed=True)
    svg.add("style", Markup(_STYLE))  # noqa: S704 a constant
    svg.add("rect", width=width, height=height, fill="#fff")
    svg.text(24, 28, title, class_="t")
    svg.text(24, 46, note, class_="s")
    return svg
