"""One call writes any format, one call reads any, whatever the file is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.errors import DescriptionError, FileError, SynclineError, UsageError
from syncline.fabric import build
from syncline.fabric.formats import detect, export, export_text, formats, import_fabric

FIXTURES = Path(__file__).parent / "fixtures" / "nccl"
NAMES = [f.name for f in formats()]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_is_written_recognised_and_read(name, fabric_of, tmp_path):
    fabric = fabric_of("rail-optimized")
    export(fabric, name, tmp_path / "file")
    text = (tmp_path / "file").read_text("utf-8")
    assert text == export_text(fabric, name)
    assert detect(text) == ("slurm-conf" if name == "slurm-block" else name)
    if name == "graphml":  # for graph tools: nothing is read back
        return
    spec = import_fabric(tmp_path / "file", host="dgx-h100")
    hosts = 1 if name == "nccl" else fabric.num_hosts
    assert (build(spec).num_hosts, build(spec).num_gpus) == (hosts, hosts * 8)


def test_options_reach_the_writer_and_the_reader(fabric_of, tmp_path):
    assert 'busid="0000:aa:00.0"' in export_text(
        fabric_of("fat-tree"), "nccl", host=3, bus_ids={"gpu-1": "0000:aa:00.0"}
    )
    spec = import_fabric(FIXTURES / "azure-ndv5.xml", gpu="H200", link="NDR")
    assert spec.parts["host"][0]["gpu"] == "H200-SXM5-141GB"
    assert spec.name == "azure-ndv5"


@pytest.mark.parametrize("name", ["slurm-conf", "slurm-yaml", "topograph"])
def test_formats_without_hardware_ask_for_a_host(name, fabric_of, tmp_path):
    export(fabric_of("fat-tree"), name, tmp_path / "file")
    with pytest.raises(UsageError, match="says nothing about the hosts' hardware") as caught:
        import_fabric(tmp_path / "file")
    assert caught.value.where.endswith("file")


@pytest.mark.parametrize(
    "text", ["", "hello", "a: [1", "<html/>", "<", "hosts: 64\nhost: 8 x H100", "\x00\x01", "[1, 2]", "{}"]
)
def test_what_is_no_known_format_says_which_are(text):
    with pytest.raises(DescriptionError, match="the format is unknown") as caught:
        detect(text)
    assert "graphml" in caught.value.detail


def test_comments_and_prologs_do_not_hide_the_format():
    assert detect((FIXTURES / "aws-p4d.24xl.xml").read_text("utf-8")) == "nccl"
    assert detect('\ufeff<?xml version="1.0"?>\n<!-- x --><graphml/>') == "graphml"


def test_unknown_formats_and_unreadable_files_are_named(fabric_of, tmp_path):
    with pytest.raises(UsageError, match='there is no format "dot"') as caught:
        export(fabric_of("fat-tree"), "dot", tmp_path / "x")
    assert caught.value.hint.startswith(f"Formats: {', '.join(NAMES)}; read only: nvidia-topo, ibstat")
    with pytest.raises(UsageError, match="ibstat files are only read"):
        export(fabric_of("fat-tree"), "ibstat", tmp_path / "x")
    with pytest.raises(FileError):
        import_fabric(tmp_path)
    with pytest.raises(FileError):
        import_fabric(tmp_path / "missing.xml")


def test_a_failed_export_leaves_the_old_file(fabric_of, tmp_path):
    (tmp_path / "topo.xml").write_text("old")
    with pytest.raises(SynclineError):
        export(fabric_of("torus of chips"), "nccl", tmp_path / "topo.xml")
    assert (tmp_path / "topo.xml").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "topo.xml"]
