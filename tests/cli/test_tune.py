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
    "codec": "int8", "accuracy": "safe", "why": "int8: because", "predicted_s": {"int8": 0.1, "plain": 0.3},
    "tried_s": {"int8": 0.11}, "num_ranks": 4,
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
    assert set(found["predicted_s"]) == {"plain", "bf16", "int8"}
    assert set(found["tried_s"]) <= set(
        found["predicted_s"]
    )  # plain is held without a trial where it is predicted best
    assert found["measured"]["rate_Bps"] > 0
    back = asked("int8", "safe", found["written"])
    assert ("plain" if back.is_plain else back.base) == found["codec"]


def test_settings_files_are_read_back_and_bad_ones_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the runtime needs torch")
    from syncline.runtime.auto.request import CodecRequest, asked

    path = tmp_path / "tuned.yaml"
    path.write_text(settings_text(FOUND), "utf-8")
    says = f"as {path} says"
    assert asked("sign", "safe", path) == CodecRequest("int8", reason=says)
    monkeypatch.setenv("SYNCLINE_SETTINGS", str(path))
    assert asked("auto", "safe", None) == CodecRequest("int8", reason=says)
    path.write_text(settings_text({**FOUND, "codec": "plain"}), "utf-8")
    plain = asked("auto", "safe", None)
    assert plain == CodecRequest("int8", "safe", is_plain=True, reason=says)
    with pytest.raises(SynchronizationError, match='"plain" and `syncline calibrate tune` do not support FSDP2'):
        plain.by_name("FSDP2")
    for text, message in (
        ("accuracy: safe\n", "there is no codec in it"),
        ("codec: int8\nspeed: 3\n", 'a setting "speed", which is unknown'),
        ("codec: int8\ncodecs: [plain, int8]\n", "is of an earlier version: codecs for each bucket"),
        ("codec: local-sgd:every=8+int8\n", "is of an earlier version"),
        ("codec: [1]\n", "is not what `syncline calibrate tune` writes"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(SynchronizationError, match=message.replace("[", r"\[")):
            asked("auto", "safe", None)
    monkeypatch.delenv("SYNCLINE_SETTINGS")
    assert asked("auto", "aggressive", None) == CodecRequest("int8", "aggressive")
    assert asked("int4", "safe", None) == CodecRequest("int4")
    assert asked("none", "safe", None) == CodecRequest("int8", "safe", is_plain=True)
    assert asked("auto", "safe", None).by_name("FSDP2").base == "int8"
    with pytest.raises(SynchronizationError, match=r'accuracy="exact" was removed\.\n.*codec="plain"'):
        asked("auto", "exact", None)
    assert asked("int4", "safe", None).by_name("FSDP2") == CodecRequest("int4")
