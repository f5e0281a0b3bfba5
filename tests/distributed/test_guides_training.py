"""The scripts of the guides run on two real processes and print what the guides say."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.fsdp2 import HAS_FSDP2, WHY_NOT
from tests.distributed.ranks import run_script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "training"
LINE = re.compile(
    r"step \d+: .* = compute .* \+ exposed .*; sent .* \([\w :+=.]+, [\d.]+x fewer\) at .*; \d+% of the bound"
)


def two_ranks(script: str, folder: Path) -> str:
    """Run a script on two ranks that are told who they are as under torchrun, and return what the first printed."""
    return run_script(FOLDER / script, 2, folder, settings={"TORCHELASTIC_RUN_ID": "test", "HF_HUB_OFFLINE": "1"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", ["ddp.py", pytest.param("fsdp2.py", marks=pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT))]
)
def test_torch_scripts_learn_and_report(script: str, tmp_path: Path) -> None:
    lines = two_ranks(script, tmp_path).splitlines()
    losses = [float(re.match(r"loss ([\d.]+); ", line)[1]) for line in lines if line.startswith("loss")]  # type: ignore[index]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert all(LINE.search(line) for line in lines if line.startswith("loss"))


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("transformers"), reason="the guide is about its Trainer")
def test_hugging_face_trainer(tmp_path: Path) -> None:
    assert LINE.search(two_ranks("huggingface.py", tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("lightning"), reason="the guide is about it")
def test_lightning(tmp_path: Path) -> None:
    assert LINE.search(two_ranks("lightning_ddp.py", tmp_path))


@pytest.mark.parametrize("guide", ["ddp", "fsdp2", "huggingface", "lightning"])
def test_every_guide_shows_lines_of_its_script(guide: str) -> None:
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text("utf-8")
    (name,) = re.findall(r"examples/training/(\w+\.py)", text)[:1]
    script = (FOLDER / name).read_text("utf-8")
    block = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    for line in filter(None, (line.strip() for line in block.splitlines())):
        assert line in script, line
