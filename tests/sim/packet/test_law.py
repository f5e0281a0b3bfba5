"""Laws of the user's own: the C++ file and the Python function take the same course, and both pass the dumbbell."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from examples.published.dumbbell import Dumbbell, dumbbell_trial
from tests.sim.packet.packet_fabrics import star

from syncline.errors import SimulationError
from syncline.sim.packet import Marks, PacketOptions, Watching, incast, senders, simulate
from syncline.sim.packet.law import LawState, News, load_law, python_law
from syncline.sim.packet.options import with_law
from syncline.sim.packet.pcap import write_pcap

LAWS = Path(__file__).parents[3] / "examples" / "laws"
needs_compiler = pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="no C++ compiler")


@needs_compiler
def test_the_same_law_in_both_languages_takes_the_same_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = star()
    load = incast(network.fabric, 4, 200e3)
    runs = [
        simulate(network, [load], with_law(PacketOptions("dctcp"), load_law(LAWS / name)))
        for name in ("aimd.cpp", "aimd.py")
    ]
    assert np.array_equal(runs[0].end_s, runs[1].end_s)
    assert runs[0].counters["marks"] > 0
    assert not np.array_equal(runs[0].end_s, simulate(network, [load], PacketOptions("dctcp")).end_s)


@needs_compiler
@pytest.mark.parametrize("flows", [2, 4, 16])
def test_a_law_passes_the_dumbbell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flows: int) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = with_law(PacketOptions("dctcp", marks=Marks(step_bdp=1.0)), load_law(LAWS / "aimd.cpp"))
    found = dumbbell_trial(options, Dumbbell(flows))
    assert found.jain > 0.95
    assert found.utilisation > 0.97


@needs_compiler
def test_what_does_not_compile_is_said_with_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "bad.cpp").write_text('#include "packet_law.h"\nSYNCLINE_LAW(news, state) { nonsense }\n')
    with pytest.raises(SimulationError, match=r"bad.cpp.*does not compile: .*:2:"):
        load_law(tmp_path / "bad.cpp")
    (tmp_path / "empty.cpp").write_text("int nothing;\n")
    with pytest.raises(SimulationError, match="defines no law"):
        load_law(tmp_path / "empty.cpp")


def test_a_python_law_that_fails_stops_the_run() -> None:
    def law(news: News, state: LawState) -> None:
        raise ValueError("no idea")

    with pytest.raises(SimulationError, match='"mine" failed: ValueError: no idea'):
        simulate(star(), [incast(star().fabric, 2, 1e5)], with_law(PacketOptions("dctcp"), python_law(law, "mine")))


@pytest.mark.parametrize("transport", ["dcqcn", "dctcp"])
def test_a_capture_holds_every_packet_of_the_port(tmp_path: Path, transport: str) -> None:
    network = star()
    assert len(senders(network.fabric)) == 9
    down = int(network.link[np.flatnonzero(network.dst == -1)[0]])
    watching = Watching(1e-5, capture=(down, down ^ 1))
    outcome = simulate(network, [incast(network.fabric, 3, 50_000)], PacketOptions(transport), watching=watching)
    count = write_pcap(tmp_path / "a.pcap", outcome, down)
    assert count == outcome.ports["packets"][network.port_of_link[down]]
    data = (tmp_path / "a.pcap").read_bytes()
    assert struct.unpack("<I", data[:4])[0] == 0xA1B23C4D
    at, seen, last, wire = 24, 0, -1, 0
    while at < len(data):
        seconds, nanos, kept, whole = struct.unpack("<IIII", data[at : at + 16])
        frame = data[at + 16 : at + 16 + kept]
        assert frame[12:14] == b"\x08\x00"
        words = struct.unpack(">10H", frame[14:34])
        assert (sum(words) & 0xFFFF) + (sum(words) >> 16) in (0xFFFF, 0x1FFFE)  # the header's checksum holds
        assert seconds * 10**9 + nanos >= last
        last, wire, seen, at = seconds * 10**9 + nanos, wire + whole, seen + 1, at + 16 + kept
    assert seen == count
    assert wire >= 3 * 50_000
