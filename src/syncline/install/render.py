"""The files of switches and hosts, from the templates of this package: what a template names must be there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from syncline.install import qos
from syncline.install.addresses import HOST_PORTS, HostPort
from syncline.install.sonic import WHY, tables
from syncline.install.view import SwitchView

if TYPE_CHECKING:
    from jinja2 import Environment

FIRST_TABLE = 100
"""The routing table of a host's first rail."""
_OF_SYSTEM = {
    "sonic": {"frr.conf": "frr.conf"},
    "nvue": {"nvue.sh": "nvue.sh"},
    "eos": {"startup-config": "eos"},
    "frr": {"frr.conf": "frr.conf", "sysctl.conf": "sysctl.conf", "classes.nft": "classes.nft"},
}
"""For each switch system: its files, and their templates."""
_OF_HOST = {"60-fabric.yaml": "netplan.yaml", "70-rails.rules": "rails.rules", "qos.sh": "qos.sh"}


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(  # configurations are no HTML  # noqa: S701
        loader=PackageLoader("syncline.install"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    constants = ("CLASSES", "TRAINING", "CONTROL", "MAX_MARK_PERCENT", "MTU_BYTES", "HOST_MTU_BYTES", "EOS_MTU_BYTES")
    made.globals |= {name: getattr(qos, name) for name in constants}
    made.globals |= {"HOST_PORTS": HOST_PORTS, "FIRST_TABLE": FIRST_TABLE}
    made.filters |= {"gbps": lambda rate_Bps: round(rate_Bps * 8 / 1e9), "metres": qos.whole_metres}
    return made


def render(template: str, **values: object) -> str:
    """Return the text of a template of this package."""
    return _environment().get_template(f"{template}.j2").render(values)


def switch_files(switch: SwitchView) -> dict[str, str]:
    """Return the files of one switch by name; those of InfiniBand belong to its subnet manager."""
    files = {name: render(made, switch=switch) for name, made in _OF_SYSTEM.get(switch.system, {}).items()}
    if switch.system == "sonic":
        config = tables(switch)
        files["config_db.json"] = json.dumps(config, indent=2) + "\n"
        files["config_db.why.md"] = render("config_db.why.md", switch=switch, tables=list(config), why=WHY)
    return files


def host_files(host: str, ports: Sequence[HostPort], leaf_port: Mapping[tuple[str, int], str]) -> dict[str, str]:
    """Return the files of one host by name; `lldp.json` is what `lldpctl -f json` must show, which `discover` reads."""
    neighbours = [
        {
            port.interface: {
                "chassis": {port.leaf: {}},
                "port": {"id": {"type": "ifname", "value": leaf_port[port.leaf, port.leaf_port]}},
            }
        }
        for port in ports
    ]
    files = {name: render(made, host=host, ports=ports) for name, made in _OF_HOST.items()}
    return files | {"lldp.json": json.dumps({"lldp": {"interface": neighbours}}, indent=1) + "\n"}


def opensm_files(switches: Sequence[SwitchView], num_hosts: int) -> dict[str, str]:
    """Return the files of every subnet manager: `opensm.conf`, `partitions.conf`, `switches.txt` and `guids.sh`.

    Switches that no cable joins, as in planes, are subnets with a manager and a folder each.
    """
    subnets = list(_subnets(switches))
    files: dict[str, str] = {}
    for number, subnet in enumerate(subnets):
        folder = f"subnet-{number}/" if len(subnets) > 1 else ""
        values = {
            "subnet": subnet,
            "top": max(switch.level for switch in subnet),
            "adaptive": all(switch.model.adaptive_routing for switch in subnet),
            "num_hosts": num_hosts,
        }
        for name in ("opensm.conf", "partitions.conf", "switches.txt", "guids.sh"):
            files[folder + name] = render(name, **values)
    return files


def _subnets(switches: Sequence[SwitchView]) -> Iterator[list[SwitchView]]:
    """Yield the switches that cables join, in the order of their first switch."""
    of = {switch.name: switch for switch in switches}
    left = dict.fromkeys(of)
    while left:
        reached, edge = set(), [next(iter(left))]
        while edge:
            name = edge.pop()
            if name in left:
                del left[name]
                reached.add(name)
                edge += [port.far_device for port in of[name].fabric_ports if port.far_device in of]
        yield [switch for switch in switches if switch.name in reached]
