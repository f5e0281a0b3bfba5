"""A congestion control law of your own: a C++ file compiled on demand, or a Python function (slow, for study).

options = with_law(PacketOptions("dctcp"), load_law("mine.cpp"))
options = with_law(PacketOptions("dctcp"), python_law(my_function, "mine"))

The rest (recovery, marks, what switches do) is that of the transport it stands in for. `packet_law.h` beside this file
is the whole interface: a law hears of the start, of every acknowledgement and of losses, and sets window and rate.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from syncline.errors import SimulationError

VERSION = 1
WHAT = ("start", "ack", "loss", "timeout")
_SECONDS = 120


class News(ctypes.Structure):
    """What a law is told; the fields of `struct syncline_news`."""

    _fields_ = [
        ("version", ctypes.c_int32), ("what", ctypes.c_int32),
        *((name, ctypes.c_double) for name in (
            "now_s", "rtt_s", "smoothed_rtt_s", "base_rtt_s", "line_Bps", "payload_bytes", "acked_bytes",
            "marked_packets", "flying_bytes", "hops")),
    ]  # fmt: skip


class LawState(ctypes.Structure):
    """What a law sets; the fields of `struct syncline_state`."""

    _fields_ = [("window_bytes", ctypes.c_double), ("rate_Bps", ctypes.c_double), ("memory", ctypes.c_double * 16)]


_CALL = ctypes.CFUNCTYPE(None, ctypes.POINTER(News), ctypes.POINTER(LawState))


@dataclass(frozen=True, eq=False)
class Law:
    """A law that the engine can call: its name, its address, and what must stay alive while it does."""

    name: str
    address: int
    language: str
    kept: object = None
    failures: list[BaseException] = field(default_factory=list)

    def check(self) -> None:
        """Raise what went wrong inside a Python law; the engine itself cannot."""
        if self.failures:
            first = self.failures[0]
            raise SimulationError(f'the law "{self.name}" failed: {type(first).__name__}: {first}') from first


def python_law(call: Callable[[News, LawState], None], name: str) -> Law:
    """Return a Python function as a law; it is called for every acknowledgement, some 200 times slower than C++."""
    failures: list[BaseException] = []

    def guarded(news: ctypes._Pointer[News], state: ctypes._Pointer[LawState]) -> None:
        if failures:
            return
        try:
            call(news.contents, state.contents)
        except Exception as error:  # nothing may pass through the engine
            failures.append(error)

    kept = _CALL(guarded)
    return Law(name, ctypes.cast(kept, ctypes.c_void_p).value or 0, "Python", kept, failures)


def load_law(path: str | os.PathLike[str]) -> Law:
    """Compile a C++ file, or load `law(news, state)` of a Python file.

    Either is your own code and runs with your rights: load only what you would run.
    """
    source = Path(path)
    if not source.is_file():
        raise SimulationError(f'there is no file "{source}".')
    if source.suffix == ".py":
        return _python_file(source)
    if source.suffix not in (".cpp", ".cc", ".cxx", ".c"):
        raise SimulationError(f'"{source.name}" is neither C++ (.cpp) nor Python (.py).')
    library = _compiled(source)
    try:
        call = ctypes.CDLL(str(library))[f"syncline_law_v{VERSION}"]
    except AttributeError:
        raise SimulationError(
            f'"{source.name}" defines no law.', hint='#include "packet_law.h" and write SYNCLINE_LAW(news, state) {...}'
        ) from None
    return Law(source.stem, ctypes.cast(call, ctypes.c_void_p).value or 0, "C++", call)


def _python_file(source: Path) -> Law:
    spec = importlib.util.spec_from_file_location(f"syncline_law_{source.stem}", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SimulationError(f'"{source.name}" cannot be loaded: {type(error).__name__}: {error}') from error
    call = getattr(module, "law", None)
    if not callable(call):
        raise SimulationError(f'"{source.name}" has no function law(news, state).')
    return python_law(call, source.stem)


def _compiled(source: Path) -> Path:
    """Return the shared library of a file, compiled once for each content and version of the header."""
    header = resources.files("syncline.sim.packet").joinpath("packet_law.h").read_bytes()
    key = hashlib.sha256(header + b"\0" + source.read_bytes()).hexdigest()[:24]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syncline" / "laws"
    target = cache / f"{source.stem}-{key}.so"
    if target.exists():
        return target
    compiler = shutil.which(os.environ.get("CXX", "c++").split()[0]) or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise SimulationError("a law in C++ needs a compiler.", hint="Debian: apt install g++; or write it in Python.")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        built = Path(folder) / "law.so"
        Path(folder, "packet_law.h").write_bytes(header)
        command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{folder}", str(source), "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603 - the user's own file
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:300])
            raise SimulationError(f'"{source.name}" does not compile: {first.strip()}', hint=" ".join(command))
        os.replace(built, target)
    return target
