"""Reading and writing clusters: presets, files, errors with their line, and files that are whole or absent."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.describe.files import write_text
from syncline.errors import DescriptionError, FabricError, FileError, SynclineError
from syncline.fabric import ClusterSpec, build, load, presets, save


def failing(tmp_path: Path, text: str) -> SynclineError:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(SynclineError) as caught:
        load(path)
    return caught.value


START = "hosts: 4\nhost: 8 x H100\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (START + "netwrk: fat-tree NDR", 3, 'unknown key "netwrk".'),
        (START + "network:\n  topology: fat-tree\n  link: NDR\n  tears: 2", 6, 'unknown key "tears".'),
        (
            START + "network: {topology: fat-trie, link: NDR}",
            3,
            'there is no topology "fat-trie"; known: fat-tree, leaf',
        ),
        (START + "network: {link: NDR}", 3, '"topology" is missing.'),
        (START + "network: {topology: fat-tree}", 3, '"link" is missing.'),
        (START + "network: fat-trie NDR", 3, 'network "fat-trie NDR" names no topology; known: fat-tree'),
        (START + "network: fat-tree NDRR", 3, 'no link named "NDRR" in the catalogue.'),
        ("hosts: 4\nhost: 8 x H1000\nnetwork: fat-tree NDR", 2, 'no gpu named "H1000" in the catalogue.'),
        ("hosts: 4\nhost:\n  gpu: H100\n  gpuz: 2\nnetwork: fat-tree NDR", 4, 'unknown key "gpuz".'),
        ("network: fat-tree NDR\nhosts: 0\nhost: dgx-h100", 2, "hosts: 0 hosts; a cluster has 1 to 1,000,000."),
        (
            "hosts:\n- {count: 2, host: dgx-h100}\n- count: -1\n  host: dgx-h100\nnetwork: fat-tree NDR",
            3,
            "hosts.1.count: -1 hosts; a cluster has 1 to 1,000,000.",
        ),
        (
            "sites:\n- name: a\n  hosts: 2\n  host: dgx-h100\n  network: fat-tree NDR\n"
            "- name: b\n  hosts: 0\n  host: dgx-h100\n  network: fat-tree NDR\nwan: {rate: 1Gbps}",
            7,
            "sites.1.hosts: 0 hosts; a cluster has 1 to 1,000,000.",
        ),
        (
            START + "network:\n  topology: leaf-spine\n  link: NDR\n  oversubscription: 0",
            6,
            "must be above 0, not 0.",
        ),
        (START + "network: leaf-spine NDR -2:1", 3, "oversubscription must be above 0, not '-2:1'"),
        (START + "network:\n  topology: leaf-spine\n  link: NDR\n  oversubscription: 3:0", 6, '"3:0" is not a ratio'),
        (
            START + "network:\n  topology: leaf-spine\n  link: NDR\n  oversubscription: .nan",
            6,
            "must be a finite number, not ",
        ),
        (
            START + "network:\n  topology: leaf-spine\n  link: NDR\n  oversubscription: .inf",
            6,
            "must be a finite number, not ",
        ),
        (
            START + "network: fat-tree NDR\nfaults:\n- {device: leaf-00, rate: .nan}",
            5,
            "must be finite and not negative",
        ),
        (
            START + "network: fat-tree NDR\nfaults:\n- {link: a, device: b}",
            5,
            "a fault names either a `link` or a `dev",
        ),
        (START + "network: rail-optimized NDR\nfaults:\n- link: leaf-00 <-> leaf-01", 5, "no link joins leaf-00 and"),
        (START + "network: rail-optimized NDR\nfaults:\n- device: leaf-99", 5, 'c has no device "leaf-99".'),
        ("hosts: 2\nhost: tpu-v4-host\nnetwork: torus 2x2x3", 3, "a torus of 2 x 2 x 3 has 12 places but there are 8"),
        ("host_names: [a, a]\nhost: dgx-h100\nnetwork: fat-tree NDR", 1, 'two hosts are called "a".'),
        ("parts: {switch: 3}\n" + START + "network: fat-tree NDR", 1, 'parts of kind "switch" must be a list.'),
        ("parts: {swich: []}\n" + START + "network: fat-tree NDR", 1, 'there is no kind of part "swich".'),
        ("sites: [{name: a, hosts: 2, host: dgx-h100, network: fat-tree NDR}]", 1, "several `sites` need a `wan`"),
        ("- 1\n- 2", 1, "a cluster description is a mapping"),
        ("just text", 1, "a cluster description is a mapping"),
    ],
)
def test_errors_name_the_file_the_line_and_the_rule(tmp_path: Path, text: str, line: int, message: str) -> None:
    error = failing(tmp_path, text)
    assert message in error.message
    assert error.where.split(",")[0] == f"{tmp_path / 'c.yaml'} line {line}"
    assert error.hint or error.detail


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("{gpu: H100, gpus: many}", "host.gpus: must be a whole number, not 'many'."),
        ("0 x H100", "host: gpus must be at least 1, not 0."),
        ("[1, 2]", "host: must be a mapping, not a list."),
        ("{gpu: H100, bond: 7}", "host.bond: must be true or false, not 7."),
        ("{gpu: H100, nic_path: ZZZ}", "host.nic_path: must be PIX, PXB, PHB, SYS or C2C, not 'ZZZ'."),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(tmp_path: Path, host: str, message: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"hosts: 4\nhost: {host}\nnetwork: fat-tree NDR\n")
    with pytest.raises(DescriptionError) as caught:
        load(path)
    assert caught.value.message == message
    assert caught.value.where.endswith("cluster.yaml line 2")


def test_the_next_step_is_named(tmp_path: Path) -> None:
    misspelt = failing(tmp_path, START + "netwrk: x")
    assert misspelt.hint == 'Did you mean "network"? Remove it, or see `syncline guide cluster-file` for the keys.'
    assert misspelt.detail == "", "that `network` is missing follows from it"
    many = failing(tmp_path, START + "network: {topology: fat-tree, a: 1, b: 2}")
    assert many.detail == 'Also line 3: unknown key "b".'


def test_a_key_in_the_wrong_place_is_sent_to_its_own(tmp_path: Path) -> None:
    assert failing(tmp_path, START + "nics: 4").hint.startswith('"nics" stands under `host`.')


def test_what_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        load("dgx-h100-superpd")
    assert str(caught.value).startswith(
        'there is no file or preset "dgx-h100-superpd".\n  Close presets: dgx-h100-superpod'
    )
    assert caught.value.hint == "List presets with `syncline fabric list`."
    with pytest.raises(FileError, match="there is no file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(FileError, match="is a directory, not a file"):
        load(tmp_path)
    with pytest.raises(FileError, match="there is no file or preset"):
        load("x" * 5000)


def test_a_cluster_is_called_after_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(START + "network: fat-tree NDR")
    assert load(path).name == "ours"
    assert load("h100-64-rail").name == "h100-64-rail"
    assert "h100-64-rail" in presets()


def same(one: Any, other: Any) -> bool:
    return all((vars(one)[key] == vars(other)[key]).all() for key in vars(one))


@given(data=st.data())
@settings(max_examples=40)
def test_a_saved_cluster_is_the_same_cluster(
    any_cluster: st.SearchStrategy[dict[str, Any]], data: st.DataObject
) -> None:
    import tempfile

    spec = ClusterSpec.model_validate(data.draw(any_cluster))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.yaml"
        save(spec, path)
        again = load(path)
    fabric = build(spec)
    assert again.spec.model_dump(exclude={"name"}) == spec.model_dump(exclude={"name"})
    assert same(fabric.links, again.links) and same(fabric.devices, again.devices)


@pytest.mark.parametrize("name", presets())
def test_every_preset_survives_saving(name: str, tmp_path: Path) -> None:
    from syncline.fabric.load import parse_cluster, read_cluster

    spec = parse_cluster(read_cluster(name))
    save(spec, tmp_path / "saved.yaml")
    assert parse_cluster(read_cluster(tmp_path / "saved.yaml")) == spec


def test_written_files_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.txt"
    write_text(path, "one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~_umask()
    path.chmod(0o600)

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(FileError, match=r'cannot write ".*out\.txt": No space left on device\.'):
            write_text(path, "two")
    assert path.read_text() == "one"
    assert os.listdir(tmp_path) == ["out.txt"]
    write_text(path, "three")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("three", 0o600)


def test_links_are_followed_and_devices_are_not_replaced(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    write_text(Path("/dev/null"), "gone")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("place", "message"),
    [(".", "is a directory"), ("none/out.txt", 'there is no folder "'), ("file/out.txt", "cannot write")],
)
def test_places_that_cannot_be_written(tmp_path: Path, place: str, message: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError) as caught:
        write_text(tmp_path / place, "text")
    assert message in caught.value.message
    assert caught.value.hint
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_the_two_kinds_of_error_have_their_class(tmp_path: Path) -> None:
    assert isinstance(failing(tmp_path, "a: b"), DescriptionError)
    assert isinstance(failing(tmp_path, "hosts: 2\nhost: dgx-h100"), FabricError)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
