"""What is a cluster: how much of what, how it is joined, and what it costs to buy?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from syncline.describe.files import check_writable
from syncline.describe.model import Handle, handle
from syncline.errors import UsageError
from syncline.fabric import Fabric, build, save
from syncline.fabric.assumed import assumed_of, assumed_of_network
from syncline.fabric.catalog import KINDS, load_catalog
from syncline.fabric.formats import export, import_fabric
from syncline.fabric.inventory import Inventory, built_otherwise
from syncline.fabric.inventory import inventory as count
from syncline.fabric.link_rows import LinkRow, links_by_tier, links_of
from syncline.fabric.load import parse_cluster, presets, read_cluster
from syncline.fabric.route import Routes
from syncline.questions.answer import Answer, Output, Parameter, page_output, picture_output, question
from syncline.questions.clusters.build import check_build
from syncline.questions.clusters.diff import fabric_diff
from syncline.questions.inputs import Cluster, built
from syncline.sim.transport import AUTO, message_lines, transport_on

DEFAULT = "h100-64-rail"


def presets_beginning(text: str) -> list[str]:
    """Return the names of presets for shell completion; files complete by themselves."""
    return [name for name in presets() if name.startswith(text)]


ClusterArgument = Annotated[
    Cluster, Parameter("A preset's name or a cluster file.", kind=str, complete=presets_beginning)
]


@dataclass(frozen=True)
class InventoryAnswer(Answer):
    """Counts, bisection, oversubscription, price and power of a cluster; its page is its picture."""

    schema_name: ClassVar[str] = "fabric-show"
    outputs: ClassVar[Mapping[str, Output]] = {
        **page_output("Write an interactive page with the picture."),
        **picture_output(),
    }

    content: ClassVar[str] = "inventory"

    inventory: Inventory
    fabric: Handle[Fabric] = handle()

    @property
    def picture(self) -> str:
        """The cluster drawn, as SVG."""
        return self.pictures()["cluster.svg"]


@dataclass(frozen=True)
class Preset:
    """A cluster that comes with syncline."""

    name: str
    notes: str
    source: str


@dataclass(frozen=True)
class PresetList(Answer):
    """The clusters that come with syncline, with their sources."""

    schema_name: ClassVar[str] = "fabric-list"

    presets: tuple[Preset, ...]


@dataclass(frozen=True)
class PartKinds(Answer):
    """The kinds of parts in the catalogue, and the names of each."""

    schema_name: ClassVar[str] = "fabric-parts"

    kinds: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class PartList(Answer):
    """Parts of one kind, or one part, with all numbers and their sources."""

    schema_name: ClassVar[str] = "fabric-parts-kind"

    kind: str
    parts: tuple[dict[str, Any], ...]
    single: bool


@dataclass(frozen=True)
class DevicePath:
    """One way from device to device; without links it is the same device, which has no rate."""

    links: tuple[str, ...]
    rate_Bps: float | None
    latency_s: float


@dataclass(frozen=True)
class RouteAnswer(Answer):
    """The path between two devices, or all equal-cost paths."""

    schema_name: ClassVar[str] = "fabric-route"

    paths: tuple[DevicePath, ...]
    count: int


@dataclass(frozen=True)
class LinkList(Answer):
    """Links by tier and medium, or those of one device."""

    schema_name: ClassVar[str] = "fabric-links"

    links: tuple[LinkRow, ...]


@dataclass(frozen=True)
class ExportedFabric(Answer):
    """A cluster in another tool's format."""

    schema_name: ClassVar[str] = "fabric-export"

    written: str
    format: str


@dataclass(frozen=True)
class ImportedFabric(Answer):
    """A cluster file made from another tool's description."""

    schema_name: ClassVar[str] = "fabric-import"

    written: str
    gpus: int
    hosts: int
    notes: str


@question(
    "syncline fabric show",
    "syncline fabric show eos --html eos.html",
    "syncline fabric show cluster.yaml --png cluster.png --json",
)
def inventory(cluster: ClusterArgument = DEFAULT) -> InventoryAnswer:
    """Count, measure and price a cluster, and draw it.

    >>> inventory("h100-64-rail").inventory.gpus
    512
    """
    fabric = built(cluster)
    spec = fabric.spec
    messages = message_lines(fabric, transport_on(AUTO, fabric))
    assumed = (*assumed_of(spec), *assumed_of_network(spec), *built_otherwise(fabric), *messages)
    return InventoryAnswer(replace(count(fabric), assumed=assumed), fabric=fabric)


@question("syncline fabric list", "syncline fabric list --json")
def preset_list() -> PresetList:
    """List the clusters that come with syncline, with their sources."""
    specs = {name: parse_cluster(read_cluster(name)) for name in presets()}
    return PresetList(tuple(Preset(name, spec.notes, spec.source) for name, spec in specs.items()))


@question("syncline fabric parts", "syncline fabric parts gpu", "syncline fabric parts switch QM9700 --json")
def parts(
    kind: Annotated[str | None, Parameter("gpu, nic, link, switch, cable, host, pcie, scale_up ...")] = None,
    name: Annotated[str | None, Parameter("One part; all of its numbers and their source.")] = None,
) -> PartKinds | PartList:
    """List the catalogue: its kinds, the parts of one, or a part with all its numbers and where those come from."""
    catalog = load_catalog()
    if kind is None:
        return PartKinds({each: tuple(catalog.names(each)) for each in KINDS})
    chosen = catalog.parts(kind) if name is None else (getattr(catalog, kind)(name),)
    rows = tuple(part.model_dump(mode="json", exclude_none=True) for part in chosen)
    return PartList(kind, rows, name is not None)


