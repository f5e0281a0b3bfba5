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
FONT = '"Inter","Helvetica Neue",Arial,"Liberation Sans","DejaVu Sans",sans-serif'
SIZES = {
    "title": 20,
    "sub": 12.5,
    "cap": 12,
    "cap2": 11,
    "lab": 10,
    "tiny": 8.5,
    "grp": 11,
    "cnt": 10.5,
    "leg": 11,
    "key": 11,
}

_LIGHT: dict[str, str] = {
    "paper": "#ffffff", "ink": "#1c2430", "soft": "#566170", "line": "#b9c2ce", "group": "#f4f6f9", "inner": "#e9edf3",
    "gpu": "#cfe3c8", "gpu-line": "#5b8a4c", "nic": "#d5dfee", "nic-line": "#5c7596", "switch": "#dfe5ee",
    "switch-line": "#51607a", "nvswitch": "#bfe0d6", "nvswitch-line": "#2d7f6a", "pcie": "#ececec",
    "pcie-line": "#8a8a8a", "cpu": "#e2ddd3", "cpu-line": "#85775c", "ocs": "#ecd9ee", "ocs-line": "#8e4b98",
    "host": "#ffffff", "host-line": "#8b97a6",
    "down": "#d1242f", "slow": "#d98200",
}  # fmt: skip
_DARK: dict[str, str] = {
    "paper": "#12161c", "ink": "#e8ecf2", "soft": "#9aa7b6", "line": "#465262", "group": "#1a2029", "inner": "#232b36",
    "gpu": "#2f4a2b", "gpu-line": "#84b574", "nic": "#2b3b50", "nic-line": "#8aa5c9", "switch": "#2a3442",
    "switch-line": "#93a4bd", "nvswitch": "#1f4a40", "nvswitch-line": "#5dbfa4", "pcie": "#303236",
    "pcie-line": "#9b9b9b", "cpu": "#3b352a", "cpu-line": "#b9a782", "ocs": "#43294a", "ocs-line": "#cf8fd9",
    "host": "#181e26", "host-line": "#6d7a8a",
    "down": "#ff5c62", "slow": "#ffb02e",
}  # fmt: skip
_LANES_LIGHT = ("#332288", "#4fb0dc", "#2f9e8c", "#117733", "#8a8a1f", "#c9a227", "#aa4499", "#7d1f52")
_LANES_DARK = ("#8c7fe6", "#7cc8ec", "#4fc4b0", "#49b06b", "#bdbd4a", "#e3cf7a", "#d77fc8", "#cf6d9d")
_TIERS_LIGHT: dict[Tier, str] = {
    Tier.SCALE_UP: "#2d7f6a", Tier.PCIE: "#9a9a9a", Tier.SOCKET: "#85775c", Tier.ACCESS: "#3b6fb0",
    Tier.LEAF_SPINE: "#5d6f8f", Tier.SPINE_CORE: "#7a5aa6", Tier.GROUP_LOCAL: "#2f9e8c", Tier.GROUP_GLOBAL: "#3f5fc0",
    Tier.WAN: "#8a5a1e", Tier.OPTICAL: "#a64ab0",
}  # fmt: skip
_TIERS_DARK: dict[Tier, str] = {
    Tier.SCALE_UP: "#5dbfa4", Tier.PCIE: "#8a8a8a", Tier.SOCKET: "#b9a782", Tier.ACCESS: "#74a7e8",
    Tier.LEAF_SPINE: "#9fb0cf", Tier.SPINE_CORE: "#b79be6", Tier.GROUP_LOCAL: "#4fc4b0", Tier.GROUP_GLOBAL: "#8fa6ff",
    Tier.WAN: "#d9a25f", Tier.OPTICAL: "#d98fe2",
}  # fmt: skip
_LOADS = ("#4575b4", "#74add1", "#9cc5d6", "#d9c98a", "#fdae61", "#f46d43", "#d73027", "#a50026")

