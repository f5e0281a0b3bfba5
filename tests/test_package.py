"""What is installed is what the sources say."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module, metadata, resources
from pathlib import Path

import pytest

import syncline
from syncline import _native
from syncline.cli.shell.verbs import VERBS

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


def test_every_module_can_be_imported() -> None:
    paths = [path.relative_to(SOURCE.parent).with_suffix("") for path in SOURCE.rglob("*.py")]
    kernels = Path("syncline/runtime/sync/gpu")  # need Triton
    for path in paths:
        if path.name != "__main__" and not path.is_relative_to(kernels):
            name = ".".join(path.parts).removesuffix(".__init__")
            assert import_module(name).__name__ == name


def test_the_smoke_test_of_a_release_asks_every_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SOURCE.parent.parent / "tools" / "release"))
    assert set(import_module("smoke").ASKS) == set(VERBS)


@pytest.mark.parametrize("name", ["agent", "planner", "training"])
def test_container_files_copy_what_there_is_and_ask_for_extras_that_exist(name: str) -> None:
    root = SOURCE.parent.parent
    text = (root / "deploy" / "containers" / f"{name}.Dockerfile").read_text()
    copied = [line.split()[-2] for line in text.splitlines() if line.startswith("COPY") and "--from" not in line]
    assert copied and all((root / path).exists() for path in copied)
    kept = (root / ".dockerignore").read_text()
    assert all(f"!{path}" in kept for path in copied if path != "."), "what is copied must not be ignored"
    extras = {extra for found in re.findall(r"\[([a-z,]+)\]\"", text) for extra in found.split(",")}
    assert extras and extras <= set(metadata.metadata("syncline").get_all("Provides-Extra") or ())
