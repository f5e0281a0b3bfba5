"""Colours and the style sheet of fabric pictures, light and dark.

Lanes (rails, planes, axes) use Paul Tol's "muted" scheme without its red, which is kept for failed links, and without
tones too dark for a dark page; all pairs stay apart for the common kinds of colour blindness. Colour never says
something alone: rails carry their number, failed links are dashed.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.fabric.fabric import DeviceKind, Tier

NUM_LANES = 8
NUM_LOADS = 8
THEMES = ("light", "dark")
FONT = '"Inter","Helvetica Neue",Arial,"Liberation Sans","DejaVu Sans",sans-serif'
SIZES = {
    "title": 20, "sub": 12.5, "cap": 12, "cap2": 11, "lab": 10, "tiny": 8.5, "grp": 11, "cnt": 10.5, "leg": 11,
    "key": 11,
}  # fmt: skip

# Each colour light and dark. Boxes have a fill and a line.
_PAGE: dict[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#12161c"), "ink": ("#1c2430", "#e8ecf2"), "soft": ("#566170", "#9aa7b6"),
    "line": ("#b9c2ce", "#465262"), "group": ("#f4f6f9", "#1a2029"), "inner": ("#e9edf3", "#232b36"),
    "focus": ("#1f5fd0", "#8fb8ff"),
}  # fmt: skip
_DOWN, _SLOW = ("#d1242f", "#ff5c62"), ("#d98200", "#ffb02e")
_BOXES: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "cpu": (("#e2ddd3", "#3b352a"), ("#85775c", "#b9a782")),
    "gpu": (("#cfe3c8", "#2f4a2b"), ("#5b8a4c", "#84b574")),
    "host": (("#ffffff", "#181e26"), ("#8b97a6", "#6d7a8a")),
    "nic": (("#d5dfee", "#2b3b50"), ("#5c7596", "#8aa5c9")),
    "nvswitch": (("#bfe0d6", "#1f4a40"), ("#2d7f6a", "#5dbfa4")),
    "ocs": (("#ecd9ee", "#43294a"), ("#8e4b98", "#cf8fd9")),
    "pcie": (("#ececec", "#303236"), ("#8a8a8a", "#9b9b9b")),
    "switch": (("#dfe5ee", "#2a3442"), ("#51607a", "#93a4bd")),
}  # fmt: skip
_LANES = (("#332288", "#8c7fe6"), ("#4fb0dc", "#7cc8ec"), ("#2f9e8c", "#4fc4b0"), ("#117733", "#49b06b"),
          ("#8a8a1f", "#bdbd4a"), ("#c9a227", "#e3cf7a"), ("#aa4499", "#d77fc8"), ("#7d1f52", "#cf6d9d"))  # fmt: skip
_TIERS: dict[Tier, tuple[str, str]] = {
    Tier.SCALE_UP: ("#2d7f6a", "#5dbfa4"), Tier.PCIE: ("#9a9a9a", "#8a8a8a"), Tier.SOCKET: ("#85775c", "#b9a782"),
    Tier.ACCESS: ("#3b6fb0", "#74a7e8"), Tier.LEAF_SPINE: ("#5d6f8f", "#9fb0cf"),
    Tier.SPINE_CORE: ("#7a5aa6", "#b79be6"), Tier.GROUP_LOCAL: ("#2f9e8c", "#4fc4b0"),
    Tier.GROUP_GLOBAL: ("#3f5fc0", "#8fa6ff"), Tier.WAN: ("#8a5a1e", "#d9a25f"), Tier.OPTICAL: ("#a64ab0", "#d98fe2"),
}  # fmt: skip
_LOADS = ("#4575b4", "#74add1", "#9cc5d6", "#d9c98a", "#fdae61", "#f46d43", "#d73027", "#a50026")

KIND_LOOKS: Mapping[int, str] = {
    DeviceKind.GPU: "gpu", DeviceKind.NIC: "nic", DeviceKind.SWITCH: "switch", DeviceKind.NVSWITCH: "nvswitch",
    DeviceKind.PCIE: "pcie", DeviceKind.CPU: "cpu", DeviceKind.OCS: "ocs", -1: "host",
}  # fmt: skip


def style_sheet() -> str:
    """Return the CSS of a picture: light, and dark where the reader's system asks for it.

    Colours are plain, because rasterisers know no CSS variables.
    """
    shapes = {
        "text": f"font-family:{FONT}", ".w": "fill:none;stroke-linecap:round",
        **{f".{name}": f"font-size:{size}px" for name, size in SIZES.items()},
        ".title,{0} .cap,{0} .key": "font-weight:600",
        ".cnt,{0} .halo": "paint-order:stroke;stroke-width:5px;stroke-linejoin:round",
        ".down": "stroke-dasharray:5 3", ".slow": "stroke-dasharray:9 3", ".wrap": "stroke-dasharray:2 3",
        ".box": "stroke-width:1", ".frame": "stroke-width:1",
    }  # fmt: skip
    return f"{_rules('.fabric', shapes)}{themed('light')}@media (prefers-color-scheme:dark){{{themed('dark')}}}"


def themed(theme: str, scope: str = ".fabric") -> str:
    """Return the colours of one theme."""
    k = THEMES.index(theme)
    page = {name: pair[k] for name, pair in _PAGE.items()}
    colours = {
        ".paper": f"fill:{page['paper']}", "text": f"fill:{page['ink']}",
        ".sub,{0} .cap2,{0} .tiny,{0} .leg,{0} .grp": f"fill:{page['soft']}",
        ".cnt,{0} .halo": f"stroke:{page['paper']}", ".frame": f"fill:{page['group']};stroke:{page['line']}",
        ".inner": f"fill:{page['inner']};stroke:{page['line']}", ".rule": f"stroke:{page['line']};fill:none",
        **{f".{name}": f"fill:{fill[k]};stroke:{line[k]}" for name, (fill, line) in _BOXES.items()},
        **{f".t{int(tier)}": f"stroke:{pair[k]}" for tier, pair in _TIERS.items()},
        **{f".l{lane}": f"stroke:{pair[k]}" for lane, pair in enumerate(_LANES)},
        **{f".s{lane}": f"stroke:{pair[k]};stroke-width:2" for lane, pair in enumerate(_LANES)},
        **{f".u{step}": f"stroke:{colour}" for step, colour in enumerate(_LOADS)},
        ".down": f"stroke:{_DOWN[k]}", ".slow": f"stroke:{_SLOW[k]}", "text.bad": f"fill:{_DOWN[k]}",
    }  # fmt: skip
    return _rules(scope, colours)


def page_style() -> str:
    """Return the variables and colours of the page around a picture, which follow the reader's choice of theme."""

    def variables(theme: str) -> str:
        colours = (f"--{name}:{pair[THEMES.index(theme)]};" for name, pair in _PAGE.items())
        return "".join(colours) + f"color-scheme:{theme};"

    roots = {theme: f':root[data-theme="{theme}"]' for theme in THEMES}
    rules = (f"{root}{{{variables(theme)}}}{themed(theme, f'{root} .fabric')}" for theme, root in roots.items())
    dark = f"@media (prefers-color-scheme:dark){{:root{{{variables('dark')}}}}}"
    return f":root{{{variables('light')}}}{dark}{''.join(rules)}"


def _rules(scope: str, rules: Mapping[str, str]) -> str:
    return "".join(f"{scope} {selector.format(scope)}{{{rule}}}" for selector, rule in rules.items())
