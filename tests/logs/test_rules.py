from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from syncline.diagnosis import read_rules, shipped_rules
from syncline.diagnosis.examples import found_in
from syncline.errors import FileError, RuleError, SynclineError
from syncline.logs.guard import MAX_LINE, compile_pattern
from syncline.logs.judge import EFFECTS
from syncline.logs.rule import SYMPTOMS, LogRule

RULE = """
- id: ours.disk
  title: the disk is full
  match: {text: "No space left", regex: 'No space left on (?P<device>\\S+)'}
  place: device
  meaning: It is full.
  fix: Make room.
  explains: [nccl.abort]
  example: |
    write failed: No space left on /dev/sda1
"""


def test_every_rule_finds_its_own_example_and_nothing_else() -> None:
    book = shipped_rules()
    told = {r.id: found_in(r.example, book) for r in book.values() if r.example}
    alone = {name: ["log.unexplained", name] for name in EFFECTS}  # below what is not known
    assert {id_: found for id_, found in told.items() if found != alone.get(id_, [id_])} == {}


def test_every_reported_rule_says_what_it_means_what_to_do_and_who_says_so() -> None:
    for rule in shipped_rules().values():
        if not rule.signal:
            assert rule.meaning.endswith(".") and rule.fix.endswith(".") and rule.reference.startswith("https://"), (
                rule.id
            )
            assert rule.example or rule.check.startswith("flight"), rule.id


def _effects(name: str, book: Mapping[str, LogRule]) -> set[str]:
    told = set(book[name].explains)
    symptoms = {rule.id for rule in book.values() if rule.symptom}
    return (told - {SYMPTOMS}) | (symptoms - {name} if SYMPTOMS in told else set())


def test_causes_form_no_ring() -> None:
    book = shipped_rules()
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, (*above, name)
        if name not in done:
            for effect in _effects(name, book):
                walk(effect, (*above, name))
            done.add(name)

    for name in book:
        walk(name, ())


@pytest.mark.slow
def test_shipped_patterns_stand_hostile_lines() -> None:
    matchers = (matcher for rule in shipped_rules().values() for matcher in rule.matchers)
    for pattern, text in {(m.pattern.pattern, m.texts[0]) for m in matchers if re.search(r"[*+]", m.pattern.pattern)}:
        compile_pattern(pattern, (text,))


def test_rules_of_ones_own_are_added(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(RULE)
    book = read_rules(tmp_path)
    assert found_in("x: No space left on /dev/sdb\n", book) == ["ours.disk"]
    assert len(book) == len(shipped_rules()) + 1


def test_a_shipped_rule_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        RULE.replace("ours.disk", "kernel.oom").replace("  explains: [nccl.abort]\n", "")
    )
    assert read_rules(tmp_path)["kernel.oom"].title == "the disk is full"


def test_the_rules_of_the_guide_work(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "diagnose.md").read_text("utf-8")
    (tmp_path / "ours.yaml").write_text("".join(re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)))
    book = read_rules(tmp_path)
    for name in ("site.teammgrd.addthing-failed", "ours.storage.stall"):
        assert found_in(book[name].example, book) == [name]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("title:", "titel:"), 'unknown key "titel".\n  Did you mean "title"?'),
        (("  fix: Make room.\n", ""), 'rule "ours.disk" needs `meaning` and `fix`.'),
        (("No space left on (?P<device>\\S+)", "(?P<device>a+)+b"), "repeats a repeat"),
        (("No space left on (?P<device>\\S+)", "(?P<device>[unclosed"), "is not a regular expression"),
        (("No space left on (?P<device>\\S+)", "(?P<device>.*)"), "matches an empty line"),
        (("place: device", "place: host"), 'no pattern has a group "(?P<host>...)".'),
        (('text: "No space left"', 'text: "No"'), "a match needs `says`, or `text`: 4 or more characters"),
        (("explains: [nccl.abort]", "explains: [nccl.abrot]"), 'explains names "nccl.abrot", which is not a rule.'),
        (("explains: [nccl.abort]", "severity: bad"), "severity: must be one of ok, warning, critical, not 'bad'"),
        (("explains: [nccl.abort]", "confidence: 3"), "confidence: must be at most 1, not 3."),
        (("explains: [nccl.abort]", "check: magic"), 'no check is called "magic"'),
        (("explains: [nccl.abort]", "rate: 5"), "rate: must be a mapping, not 5."),
        (("explains: [nccl.abort]", "rate: {count: 5}"), '"within_s" is missing.'),
        (("\\S+)'}", "\\S+)', limit: {device: [low, 3]}}"), "match.limit.device.0: must be a number, not 'low'."),
        (("\\S+)'}", "\\S+)', weak: 3}"), "match.weak: must be true or false, not 3."),
        (("- id: ours.disk", "- ours.disk\n- id: a"), "must be a mapping, not 'ours.disk'."),
    ],
)
def test_a_bad_rule_is_one_clear_error(tmp_path: Path, change: tuple[str, str], text: str) -> None:
    path = tmp_path / "ours.yaml"
    assert change[0] in RULE
    path.write_text(RULE.replace(*change))
    with pytest.raises(RuleError) as caught:
        read_rules(path)
    assert text in str(caught.value)
    assert str(path) in str(caught.value)
    assert "`syncline guide diagnose`" in caught.value.hint


@pytest.mark.parametrize("content", ["", "just text", "{a: [}", "- !!python/object:os.system x", "\x00\x01"])
def test_a_file_that_is_no_rule_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(SynclineError):
        read_rules(path)


def test_a_folder_without_rules(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no .yaml file"):
        read_rules(tmp_path)


def test_a_quadratic_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="takes too long"):
        compile_pattern(r"(?:.*a.*a.*a.*a.*)Z", ("aaaa",))
    assert MAX_LINE == 4096
