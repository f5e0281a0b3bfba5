"""`syncline calibrate tune`: what it refuses, and a tiny script from end to end; the file it writes is read back."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from syncline.cli.shell.app import run
from syncline.cli.tune import settings_text
from syncline.errors import SynchronizationError

SCRIPT = Path(__file__).parents[2] / "examples" / "training" / "ddp.py"
FOUND = {
    "codec": "int8", "why": "int8: because", "tried_s": {"int8": 0.11, "plain": 0.3}, "num_ranks": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate", "tune", "--local", "2"], "there is no command to tune."),
        (["calibrate", "tune", "--", "no-such-command"], '"no-such-command" is not a command on this host.'),
        (["calibrate", "tune", "--", sys.executable, "-c", "pass"], "the command ended and nothing was measured."),
        (["calibrate", "tune", "--", sys.executable, "-c", "raise SystemExit(3)"], "the command failed with status 3."),
        (["calibrate", "tune", "--output", "no/folder/t.yaml", "--", "true"], 'there is no folder "no/folder"'),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_tiny_script_is_measured_and_its_settings_are_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="the runtime needs torch")
    from syncline.runtime.auto.request import asked

    monkeypatch.chdir(tmp_path)
    for name, value in (("OMP_NUM_THREADS", "1"), ("GLOO_SOCKET_IFNAME", "lo")):
        monkeypatch.setenv(name, value)
    arguments = ["calibrate", "tune", "--local", "2", "--json", "--", sys.executable, str(SCRIPT)]
    assert run(arguments) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["phase"] == "hold"
    assert found["num_ranks"] == 2
    assert set(found["tried_s"]) == {"plain", "bf16", "int8"}
    back = asked("int8", found["written"])
    assert (back.choice or back.base) == found["codec"]


def test_settings_files_are_read_back_and_bad_ones_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the runtime needs torch")
    from syncline.runtime.auto.request import CodecRequest, asked

    path = tmp_path / "tuned.yaml"
    path.write_text(settings_text(FOUND), "utf-8")
    says = f"as {path} says"
    assert asked("sign", path) == CodecRequest("int8", reason=says)
    monkeypatch.setenv("SYNCLINE_SETTINGS", str(path))
    assert asked("auto") == CodecRequest("int8", reason=says)
    path.write_text(settings_text({**FOUND, "codec": "plain"}), "utf-8")
    plain = asked("auto")
    assert plain == CodecRequest("int8", "plain", reason=says)
    with pytest.raises(SynchronizationError, match='"plain" and `syncline calibrate tune` do not support FSDP2'):
        plain.by_name("FSDP2")
    for text, message in (
        ("why: because\n", "there is no codec in it"),
        ("codec: int8\nspeed: 3\n", 'a setting "speed", which is unknown'),
        ("codec: [1]\n", "there is no codec in it"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(SynchronizationError, match=message):
            asked("auto")
    monkeypatch.delenv("SYNCLINE_SETTINGS")
    assert asked("auto") == CodecRequest("int8", "auto")
    assert asked("int4") == CodecRequest("int4")
    assert asked("none") == CodecRequest("int8", "plain")
    assert asked("auto").by_name("FSDP2").base == "int8"
    assert asked("int4").by_name("FSDP2") == CodecRequest("int4")
