"""What no rule explains is shown: by the severity that a line's form states, else by its words."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.diagnosis import Diagnosis, diagnose, read_rules
from syncline.logs.form import LogLevel, form_of, stated
from syncline.logs.words import features, log_odds, texts

RULE = """
- id: ours.often
  title: the frobnicator trips often
  match: {text: frobnicator tripped}
  min_count: 3
  meaning: It trips.
  fix: Hold it.
  reference: https://example.org
  example: "frobnicator tripped"
"""
LINE = "2026-11-19 10:00:00 ERROR plant: frobnicator tripped in hall 4\n"


def _diagnosed(text: str, folder: Path, rules: str = "") -> Diagnosis:
    log, ours = folder / "plant.log", folder / "rules"
    ours.mkdir()
    (ours / "ours.yaml").write_text(rules or "[]")
    log.write_text(text)
    return diagnose([log], rules=read_rules(ours))


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2017-02-08 06:11:15.3 7f39862b6700 -1 osd.2 9 heartbeat_check: silent peer", LogLevel.ERROR),
        ("2022-03-18T18:36:14.29+0000 mon.a (mon.0) 97 : cluster [WRN] Health check update: 3 ops", LogLevel.WARNING),
        ("2024-03-12T03:13:48.629Z|00003|dpdk|WARN|ice_interrupt_handler(): OICR: MDD event", LogLevel.WARNING),
        ("[1636266322.2] [node181:30232:async] ib_device.c:475  UCX  WARN  GID table change", LogLevel.WARNING),
        ("W1114 16:10:36.756019 31609 node_manager.cc:236] Last heartbeat was 3055 ms ago", LogLevel.WARNING),
        ("<3>[   12.300112] frob 0000:01:00.0: hall 4", LogLevel.ERROR),
        ("<6>[   12.300112] frob 0000:01:00.0: hall 4", LogLevel.INFO),
        ("[  308.334535] [drm:frob_job [frob]] *ERROR* hall 4", LogLevel.ERROR),
        ("plant *NOTICE* hall 4 opens", LogLevel.INFO),
    ],
)
def test_severity_is_what_the_form_states(line: str, level: LogLevel, tmp_path: Path) -> None:
    form = form_of(line)
    assert form is not None and form.level is level
    assert (other := stated(line)) is not None and other.level is level
    shown = {LogLevel.ERROR: ["error"], LogLevel.WARNING: ["warning"], LogLevel.INFO: []}[level]
    assert [open_line.level for open_line in _diagnosed(line + "\n", tmp_path).unexplained] == shown


def test_a_line_whose_rule_does_not_conclude_is_open(tmp_path: Path) -> None:
    found = _diagnosed(LINE * 2, tmp_path, RULE)
    assert [finding.rule for finding in found.findings] == ["log.unexplained"]
    assert [(line.text, line.count) for line in found.unexplained] == [(LINE.strip(), 2)]
    assert not found.understood


def test_a_line_whose_rule_concludes_is_not(tmp_path: Path) -> None:
    found = _diagnosed(LINE * 3, tmp_path, RULE)
    assert [finding.rule for finding in found.findings] == ["ours.often"]
    assert found.unexplained == ()


def test_words_are_weighed_together() -> None:
    assert log_odds("frob0: firmware is not responding, giving up") > log_odds("frob0: firmware is ready") + 1
    assert log_odds("frob0: link 7 lost") == log_odds("frob0: link 8 lost")
    assert features("[   12.3] eth0: link down") >= {"link", "down", "link down"}


def test_few_texts_bring_a_line_to_be_weighed() -> None:
    assert 200 < len(texts()) < 1500
    assert min(map(len, texts())) >= 4


def test_the_line_that_matters_stands_before_a_flood(tmp_path: Path) -> None:
    flood = "".join(
        f"2026-11-19 10:{at // 60 % 60:02}:{at % 60:02} WARNING loader: batch {at} late\n" for at in range(900)
    )
    telling = "2026-11-19 11:00:00 WARNING fabric: peer 10.0.0.7 is unreachable, giving up\n"
    first = _diagnosed(flood + telling, tmp_path).unexplained[0]
    assert first.text == telling.strip()
