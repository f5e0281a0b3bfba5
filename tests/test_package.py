"""What is installed is what the sources say."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import syncline
from syncline import _native

SOURCE = Path(__file__).parent.parent / "src" / "syncline"


def test_the_version_is_the_installed_one() -> None:
    assert metadata.version("syncline") == syncline.__version__


def test_the_package_says_it_is_typed() -> None:
    assert resources.files("syncline").joinpath("py.typed").is_file()


def test_the_stub_is_what_the_built_extension_says(tmp_path: Path) -> None:
    fresh = tmp_path / "core.pyi"
    stubgen = ["-m", "nanobind.stubgen", "-q", "-m", "syncline._native.core", "-o", str(fresh)]
    subprocess.run([sys.executable, *stubgen], check=True)
    form = ["-m", "ruff", "format", "-q", "--config", str(SOURCE.parent.parent / "pyproject.toml"), str(fresh)]
    subprocess.run([sys.executable, *form], check=True)
    assert fresh.read_text() == (SOURCE / "_native" / "core.pyi").read_text(), "run `make stub`"


def test_everything_native_is_exported() -> None:
    public = {name for name in vars(_native.core) if not name.startswith("_")}  # type: ignore[attr-defined]
    assert public == set(_native.__all__)
