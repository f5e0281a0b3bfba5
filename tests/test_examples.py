"""Every example runs, and prints what examples/output/NAME.txt says. `make examples` writes those files anew.

The JSON of every answer that an example shows is checked against its schema (`warm.py`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.conftest import why_no_lab
from tests.warm import Warm

FOLDER = Path(__file__).parent.parent / "examples"
OUTPUT = FOLDER / "output"
EXAMPLES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".sh"))


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """Commands that have imported what they need: a hundred of them would each take a second for it."""
    warm = Warm()
    yield warm
    warm.close()


def run_example(path: Path, scratch: Path, commands: Path) -> str:
    """Run one example in a copy of its folder, so that what it writes is not left behind, and return its output."""
    shutil.copytree(FOLDER, scratch / "examples", ignore=shutil.ignore_patterns("output", "__pycache__"))
    interpreter = [commands / "python"] if path.suffix == ".py" else ["bash", "-euo", "pipefail"]
    found = os.pathsep.join((str(commands), str(Path(sys.executable).parent), os.environ["PATH"]))
    hidden = {"COLUMNS", "FORCE_COLOR"}  # these would change the width or colour of what is printed
    done = subprocess.run(
        [*interpreter, path.name],
        cwd=scratch / "examples",
        env={key: value for key, value in os.environ.items() if key not in hidden} | {"PATH": found},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{path.name} exits with {done.returncode}:\n{done.stderr}"
    assert done.stderr == "", f"{path.name} writes to stderr:\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_prints_what_it_says(path: Path, warm: Warm, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "Needs a lab." in path.read_text() and (reason := why_no_lab()):
        pytest.skip(reason)
    got = run_example(path, tmp_path, warm.folder)
    expected = OUTPUT / f"{path.stem}.txt"
    if request.config.getoption("--regenerate-examples"):
        expected.write_text(got)
    assert expected.exists(), f"{path.name} has no stored output; run `make examples` and read what it wrote"
    assert got == expected.read_text()


def test_every_stored_output_belongs_to_an_example() -> None:
    assert {path.stem for path in OUTPUT.glob("*.txt")} == {path.stem for path in EXAMPLES}
    assert len({path.stem for path in EXAMPLES}) == len(EXAMPLES), "two examples share a name"


def test_a_warm_command_is_the_installed_one(warm: Warm, tmp_path: Path) -> None:
    """The same words on both streams and the same status, also where a command is refused."""
    for words in ("fabric show nowhere", "schedule list"):
        said = []
        for folder in (warm.folder, Path(sys.executable).parent):
            command = [str(folder / "syncline"), *words.split()]
            done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            said.append((done.returncode, done.stdout, done.stderr))
        assert said[0] == said[1] and any(said[0])