@question(
    "syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3",
    "syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3 --all --json",
)
def route(
    cluster: ClusterArgument,
    source: Annotated[str, Parameter("A GPU or NIC, such as host-00/gpu-0.", metavar="FROM")],
    target: Annotated[str, Parameter("Another one.", metavar="TO")],
    *,
    every: Annotated[bool, Parameter("All equal-cost paths (at most 1,024).", names=("--all",))] = False,
    policy: Annotated[Any, Parameter("ecmp, first (dimension order), static or valiant.", kind=str)] = "ecmp",
    cross_rail: Annotated[
        Any, Parameter("fabric: through the network; nvlink: change rail inside.", kind=str)
    ] = "fabric",
    seed: Annotated[int, Parameter("Seed of the ECMP hash.", rare=True)] = 0,
) -> RouteAnswer:
    """Find the path between two devices, or all of equal cost."""
    _one_of("policy", policy, ("ecmp", "first", "static", "valiant"))
    _one_of("cross_rail", cross_rail, ("fabric", "nvlink"))
    fabric = built(cluster)
    routes, links = Routes(fabric), fabric.links
    a, b = fabric.device(source), fabric.device(target)
    if every:
        paths = routes.paths(a, b, cross_rail=cross_rail)
    else:
        paths = [routes.path(a, b, seed=seed, policy=policy, cross_rail=cross_rail)]
    rows = tuple(
        DevicePath(
            tuple(fabric.link_name(int(link)) for link in path),
            float(links.rate_Bps[path].min()) if len(path) else None,
            float(links.latency_s[path].sum()),
        )
        for path in paths
    )
    return RouteAnswer(rows, len(rows))


@question("syncline fabric links cluster.yaml", "syncline fabric links cluster.yaml --device leaf-03 --json")
def links(
    cluster: ClusterArgument,
    *,
    device: Annotated[str | None, Parameter("Only the links that leave this device.")] = None,
) -> LinkList:
    """List links: counts by tier and medium, or every link of one device."""
    fabric = built(cluster)
    return LinkList(tuple(links_by_tier(fabric) if device is None else links_of(fabric, fabric.device(device))))


@question(
    "syncline fabric export p5-ultracluster nccl topo.xml",
    "syncline fabric export cluster.yaml slurm-conf topology.conf",
    "syncline fabric export cluster.yaml graphml cluster.graphml",
)
def export_fabric(
    cluster: ClusterArgument,
    format: Annotated[str, Parameter("One of nccl, slurm-conf, slurm-block, slurm-yaml, topograph, graphml.")],
    path: Annotated[Path, Parameter("The file to write.")],
    *,
    host: Annotated[int | None, Parameter("Which host, counted from 0 (nccl only).")] = None,
) -> ExportedFabric:
    """Write a cluster in another tool's format."""
    if host is not None and format != "nccl":
        raise UsageError(f"`host` picks the host of an nccl file; {format} describes all.", hint="Leave `host` out.")
    export(built(cluster), format, path, **({} if host is None else {"host": host}))
    return ExportedFabric(str(path), format)


@question(
    "syncline fabric import nccl-dump.xml cluster.yaml",
    "syncline fabric import ndv4-topo.xml cluster.yaml --gpu A100 --network 'fat-tree HDR' --count 16",
    "syncline fabric import topology.conf cluster.yaml --host dgx-h100",
    "syncline fabric import ibnetdiscover.out cluster.yaml --host 'gpu*=dgx-h100'",
    "syncline fabric import lldp/ cluster.yaml --host '8 x H100' --link 400GbE",
    "syncline fabric import topo.txt cluster.yaml --gpu H100 --link NDR --network 'rail-optimized NDR' --count 32",
    "syncline fabric import describe-instance-topology.json cluster.yaml --host p5",
)
def import_cluster(
    source: Annotated[
        Path,
        Parameter(
            "An NCCL or Slurm topology, labels, ibnetdiscover, iblinkinfo, ibstat, UFM links, LLDP tables, "
            "SONiC's config_db.json, nvidia-smi topo -m, or a cloud's answer where instances are."
        ),
    ],
    target: Annotated[Path, Parameter("The cluster file to write.")],
    *,
    format: Annotated[str | None, Parameter("Name the format instead of guessing it.")] = None,
    host: Annotated[
        str | None, Parameter("Host model, where the format has none; 'gpu*=8 x H100' sets it for hosts of that name.")
    ] = None,
    gpu: Annotated[str | None, Parameter("The GPU, where an NCCL topology does not name it.")] = None,
    link: Annotated[str | None, Parameter("What ports run, where the file does not say: NDR, 400GbE.")] = None,
    network: Annotated[str | None, Parameter('Join the hosts by this network: "rail-optimized NDR".')] = None,
    count: Annotated[int | None, Parameter("This many hosts like the one described.", min=1)] = None,
) -> ImportedFabric:
    """Read another tool's description and write it as a cluster file."""
    check_writable(target)
    spec = import_fabric(source, format, host=host, gpu=gpu, link=link, network=network, count=count)
    fabric = build(spec)
    save(spec, target)
    return ImportedFabric(str(target), fabric.num_gpus, fabric.num_hosts, spec.notes)


def _one_of(argument: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f'`{argument}` cannot be "{value}".', hint=f"It is one of {', '.join(allowed)}.")


COMMANDS = {
    "show": inventory,
    "list": preset_list,
    "parts": parts,
    "route": route,
    "links": links,
    "build": check_build,
    "export": export_fabric,
    "import": import_cluster,
    "diff": fabric_diff,
}
HELP = "Describe, draw and price a cluster."
EXAMPLES = (
    "syncline fabric show",
    "syncline fabric show dgx-h100-superpod --html superpod.html",
    "syncline fabric show cluster.yaml --json",
    "syncline fabric route h100-64-rail host-00/gpu-0 host-40/gpu-3",
)
