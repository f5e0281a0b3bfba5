"""The catalogue: parts by kind and name, from the data files beside it.

>>> parts = load_catalog()
>>> parts.gpu("h100 sxm").name
'H100-SXM5-80GB'
>>> parts.cable_for(parts.link("NDR"), length_m=2).kind
'dac'
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeVar

from pydantic import ValidationError

from syncline.describe.mistakes import first_mistake
from syncline.describe.own_data import parsed
from syncline.errors import CatalogError, DescriptionError
from syncline.fabric.catalog.parts import (
    Cable,
    Gpu,
    HostModel,
    LinkType,
    Nic,
    Part,
    Pcie,
    ScaleUp,
    ScaleUpSwitch,
    Switch,
)

P = TypeVar("P", bound=Part)
Table = Mapping[str, Part]

KINDS: Mapping[str, type[Part]] = {
    "gpu": Gpu,
    "scale_up": ScaleUp,
    "scale_up_switch": ScaleUpSwitch,
    "pcie": Pcie,
    "link": LinkType,
    "nic": Nic,
    "switch": Switch,
    "cable": Cable,
    "host": HostModel,
}
_FILES = ("gpus", "scale_up", "pcie", "links", "nics", "switches", "cables", "hosts")


def _key(name: str) -> str:
    # "H100 SXM", "h100_sxm" and "H100-SXM" are the same part to a reader.
    return re.sub(r"[\s_-]+", "", name).casefold()


@dataclass(frozen=True, eq=False)
class Catalog:
    """All parts by kind (`KINDS`), found by name or alias whatever the case, spaces and hyphens."""

    tables: Mapping[str, Table]

    def gpu(self, name: str) -> Gpu:
        """Return the accelerator of this name."""
        return self._find("gpu", name, Gpu)

    def scale_up(self, name: str) -> ScaleUp:
        """Return the scale-up link of this name: "NVLink4"."""
        return self._find("scale_up", name, ScaleUp)

    def scale_up_switch(self, name: str) -> ScaleUpSwitch:
        """Return the scale-up switch chip of this name: "NVSwitch3"."""
        return self._find("scale_up_switch", name, ScaleUpSwitch)

    def pcie(self, name: str) -> Pcie:
        """Return the PCI Express connection of this name: "PCIe5 x16"."""
        return self._find("pcie", name, Pcie)

    def link(self, name: str) -> LinkType:
        """Return the network link type of this name: "NDR", "400GbE"."""
        return self._find("link", name, LinkType)

    def nic(self, name: str) -> Nic:
        """Return the network card of this name."""
        return self._find("nic", name, Nic)

    def switch(self, name: str) -> Switch:
        """Return the network switch of this name."""
        return self._find("switch", name, Switch)

    def cable(self, name: str) -> Cable:
        """Return the cable of this name."""
        return self._find("cable", name, Cable)

    def host(self, name: str) -> HostModel:
        """Return the host model of this name."""
        return self._find("host", name, HostModel)

    def parts(self, kind: str) -> tuple[Part, ...]:
        """Return every part of one kind, in the order of the data files."""
        return tuple(dict.fromkeys(self._table(kind).values()))

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the name of every part of one kind."""
        return tuple(part.name for part in self.parts(kind))

    def scale_up_Bps(self, gpu: Gpu) -> float:
        """Return what one accelerator sends over all its scale-up links, one direction; 0 without any."""
        return gpu.num_scale_up_links * self.scale_up(gpu.scale_up).link_Bps if gpu.scale_up else 0.0

    def num_ports(self, switch: Switch, link: LinkType) -> int:
        """Return how many ports of this link type the switch has, or raise CatalogError if it has none."""
        wire = self.wire(link)
        for mode in switch.modes:
            if self.link(mode.link) in (link, wire):
                return mode.num_ports
        known = ", ".join(f"{mode.num_ports} x {mode.link}" for mode in switch.modes)
        raise CatalogError(
            f'switch "{switch.name}" has no {link.name} ports.',
            detail=f"It can be used as: {known}.",
            hint="Pick another link type or switch (list them with `syncline fabric parts switch`).",
        )

    def wire(self, link: LinkType) -> LinkType:
        """Return the link type whose ports and cables carry this one (itself, for most)."""
        return self.link(link.wire) if link.wire else link

    def cable_for(self, link: LinkType, length_m: float, co_packaged_ends: int = 0) -> Cable:
        """Return the cheapest cable for this link type that reaches so far.

        Only cables of the lowest rate class that carries the link are considered, as ports take no others; so many of
        its ends plug into switches with co-packaged optics.
        """
        wire = self.wire(link)
        alike = [c for c in self._cables() if c.co_packaged_ends == co_packaged_ends]
        fitting = [c for c in alike if wire.family in c.families and c.rate_Bps >= wire.rate_Bps * 0.999]
        lowest = min((cable.rate_Bps for cable in fitting), default=0.0)
        reaching = [c for c in fitting if c.rate_Bps == lowest and c.reach_m >= length_m]
        if not reaching:
            raise _no_cable(link, length_m, [c for c in fitting if c.rate_Bps == lowest])
        return min(reaching, key=lambda cable: cable.price_usd(length_m))

    def with_parts(self, extra: Mapping[str, Any]) -> Catalog:
        """Return a catalogue with a cluster file's own parts added, by kind: `{"switch": [{...}]}`.

        A part of a known name replaces it. `like: NAME` starts from another part; `source` may be left out.
        """
        tables = dict(self.tables)
        for kind, rows in extra.items():
            _check_kind(kind)
            if not isinstance(rows, list):
                raise DescriptionError(f'parts of kind "{kind}" must be a list.', hint="Write `- name: ...` for each.")
            new = [_user_part(kind, row, self) for row in rows]
            replaced = {part.name for part in new}
            tables[kind] = _table(kind, [p for p in self.parts(kind) if p.name not in replaced] + new)
        catalog = Catalog(tables)
        catalog._check_references()
        return catalog

    def _cables(self) -> list[Cable]:
        return [part for part in self.parts("cable") if isinstance(part, Cable)]

    def _table(self, kind: str) -> Table:
        _check_kind(kind)
        return self.tables[kind]

    def _find(self, kind: str, name: str, cls: type[P]) -> P:
        part = self.tables[kind].get(_key(name))
        if not isinstance(part, cls):
            raise _unknown(kind, name, self.tables[kind])
        return part

    def _check_references(self) -> None:
        for kind in self.tables:
            for part in self.parts(kind):
                self._check_part(kind, part)

    def _check_part(self, kind: str, part: Part) -> None:
        for other, name in _references(part):
            try:
                self._find(other, name, KINDS[other])
            except CatalogError as error:
                raise CatalogError(
                    error.message, where=f'{kind} "{part.name}"', detail=error.detail, hint=error.hint
                ) from None


