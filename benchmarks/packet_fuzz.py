"""The packet extension itself, built with address and undefined-behaviour sanitizers, under the fuzz tests.

The C++ tests are sanitized in `make test`; this is the module that Python loads, with inputs that only the fuzz makes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sanitized-extension"
TESTS = ("tests/sim/packet/test_fuzz.py", "tests/sim/packet/test_lossless.py", "tests/sim/packet/test_start_time.py")
_RUN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("syncline._native.packet", {library!r})
module = importlib.util.module_from_spec(spec)
sys.modules["syncline._native.packet"] = module
spec.loader.exec_module(module)
import pytest
from syncline.sim.packet.run import Engine
assert Engine is module.Engine
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-x", *{tests!r}]))
"""


def build() -> Path:
    """Return the sanitized extension, built if anything changed."""
    tools = Path(sys.executable).parent
    generator = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"] if (tools / "ninja").exists() else []
    cmake = str(tools / "cmake") if (tools / "cmake").exists() else "cmake"
    configure = [cmake, "-S", str(ROOT), "-B", str(BUILD), "-DSKBUILD=1", "-DSYNCLINE_SANITIZE=ON",
                 "-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DPython_EXECUTABLE={sys.executable}", *generator]  # fmt: skip
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([cmake, "--build", str(BUILD), "--target", "packet"], check=True, stdout=subprocess.DEVNULL)
    (library,) = BUILD.glob(f"packet*{sysconfig.get_config_var('EXT_SUFFIX')}")
    return library


def run() -> dict[str, Any]:
    """Return what the fuzz tests said of the sanitized extension; a finding of a sanitizer ends them."""
    library = build()
    compiler = os.environ.get("CXX", "g++").split()[0]
    asan = subprocess.run([compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    environment = os.environ | {
        "LD_PRELOAD": asan.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _RUN.format(library=str(library), tests=list(TESTS))],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode != 0:
        raise SystemExit(f"the sanitized extension failed: {last}\n{done.stderr[-4000:]}")
    return {"tests": list(TESTS), "said": last, "wall_s": time.monotonic() - began}


if __name__ == "__main__":
    print(run())
