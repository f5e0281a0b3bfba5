"""The Installation: everything that is written for a fabric, from racks to the files of each switch and host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from syncline.describe.files import make_folder, write_text
from syncline.describe.plain import csv_text
from syncline.errors import FabricError, UsageError
from syncline.fabric import Fabric
from syncline.fabric.bill import bill
from syncline.install.addresses import AddressPlan, addresses
from syncline.install.cables import CableBill, CableRow, bill_of, schedule, to_csv
from syncline.install.names import SYSTEMS, file_name, port_name
from syncline.install.qos import CLASSES, QosClass, SwitchBuffer, buffers
from syncline.install.rack import Floor, floor
from syncline.install.render import host_files, opensm_files, switch_files
from syncline.install.room import Room
from syncline.install.view import SwitchView, views
from syncline.install.wiring import CablingPlan, link_type, wiring

MANAGED_BY_OTHERS = {
    "efa": "the cloud runs these switches",
    "slingshot": "the HPE fabric manager configures Slingshot switches",
    "omnipath": "the Omni-Path fabric manager configures these switches",
    "wan": "a carrier's line",
}
FILE_LIMIT = 200_000


@dataclass(frozen=True)
class InstallationFigures:
    """What is put up, in figures."""

    cluster: str
    racks: int
    whole_racks: int
    """Racks that are sold as one."""
    power_w: float
    heaviest_kg: float
    cables: int
    billed_cable_price_usd: float
    """By the lengths that `cost` assumes."""
    cable_price_usd: float
    longest_cable_m: float
    cable_bill: tuple[CableBill, ...]
    systems: Mapping[str, int]
    """Switches by what runs on them."""
    ecmp_width: Mapping[str, int]
    """By tier: the most equal paths of a switch."""
    classes: tuple[QosClass, ...]
    buffers: tuple[SwitchBuffer, ...]
    """One switch of each kind of buffer."""
    assumed: tuple[str, ...]
    files: int
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Installation:
    """A fabric as it is put up. `files` are all texts by their path below the folder they are written to."""

    fabric: Fabric = field(compare=False)
    wiring: CablingPlan = field(compare=False)
    floor: Floor = field(compare=False)
    cables: tuple[CableRow, ...]
    plan: AddressPlan | None = field(compare=False)
    buffers: Mapping[str, SwitchBuffer]
    switches: tuple[SwitchView, ...] = field(compare=False)
    files: Mapping[str, str]
    skipped: Mapping[str, str]

    @cached_property
    def cable_bill(self) -> tuple[CableBill, ...]:
        return bill_of(self.cables)

    @property
    def billed_cables_usd(self) -> float:
        """What cables cost by the lengths of the description, as `cost` reckons before anything stands in a room."""
        return sum(line.price_usd for line in bill(self.fabric).lines if line.kind == "cable")

    def write(self, folder: Path) -> list[Path]:
        """Write every file, making folders as needed; returns their paths."""
        for parent in sorted({(folder / name).parent for name in self.files}):
            make_folder(parent)
        for name, text in self.files.items():
            write_text(folder / name, text)
        return [folder / name for name in self.files]

    def differences(self, folder: Path) -> tuple[str, ...]:
        """Return how the files in a folder differ from these: missing, or the first line that is another."""
        if not folder.is_dir():
            raise UsageError(f'there is no folder "{folder}".', hint="Name what --out wrote.")
        different = []
        for name, wanted in self.files.items():
            path = folder / name
            if not path.is_file():
                different.append(f"{name}: missing")
                continue
            have = path.read_text(encoding="utf-8", errors="replace")
            if have != wanted:
                pairs = zip([*have.splitlines(), ""], [*wanted.splitlines(), ""], strict=False)
                line, pair = next(((n, p) for n, p in enumerate(pairs, 1) if p[0] != p[1]), (0, ("", "")))
                different.append(f'{name} line {line}: "{pair[0].strip()}" instead of "{pair[1].strip()}"')
        return tuple(different)

    @cached_property
    def figures(self) -> InstallationFigures:
        """The figures of racks, cables, switches and buffers."""
        racks, tiers = self.floor.racks, dict.fromkeys(view.tier for view in self.switches)
        return InstallationFigures(
            cluster=self.fabric.name, racks=len(racks), whole_racks=self.floor.num_sold,
            power_w=sum(rack.power_w for rack in racks),
            heaviest_kg=max((rack.weight_kg for rack in racks), default=0.0), cables=len(self.cables),
            billed_cable_price_usd=self.billed_cables_usd,
            cable_price_usd=sum(line.price_usd for line in self.cable_bill),
            longest_cable_m=max((row.length_m for row in self.cables), default=0.0), cable_bill=self.cable_bill,
            systems=dict(Counter(view.system for view in self.switches)),
            ecmp_width={tier: max(view.ecmp_width for view in self.switches if view.tier == tier) for tier in tiers},
            classes=CLASSES if self.plan else (), buffers=_one_of_each(self.buffers),
            assumed=tuple(f"height and weight of {part}" for part in self.floor.assumed), files=len(self.files),
            skipped=self.skipped,
        )  # fmt: skip


VENDORS = {"nvue": "nvidia", "eos": "arista"}
"""Systems that run on one vendor's switches alone."""


