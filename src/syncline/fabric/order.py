"""The order in which hosts and sites are built, which follows from what they are and not from the order of the file.

Ranks, rings and trees go through hosts in the order of the fabric, so two files that list the same groups or sites
differently have to be built alike to be priced alike. Groups are ordered largest first, then newest GPU first; sites
likewise. The first site of a star is its hub and stays first, and a ring of sites keeps its neighbours. Hosts whose
cables are named one by one (`topology: explicit`) stay in the order of the file.

Hosts keep the names that they have in the order of the file: `host-00` is always a host of the group listed first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from syncline.describe.names import natural
from syncline.fabric.catalog import Catalog, HostModel
from syncline.fabric.spec import ClusterSpec, HostGroup, Site
from syncline.fabric.topology.network import NetworkSpec

HostNames = Callable[[HostGroup, Site | None, int], Sequence[str]]
"""The names of a group's hosts at a site, where so many hosts come before them."""
_Key = tuple[object, ...]


def in_order(spec: ClusterSpec, names_of: HostNames) -> ClusterSpec:
    """Return the description with groups and sites in the order of what they are; hosts keep their names."""
    places: list[tuple[Site | None, tuple[HostGroup, ...], NetworkSpec | None]]
    places = [(site, site.hosts, site.network) for site in spec.sites]
    places = places or [(None, spec.hosts, spec.network)]
    group_orders = [_group_order(hosts, network, spec.catalog) for _, hosts, network in places]
    site_order = _site_order(spec)
    if all(order == sorted(order) for order in (*group_orders, site_order)):
        return spec
    start = 0
    named: list[tuple[HostGroup, ...]] = []
    for (site, hosts, _), order in zip(places, group_orders, strict=True):
        groups = []
        for group in hosts:
            names = tuple(names_of(group, site, start))
            start += len(names)
            groups.append(group.model_copy(update={"names": names, "count": None}))
        named.append(tuple(groups[at] for at in order))
    if not spec.sites:
        return spec.model_copy(update={"hosts": named[0]})
    sites = [site.model_copy(update={"hosts": hosts}) for site, hosts in zip(spec.sites, named, strict=True)]
    return spec.model_copy(update={"sites": tuple(sites[at] for at in site_order)})


def _group_order(groups: Sequence[HostGroup], network: NetworkSpec | None, catalog: Catalog) -> list[int]:
    if network is not None and network.topology == "explicit":
        return list(range(len(groups)))
    models = [group.host.resolve(catalog) for group in groups]
    gpus = [_gpus(group, model) for group, model in zip(groups, models, strict=True)]
    texts = [model.model_dump_json() for model in models]
    alike: Counter[str] = Counter()
    for text, count in zip(texts, gpus, strict=True):
        alike[text] += count

    def key(at: int) -> _Key:
        names = tuple(natural(name) for name in groups[at].names[:1])
        return (-alike[texts[at]], -catalog.gpu(models[at].gpu).sm, texts[at], names)

    return sorted(range(len(groups)), key=key)


def _site_order(spec: ClusterSpec) -> list[int]:
    keys = [_site_key(site, spec.catalog) for site in spec.sites]
    numbers = list(range(len(keys)))
    if spec.wan is None or len(keys) < 2:
        return numbers
    if spec.wan.pattern == "star":
        return [0, *sorted(numbers[1:], key=lambda at: keys[at])]
    if spec.wan.pattern == "ring":
        around = [numbers[at:] + numbers[:at] for at in numbers]
        around += [list(reversed(one)) for one in around]
        return min(around, key=lambda one: [keys[at] for at in one])
    return sorted(numbers, key=lambda at: keys[at])


def _site_key(site: Site, catalog: Catalog) -> _Key:
    models = [group.host.resolve(catalog) for group in site.hosts]
    each = sorted(
        (-_gpus(group, model), -catalog.gpu(model.gpu).sm, model.model_dump_json())
        for group, model in zip(site.hosts, models, strict=True)
    )
    return (sum(gpus for gpus, _, _ in each), each, site.network.model_dump_json(), natural(site.name))


def _gpus(group: HostGroup, model: HostModel) -> int:
    """Return the GPUs of a group; a group as large as the network allows counts before all others."""
    count = len(group.names) or group.count
    return model.num_gpus * (count if isinstance(count, int) else 1 << 30)
