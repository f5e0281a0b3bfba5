"""The environment: the lint of NCCL variables with what this host knows, and names of what is not there."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.auditing import environment_rules
from syncline.auditing.environment import lint
from syncline.auditing.environment_rules import JobSite
from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, Check, Sight
from syncline.finding import Severity
from syncline.host.host import Host, hca_matches, version

_GUIDE = "NCCL user guide, environment variables"
# Rules of the lint that guess what this host can be asked: roce.pfc.class, env.socket_ifname.wrong, and RDMA is known.
ASKED_OF_HOST = ("nccl.env.traffic-class-missing", "nccl.env.wrong-interface", "nccl.env.rdma-off-unknown")
MISTYPED = "nccl.env.mistyped"


def site(host: Host, expect: Expect) -> JobSite:
    """Return what the lint wants to know of a host."""
    kinds = {"efa" if port.driver == "efa" else "roce" if port.is_roce else "infiniband" for port in host.fabric_ports}
    release = version(host.nccl_versions[-1])[:2] if host.nccl_versions else ()
    return JobSite(
        network=min(kinds) if kinds else "tcp",
        nvswitch=any(device.is_nvswitch for device in host.pci),
        num_nics=len(host.fabric_ports),
        rails=expect.rails,
        nccl=(release[0], release[1]) if len(release) == 2 else None,
    )


def _linted(id: str) -> Check:
    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        for finding in lint(host.environment, site(host, expect)):
            if finding.rule == id:
                yield Sight(
                    "environment", finding.observed, finding.expected, finding.evidence, finding.severity, finding.fix,
                    finding.confidence,
                )  # fmt: skip

    return check


def hca_missing(host: Host, expect: Expect) -> Iterator[Sight]:
    value = host.environment.get("NCCL_IB_HCA", "")
    body, exact = value.lstrip("^="), "=" if "=" in value[:2] else ""
    words = [word for word in body.split(",") if word]
    lost = [word for word in words if not any(hca_matches(exact + word, port) for port in host.ports)]
    if lost:
        known = ", ".join(dict.fromkeys(port.device for port in host.ports))
        evidence = ("NCCL_IB_HCA", "sys/class/infiniband")
        yield Sight("NCCL_IB_HCA", f"{', '.join(lost)} not found", f"among {known}", evidence)


def few_nics(host: Host, expect: Expect) -> Iterator[Sight]:
    value = host.environment.get("NCCL_IB_HCA", "")
    named = {port.device for port in host.ports if value and hca_matches(value, port)}
    near = {port.device for port in host.training_ports}
    wanted = min(len(near), len(host.gpus)) if host.gpus else len(near)
    if named and len(named & near) < wanted:
        seen = f"NCCL_IB_HCA={value} takes {len(named & near)} of {len(near)} NICs beside the GPUs"
        idle = ", ".join(sorted(near - named))
        yield Sight("NCCL_IB_HCA", f"{seen}; idle: {idle}", f"{wanted} NICs", ("NCCL_IB_HCA", "sys/class/infiniband"))


def file_missing(host: Host, expect: Expect) -> Iterator[Sight]:
    for name in ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "NCCL_TUNER_CONFIG_FILE"):
        value = host.environment.get(name, "")
        if value.startswith("/") and not host.root.exists(value):
            yield Sight(name, f"{value} is not there", "a file", (name,))


def master_addr(host: Host, expect: Expect) -> Iterator[Sight]:
    value = host.environment.get("MASTER_ADDR", "")
    world, local = host.environment.get("WORLD_SIZE", ""), host.environment.get("LOCAL_WORLD_SIZE", "")
    several = world.isdecimal() and local.isdecimal() and int(world) > int(local)
    if several and (value in ("localhost", "::1") or value.startswith("127.")):
        seen = f"MASTER_ADDR={value} with {world} ranks, {local} here"
        yield Sight("MASTER_ADDR", seen, "an address of the first host", ("MASTER_ADDR",))


RULES = (
    *(
        AuditRule(
            one.id, f"the environment lint's {one.id.rpartition('.')[2].replace('-', ' ')}", _linted(one.id),
            one.meaning, one.fix, one.reference, "environment", one.severity,
        )
        for one in environment_rules.RULES
        if one.id not in ASKED_OF_HOST
    ),
    AuditRule(MISTYPED, "every NCCL variable is one that NCCL knows", _linted(MISTYPED),
        "NCCL ignores names that it does not know, without a word.",
        "Correct the name.",
        _GUIDE, needs="environment"),
    AuditRule("env.hca_missing", "NCCL_IB_HCA names devices that are there", hca_missing,
        "NCCL finds no device and falls back to sockets, or uses fewer rails.",
        "Name devices of ibv_devices; `=mlx5_1` is exact, `mlx5_1` also means mlx5_10.",
        _GUIDE, needs="environment rdma", severity=Severity.CRITICAL),
    AuditRule("env.few_nics", "NCCL_IB_HCA takes every NIC that the GPUs have", few_nics,
        "The other NICs stay idle: between hosts the job has the named share of the bandwidth.",
        "Name them all in the order of the rails (`syncline nccl CLUSTER --host here`), or unset it.",
        _GUIDE, needs="environment rdma", severity=Severity.CRITICAL),
    AuditRule("env.file_missing", "files that NCCL's variables name exist", file_missing,
        "NCCL ignores the missing file and uses the topology that it detects.",
        "Correct the path, or mount the file into the container.",
        _GUIDE, needs="environment", severity=Severity.CRITICAL),
    AuditRule("env.master_addr", "MASTER_ADDR can be reached from other hosts", master_addr,
        "Ranks on other hosts connect to themselves and hang.",
        "MASTER_ADDR is the first host's name or fabric address.",
        "torchrun", needs="environment", severity=Severity.CRITICAL),
)  # fmt: skip
