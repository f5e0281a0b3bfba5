"""PCI Express as sysfs shows it: devices, their links, the bridges above them, and capabilities in config space.

tree = read_pci(root)
tree.path_kind("0000:1b:00.0", "0000:1a:00.0")     # PIX, PXB, PHB, NODE or SYS, as nvidia-smi calls them
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from syncline.host.root import Root

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_EXTENDED_ACS = 0x000D
_EXTENDED_ATS = 0x000F
_EXPRESS = 0x10
# Bits of the ACS control register that send peer traffic up to the root complex.
_ACS_BITS = {0: "SrcValid", 2: "ReqRedir", 3: "CmpltRedir", 4: "UpstreamFwd"}


@dataclass(frozen=True)
class PciDevice:
    """One function on the bus. Speeds in GT/s, 0.0 and widths 0 where sysfs does not say."""

    address: str
    chain: tuple[str, ...]
    """From the host bridge (`pci0000:15`) down to this device."""
    vendor: int
    device: int
    subsystem: str
    class_code: int
    numa: int
    speed: float
    max_speed: float
    width: int
    max_width: int
    driver: str
    is_virtual_function: bool = False

    @property
    def id(self) -> str:
        """Return "10de:2330"."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def parent(self) -> str | None:
        """Return the address of the bridge above, or None on a root bus."""
        return self.chain[-2] if len(self.chain) > 2 else None

    @property
    def is_gpu(self) -> bool:
        return self.class_code >> 8 in (0x0300, 0x0302) and self.vendor in (0x10DE, 0x1002)

    @property
    def is_nvswitch(self) -> bool:
        return self.vendor == 0x10DE and self.class_code >> 8 == 0x0680

    @property
    def is_network(self) -> bool:
        return self.class_code >> 16 == 0x02

    @property
    def folder(self) -> str:
        return f"sys/bus/pci/devices/{self.address}"


@dataclass(frozen=True)
class PciTree:
    """All devices by address."""

    devices: Mapping[str, PciDevice]

    def __iter__(self) -> Iterator[PciDevice]:
        return iter(self.devices.values())

    def above(self, address: str) -> tuple[PciDevice, ...]:
        """Return the bridges between a device and the root bus, nearest first."""
        device = self.devices.get(address)
        chain = device.chain[1:-1] if device else ()
        return tuple(self.devices[part] for part in reversed(chain) if part in self.devices)

    def path_kind(self, a: str, b: str) -> str:
        """Return how two devices reach each other, in nvidia-smi's words."""
        one, other = self.devices[a], self.devices[b]
        shared = 0
        for left, right in zip(one.chain, other.chain, strict=False):
            if left != right:
                break
            shared += 1
        if shared == 0:
            known = one.numa >= 0 and other.numa >= 0
            return "NODE" if not known or one.numa == other.numa else "SYS"
        if shared == 1:
            return "PHB"
        # A device and the port of the switch it hangs on; more bridges than that make it PXB.
        return "PIX" if max(len(one.chain), len(other.chain)) - shared <= 2 else "PXB"


def read_pci(root: Root) -> PciTree:
    """Read every device on the bus."""
    devices = {}
    for address in root.names("sys/bus/pci/devices"):
        if _ADDRESS.fullmatch(address):
            devices[address] = _device(root, address)
    return PciTree(devices)


def _device(root: Root, address: str) -> PciDevice:
    folder = f"sys/bus/pci/devices/{address}"
    real = root.real(folder) or folder
    chain = tuple(part for part in real.split("/") if part.startswith("pci") or _ADDRESS.fullmatch(part))
    return PciDevice(
        address=address,
        chain=chain[chain.index(next((p for p in chain if re.match(r"pci[0-9a-f]{4}", p)), chain[0])) :]
        if chain
        else (address,),
        vendor=root.number(f"{folder}/vendor") or 0,
        device=root.number(f"{folder}/device") or 0,
        subsystem=f"{root.text(f'{folder}/subsystem_vendor') or ''}:{root.text(f'{folder}/subsystem_device') or ''}",
        class_code=root.number(f"{folder}/class") or 0,
        numa=_or(root.number(f"{folder}/numa_node"), -1),
        speed=_speed(root.text(f"{folder}/current_link_speed")),
        max_speed=_speed(root.text(f"{folder}/max_link_speed")),
        width=_width(root.text(f"{folder}/current_link_width")),
        max_width=_width(root.text(f"{folder}/max_link_width")),
        driver=(root.real(f"{folder}/driver") or "").rpartition("/")[2],
        is_virtual_function=root.exists(f"{folder}/physfn"),
    )


@dataclass(frozen=True)
class ConfigSpace:
    """The configuration space of a function: 64 bytes for anyone, 256 or 4,096 for root."""

    data: bytes

    @property
    def is_whole(self) -> bool:
        return len(self.data) >= 4096

    def acs_control(self) -> tuple[str, ...] | None:
        """Return the ACS bits that redirect peer traffic; None without the capability."""
        at = self._extended(_EXTENDED_ACS)
        if at is None:
            return None
        control = self._word(at + 6)
        return tuple(name for bit, name in _ACS_BITS.items() if control >> bit & 1)

    def ats_enabled(self) -> bool | None:
        """Say whether address translation services are on; None without the capability."""
        at = self._extended(_EXTENDED_ATS)
        return None if at is None else bool(self._word(at + 6) >> 15 & 1)

    def relaxed_ordering(self) -> bool | None:
        """Say whether the function may send relaxed-ordering requests; None where it cannot be read."""
        at = self._express()
        return None if at is None else bool(self._word(at + 8) >> 4 & 1)

    def max_read_request_bytes(self) -> int | None:
        """Return the largest read the function asks for at once."""
        at = self._express()
        return None if at is None else 128 << (self._word(at + 8) >> 12 & 7)

    def _express(self) -> int | None:
        if len(self.data) < 256 or not self.data[6] & 0x10:
            return None
        at, seen = self.data[0x34] & 0xFC, 0
        while at >= 0x40 and seen < 48:
            if self.data[at] == _EXPRESS and at + 10 <= len(self.data):
                return at
            at, seen = self.data[at + 1] & 0xFC, seen + 1
        return None

    def _extended(self, wanted: int) -> int | None:
        at, seen = 0x100, 0
        while self.is_whole and 0x100 <= at <= 4088 and seen < 96:
            header = int.from_bytes(self.data[at : at + 4], "little")
            if header & 0xFFFF == wanted:
                return at
            at, seen = header >> 20 & 0xFFC, seen + 1
        return None

    def _word(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 2], "little")


def read_config(root: Root, device: PciDevice) -> ConfigSpace:
    """Read a function's configuration space as far as this user may."""
    return ConfigSpace(root.data(f"{device.folder}/config", 4096) or b"")


def normal_address(text: str) -> str:
    """Return "0000:18:00.0" for what nvidia-smi writes as "00000000:18:00.0"."""
    head, _, rest = text.strip().lower().partition(":")
    return f"{head[-4:]}:{rest}"


def _speed(text: str | None) -> float:
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text or "")
    return float(match.group(1)) if match else 0.0


def _width(text: str | None) -> int:
    found = int(text) if text and text.isdecimal() else 0
    return found if 0 < found <= 32 else 0


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
