"""Names: what a host takes its own and its peers' names for, and what it says where it cannot know."""

from __future__ import annotations

import pytest
from tests.auditing.samples import HOSTS, HostDraft

from syncline.auditing.audit import audit
from syncline.auditing.checks.names import num_hosts
from syncline.finding import Finding, Severity
from syncline.host.host import Host
from syncline.host.lookup import read_lookup
from syncline.host.root import Root
from syncline.host.tree import Entry, MemoryTree


def found(draft: HostDraft, rule: str) -> list[Finding]:
    return list(audit(Root.of(draft.tree()), only=[rule]).findings)


def on_loopback(**environment: str) -> HostDraft:
    draft = HOSTS["plain-vm"]()
    draft.put("etc/hosts", "127.0.0.1 localhost vm-01")
    draft.commands["getent-hosts"] = "127.0.0.1       STREAM vm-01\n"
    draft.environment |= environment
    return draft


@pytest.mark.parametrize(
    ("environment", "severities"),
    [
        ({}, [Severity.WARNING]),
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, [Severity.CRITICAL]),
        ({"SLURM_NNODES": "2"}, [Severity.CRITICAL]),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}, []),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, []),
    ],
)
def test_a_name_on_loopback_matters_as_far_as_the_job_goes(
    environment: dict[str, str], severities: list[Severity]
) -> None:
    assert [finding.severity for finding in found(on_loopback(**environment), "name.resolves")] == severities


def test_a_hosts_file_alone_cannot_say_that_a_name_is_unknown() -> None:
    draft = HOSTS["plain-vm"]()
    files = {path: data for path, data in draft.tree().entries.items() if "getent" not in path}
    files["etc/hosts"] = b"127.0.0.1 localhost\n"
    (finding,) = audit(Root.of(MemoryTree(files)), only=["name.resolves"]).findings
    assert (finding.severity, finding.observed) == (
        Severity.UNKNOWN,
        "neither getent nor /etc/hosts gives an address for this host",
    )


def test_what_a_report_tells_of_names() -> None:
    draft = HOSTS["plain-vm"]()
    draft.put(
        "etc/hosts", "127.0.0.1 localhost\n::1 ip6-localhost\n10.20.0.11 vm-01\n10.20.0.12 vm-02 vm-02.example # x"
    )
    draft.environment |= {"MASTER_ADDR": "vm-03"}
    draft.commands["getent-peer-vm-03"] = "10.20.0.13      STREAM vm-03\n"
    report = audit(Root.of(draft.tree()))
    assert report.names == {
        "vm-01": ("10.20.0.11",),
        "vm-02": ("10.20.0.12",),
        "vm-02.example": ("10.20.0.12",),
        "vm-03": ("10.20.0.13",),
    }
    assert report.addresses == ("10.20.0.11",)


def test_sources_are_read_as_glibc_reads_them() -> None:
    files: dict[str, Entry] = {
        "etc/nsswitch.conf": b"# comment\nhosts:  files mdns4_minimal [NOTFOUND=return] dns\n",
        "etc/resolv.conf": b"search a.example b.example\nnameserver 10.0.0.1 # one\nnameserver 10.0.0.2\n",
        "etc/hosts": b"\n10.0.0.5\th5 h5.a.example\n10.0.0.6 h5\nnonsense\n",
    }
    lookup = read_lookup(Root.of(MemoryTree(files)))
    assert lookup.order == ("files", "mdns4_minimal", "dns")
    assert (lookup.servers, lookup.search) == (("10.0.0.1", "10.0.0.2"), ("a.example", "b.example"))
    assert lookup.files == {"h5": ("10.0.0.5", "10.0.0.6"), "h5.a.example": ("10.0.0.5",)}
    assert read_lookup(Root.of(MemoryTree({}))).order == ("dns", "files")


def test_how_many_hosts_a_job_has() -> None:
    draft = HOSTS["plain-vm"]()
    assert num_hosts(Host(Root.of(draft.tree()))) == 0
    draft.environment |= {"WORLD_SIZE": "12", "LOCAL_WORLD_SIZE": "8"}
    assert num_hosts(Host(Root.of(draft.tree()))) == 2
