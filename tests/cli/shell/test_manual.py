"""Manuals and complaints of every verb: no types of the code, no words of its libraries, values checked where given."""

import re
from pathlib import Path

import pytest

from syncline.cli.shell.app import Verbs, run
from syncline.cli.shell.verbs import VERBS

A_FILE = "is a file, not a folder"
SLOW = Path(__file__).parents[3] / "examples" / "slow.log"


def _below(words: list[str], command: object) -> list[list[str]]:
    commands = getattr(command, "commands", {})
    return [words] + [found for name, below in commands.items() for found in _below([*words, name], below)]


@pytest.mark.parametrize("verb", VERBS)
def test_a_manual_names_kinds_not_types(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in _below([verb], Verbs()[verb]):
        assert run([*words, "--help"]) == 0
        text = capsys.readouterr().out
        assert not re.search(r"<(str|int|float|path|list)|^Usage.*[{}]|transports\.yaml", text, re.MULTILINE), words
        assert "Examples:" in text or len(words) > 1, words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cost", "h100-64-rail", "--years", "abc"], "'--years': must be a number, not 'abc'."),
        (["serve", "--port", "70000"], "'--port': must be at most 65535, not '70000'."),
        (["cost", "h100-64-rail", "--years"], "Try: syncline --help"),
        (["simulate", "allreduce", "--cluster", "h100-64-rail", "--seeds", "-1"], "--seeds is -1."),
        (["simulate", "allreduce", "--cluster", "h100-64-rail", "--cross-rail", "x"], 'cannot go over "x"'),
        (["cost", "h100-64-rail", "--set", "region=mars"], 'no price of a region "mars"'),
        (["nccl", "h100-64-rail", "--ranks", "-1"], "cannot run -1 ranks"),
        (
            ["bench", "--read", str(SLOW), "-c", "h100-64-rail", "--cost", "--gpu-hour", "nan"],
            "cannot cost nan",
        ),
        (
            ["plan", "h100-64-rail", "llama3-70b", "--for", "megatron", "--write", str(SLOW / "x")],
            "is a file, not a folder",
        ),
        (
            ["place", "h100-64-rail", "llama3-70b", "--hosts", "host-00", "--out", "/dev/null/x"],
            "is a file, not a folder",
        ),
        (["step", "h100-64-rail", "llama3-70b", "--routing", "x"], 'no routing is called "x"'),
    ],
)
def test_a_wrong_value_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert said in capsys.readouterr().err
