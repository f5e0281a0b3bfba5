"""The face of the library: one list of names, loaded when asked for, and questions named like their package."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import syncline

PUBLIC = {
    "Answer", "DescriptionError", "Fabric", "Finding", "Job", "PacketQuestion",
    "SynclineError", "Timeline", "UsageError", "__version__", "advise",
    "audit", "audit_matrix", "buffers", "calibrate_collective", "calibrate_step", "check_effect", "compare",
    "compare_algorithms", "cost", "design", "diagnose", "doctor", "explain", "fabric_build", "inventory", "load",
    "load_job",
    "load_timeline", "place", "plan", "preview", "rehearse", "scenario", "serve", "share", "simulate", "slots",
    "step", "traffic", "transfer", "validate", "volumes",
}  # fmt: skip


def test_the_list_is_what_it_was_decided_to_be() -> None:
    assert set(syncline.__all__) == PUBLIC
    assert set(dir(syncline)) == PUBLIC


def test_every_name_is_there_and_says_what_it_is() -> None:
    for name in sorted(PUBLIC - {"__version__"}):
        value = getattr(syncline, name)
        assert callable(value), name
        assert inspect.getdoc(value), name


def test_no_question_shares_its_name_with_a_package() -> None:
    """Importing `syncline.planning.x` would bind `syncline.plan` to the package."""
    packages = {path.parent.name for path in Path(syncline.__file__).parent.glob("*/__init__.py")}
    assert not packages & PUBLIC
    assert "cluster" in inspect.signature(syncline.plan).parameters


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, syncline; print([m for m in ('numpy', 'pydantic', 'torch', 'rich', 'typer') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_torch_is_not_loaded_by_a_question() -> None:
    ask = "syncline.simulate('h100-64-rail', 'allreduce', '1MiB', ranks=16)"
    code = f"import sys, syncline; {ask}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
