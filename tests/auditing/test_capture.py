"""A capture audits as the host it was made from, and holds no secret."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from tests.auditing.samples import HOSTS
from tests.auditing.samples.plants import PLANTS

from syncline.auditing.audit import audit
from syncline.auditing.capture import capture
from syncline.errors import FileError
from syncline.host import privacy
from syncline.host.root import Root
from syncline.host.tree import DeniedFile, MemoryTree

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "NCCL_API_TOKEN": "hunter2",
    "WANDB_API_KEY": "hunter2",
    "HOME": "/home/hunter2",
    "UCX_PASSWORD": "hunter2",
}


@pytest.mark.parametrize("suffix", ["", ".tar.gz"])
@pytest.mark.parametrize("host", HOSTS)
def test_a_capture_audits_like_its_host(host: str, suffix: str, tmp_path: Path) -> None:
    draft = HOSTS[host]()
    for plant in [plant for plant in PLANTS if host in plant.hosts and not plant.expect.source][::29]:
        draft = plant.into(draft)
    before = audit(Root.of(draft.tree()))
    capture(Root.of(draft.tree()), tmp_path / f"tree{suffix}")
    after = audit(Root.captured(tmp_path / f"tree{suffix}"))
    assert before.findings
    assert [(f.rule, f.place, f.observed) for f in after.findings] == [
        (f.rule, f.place, f.observed) for f in before.findings
    ]
    assert after.facts == before.facts
    assert set(after.passed) == set(before.passed)


def test_this_machine_is_captured_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    done = capture(Root.live(), tmp_path / "here.tar.gz")
    with tarfile.open(done.path) as archive:
        members = {m.name.partition("/")[2]: archive.extractfile(m) for m in archive if m.isreg()}
        texts = {name: file.read() for name, file in members.items() if file is not None}
    assert b"hunter2" not in b"".join(texts.values())
    assert texts["syncline/environment"].decode().splitlines().count("NCCL_DEBUG=WARN") == 1
    manifest = json.loads(texts["syncline/manifest.json"])
    assert manifest["schema"] == "syncline-capture/1"
    assert manifest["host"] == done.host
    assert manifest["holds"]
    assert manifest["unreadable"] == done.unreadable
    assert not any(name.startswith(("proc/1/", "home/", "root/", "etc/shadow", "etc/ssh")) for name in texts)
    assert {name.split("/")[1] for name in texts if name.startswith("proc/")} <= {
        "cmdline", "cpuinfo", "meminfo", "modules", "mounts", "net", "self", "sys", "driver", "irq",
    }  # fmt: skip


def test_names_are_captured_without_what_stands_beside_them(tmp_path: Path) -> None:
    draft = HOSTS["plain-vm"]()
    draft.put("etc/hosts", "# vault: hunter2\n10.20.0.11 vm-01  # root/hunter2")
    draft.put("etc/resolv.conf", "; asked for by hunter2\nnameserver 10.20.0.1")
    draft.put("etc/nsswitch.conf", "passwd: files hunter2\nhosts: files dns")
    capture(Root.of(draft.tree()), tmp_path / "tree")
    kept = {name: (tmp_path / "tree" / "etc" / name).read_text() for name in ("hosts", "resolv.conf", "nsswitch.conf")}
    assert kept == {
        "hosts": "10.20.0.11 vm-01\n",
        "resolv.conf": "nameserver 10.20.0.1\n",
        "nsswitch.conf": "hosts: files dns\n",
    }


def test_what_could_not_be_read_is_unknown_again_later(tmp_path: Path) -> None:
    entries = dict(HOSTS["dgx-h100"]().tree().entries)
    path = next(p for p in entries if p.endswith("mlx5_4/ports/1/rate"))
    entries[path] = DeniedFile()
    capture(Root.of(MemoryTree(entries)), tmp_path / "h.tar.gz")
    report = audit(Root.captured(tmp_path / "h.tar.gz"))
    assert "sys/class/infiniband/mlx5_4/ports/1/rate" in json.dumps(dict(report.unreadable))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_text("mine")
    with pytest.raises(FileError, match="exists"):
        capture(Root.of(MemoryTree({})), tmp_path / "x.tar.gz")
    with pytest.raises(FileError, match="there is no folder"):
        capture(Root.of(MemoryTree({})), tmp_path / "no" / "x.tar.gz")
    assert (tmp_path / "x.tar.gz").read_text() == "mine"
    assert os.listdir(tmp_path) == ["x.tar.gz"]


def test_filters() -> None:
    assert privacy.kernel_options("root=UUID=1 iommu=pt token=abc pci=noacs -- --secret x") == "iommu=pt pci=noacs\n"
    assert privacy.environment({**SECRETS, "NCCL_IB_HCA": "mlx5"}) == {"NCCL_IB_HCA": "mlx5"}
    private = "    Serial Number : 165\n    Processes\n        GPU instance ID : N/A\n            Name : /home/a/x\n"
    smi = f"GPU 0\n{private}    Fabric : N/A\n"
    assert privacy.smi_text(smi) == "GPU 0\n    Fabric : N/A\n"
    assert privacy.log_lines("sshd: password\nNVRM: Xid 79\n") == "NVRM: Xid 79\n"
    assert privacy.nvlink_text("GPU 0: H100 (UUID: GPU-12)\n") == "GPU 0: H100\n"
