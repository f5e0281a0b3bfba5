"""Routes inside hosts: over the scale-up domain, over PCIe, and from a GPU to the NIC it uses.

PCIe inside a host is a tree (device, PCIe switch, socket) with the sockets joined at the top, so every path is a climb,
perhaps a socket link, and a descent; climbing is one array lookup for all flows at once.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from syncline.errors import RouteError
from syncline.fabric.fabric import DeviceKind, Fabric, FloatArray, IntArray, LongArray, Tier
from syncline.fabric.topology.direct_cable import DirectCables


class Inside:
    """Routes that do not leave a host or a scale-up domain, for many pairs at once."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._key_cache: dict[Tier, tuple[LongArray, LongArray]] = {}

    @cached_property
    def parent_link(self) -> LongArray:
        """The PCIe link from each device to the PCIe switch or socket above it; -1 at the top or if it is down."""
        links = self.fabric.links
        return self._by_source(links.up & (links.tier == Tier.PCIE) & (np.arange(len(links)) % 2 == 0))

    @cached_property
    def crossbar_link(self) -> LongArray:
        """The link from each GPU to the NVSwitch of its domain; -1 without one or if it is down."""
        links = self.fabric.links
        to_crossbar = self.fabric.devices.kind[links.dst] == DeviceKind.NVSWITCH
        return self._by_source(links.up & (links.tier == Tier.SCALE_UP) & to_crossbar)

    def _by_source(self, mask: NDArray[np.bool_]) -> LongArray:
        """Return for each device the marked link that leaves it, or -1."""
        rows = np.flatnonzero(mask)
        result = np.full(len(self.fabric.devices), -1, np.int64)
        result[self.fabric.links.src[rows]] = rows
        return result

    @cached_property
    def direct_cables(self) -> DirectCables:
        """Cables from NIC to NIC."""
        return DirectCables(self.fabric)

    @cached_property
    def nic_of_gpu(self) -> LongArray:
        """The NIC each GPU uses: all are shared out evenly over the GPUs of a host, in order.

        A GPU whose NIC has no live cable gets one that has: of its own PCIe switch, else of its socket, if there is
        one. The others keep theirs.
        """
        result = self._shared_out(self.fabric.nics)
        usable, lost = self._usable_nics, self._lost_nic
        result[lost] = self._shared_out(usable)[lost]
        near = self._nearest(np.flatnonzero(lost), usable)
        result[near >= 0] = near[near >= 0]
        result[self.fabric.nics] = self.fabric.nics
        return result

    @cached_property
    def _lost_nic(self) -> NDArray[np.bool_]:
        """Whether the NIC that a GPU would use has no live cable."""
        nic = self._shared_out(self.fabric.nics)
        return (nic >= 0) & ~np.isin(nic, self._usable_nics)

    def _nearest(self, gpus: LongArray, nics: IntArray) -> LongArray:
        """Return a NIC on the PCIe switch of each GPU, else on its socket, dealt in turn; -1 where there is none."""
        result = np.full(len(self.fabric.devices), -1, np.int64)
        for near in (self._top, self._above):
            of_gpu, of_nic = near(gpus), near(np.asarray(nics, np.int64))
            for place in np.unique(of_gpu).tolist():
                here = nics[of_nic == place]
                mine = gpus[of_gpu == place]
                if len(here):
                    result[mine] = here[np.arange(len(mine)) % len(here)]
        return result

    def _above(self, device: LongArray) -> LongArray:
        """Return what each device is plugged into: a PCIe switch or a socket; itself where that is not described."""
        parent = self.parent_link[device]
        return np.where(parent >= 0, self.fabric.links.dst[np.maximum(parent, 0)], device)

    def _top(self, device: LongArray) -> LongArray:
        """Return the root of the PCIe tree that each device is in."""
        at, parent = device.copy(), self.parent_link
        while (more := parent[at] >= 0).any():
            at[more] = self.fabric.links.dst[parent[at[more]]]
        return at

    def _shared_out(self, nics: IntArray) -> LongArray:
        """Return the NIC of each GPU when the given ones are shared out evenly in each host; -1 where there is none."""
        devices, gpus = self.fabric.devices, self.fabric.gpus
        result = np.full(len(devices), -1, np.int64)
        num_gpus = np.bincount(devices.host[gpus], minlength=self.fabric.num_hosts)
        num_nics = np.bincount(devices.host[nics], minlength=self.fabric.num_hosts)
        first = np.cumsum(num_nics) - num_nics
        host = devices.host[gpus]
        some = num_nics[host] > 0
        share = devices.local[gpus].astype(np.int64) * num_nics[host] // np.maximum(num_gpus[host], 1)
        result[gpus[some]] = nics[(first[host] + share)[some]]
        return result

    @property
    def _usable_nics(self) -> IntArray:
        """NICs with a cable that is up, host by host; all NICs of a host that has no such NIC."""
        devices, links, nics = self.fabric.devices, self.fabric.links, self.fabric.nics
        live = np.zeros(len(devices), np.bool_)
        live[links.src[links.up & (links.tier >= Tier.ACCESS)]] = True
        any_live = np.zeros(self.fabric.num_hosts, np.bool_)
        any_live[devices.host[nics[live[nics]]]] = True
        return nics[live[nics] | ~any_live[devices.host[nics]]]

    @cached_property
    def num_stripes(self) -> int:
        """The most NICs that a GPU has to itself: what it sends out of its host is striped over them."""
        return 1 if len(self.fabric.gpus) == 0 else self.own_nics[0].shape[1]

    @cached_property
    def own_nics(self) -> tuple[LongArray, NDArray[np.bool_]]:
        """The NICs of each device, a column a stripe, and which of them have a live cable."""
        devices, gpus, nics = self.fabric.devices, self.fabric.gpus, self.fabric.nics
        host = devices.host[gpus]
        num_gpus = np.maximum(np.bincount(host, minlength=self.fabric.num_hosts), 1)[host]
        num_nics = np.bincount(devices.host[nics], minlength=self.fabric.num_hosts)
        local = devices.local[gpus].astype(np.int64)
        low, high = (((local + more) * num_nics[host]) // num_gpus for more in (0, 1))
        count = np.maximum(high - low, 1)
        stripe = np.arange(int(count.max(initial=1)))
        first = (np.cumsum(num_nics) - num_nics)[host] + low
        own = np.tile(self.nic_of_gpu[:, None], (1, len(stripe)))
        several = count > 1
        own[gpus[several]] = nics[(first[:, None] + stripe % count[:, None])[several]]
        return own, np.isin(own, self._usable_nics)

    @cached_property
    def owner_of_nic(self) -> LongArray:
        """The GPU that uses each NIC, the first where several do; -1 for other devices and NICs that none uses."""
        owner = np.full(len(self.fabric.devices), -1, np.int64)
        gpus = self.fabric.gpus[::-1].astype(np.int64)
        for nic in self.own_nics[0][gpus].T:
            owner[nic[nic >= 0]] = gpus[nic >= 0]
        return owner

    def _stripe(self, a: LongArray, b: LongArray, stripe: int) -> tuple[LongArray, LongArray]:
        """Return the NICs that carry one stripe between devices: of the same place at both ends, both live."""
        own, live = self.own_nics
        both = live[a] & live[b]
        count = both.sum(axis=1)
        order = np.argsort(~both, axis=1, kind="stable")
        moved = order[np.arange(len(a)), stripe % np.maximum(count, 1)]
        at = np.where(both[:, stripe] | (count == 0), stripe, moved)
        none = count == 0
        return np.where(none, self.nic_of_gpu[a], own[a, at]), np.where(none, self.nic_of_gpu[b], own[b, at])

    def direct(self, a: LongArray, b: LongArray) -> LongArray:
        """Return padded paths for pairs that need no network; rows of -1 for the others."""
        result = np.full((len(a), 6), -1, np.int64)
        links, devices = self.fabric.links, self.fabric.devices
        up, down = self.crossbar_link[a], self.crossbar_link[b]
        over_switch = (up >= 0) & (down >= 0) & (links.dst[up] == links.dst[down]) & (a != b)
        result[over_switch, 0], result[over_switch, 1] = up[over_switch], down[over_switch] ^ 1
        rest = np.flatnonzero(~over_switch & (devices.host[a] == devices.host[b]) & (devices.host[a] >= 0) & (a != b))
        if len(rest) == 0:
            return result
        wire = self._between(a[rest], b[rest], Tier.SCALE_UP)
        result[rest[wire >= 0], 0] = wire[wire >= 0]
        pcie = rest[wire < 0]
        if len(pcie):
            result[pcie] = self.over_pcie(a[pcie], b[pcie])
        return result

    def to_nics(
        self, a: LongArray, b: LongArray, cross_rail: Literal["fabric", "nvlink"], stripe: int = 0
    ) -> tuple[LongArray, LongArray, LongArray]:
        """Return links from `a` to its NIC, links from the far NIC to `b`, and the two NICs.

        GPUs with several NICs of their own use that of a stripe. Others send through the NIC on the destination's rail
        where it is as near as their own, unless the destination borrows a NIC itself. With `cross_rail="nvlink"` data
        first goes to the GPU of a's host whose NIC is on that rail, so that each GPU's PCIe link carries its own NIC's;
        where a's host has lost that rail, b's host takes the data in on the rail that is left.
        """
        nic_b = self.nic_of_gpu[b]
        sender = a if cross_rail == "fabric" else self._proxy(a, nic_b)
        nic_a = self.nic_of_gpu[sender]
        receiver = b if cross_rail == "fabric" else self._proxy(b, nic_a)
        nic_b = self.nic_of_gpu[receiver]
        if cross_rail == "fabric":
            near = np.where(self._lost_nic[b], -1, self._near_nic(a, nic_b))
            nic_a = np.where(near >= 0, near, nic_a)
        if self.num_stripes > 1:
            nic_a, nic_b = self._stripe(sender, receiver, stripe)
        missing = (nic_a < 0) | (nic_b < 0)
        if missing.any():
            device = int((a if nic_a[np.argmax(missing)] < 0 else b)[np.argmax(missing)])
            raise RouteError(
                f"{self.fabric.device_name(device)} has no NIC to leave its host by.", hint="Add `nics:` to the host."
            )
        nic_a, nic_b = self.direct_cables.ends(nic_a, nic_b)
        hop = self.direct(a, sender)
        climb = self.over_pcie(sender, nic_a)
        tail = np.concatenate((self.over_pcie(nic_b, receiver), self.direct(receiver, b)), axis=1)
        return np.concatenate((hop, climb), axis=1), tail, np.stack((nic_a, nic_b), axis=1)

    def over_pcie(self, a: LongArray, b: LongArray) -> LongArray:
        """Return padded PCIe paths between devices of one host: up from `a`, perhaps across sockets, down to `b`."""
        links, parent = self.fabric.links, self.parent_link
        a_up, b_up = np.full((len(a), 2), -1, np.int64), np.full((len(a), 2), -1, np.int64)
        at_a, at_b = np.asarray(a, np.int64).copy(), np.asarray(b, np.int64).copy()
        for step in range(2):
            apart = at_a != at_b
            for at, column in ((at_a, a_up), (at_b, b_up)):
                move = apart & (parent[at] >= 0)
                column[move, step] = parent[at][move]
                at[move] = links.dst[parent[at][move]]
        # Both sides climb at once and stop where they meet. None can pass the meeting point: the tree has two levels,
        # and a side that is already at its socket waits there.
        socket = np.full((len(a), 1), -1, np.int64)
        across = np.flatnonzero(at_a != at_b)
        if len(across):
            socket[across, 0] = self._socket_links(at_a[across], at_b[across])
        down = np.where(b_up[:, ::-1] >= 0, b_up[:, ::-1] ^ 1, -1)
        path = np.concatenate((a_up, socket, down), axis=1)
        return np.concatenate((path, np.full((len(a), 1), -1, np.int64)), axis=1)

    def _socket_links(self, a: LongArray, b: LongArray) -> LongArray:
        joining = self._between(a, b, Tier.SOCKET)
        if (joining < 0).any():
            bad = int(np.argmax(joining < 0))
            names = self.fabric.device_name(int(a[bad])), self.fabric.device_name(int(b[bad]))
            raise RouteError(
                f"no PCIe or socket path joins {names[0]} and {names[1]}.", hint="Look for faults inside the host."
            )
        return joining

    def _between(self, a: LongArray, b: LongArray, tier: Tier) -> LongArray:
        """Return the link of that tier from each a to each b, or -1."""
        keys, ids = self._keys(tier)
        wanted = np.asarray(a, np.int64) * len(self.fabric.devices) + b
        if len(keys) == 0:
            return np.full(len(wanted), -1, np.int64)
        slot = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[slot] == wanted, ids[slot], -1)

    def _keys(self, tier: Tier) -> tuple[LongArray, LongArray]:
        """Return the sorted (source, destination) keys of a tier's live links, and the links."""
        if tier not in self._key_cache:
            links = self.fabric.links
            ids = np.flatnonzero((links.tier == tier) & links.up)
            keys = links.src[ids].astype(np.int64) * len(self.fabric.devices) + links.dst[ids]
            order = np.argsort(keys, kind="stable")
            self._key_cache[tier] = keys[order], ids[order]
        return self._key_cache[tier]

    @cached_property
    def _port_of_nic(self) -> tuple[LongArray, FloatArray]:
        """The switch and the rate of each NIC's port; -1 for NICs with several or none, and for other devices."""
        devices, links = self.fabric.devices, self.fabric.links
        rows = np.flatnonzero(links.up & (links.tier == Tier.ACCESS) & (devices.kind[links.src] == DeviceKind.NIC))
        ports = np.bincount(links.src[rows], minlength=len(devices))
        rows = rows[ports[links.src[rows]] == 1]
        switch, rate_Bps = np.full(len(devices), -1, np.int64), np.zeros(len(devices))
        switch[links.src[rows]], rate_Bps[links.src[rows]] = links.dst[rows], links.rate_Bps[rows]
        return switch, rate_Bps

    @cached_property
    def _nic_on_rail(self) -> LongArray:
        """The NIC on each rail (column) that is plugged into each device (row), a PCIe switch or a socket; else -1."""
        devices, nics = self.fabric.devices, self.fabric.nics.astype(np.int64)
        nics = nics[devices.rail[nics] >= 0]
        table = np.full((len(devices), int(devices.rail.max(initial=0)) + 1), -1, np.int64)
        table[self._above(nics), devices.rail[nics]] = nics
        return table

    def _near_nic(self, a: LongArray, nic_b: LongArray) -> LongArray:
        """Return the NIC beside a's own, no slower, on the rail and the switch of `nic_b`, where its own is on neither.

        Without it the way would go over another tier of switches. NCCL does so with NCCL_CROSS_NIC=0: it sends to a
        peer through the NIC of its own host that the peer's number has there (`ncclTopoGetNetDev`).
        """
        if self.num_stripes > 1 or len(self.fabric.nics) == 0:
            return np.full(len(a), -1, np.int64)
        devices, (switch, rate_Bps) = self.fabric.devices, self._port_of_nic
        own, goal = np.maximum(self.nic_of_gpu[a], 0), np.maximum(nic_b, 0)
        near = np.where(devices.rail[goal] >= 0, self._nic_on_rail[self._above(a), devices.rail[goal]], -1)
        at = np.maximum(near, 0)
        apart = (devices.rail[own] != devices.rail[goal]) & (switch[own] != switch[goal])
        better = (near >= 0) & (switch[at] == switch[goal]) & (switch[goal] >= 0) & (rate_Bps[at] >= rate_Bps[own])
        free = (devices.kind[a] == DeviceKind.GPU) & (self.nic_of_gpu[a] >= 0)
        return np.where(free & apart & better, near, -1)

    def _proxy(self, a: LongArray, nic_b: LongArray) -> LongArray:
        """Return the GPU of a's host that owns the NIC on nic_b's rail; `a` itself if none does."""
        devices = self.fabric.devices
        gpus = self.fabric.gpus
        rails = np.where(self.nic_of_gpu[gpus] >= 0, devices.rail[self.nic_of_gpu[gpus]], -1).astype(np.int64)
        width = int(devices.rail.max()) + 2
        owner = np.full(self.fabric.num_hosts * width, -1, np.int64)
        key = devices.host[gpus].astype(np.int64) * width + rails
        owner[key[::-1]] = gpus[::-1]
        proxy = owner[devices.host[a].astype(np.int64) * width + devices.rail[nic_b]]
        same = devices.rail[np.maximum(self.nic_of_gpu[a], 0)] == devices.rail[nic_b]
        return np.where(same | (proxy < 0), a, proxy)
