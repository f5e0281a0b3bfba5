"""What a cluster file leaves open and syncline fills in: shown before any answer that rests on it."""

from __future__ import annotations

from syncline.describe import units
from syncline.fabric.catalog import Catalog, HostModel
from syncline.fabric.host import port_Bps
from syncline.fabric.spec import ClusterSpec, HostGroup, HostSpec
from syncline.fabric.topology.network import NetworkSpec


def assumed_of(spec: ClusterSpec) -> tuple[str, ...]:
    """Return in words what was assumed about the hosts of a description.

    >>> from syncline.fabric.load import parse_cluster, described
    >>> assumed_of(parse_cluster(described({"hosts": 4, "host": "8 x A100", "network": "leaf-spine 100GbE"})))[0]
    '8 NICs a host, one a GPU: 100 Gb/s a GPU. If the hosts have fewer, say so: `nics: 1` under `host:`'
    """
    catalog = spec.catalog
    texts = [
        text
        for hosts, network in _sites(spec)
        for group in hosts
        for text in _of_host(group.host, str(getattr(network, "link", None) or ""), catalog)
    ]
    return tuple(dict.fromkeys(texts))


def assumed_of_network(spec: ClusterSpec) -> tuple[str, ...]:
    """Return in words what is assumed of the network where the description leaves it open: cards, switches, cables.

    >>> from syncline.fabric.load import parse_cluster, described
    >>> spec = parse_cluster(described({"hosts": 4, "host": "dgx-h100", "network": "leaf-spine NDR"}))
    >>> assumed_of_network(spec)[0]
    '8 ConnectX-7 a host on NDR: 400 Gb/s a port, 3.2 Tb/s a host (of dgx-h100 in the catalogue)'
    """
    catalog = spec.catalog
    texts: list[str] = []
    for hosts, network in _sites(spec):
        if network is not None and network.link:
            texts += [text for group in hosts for text in _cards(group.host, network, catalog)]
            texts += _switches(network, catalog)
    return tuple(dict.fromkeys(texts))


def _sites(spec: ClusterSpec) -> list[tuple[tuple[HostGroup, ...], NetworkSpec | None]]:
    return [(spec.hosts, spec.network)] if spec.hosts else [(site.hosts, site.network) for site in spec.sites]


def _cards(host: HostSpec, network: NetworkSpec, catalog: Catalog) -> list[str]:
    model = host.resolve(catalog)
    if not model.nic or not model.num_nics or {"nic", "nics"} <= host.model_fields_set:
        return []
    if _nics_open(host, model, network.link, catalog):
        return []  # `assumed_of` states how many, and how to change that
    link = catalog.link(network.link)
    each_Bps = min(link.rate_Bps, port_Bps(catalog, model) or link.rate_Bps)
    rates = f"{units.show_rate(each_Bps)} a port, {units.show_rate(each_Bps * model.num_ports)} a host"
    card = catalog.nic(model.nic).name
    return [f"{model.num_nics} {card} a host on {link.name}: {rates} (of {model.name} in the catalogue)"]


def _switches(network: NetworkSpec, catalog: Catalog) -> list[str]:
    given, lines = network.model_fields_set, []
    if "switch" not in given and network.topology not in ("torus", "explicit", "multi-plane"):
        lines.append(f"switches are {network.parts(catalog).switch.name}, the usual ones for {network.link}")
    if "oversubscription" in type(network).model_fields and "oversubscription" not in given:
        lines.append("no oversubscription: every leaf has as much up as down")
    if "lengths" not in given and network.topology not in ("torus", "explicit", "multi-plane"):
        lengths = network.lengths
        between = f"{lengths.access:g} m to hosts, {lengths.leaf_spine:g} m between switches"
        if network.topology == "dragonfly":
            between = f"{lengths.access:g} m to hosts, {lengths.group_local:g} m in a group"
            between += f", {lengths.group_global:g} m between groups"
        lines.append(f"cables of {between}")
    return lines


def _nics_open(host: HostSpec, model: HostModel, link: str, catalog: Catalog) -> bool:
    """Whether a description leaves the number of NICs open: no host of the catalogue, or not on the link it has."""
    other = bool(link) and (not model.link or catalog.link(link) != catalog.link(model.link))
    return host.nics is None and bool(model.num_nics) and (host.model is None or other)


def _of_host(host: HostSpec, link: str, catalog: Catalog) -> list[str]:
    model = host.resolve(catalog)
    texts = []
    if _nics_open(host, model, link, catalog):
        named = catalog.link(link or str(model.link)).name
        network_Bps = catalog.link(named).rate_Bps
        each_Bps = min(network_Bps, port_Bps(catalog, model) or network_Bps)
        rate = each_Bps * model.num_ports / model.num_gpus
        each = ", one a GPU" if model.num_nics == model.num_gpus > 1 else ""
        count = "1 NIC" if model.num_nics == 1 else f"{model.num_nics} NICs"
        fewer = "If the hosts have fewer, say so: `nics: 1` under `host:`"
        if each_Bps < network_Bps:
            fewer = f"Their ports are slower than {named}; if not, name their card under `host:` (`nic: ConnectX-7`)"
        elif model.num_nics == 1:
            fewer = "If the hosts have more, say so: `nics: 2` under `host:`"
        texts.append(f"{count} a host{each}: {units.show_rate(rate)} a GPU. {fewer}")
    if host.model is None:
        texts.append(_base(host, model, catalog))
    return [text for text in texts if text]


def _base(host: HostSpec, model: HostModel, catalog: Catalog) -> str:
    """Say which host of the catalogue a bare GPU was put into."""
    gpu = catalog.gpu(model.gpu)
    if any(isinstance(h, HostModel) and catalog.gpu(h.gpu) == gpu for h in catalog.parts("host")):
        return ""
    joined = f"{units.show_bandwidth(catalog.scale_up_Bps(gpu))} a GPU between them"
    if host.scale_up in (None, "pcie", "none") and model.scale_up_topology in ("pcie", "none"):
        joined = f"joined by PCIe, {units.show_bandwidth(catalog.pcie(gpu.pcie).usable_Bps / 2)} a GPU"
    return (
        f"no host of the catalogue has {gpu.name}: a two-socket server with {model.num_gpus} of them, {joined}. "
        "Say `scale_up: nvswitch` under `host:` if they are joined otherwise"
    )
