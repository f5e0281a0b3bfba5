"""`syncline fabric` as its users meet it: figures, JSON, and one clear error with status 2 for every bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncline.cli.shell.app import run
from syncline.questions.fabric import presets_beginning

Run = Callable[..., tuple[int, str, str]]
GOOD = "hosts: 4\nhost: 8 x H100\nnetwork: rail-optimized NDR\n"


@pytest.fixture
def syncline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a way to run one command line: status, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> tuple[int, str, str]:
        status = run(["fabric", *map(str, arguments)])
        done = capsys.readouterr()
        return status, done.out, done.err

    return call


def payload(syncline: Run, *arguments: object) -> dict[str, Any]:
    status, out, err = syncline(*arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)  # type: ignore[no-any-return]


# --- good input ---


def test_show_prints_the_figures_the_issue_names(syncline: Run) -> None:
    assert payload(syncline, "show", "fat-tree-64port-2tier")["endpoints"] == 2048
    assert payload(syncline, "show", "fat-tree-1024")["switches"] == 48
    found = payload(syncline, "show")
    assert (found["gpus"], found["bisection_Bps"]) == (512, 12.8e12)
    status, out, _ = syncline("show")
    assert status == 0 and "bisection 12.8 TB/s" in out and "[1] estimate" in out
    assert max(len(line) for line in out.split("\n\n")[1].splitlines()) <= 120


def test_show_reads_a_file(syncline: Run, tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(GOOD)
    found = payload(syncline, "show", path)
    assert (found["name"], found["gpus"], found["hosts"]) == ("ours", 32, 4)


def test_list_names_every_preset(syncline: Run) -> None:
    found = payload(syncline, "list")["presets"]
    assert all(preset["notes"] and preset["source"] for preset in found if preset["name"] != "h100-64-rail")
    status, out, _ = syncline("list")
    assert status == 0 and all(preset["name"] in out for preset in found)


def test_parts(syncline: Run) -> None:
    assert "QM9700" in payload(syncline, "parts")["kinds"]["switch"]
    assert payload(syncline, "parts", "gpu", "h100")["parts"][0]["name"] == "H100-SXM5-80GB"
    for kind, names in payload(syncline, "parts")["kinds"].items():
        _, out, _ = syncline("parts", kind)
        assert [line.split("  ")[0] for line in out.splitlines()[1:-2]] == names  # a line each
    status, out, _ = syncline("parts", "switch", "quantum-2")
    assert status == 0 and "300 ns" in out and "{" not in out and "[" not in out
    assert len(payload(syncline, "parts", "nic")["parts"]) == len(payload(syncline, "parts")["kinds"]["nic"])


def test_route(syncline: Run) -> None:
    found = payload(syncline, "route", "h100-64-rail", "host-00/gpu-0", "host-40/gpu-3", "--all")
    assert found["count"] == len(found["paths"]) == 8 * 4 * 4  # eight spines, four cables up and four down
    assert len({tuple(path["links"]) for path in found["paths"]}) == 8
    one = payload(syncline, "route", "h100-64-rail", "host-00/gpu-0", "host-40/gpu-3")["paths"][0]
    assert one["rate_Bps"] == 50e9 and one["links"][0].startswith("host-00/gpu-0 -> ")
    _, out, _ = syncline("route", "h100-64-rail", "host-00/gpu-0", "host-00/gpu-0")
    assert out == "the same device: no link is crossed\n"
    _, out, _ = syncline("route", "h100-64-rail", "host-00/gpu-0", "host-01/gpu-1", "--cross-rail", "nvlink")
    assert out.startswith("host-00/gpu-0 -> host-00/nvswitch-0 -> host-00/gpu-1")


def test_presets_complete_in_the_shell() -> None:
    assert presets_beginning("dgx-h") == ["dgx-h100-superpod", "dgx-h100-superpod-1su"]
    assert presets_beginning("nothing") == []


def test_links(syncline: Run) -> None:
    rows = payload(syncline, "links", "h100-64-rail")["links"]
    assert sum(row["count"] for row in rows) == 5760
    status, out, _ = syncline("links", "h100-64-rail", "--device", "leaf-03")
    assert status == 0 and out.count("400 Gb/s") == 64


@pytest.mark.parametrize("name", ["nccl", "slurm-conf", "slurm-block", "slurm-yaml", "topograph"])
def test_every_format_is_written_and_read_back(name: str, syncline: Run, tmp_path: Path) -> None:
    written, back = tmp_path / "written", tmp_path / "back.yaml"
    assert payload(syncline, "export", "h100-64-rail", name, written) == {"written": str(written), "format": name}
    host = () if name == "nccl" else ("--host", "dgx-h100")
    found = payload(syncline, "import", written, back, *host)
    assert (found["gpus"], found["hosts"]) == ((8, 1) if name == "nccl" else (512, 64))
    assert payload(syncline, "show", back)["gpus"] == found["gpus"]


def test_one_host_is_picked_for_formats_of_one(syncline: Run, tmp_path: Path) -> None:
    assert syncline("export", "h100-64-rail", "nccl", tmp_path / "a", "--host", "63")[0] == 0
    for words, message in (
        (("nccl", tmp_path / "b", "--host", "64"), "h100-64-rail has no host 64."),
        (("graphml", tmp_path / "b", "--host", "1"), "--host picks the host of an nccl file"),
        (("bogus", tmp_path / "b"), 'there is no format "bogus".'),
        (("graphml", tmp_path), "is a directory"),
    ):
        status, out, err = syncline("export", "h100-64-rail", *words)
        assert (status, out) == (2, "") and message in err
    assert os.listdir(tmp_path) == ["a"]


def test_completes_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "syncline", "fabric", "show", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    assert json.loads(done.stdout)["gpus"] == 512


# --- bad input: class, place, rule, next step; status 2; nothing else ---

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{this}: &{this} [{','.join(['*' + before] * 10)}]\n" for before, this in zip("abcdefgh", "bcdefghi", strict=True)
)
EXPLICIT = "hosts: 2\nhost: {model: dgx-h100, nics: 1}\nnetwork:\n  topology: explicit\n  link: NDR\n  switch: QM9700\n"
BAD = {
    "unknown gpu": ("hosts: 4\nhost: 8 x H1000\nnetwork: fat-tree NDR", "CatalogError", 2, 'no gpu named "H1000"'),
    "unknown switch": (
        "hosts: 4\nhost: 8 x H100\nnetwork:\n  topology: fat-tree\n  link: NDR\n  switch: QM97",
        "CatalogError",
        6,
        'no switch named "QM97"',
    ),
    "unknown key": (GOOD + "colour: red", "DescriptionError", 4, 'unknown key "colour".'),
    "unknown topology": ("hosts: 4\nhost: 8 x H100\nnetwork: fat-trie NDR", "DescriptionError", 3, "names no topology"),
    "port overflow": (
        EXPLICIT + "  switches: [s]\n  cables: [host-00/nic-0 <-> s x60, host-01/nic-0 <-> s x5]",
        "FabricError",
        7,
        'switch "s" has 65 ports in use but "QM9700" has 64.',
    ),
    "disconnected": (
        EXPLICIT + "  switches: [s]\n  cables: [host-00/nic-0 <-> s]",
        "FabricError",
        3,
        "the fabric is not connected: 1 of 2 hosts cannot reach host-00.",
    ),
    "zero hosts": (GOOD.replace("4", "0", 1), "DescriptionError", 1, "0 hosts; a cluster has 1 to 1,000,000."),
    "negative hosts": (GOOD.replace("4", "-4", 1), "DescriptionError", 1, "-4 hosts; a cluster has 1 to 1,000,000."),
    "a billion hosts": (
        GOOD.replace("4", "1000000000", 1),
        "DescriptionError",
        1,
        "1,000,000,000 hosts; a cluster has",
    ),
    "cycle": ("hosts: &a [*a]", "DescriptionError", 1, "is cyclic"),
    "alias bomb": (BOMB, "DescriptionError", 7, "has more than 1,500,000 values"),
    "deep nesting": ("hosts: " + "[" * 100_000, "DescriptionError", 1, "is nested more than 64 levels deep."),
    "duplicate key": (GOOD + "hosts: 5", "DescriptionError", 4, 'has the key "hosts" twice.'),
    "python tag": ("hosts: !!python/object/apply:os.system [id]", "DescriptionError", 1, "only plain text and numbers"),
    "empty": ("", "DescriptionError", 0, "the file is empty."),
    "list": ("- hosts: 4", "DescriptionError", 1, "a cluster description is a mapping"),
    "not yaml": ("hosts: [", "DescriptionError", 2, "not valid YAML"),
    "nan rate": (
        GOOD + "faults:\n  - {device: leaf-00, rate: .nan}",
        "DescriptionError",
        5,
        "must be finite and not negative",
    ),
    "infinite rate": (
        GOOD + "faults:\n  - {device: leaf-00, rate: .inf}",
        "DescriptionError",
        5,
        "must be finite and not negative",
    ),
    "infinite price": (
        "hosts: 4\nhost: {gpu: H100, price_usd: .inf}\nnetwork: fat-tree NDR",
        "DescriptionError",
        2,
        "must be a finite number, not inf",
    ),
    "torus shape": (
        "hosts: 2\nhost: tpu-v4-host\nnetwork: torus 2x2x3",
        "FabricError",
        3,
        "has 12 places but there are 8",
    ),
    "fault on no link": (
        GOOD + "faults:\n  - link: leaf-00 <-> leaf-01",
        "FabricError",
        5,
        "no link joins leaf-00 and",
    ),
    "fault on no device": (GOOD + "faults:\n  - device: leaf-77", "FabricError", 5, 'has no device "leaf-77".'),
    "different nics": (
        "hosts:\n- {count: 1, host: dgx-h100}\n- {count: 1, host: {model: dgx-h100, nics: 4}}\nnetwork: fat-tree NDR",
        "FabricError",
        4,
        "hosts with 4 NICs and hosts with 8 NICs cannot share a fat-tree network.",
    ),
    "no nic": (
        "hosts: 2\nhost: {gpu: H100, nics: 0}\nnetwork: fat-tree NDR",
        "FabricError",
        3,
        "have no NIC to join a",
    ),
    "two hosts of one name": (
        "hosts:\n- {names: [a, b], host: dgx-h100}\n- names: [c, b]\n  host: dgx-h100\nnetwork: fat-tree NDR",
        "FabricError",
        2,
        'two hosts are called "b".',
    ),
    "oversubscription 0": (
        "hosts: 4\nhost: dgx-h100\nnetwork:\n  topology: leaf-spine\n  link: NDR\n  oversubscription: 0",
        "DescriptionError",
        6,
        "must be above 0, not 0.",
    ),
    "oversubscription 3:0": (
        "hosts: 4\nhost: dgx-h100\nnetwork:\n  topology: leaf-spine\n  link: NDR\n  oversubscription: 3:0",
        "DescriptionError",
        6,
        '"3:0" is not a ratio; write it as "3:1".',
    ),
    "no wan": (
        "sites:\n- {name: a, hosts: 1, host: p5, network: fat-tree NDR}\n- {name: b, hosts: 1, host: p5, network: x}",
        "DescriptionError",
        3,
        'network "x" names no topology',
    ),
    "wan missing": (
        "name: two\nsites:\n- {name: a, hosts: 1, host: dgx-h100, network: fat-tree NDR}",
        "DescriptionError",
        2,
        "several `sites` need a `wan`",
    ),
    "no network": ("hosts: 2\nhost: dgx-h100", "FabricError", 1, "several hosts need a network."),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_descriptions(case: str, syncline: Run, tmp_path: Path) -> None:
    text, kind, line, message = BAD[case]
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    status, out, err = syncline("show", path)
    assert (status, out) == (2, "")
    where = f"{path} line {line}" if line else f"{path}"
    assert err.startswith(f"{kind}: {where}: ")
    assert message in err and "Traceback" not in err
    assert len(err.splitlines()) >= 2  # the next step is on a line of its own
    status, out, err = syncline("show", path, "--json")
    found = json.loads(out)
    assert (status, err, found["error"], found["where"]) == (2, "", kind, where)
    assert message in found["message"] and (found["hint"] or found["detail"])


def test_bad_files(syncline: Run, tmp_path: Path) -> None:
    big, binary = tmp_path / "big.yaml", tmp_path / "binary.yaml"
    with big.open("wb") as file:
        file.truncate(100 * 2**20)
    binary.write_bytes(bytes(range(256)))
    cases = {
        big: "has 100 MiB; a description may have 32 MiB.",
        binary: "is not UTF-8 text (byte 128).",
        tmp_path: "is a directory, not a file.",
        tmp_path / "missing.yaml": "there is no file",
        Path("no-such-preset"): 'there is no file or preset "no-such-preset".',
        Path("x" * 5000): "there is no file or preset",
    }
    for path, message in cases.items():
        status, out, err = syncline("show", path)
        assert (status, out) == (2, "")
        assert err.startswith("FileError: ") and message in err and len(err.splitlines()) >= 2
        assert json.loads(syncline("show", path, "--json")[1])["error"] == "FileError"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_somebody_else(syncline: Run, tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text(GOOD)
    path.chmod(0)
    assert syncline("show", path)[2].startswith(f'FileError: cannot read "{path}": Permission denied.')


@pytest.mark.parametrize("option", ["--svg", "--html", "--png"])
def test_pictures_go_nowhere_or_whole(option: str, syncline: Run, tmp_path: Path) -> None:
    first = tmp_path / "first.svg"
    other = "--html" if option == "--svg" else "--svg"
    for place, message in ((tmp_path, "is a directory"), (tmp_path / "none" / "x", "there is no folder")):
        status, out, err = syncline("show", other, first, option, place)
        assert (status, out) == (2, "") and err.startswith("FileError: ") and message in err
        assert os.listdir(tmp_path) == []


def test_bad_words(syncline: Run) -> None:
    for words, message in (
        (("route", "h100-64-rail", "host-00/gpu-0", "leaf-00"), '"leaf-00" is neither a GPU nor a NIC.'),
        (("route", "h100-64-rail", "host-00/gpu-0", "host-99/gpu-0"), 'has no device "host-99/gpu-0".'),
        (("route", "h100-64-rail", "host-00/gpu-0", "host-01/gpu-0", "--policy", "x"), '--policy cannot be "x".'),
        (("links", "h100-64-rail", "--device", "nobody"), 'has no device "nobody".'),
        (("parts", "wheel"), 'there is no kind of part "wheel".'),
        (("parts", "gpu", "H1000"), 'no gpu named "H1000" in the catalogue.'),
    ):
        status, out, err = syncline(*words)
        assert (status, out) == (2, "")
        assert message in err and len(err.splitlines()) >= 2


def test_a_price_is_called_an_estimate_once(syncline: Run, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("hosts: 2\nhost: dgx-h200\nnetwork: leaf-spine 400GbE\n")
    assert "[1] estimate of the street price\n" in syncline("show", path)[1]