KIND_LOOKS: Mapping[int, str] = {
    DeviceKind.GPU: "gpu", DeviceKind.NIC: "nic", DeviceKind.SWITCH: "switch", DeviceKind.NVSWITCH: "nvswitch",
    DeviceKind.PCIE: "pcie", DeviceKind.CPU: "cpu", DeviceKind.OCS: "ocs", -1: "host",
}  # fmt: skip


def style_sheet(scope: str = ".fabric") -> str:
    """Return the CSS of a picture: light, and dark where the reader's system asks for it."""
    dark = _colours(scope, _DARK, _TIERS_DARK, _LANES_DARK)
    light = _colours(scope, _LIGHT, _TIERS_LIGHT, _LANES_LIGHT)
    return f"{_shapes(scope)}{light}@media (prefers-color-scheme:dark){{{dark}}}"


def themed_sheet(scope: str, theme: str) -> str:
    """Return the colours of one theme, for a page on which the reader has chosen it."""
    if theme == "dark":
        return _colours(scope, _DARK, _TIERS_DARK, _LANES_DARK)
    return _colours(scope, _LIGHT, _TIERS_LIGHT, _LANES_LIGHT)


def page_colours(theme: str) -> dict[str, str]:
    """Return the colours that the page around a picture uses."""
    colours = _DARK if theme == "dark" else _LIGHT
    return {name: colours[name] for name in ("paper", "ink", "soft", "line", "group", "inner")}


def _shapes(scope: str) -> str:
    rules = [f"{scope} text{{font-family:{FONT}}}", f"{scope} .w{{fill:none;stroke-linecap:round}}"]
    rules += [f"{scope} .{name}{{font-size:{size}px}}" for name, size in SIZES.items()]
    rules += [
        f"{scope} .title,{scope} .cap,{scope} .key{{font-weight:600}}",
        f"{scope} .cnt,{scope} .halo{{paint-order:stroke;stroke-width:5px;stroke-linejoin:round}}",
        f"{scope} .down{{stroke-dasharray:5 3}}",
        f"{scope} .slow{{stroke-dasharray:9 3}}",
        f"{scope} .wrap{{stroke-dasharray:2 3}}",
        f"{scope} .box{{stroke-width:1}}",
        f"{scope} .frame{{stroke-width:1}}",
    ]
    return "".join(rules)


def _colours(scope: str, colour: Mapping[str, str], tiers: Mapping[Tier, str], lanes: tuple[str, ...]) -> str:
    rules = [
        f"{scope} .paper{{fill:{colour['paper']}}}",
        f"{scope} text{{fill:{colour['ink']}}}",
        f"{scope} .sub,{scope} .cap2,{scope} .tiny,{scope} .leg,{scope} .grp{{fill:{colour['soft']}}}",
        f"{scope} .cnt,{scope} .halo{{stroke:{colour['paper']}}}",
        f"{scope} .frame{{fill:{colour['group']};stroke:{colour['line']}}}",
        f"{scope} .inner{{fill:{colour['inner']};stroke:{colour['line']}}}",
        f"{scope} .rule{{stroke:{colour['line']};fill:none}}",
    ]
    kinds = sorted(set(KIND_LOOKS.values()))
    rules += [f"{scope} .{name}{{fill:{colour[name]};stroke:{colour[name + '-line']}}}" for name in kinds]
    rules += [f"{scope} .t{int(tier)}{{stroke:{value}}}" for tier, value in tiers.items()]
    for lane, value in enumerate(lanes):
        rules += [f"{scope} .l{lane}{{stroke:{value}}}", f"{scope} .s{lane}{{stroke:{value};stroke-width:2}}"]
    rules += [f"{scope} .u{step}{{stroke:{value}}}" for step, value in enumerate(_LOADS)]
    rules += [f"{scope} .down{{stroke:{colour['down']}}}{scope} .slow{{stroke:{colour['slow']}}}"]
    rules += [f"{scope} text.bad{{fill:{colour['down']}}}"]
    return "".join(rules)
