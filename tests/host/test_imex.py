"""What `nvidia-imex-ctl -N` says, read; and what a host without IMEX, or without its tools, is told."""

from __future__ import annotations

from tests.auditing.samples import HOSTS
from tests.auditing.samples.commands import imex

from syncline.auditing.audit import audit
from syncline.finding import Severity
from syncline.host.imex import parse_imex
from syncline.host.root import Root

HOSTS_OF_RACK = ("10.0.0.1", "10.0.0.2", "10.0.0.3")


def test_a_whole_domain() -> None:
    found = parse_imex(imex(HOSTS_OF_RACK))
    assert found is not None
    assert (found.state, len(found.nodes), found.apart) == ("UP", 3, ())
    assert (found.nodes[2].address, found.nodes[2].state, found.nodes[2].version) == ("10.0.0.3", "READY", "570.172")


def test_pairs_that_are_apart_are_named_in_both_directions() -> None:
    found = parse_imex(imex(HOSTS_OF_RACK, state="DEGRADED", cell="!M!"))
    assert found is not None
    assert found.apart == ((0, 2, "!M!"), (2, 0, "!M!"))


def test_a_domain_of_one_and_a_release_that_tells_no_version() -> None:
    text = "Nodes:\nNode #0   * 10.136.206.48 *    - READY\n\n Nodes From\\To  0\n       0        C\nDomain State: UP\n"
    found = parse_imex(text)
    assert found is not None
    assert [(node.address, node.version) for node in found.nodes] == [("10.136.206.48", "")]


def test_what_is_no_status() -> None:
    assert parse_imex("") is None
    assert parse_imex("Failed to connect to IMEX daemon\n") is None


def test_without_the_tool_nothing_is_claimed() -> None:
    draft = HOSTS["gb200-nvl72"]()
    for name in ("imex-ctl", "systemctl-nvidia-imex"):
        del draft.commands[name]
    found = {f.rule: f.severity for f in audit(Root.of(draft.tree()), only=["imex.*"]).findings}
    assert found == dict.fromkeys(("imex.service", "imex.domain", "imex.version"), Severity.UNKNOWN)


def test_a_board_of_its_own_needs_no_imex() -> None:
    report = audit(Root.of(HOSTS["dgx-h100"]().tree()), only=["imex.*"])
    assert list(report.skipped) == ["no NVLink domain across hosts"]
