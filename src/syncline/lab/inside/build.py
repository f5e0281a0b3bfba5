"""Build a blueprint out of namespaces, veth pairs, shapers and routes: runs inside the lab's own namespaces.

One thread drives all boxes: a netlink socket stays bound to the namespace in which it was opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyroute2.iproute.linux import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from syncline.lab.blueprint import Blueprint, End, LabCable
from syncline.lab.inside import kernel, namespace
from syncline.lab.inside.protocol import Message
from syncline.lab.reach import Hop
from syncline.lab.refusal import refusal
from syncline.lab.routes import Table, tables

_ROOT_HANDLE = 0x10000
_HTB_CLASS = 0x10001


class Works:
    """The built lab: an open namespace and a netlink socket for every box, interface numbers, installed routes."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.profile = blueprint.profile
        self.home = namespace.current()
        self.namespaces: list[int] = []
        self.wires: dict[int, int] = {}
        """Namespace of the relay of each cable that has one."""
        self._wire_netlink: dict[int, Any] = {}
        self.netlink: list[Any] = []
        self.index: dict[tuple[int, str], int] = {}
        self.failed_settings: dict[str, str] = {}
        self.down: set[int] = {i for i, cable in enumerate(blueprint.cables) if not cable.up}
        self._installed: list[Table] = [{} for _ in blueprint.boxes]

    def build(self) -> None:
        """Make everything; the caller's end is the end of it all, so nothing is undone on failure."""
        for box in self.blueprint.boxes:
            settings = namespace.host_settings if box.kind == "host" else namespace.router_settings
            self._open_box(settings(self.profile))
        for i, box in enumerate(self.blueprint.boxes):
            if box.kind == "bridge":
                self._add_bridge(i)
            self.netlink[i].link("set", index=1, state="up")  # 1 is the loopback
        for i, cable in enumerate(self.blueprint.cables):
            self._lay(i, cable)
        for i in range(len(self.blueprint.boxes)):
            self._base_routes(i)
        for i in sorted(self.down):
            self.set_cable(i, up=False)
        self.route()

    # Boxes

    def _open_box(self, settings: Mapping[str, object]) -> None:
        kernel.unshare(kernel.NEWNET)
        try:
            self.namespaces.append(namespace.current())
            self.failed_settings.update(namespace.write_settings(settings))
            self.netlink.append(IPRoute())
        finally:
            kernel.setns(self.home, kernel.NEWNET)

    def _open_wire(self, cable: int) -> int:
        kernel.unshare(kernel.NEWNET)
        try:
            self.wires[cable] = namespace.current()
            namespace.write_settings({"ipv6/conf/default/disable_ipv6": 1})
            self._wire_netlink[cable] = IPRoute()
        finally:
            kernel.setns(self.home, kernel.NEWNET)
        return self.wires[cable]

    def _add_bridge(self, box: int) -> None:
        netlink = self.netlink[box]
        with _step("bridge"):
            netlink.link("add", ifname="br0", kind="bridge", br_forward_delay=0, br_mcast_snooping=0)
        self.index[box, "br0"] = netlink.link_lookup(ifname="br0")[0]
        netlink.link("set", index=self.index[box, "br0"], state="up")

    # Cables

    def _lay(self, number: int, cable: LabCable) -> None:
        if cable.delay_s:
            wire = self._open_wire(number)
            self._veth(cable.a, wire, "left")
            self._veth(cable.b, wire, "right")
            self._set_wire(number, up=True)
        else:
            self._veth(cable.a, self.namespaces[cable.b.box], cable.b.interface)
            self.index[cable.b.box, cable.b.interface] = self._find(cable.b)
        for near, _, _, rate in cable.ends():
            self._set_up(near, rate)

    def _veth(self, near: End, far_namespace: int, far_name: str) -> None:
        mtu = self.profile.mtu_bytes
        peer = {"ifname": far_name, "net_ns_fd": far_namespace, "mtu": mtu}
        with _step("veth"):
            self.netlink[near.box].link("add", ifname=near.interface, kind="veth", mtu=mtu, peer=peer)
        self.index[near.box, near.interface] = self._find(near)

    def _find(self, end: End) -> int:
        found: int = self.netlink[end.box].link_lookup(ifname=end.interface)[0]
        return found

    def _set_up(self, end: End, rate_Bps: float) -> None:
        netlink, index = self.netlink[end.box], self.index[end.box, end.interface]
        if self.profile.one_packet_per_buffer:
            netlink.link("set", index=index, gso_max_size=self.profile.frame_bytes)
        self.shape(end, rate_Bps)
        if self.blueprint.boxes[end.box].kind == "bridge":
            netlink.link("set", index=index, master=self.index[end.box, "br0"])
        if end.address:
            netlink.addr("add", index=index, address=end.address, prefixlen=end.prefix)
        netlink.link("set", index=index, state="up")

    def shape(self, end: End, rate_Bps: float) -> None:
        """Set the rate of the link that leaves by this end; works under traffic."""
        netlink, index = self.netlink[end.box], self.index[end.box, end.interface]
        rate, burst = max(1, round(rate_Bps)), self.profile.burst_bytes
        if self.profile.shaper == "tbf":
            limit = self.profile.queue_bytes
            with _step("tbf"):
                netlink.tc("replace", "tbf", index, _ROOT_HANDLE, rate=rate, burst=burst, limit=limit)
            return
        netlink.tc("replace", "htb", index, _ROOT_HANDLE, default=_HTB_CLASS)
        netlink.tc(
            "replace-class", "htb", index, _HTB_CLASS, parent=_ROOT_HANDLE, rate=rate, burst=burst, ceil=rate,
            cburst=burst,
        )  # fmt: skip

    def reshape(self, rates: Mapping[str, float]) -> Message:
        """Give links other rates for good, by link id."""
        rates_Bps = {int(link): rate for link, rate in rates.items()}
        cables = []
        for cable in self.blueprint.cables:
            there, back = rates_Bps.get(cable.link, cable.rate_Bps), rates_Bps.get(cable.link ^ 1, cable.back_Bps)
            changed = replace(cable, rate_Bps=there, back_Bps=back)
            for (near, _, _, rate), (_, _, _, before) in zip(changed.ends(), cable.ends(), strict=True):
                if rate != before:
                    self.shape(near, rate)
            cables.append(changed)
        self.blueprint = replace(self.blueprint, cables=tuple(cables))
        return {}

    def set_mtu(self, end: End, mtu_bytes: int) -> None:
        """Set the MTU of one end."""
        self.netlink[end.box].link("set", index=self.index[end.box, end.interface], mtu=mtu_bytes)

    def set_cable(self, number: int, *, up: bool) -> None:
        """Cut or mend a cable: one end is switched off, so the other loses its carrier."""
        cable = self.blueprint.cables[number]
        (self.down.discard if up else self.down.add)(number)
        if number in self.wires:
            self._set_wire(number, up=up)
            return
        # Never the host's end: its routes would go with it, and a host does not lose those when a cable is pulled.
        end = cable.a if self.blueprint.boxes[cable.b.box].kind == "host" else cable.b
        self.netlink[end.box].link("set", index=self.index[end.box, end.interface], state="up" if up else "down")
        if up:  # what the kernel removed with the interface
            self._base_routes(end.box)
            self._install(end.box, self._installed[end.box], everything=True)

    def _set_wire(self, number: int, *, up: bool) -> None:
        """Switch both inner ends of a cable with a relay on or off: its boxes see their carrier come and go."""
        netlink = self._wire_netlink[number]
        for name in ("left", "right"):
            netlink.link("set", index=netlink.link_lookup(ifname=name)[0], state="up" if up else "down")

    # Routes

    def _base_routes(self, box: int) -> None:
        """Give a host the route of each rail; routers have connected routes only."""
        if self.blueprint.boxes[box].kind != "host":
            return
        for number, (_, near, far) in enumerate(self.blueprint.ports(box)):
            index = self.index[box, near.interface]
            rail = f"{near.address.rsplit('.', 2)[0]}.0.0/16"
            if far.address and near.prefix == 30:
                self.netlink[box].route("replace", dst=rail, gateway=far.address, oif=index)
            if number == 0 and near.prefix != 32:  # rails that this host does not have
                rest: dict[str, object] = {"gateway": far.address} if far.address else {"scope": 253}
                self.netlink[box].route("replace", dst="10.0.0.0/8", oif=index, **rest)

    def route(self) -> int:
        """Bring all routes in line with the cables that are up; returns how many changed."""
        wanted = tables(self.blueprint, frozenset(self.down))
        return sum(self._install(box, table) for box, table in enumerate(wanted))

    def _install(self, box: int, table: Table, *, everything: bool = False) -> int:
        installed, changes = self._installed[box], 0
        for address in installed.keys() - table.keys():
            self._try_route(box, "del", address, ())
            changes += 1
        for address, hops in table.items():
            if everything or installed.get(address) != hops:
                self._try_route(box, "replace", address, hops)
                changes += 1
        self._installed[box] = dict(table)
        return changes

    def _try_route(self, box: int, verb: str, address: str, hops: tuple[Hop, ...]) -> None:
        legs = [self._leg(box, hop) for hop in hops]
        rest = {"multipath": legs} if len(legs) > 1 else (legs[0] if legs else {})
        if len(legs) == 1 and "gateway" not in rest:
            rest = {**rest, "scope": 253}
        try:
            self.netlink[box].route(verb, dst=f"{address}/32", **rest)
        except NetlinkError:
            # The kernel removes a route with its interface by itself, and refuses one through an interface that is
            # down: both are put right when the cable is mended.
            if not self.down:
                raise

    def _leg(self, box: int, hop: Hop) -> dict[str, object]:
        leg: dict[str, object] = {"oif": self.index[box, hop.interface]}
        if hop.gateway:
            leg["gateway"] = hop.gateway
            leg["flags"] = 4  # onlink: the gateway may be an address that moved here
        return leg

    def out_interface(self, box: int, address: str, source: str = "", iif: str = "") -> str:
        """Ask the kernel by which interface a packet leaves a box."""
        query: dict[str, object] = {"dst": address}
        if source:
            query["src"] = source
        if iif:
            query["iif"] = self.index[box, iif]
        found = self.netlink[box].route("get", **query)[0]
        index = found.get_attr("RTA_OIF")
        return next(name for (owner, name), number in self.index.items() if owner == box and number == index)


@contextmanager
def _step(name: str) -> Iterator[None]:
    """Name the step that a kernel may not know how to do."""
    try:
        yield
    except NetlinkError as error:
        raise refusal(name, error.args[1] if len(error.args) > 1 else str(error)) from None
