"""Claims: the verdicts of some that ship, one's own file, and files that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from syncline.cli.shell import app
from syncline.cli.shell.app import build
from syncline.cli.validate import answers
from syncline.describe.plain import plain
from syncline.errors import DescriptionError
from syncline.validation.claims import ROOT, judge, load_claims, taken

#: Claims that are computed within a second each.
QUICK = {
    "C01": "reproduced", "C02": "reproduced", "C04": "reproduced", "C05": "reproduced", "C07": "reproduced",
    "C09": "reproduced", "C14": "conditional", "C26": "reproduced", "C28": "conditional", "C34": "refuted",
    "C36": "conditional", "C38": "reproduced", "C44": "conditional", "C51": "conditional", "C56": "refuted",
    "C64": "conditional", "C68": "undecided", "C70": "conditional",
}  # fmt: skip

answer_of = answers(get_command(build()))


def test_some_verdicts_that_ship() -> None:
    found = {verdict.claim.id: verdict.word for verdict in judge(load_claims(None), answer_of, list(QUICK), quick=True)}
    assert found == QUICK


def test_every_claim_has_a_verdict_that_is_kept() -> None:
    """All of them take two minutes: their last run is kept, and its claims are those that ship."""
    kept = json.loads((ROOT / "research" / "claims" / "verdicts.json").read_text())
    shipped = [claim.id for claim in load_claims(None).claims]
    assert [claim["id"] for claim in kept["claims"]] == shipped == [f"C{n:02d}" for n in range(1, 71)]
    assert set(kept["counted"]) <= {"reproduced", "conditional", "refuted", "undecided"}
    assert all(case["value"] is not None for claim in kept["claims"] for case in claim["cases"])


def write(path: Path, case: dict[str, Any], **more: Any) -> Path:
    claim = {"id": "M1", "area": "mine", "claim": "it is so", "stated": "1 s", "says": [0.9, 1.1], "cases": [case]}
    path.write_text(json.dumps({"claims": [claim | more]}))
    return path


def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = {"run": "step volumes --size 1GB --rate 8Gbps", "take": "time_s"}
    path = write(tmp_path / "mine.yaml", case, unit="s")
    assert app.run(["validate", "claims", "--data", str(path)]) == 0
    text = capsys.readouterr().out
    assert "M1  reproduced: it is so (stated: 1 s)" in text and "1 s, as stated" in text and "1 reproduced" in text
    assert app.run(["validate", "claims", "--data", str(path), "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["claims"]
    assert verdict["cases"][0]["command"] == "syncline step volumes --size 1GB --rate 8Gbps"


@pytest.mark.parametrize(("case", "words"), [
    ({"run": "lab show x", "take": "a"}, "is not a command that a claim may run"),
    ({"run": "plan a b --save x", "take": "a"}, "is not a command that a claim may run"),
    ({"run": "step volumes --size 1GB", "take": "time_s"}, "ended with 2: two of --size"),
    ({"run": "step volumes --size 1GB --rate 8Gbps", "take": "nothing"}, 'no "nothing" on the way'),
    ({"take": "a"}, "`run` and `take`, or `file` and `find`"),
    ({"run": "volumes", "takes": "a"}, 'unknown key "takes"'),
])  # fmt: skip
def test_a_wrong_file_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: dict[str, Any], words: str
) -> None:
    assert app.run(["validate", "claims", "--data", str(write(tmp_path / "mine.yaml", case))]) == 2
    assert words in capsys.readouterr().err


def test_a_table_of_sentences_is_refused_with_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "claims.csv"
    table.write_text("id,claim,stated_value\nC01,a link is fast: 400 Gb/s,400\n")
    assert app.run(["validate", "claims", "--data", str(table)]) == 2
    assert "sentences alone cannot be judged" in capsys.readouterr().err


def test_cases_on_both_sides_make_a_claim_conditional(tmp_path: Path) -> None:
    sides = [{"run": f"step volumes --size {size} --rate 8Gbps", "take": "time_s"} for size in ("1MB", "9GB")]
    (verdict,) = judge(load_claims(write(tmp_path / "mine.yaml", sides[0], cases=sides)), answer_of)
    assert verdict.word == "conditional"
    (verdict,) = judge(load_claims(write(tmp_path / "mine.yaml", sides[0])), answer_of)
    assert verdict.word == "refuted"
    gone = {"file": "no/such/file", "find": "(1)"}
    (verdict,) = judge(load_claims(write(tmp_path / "mine.yaml", gone)), answer_of)
    assert verdict.word == "not here"


def test_an_unknown_claim_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["validate", "claims", "C99"]) == 2
    assert 'no claim or area is called "C99"' in capsys.readouterr().err


def test_numbers_are_taken_by_path() -> None:
    data = {"rows": [{"kind": "a", "size": 1}, {"kind": "b", "size": 2}], "by": {"x": {"n": 3}, "y": {"n": 4}}}
    assert taken(data, "rows.1.size") == taken(data, "rows.kind=b.size") == 2
    assert taken(data, "rows.*.size") == 3 and taken(data, "by.*.n") == 7
    with pytest.raises(DescriptionError, match="not a number"):
        taken(data, "rows.0.kind")


@pytest.mark.parametrize(("options", "third"), [
    (["--size", "140GB", "--rate", "100Gbps"], ("time_s", 11.2)),
    (["--size", "280GB", "--time", "100ms"], ("rate_Bps", 2.8e12)),
    (["--rate", "200Gbps", "--time", "2us"], ("size_bytes", 50e3)),
])  # fmt: skip
def test_two_of_size_rate_and_time(
    capsys: pytest.CaptureFixture[str], options: list[str], third: tuple[str, float]
) -> None:
    assert app.run(["step", "volumes", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[third[0]] == pytest.approx(third[1])
    assert app.run(["step", "volumes", *options]) == 0
    assert " take " in capsys.readouterr().out
    assert app.run(["step", "volumes", *options[:2]]) == 2
    assert "two of --size, --rate and --time" in capsys.readouterr().err


def test_a_script_is_run_and_quick_reads_what_was_kept(tmp_path: Path) -> None:
    case = {"script": "examples/packet_loss_cubic.py", "file": "examples/output/packet_loss_cubic.txt",
            "find": r"500 m: +([0-9.]+) % left"}  # fmt: skip
    claims = load_claims(write(tmp_path / "mine.yaml", case, says=[0, 91]))
    (ran,), (read,) = (list(judge(claims, answer_of, quick=quick)) for quick in (False, True))
    assert ran.found[0].value == read.found[0].value and 30 < (ran.found[0].value or 0) < 60
    assert not ran.found[0].kept and read.found[0].kept
    assert plain(ran.to_json())["cases"][0]["command"] == "python examples/packet_loss_cubic.py"


@pytest.mark.parametrize("script", ["/bin/ls", "tools/schemas.py", "examples/../tools/schemas.py"])
def test_only_scripts_of_the_repository_are_run(tmp_path: Path, script: str) -> None:
    case = {"script": script, "file": "x.txt", "find": "(1)"}
    with pytest.raises(DescriptionError, match="is not a script of examples"):
        list(judge(load_claims(write(tmp_path / "mine.yaml", case)), answer_of))


def test_every_verdict_says_what_would_change_it(tmp_path: Path) -> None:
    case = {"run": "step volumes --size 1GB --rate 8Gbps", "take": "time_s"}
    one = next(judge(load_claims(write(tmp_path / "a.yaml", case)), answer_of))
    assert one.word == "reproduced" and "leaving" in one.would_change and "away" in one.would_change
    off = next(judge(load_claims(write(tmp_path / "b.yaml", case, says=[5, 6])), answer_of))
    assert off.word == "refuted" and "reaching 5 to 6" in off.would_change
    open_ = next(judge(load_claims(write(tmp_path / "c.yaml", case, undecided="it was fitted")), answer_of))
    assert open_.word == "undecided" and open_.would_change == "a measurement: it was fitted"


def test_the_nine_that_were_matched_with_stored_text_are_run() -> None:
    for claim in load_claims(None).claims:
        for case in claim.cases:
            assert case.run or case.script, claim.id


def test_verdicts_that_were_wrong() -> None:
    found = {v.claim.id: v.word for v in judge(load_claims(None), answer_of, ["C44", "C68", "C69"], quick=True)}
    assert found == {"C44": "conditional", "C68": "undecided", "C69": "conditional"}
    assert {claim.id for claim in load_claims(None).claims if claim.undecided} == {"C30", "C68"}


def test_a_script_that_cannot_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = {"script": "examples/not_there.py", "file": "x.txt", "find": "(1)"}
    claims, told = load_claims(write(tmp_path / "mine.yaml", case)), []
    (gone,) = judge(claims, answer_of, started=lambda claim, script: told.append(script))
    assert gone.word == "not here" and "not in the installed package" in gone.would_change
    assert told == ["examples/not_there.py"]
    monkeypatch.setattr("syncline.validation.claims.SCRIPT_S", 0.001)
    slow = {"script": "examples/packet_loss_cubic.py", "file": "x.txt", "find": "(1)"}
    (late,) = judge(load_claims(write(tmp_path / "slow.yaml", slow)), answer_of)
    assert "took more than" in late.would_change


def test_files_of_claims_are_written_for_their_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["validate", "claims", "C05", "--files", str(tmp_path / "c"), "--json"]) == 0
    commands = [row["command"] for row in json.loads(capsys.readouterr().out)["commands"]]
    assert commands[0] == f"cd {tmp_path / 'c' / 'C05'} && syncline step volumes gpt.yaml --gpus 8"
    assert (tmp_path / "c" / "C05" / "gpt.yaml").read_text().startswith("model: gpt3-175b")
    claims = load_claims(None)
    named = {word for claim in claims.claims for run in claims.commands(claim) for word in run.split()}
    given = {name for claim in claims.claims for name in claims.descriptions(claim)}
    assert {word for word in named if word.endswith(".yaml")} == given
