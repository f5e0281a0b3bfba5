"""What stands for Triton where it is not installed: every name is there, and takes what code outside kernels does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any, get_args

import pytest

pytest.importorskip("torch", reason="previews run the script with torch (pip install syncline[torch])")
from syncline.previewing.capture.triton import _Finder


@pytest.fixture
def language(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    held = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "triton"}
    for name in held:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Finder(lambda *_: None), *sys.meta_path])
    yield importlib.import_module("triton.language")
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        del sys.modules[name]
    sys.modules.update(held)


def test_names_stand_in_hints_bases_and_checks(language: Any) -> None:
    class Mine(language.base_value): ...  # type: ignore[misc]

    assert (language.tensor | int) is not None and (int | language.tensor) is not None
    assert language.pointer_type[language.float32].element_ty is not None
    assert not isinstance(3, language.constexpr)
    triton = sys.modules["triton"]
    assert get_args(triton.Config | triton.KernelInterface) == (triton.Config, triton.KernelInterface)
    assert isinstance(triton.Config({"BLOCK": 64}, num_warps=4), triton.Config)
    assert Mine.__bases__ == (object,)
