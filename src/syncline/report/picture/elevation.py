"""Pictures of an installation: racks from the front, and where the cables run."""

from __future__ import annotations

from collections import Counter
from html import escape

from syncline.install.installation import Installation
from syncline.install.rack import Rack
from syncline.install.room import Room

MOST_RACKS = 32
_U = 11
_WIDTH = 118
_GAP = 18
_TOP = 74
_STYLE = (
    "text{font-family:Inter,Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:9px;fill:#1c2430}"
    ".t{font-size:16px;font-weight:600}.s{font-size:11px;fill:#566170}.r{fill:#f4f6f9;stroke:#8b97a6}"
    ".h{fill:#cfe3c8;stroke:#5b8a4c}.w{fill:#d5dfee;stroke:#51607a}.p{fill:#e6e3da;stroke:#8a8471}.m{font-size:8px;fill:#566170}"
)
_COLOURS = {"dac": "#117733", "aec": "#8a8a1f", "aoc": "#4fb0dc", "multimode": "#3b6fb0", "single_mode": "#aa4499"}
_WORDS = {"dac": "copper", "aec": "active copper", "aoc": "active optical", "multimode": "multimode fibre",
          "single_mode": "single-mode fibre"}  # fmt: skip


def elevations_svg(found: Installation) -> str:
    """Return the racks from the front, those that differ first; alike ones are drawn once with their count."""
    kinds: dict[tuple[object, ...], list[Rack]] = {}
    for rack in found.floor.racks:
        key = tuple((place.body.part, place.bottom_u) for place in rack.places)
        kinds.setdefault(key, []).append(rack)
    drawn = list(kinds.values())[:MOST_RACKS]
    per_row = 8
    rack_height = found.floor.room.rack_u * _U
    rows = -(-len(drawn) // per_row)
    width = 40 + min(per_row, len(drawn)) * (_WIDTH + _GAP)
    height = _TOP + rows * (rack_height + 74)
    total = f"{len(found.floor.racks):,} racks, {sum(r.power_w for r in found.floor.racks) / 1e3:,.0f} kW at full load"
    parts = [_open(width, height, f"{found.fabric.name}: racks", total + "; alike racks are drawn once")]
    for number, alike in enumerate(drawn):
        x = 24 + number % per_row * (_WIDTH + _GAP)
        parts.append(_rack(alike, found.floor.room, x, _TOP + number // per_row * (rack_height + 74)))
    return "".join(parts) + "</svg>\n"


def cables_svg(found: Installation) -> str:
    """Return the floor from above: racks as boxes, every bundle of cables between two racks as one line."""
    room = found.floor.room
    pitch, depth = 30, 60
    rows = max(rack.row for rack in found.floor.racks) + 1
    columns = max(rack.column for rack in found.floor.racks) + 1
    top = max(_TOP, 54 + 0.75 * (8 + columns * pitch * 0.12))  # the widest arc stays below the title
    width, height = max(560, 60 + columns * pitch + 220), top + rows * depth + 10
    note = f"floor from above, {room.racks_per_row} racks a row; a line is a bundle, its width the count"
    lines = [_open(width, height, f"{found.fabric.name}: {len(found.cables):,} cables", note)]
    at = {rack.name: (40 + rack.column * pitch, top + rack.row * depth) for rack in found.floor.racks}
    bundles = Counter((row.ends[0][0], row.ends[1][0], row.kind) for row in found.cables if all(e[0] for e in row.ends))
    most = max(bundles.values(), default=1)
    for (a, b, kind), count in sorted(bundles.items(), key=lambda item: item[1]):
        if a == b:
            continue
        (x1, y1), (x2, y2) = at[a], at[b]
        lift = 8 + abs(x1 - x2) * 0.12
        lines.append(
            f'<path d="M{x1 + 11},{y1} C{x1 + 11},{y1 - lift} {x2 + 11},{y2 - lift} {x2 + 11},{y2}" fill="none" '
            f'stroke="{_COLOURS.get(kind, "#8a8a8a")}" stroke-opacity="0.55" '
            f'stroke-width="{0.5 + 3 * count / most:.2f}">'
            f"<title>{escape(a)} to {escape(b)}: {count} {escape(_WORDS.get(kind, kind))}</title></path>"
        )
    for rack in found.floor.racks:
        x, y = at[rack.name]
        look = "h" if any(place.body.is_host for place in rack.places) else "w"
        inside = sum(count for (a, b, _), count in bundles.items() if a == b == rack.name)
        lines.append(f'<rect class="{look}" x="{x}" y="{y}" width="22" height="26" rx="2">'
                     f"<title>{rack.name}: {len(rack.places)} boxes, {inside} cables inside</title></rect>"
                     f'<text class="m" x="{x + 11}" y="{y + 37}" text-anchor="middle">{rack.name[1:]}</text>'
                     )  # fmt: skip
    lines.append(_legend(found, width - 190))
    return "".join(lines) + "</svg>\n"


def _legend(found: Installation, x: float) -> str:
    kinds = Counter(row.kind for row in found.cables).most_common()
    parts = []
    for number, (kind, count) in enumerate(kinds):
        y = _TOP + 4 + number * 16
        word = escape(_WORDS.get(kind, kind or "unknown"))
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="6" fill="{_COLOURS.get(kind, "#8a8a8a")}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 7}">{count:,} {word}</text>')
    return "".join(parts)


def _rack(alike: list[Rack], room: Room, x: float, y: float) -> str:
    rack, height = alike[0], room.rack_u * _U
    name = rack.name if len(alike) == 1 else f"{rack.name} and {len(alike) - 1} like it"
    parts = [f'<text x="{x}" y="{y - 6}">{escape(name)}</text>',
             f'<rect class="r" x="{x}" y="{y}" width="{_WIDTH}" height="{height}"/>']  # fmt: skip
    for place in rack.places:
        top = y + height - (place.bottom_u - 1 + place.body.height_u) * _U
        look = "h" if place.body.is_host else "p" if place.body.part == "power shelf" else "w"
        tall = place.body.height_u * _U
        box = f'x="{x + 3}" y="{top + 0.5}" width="{_WIDTH - 6}" height="{tall - 1}"'
        parts.append(f'<rect class="{look}" {box} rx="1">'
                     f"<title>{escape(place.name)}: {escape(place.body.part)}, {place.body.power_w:,.0f} W, "
                     f"{place.body.weight_kg:g} kg</title></rect>"
                     f'<text x="{x + 7}" y="{top + tall / 2 + 3}" style="font-size:{min(11, tall - 2.5)}px">'
                     f"{escape(place.name.removeprefix(rack.name + '/'))}</text>")  # fmt: skip
    power = f"{rack.power_w / 1e3:.1f}" + (" kW, as sold" if rack.sold_as else f" of {room.filled_power_w / 1e3:g} kW")
    told = (f"{rack.used_u} of {room.rack_u} U", power, f"{rack.weight_kg:,.0f} of {room.rack_weight_kg:,.0f} kg")
    parts += [f'<text class="m" x="{x}" y="{y + height + 12 + 11 * n}">{text}</text>' for n, text in enumerate(told)]
    return "".join(parts)


def _open(width: float, height: float, title: str, note: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title, quote=True)}">'
        f"<style>{_STYLE}</style>"
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/><text class="t" x="24" y="28">{escape(title)}</text>'
        f'<text class="s" x="24" y="46">{escape(note)}</text>'
    )