def _references(part: Part) -> Iterable[tuple[str, str]]:
    """Yield (kind, name) of every part that this one is made of."""
    references: list[tuple[str, str | None]] = []
    match part:
        case Gpu():
            references = [("scale_up", part.scale_up), ("pcie", part.pcie)]
        case ScaleUpSwitch():
            references = [("scale_up", part.link)]
        case LinkType():
            references = [("link", part.wire), ("switch", part.usual_switch)]
        case Nic():
            references = [("pcie", part.pcie), *(("link", link) for link in part.links)]
        case Switch():
            references = [("link", mode.link) for mode in part.modes]
        case HostModel():
            references = [("gpu", part.gpu), ("nic", part.nic), ("link", part.link), ("pcie", part.gpu_pcie)]
            references.append(("scale_up_switch", part.scale_up_switch))
    return [(kind, name) for kind, name in references if name is not None]


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise CatalogError(f'there is no kind of part "{kind}".', detail=f"Kinds: {', '.join(KINDS)}.")


def _unknown(kind: str, name: str, table: Table) -> CatalogError:
    by_key = {key: part.name for key, part in table.items()}
    close = dict.fromkeys(by_key[key] for key in difflib.get_close_matches(_key(str(name)), by_key, n=9, cutoff=0.5))
    nearest = ", ".join(list(close)[:3])
    return CatalogError(
        f'no {kind} named "{name}" in the catalogue.',
        detail=f"Close: {nearest}." if nearest else "",
        hint=f"List them with `syncline fabric parts {kind}`, or describe yours under `parts:` in the cluster file.",
    )


def _no_cable(link: LinkType, length_m: float, fitting: list[Cable]) -> CatalogError:
    longest = max(fitting, key=lambda cable: cable.reach_m, default=None)
    return CatalogError(
        f"no cable for {link.name} reaches {length_m:g} m.",
        detail=f"The longest is {longest.name}, {longest.reach_m:g} m." if longest else "",
        hint="Shorten the link, or add a cable under `parts:` (list them with `syncline fabric parts cable`).",
    )


def _table(kind: str, parts: Iterable[Part]) -> Table:
    table: dict[str, Part] = {}
    for part in parts:
        for name in (part.name, *part.aliases):
            other = table.setdefault(_key(name), part)
            if other is not part:
                raise DescriptionError(
                    f'{kind} name "{name}" belongs to both "{other.name}" and "{part.name}".',
                    hint="Give one of them another name.",
                )
    return table


def _part(kind: str, row: Any, where: str) -> Part:
    try:
        return KINDS[kind].model_validate(row)
    except ValidationError as error:
        name = row.get("name", "?") if isinstance(row, Mapping) else "?"
        raise DescriptionError(
            f'{kind} "{name}": {first_mistake(error)}.',
            where=where,
            hint=f"See a complete one with `syncline fabric parts {kind} --json`.",
        ) from None


def _user_part(kind: str, row: Any, base: Catalog) -> Part:
    if not isinstance(row, Mapping):
        raise DescriptionError(f'a part of kind "{kind}" must be a mapping, not {row!r}.')
    filled: dict[str, Any] = dict(row)
    if isinstance(like := filled.pop("like", None), str):
        old = base._find(kind, like, KINDS[kind]).model_dump(exclude={"name", "aliases"}, exclude_unset=True)
        old["estimates"] = [each for each in old.get("estimates", ()) if each["figure"] not in row]
        filled = old | filled
    if "source" not in row:
        filled["source"] = "cluster file"
    if any(key.startswith("price") for key in row):
        filled |= {k: v for k, v in _USER_PRICE.items() if k not in row and k in KINDS[kind].model_fields}
    return _part(kind, filled, "parts")


_USER_PRICE: Mapping[str, Any] = {"price_source": "cluster file", "price_is_estimate": False}


@functools.cache
def load_catalog() -> Catalog:
    """Return the catalogue that comes with syncline, read once."""
    folder = resources.files("syncline.fabric.catalog") / "data"
    parts: dict[str, list[Part]] = {kind: [] for kind in KINDS}
    for file in _FILES:
        document: dict[str, list[Any]] = parsed((folder / f"{file}.yaml").read_text("utf-8"))
        for kind, rows in document.items():
            parts[kind].extend(_part(kind, row, f"{file}.yaml") for row in rows)
    catalog = Catalog({kind: _table(kind, rows) for kind, rows in parts.items()})
    catalog._check_references()
    return catalog