def install(fabric: Fabric, room: Room | None = None, *, system: str = "auto") -> Installation:
    """Work out racks, cables, addresses and configurations of a fabric.

    `system` is what runs on Ethernet switches: sonic, nvue, eos or frr; `auto` takes what the vendor ships.
    """
    if system != "auto" and system not in ("sonic", "nvue", "eos", "frr"):
        raise UsageError(f'--system cannot be "{system}".', hint="It is one of auto, sonic, nvue, eos, frr.")
    wired = wiring(fabric)
    if not wired.wires:
        raise FabricError(f"{fabric.name} has no network cables to lay.", hint="Describe a network.")
    running, skipped = _systems(wired, system)
    stand = floor(fabric, room)
    cables = schedule(wired, stand, running)
    lengths = {number: row.length_m for number, row in enumerate(cables)}
    ethernet = any(kind not in ("opensm", "none") for kind in running.values())
    plan = addresses(wired) if running else None
    used = buffers(wired, lengths) if ethernet else {}
    seen = views(wired, plan, used, running, lengths) if plan else ()
    files = {"racks.csv": _racks_csv(stand), "cables.csv": to_csv(cables)}
    files |= _switch_files(seen, fabric)
    if ethernet and plan:
        files |= {"addresses.csv": plan.to_csv()} | _host_files(fabric, plan, seen)
    if len(files) > FILE_LIMIT:
        raise FabricError(f"{len(files):,} files; at most {FILE_LIMIT:,} are written.", hint="Build one pod of it.")
    return Installation(fabric, wired, stand, cables, plan if ethernet else None, used, seen, files, skipped)


def _systems(wired: CablingPlan, wanted: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what runs on every switch, and why some get no configuration."""
    running, skipped = {}, {}
    for name in wired.switch_names:
        family, model = _family(wired, name), wired.switch_model(name)
        if model is None:
            running[name] = "none"
            skipped[f"configuration of {name}"] = "the catalogue has no such switch"
        elif family == "infiniband":
            running[name] = "opensm"
        elif family in MANAGED_BY_OTHERS:
            running[name] = "none"
            skipped["switch configurations"] = MANAGED_BY_OTHERS[family]
        else:
            usual = next((system for system, vendor in VENDORS.items() if vendor == model.vendor), "sonic")
            running[name] = usual if wanted == "auto" else wanted
            if VENDORS.get(wanted, model.vendor) != model.vendor:
                raise UsageError(
                    f"{wanted} does not run on {name}, a {model.name} of {model.vendor}.",
                    hint=f"Leave --system out for {usual}, or give sonic or frr.",
                )
    assert set(running.values()) <= set(SYSTEMS)
    return running, skipped


def _family(wired: CablingPlan, name: str) -> str:
    for _, _, wire in wired.of_device.get(name, ()):
        link = link_type(wired, wire)
        if link is not None:
            return link.family
    return "wan"


def _switch_files(seen: tuple[SwitchView, ...], fabric: Fabric) -> dict[str, str]:
    files = {
        f"switches/{switch.file_name}/{name}": text for switch in seen for name, text in switch_files(switch).items()
    }
    subnet = [switch for switch in seen if switch.system == "opensm"]
    return files | {f"opensm/{name}": text for name, text in opensm_files(subnet, fabric.num_hosts).items()}


def _host_files(fabric: Fabric, plan: AddressPlan, seen: tuple[SwitchView, ...]) -> dict[str, str]:
    by_host: dict[str, list[tuple[int, int]]] = {}
    ports = list(plan.ports.values())
    for at, port in enumerate(ports):
        by_host.setdefault(port.host, []).append((int(port.nic.rpartition("-")[2]), at))
    names = {(view.name, p.port.number): port_name(view.system, p.port) for view in seen for p in view.ports}
    files: dict[str, str] = {}
    for host in fabric.host_names:
        mine = [ports[at] for _, at in sorted(by_host.get(host, ()))]
        if mine:
            texts = host_files(host, mine, names)
            files |= {f"hosts/{file_name(host)}/{name}": text for name, text in texts.items()}
    return files


def _racks_csv(stand: Floor) -> str:
    places = ((rack.name, place) for rack in stand.racks for place in reversed(rack.places))
    return csv_text(
        ("rack", "u", "height_u", "device", "part", "power_w", "weight_kg"),
        (
            (rack, p.bottom_u, p.body.height_u, p.name, p.body.part, p.body.power_w, p.body.weight_kg)
            for rack, p in places
        ),
    )


def _one_of_each(used: Mapping[str, SwitchBuffer]) -> tuple[SwitchBuffer, ...]:
    """Return one buffer of each kind: most of a tier are alike."""
    kinds: dict[tuple[object, ...], SwitchBuffer] = {}
    for buffer in used.values():
        kinds.setdefault((buffer.part, buffer.ports), buffer)
    return tuple(kinds.values())
