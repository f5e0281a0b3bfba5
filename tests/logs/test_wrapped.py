"""Lines within lines: JSON of journald, containers and loggers, progress bars, and lines too long to show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syncline.diagnosis import diagnose
from syncline.logs.context import context, host_of
from syncline.logs.wrapped import excerpt, piece, unwrapped

XID = "NVRM: Xid (PCI:0000:44:00): 79, pid=1, name=python, GPU has fallen off the bus."


def test_journald_says_host_and_time(tmp_path: Path) -> None:
    row = {
        "__REALTIME_TIMESTAMP": "1795000201000000",
        "_HOSTNAME": "gpu-07",
        "SYSLOG_IDENTIFIER": "kernel",
        "MESSAGE": XID,
    }
    (tmp_path / "journal.json").write_text(json.dumps(row) + "\n")
    (finding,) = diagnose([tmp_path]).findings
    assert (finding.rule, finding.place) == ("kernel.xid.gpu-lost", "gpu-07 0000:44:00")
    assert finding.evidence[0].endswith(f"gpu-07 kernel: {XID}")
    assert finding.since_s == 1795000201


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"log": "out of memory\n", "time": "2026-11-16T02:11:04Z"}, "[2026-11-16T02:11:04Z] out of memory"),
        (
            {"message": "save failed", "exc_info": "Traceback\nOSError: no space"},
            "save failed | Traceback | OSError: no space",
        ),
        ({"msg": "a\nb", "rank": 5}, "[rank5]: a | b"),
        ({"msg": "lost", "ts": 1e999}, "lost"),
        ({"msg": "lost", "ts": 10**400}, "lost"),
        ({"message": "lost", "level": "ERROR"}, 'lost "level":"error"'),
        ({"MESSAGE": "lost", "ts": 1795000201.5, "host": "n1"}, "2026-11-18T11:10:01.500000Z n1 lost"),
    ],
)
def test_a_message_is_taken_out(row: dict[str, object], text: str) -> None:
    assert unwrapped(json.dumps(row)) == text


@pytest.mark.parametrize(
    "line", ['{"a": 1}', "{not json}", '{"MESSAGE": [900]}', '{"msg": {"a": 1}}', "{" * 4000 + "}", ""]
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert unwrapped(line) == line


def test_a_line_that_fits_a_rule_twice_counts_once(tmp_path: Path) -> None:
    storm = "leaf-01 orchagent: PFC Watchdog detected PFC storm on port Ethernet8, queue index 4"
    (tmp_path / "leaf.log").write_text(f"Nov 16 02:11:39 {storm}\n")
    (finding,) = diagnose([tmp_path]).findings
    assert (finding.rule, len(finding.evidence), "lines" in finding.observed) == ("switch.pfc.storm", 1, False)


def test_a_progress_bar_gives_the_piece_that_matters() -> None:
    assert piece("1%|#\r2%|##\rRuntimeError: lost", ["lost"]) == "RuntimeError: lost"


def test_a_long_line_shows_its_head_and_the_text() -> None:
    shown = excerpt("n1:1:2 [0] " + "x" * 3000 + " lost peer" + "y" * 3000, ["lost peer"])
    assert shown.startswith("n1:1:2 [0] ") and "lost peer" in shown[:300]


@pytest.mark.parametrize("word", ["stderr", "ERROR", "info", "W"])
def test_a_level_or_stream_is_no_host(word: str) -> None:
    assert host_of(f"2026-11-16T02:11:04Z {word} F lost") == ""
    assert host_of("2026-11-16T02:11:04Z gpu-07 kernel: lost") == "gpu-07"


def test_prefixes_of_kubectl_and_mpirun_say_who() -> None:
    assert host_of("[pod/train-worker-3/pytorch] 2026-11-16T02:14:00Z lost") == "train-worker-3"
    assert context("[1,26]<stdout>:lost").rank == "26"


def test_what_sound_runs_say_too_is_no_error(tmp_path: Path) -> None:
    lines = [
        "E0000 00:00:1731722400.123456 1234 cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register",
        "fatal: not a git repository (or any of the parent directories): .git",
        "slurmstepd: error: couldn't chdir to `/root/x': No such file or directory: going to /tmp instead",
    ]
    (tmp_path / "job.log").write_text("\n".join(2 * lines) + "\n")
    assert diagnose([tmp_path]).findings == []
    (tmp_path / "job.log").write_text("\n".join([*lines, "fatal: the trainer gave up"]) + "\n")
    assert [finding.rule for finding in diagnose([tmp_path]).findings] == ["log.unexplained"]


@pytest.mark.parametrize("form", ['"MESSAGE":{}', '"MESSAGE" : {}'], ids=["compact", "spaced"])
def test_a_message_that_journald_wrote_as_numbers(tmp_path: Path, form: str) -> None:
    told = "\x1b[31mNVRM: Xid (PCI:0000:44:00): 79, pid=1, GPU has fallen off the bus.\x1b[0m"
    numbers = str(list(told.encode())).replace(" ", "" if ":{" in form else " ")
    rest = '"__REALTIME_TIMESTAMP":"1795000201500000","_HOSTNAME":"n7","SYSLOG_IDENTIFIER":"kernel",'
    (tmp_path / "journal.json").write_text("{" + rest + form.format(numbers) + "}\n" + '{"MESSAGE":[300]}\n')
    (finding,) = diagnose([tmp_path / "journal.json"]).findings
    assert finding.rule == "kernel.xid.gpu-lost"
    assert "n7" in finding.place or "n7" in finding.evidence[0]
