"""Templates that an operator writes: what they match, what they refuse, and the rule that a line starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from syncline.diagnosis import diagnose, read_rules
from syncline.diagnosis.examples import failing_examples
from syncline.logs.guard import compile_pattern
from syncline.logs.template import compile_template, template_of
from syncline.questions.diagnose import draft_rule

LINES = [
    "Jul 13 13:57:48.101010 leaf-01 ERR teamd#teammgrd: :- addThing: Failed to add Ethernet0 to the thing 1111 (rc 5)",
    "[  121.336005] mlx5_core 0000:03:00.0: weird:1236:(pid 182): Firmware said 120000 MS",
    "node7:42:43 [3] net_ib.cc:812 NCCL WARN Our plugin lost 17 of 300 packets to 10.0.0.7",
]


@pytest.mark.parametrize(
    ("template", "line", "groups"),
    [
        ("{port}: lost {count:number} frames", "x Ethernet12: lost 17 frames", {"port": "Ethernet12", "count": "17"}),
        ("reset (by peer|by us) after {why:text}", "reset by us after a while", {"why": "a while"}),
        ("status {code:hex} from ...done", "status 0x1f from a b c done", {"code": "0x1f"}),
        ("(Multiple |)errors seen", "Multiple errors seen", {}),
    ],
)
def test_holes_take_what_they_name(template: str, line: str, groups: dict[str, str]) -> None:
    texts, pattern = compile_template(template)
    found = re.search(pattern, line)
    assert found is not None
    assert found.groupdict() == groups
    assert any(text in line for text in texts)
    compile_pattern(pattern, texts)


@pytest.mark.parametrize(
    ("template", "why"),
    [("{a} {b}", "no fixed text"), ("abcd {x:word}", "kind"), ("abcd (efgh", "not closed"), ("abcd) x", "outside")],
)
def test_what_cannot_be_a_template_says_why(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        compile_template(template)


@pytest.mark.parametrize("line", LINES)
def test_a_line_starts_a_rule_that_finds_it_and_its_like(line: str, tmp_path: Path) -> None:
    draft = draft_rule(line)
    row = {"id": draft.id, "source": draft.source, "says": draft.says, "cause": "it broke", "fix": "mend it",
           "reference": "https://example.org", "example": draft.example, "effect_of": ["kernel.link.down"]}  # fmt: skip
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump([row]))
    book = read_rules(tmp_path)
    assert failing_examples({draft.id: book[draft.id]}) == {}
    assert draft.id in book["kernel.link.down"].explains
    log = tmp_path / "a.log"
    log.write_text(re.sub(r"17|1111|120000", "99", line) + "\n")
    assert draft.id in [finding.rule for finding in diagnose([log], rules=book).findings]


def test_numbers_and_devices_become_holes() -> None:
    assert template_of("0000:18:00.0 eth3: 4 errors") == "{pci} {device}: {number:number} errors"
