"""The right host and part first, out of folders of whatever there is; nothing where nothing is wrong."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.diagnosis.gathered_incidents import CLUSTER as GATHERED
from tests.diagnosis.gathered_incidents import GatheredIncident, gathered_incidents
from tests.diagnosis.gathered_incidents import write as write_gathered
from tests.diagnosis.incidents import CLUSTER, incidents, write
from tests.diagnosis.roce_incidents import CLUSTER as ROCE
from tests.diagnosis.roce_incidents import RoceIncident, roce_incidents
from tests.diagnosis.roce_incidents import write as write_roce
from tests.explaining.conftest import Written
from tests.explaining.test_explain import ranks

import syncline
from syncline.diagnosis.bundle import without_secrets
from syncline.diagnosis.doctor import examine
from syncline.fabric import Fabric, load
from syncline.questions.doctor import doctor


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return load(CLUSTER)


@pytest.fixture(scope="module")
def gathered() -> Fabric:
    return load(GATHERED)


@pytest.fixture(scope="module")
def roce() -> Fabric:
    return load(ROCE)


@pytest.mark.parametrize("incident", incidents(), ids=lambda incident: incident["name"])
def test_the_right_host_and_part_come_first(incident: dict[str, Any], fabric: Fabric, tmp_path: Path) -> None:
    found = examine([write(incident, tmp_path / "incident")], fabric)
    if incident["first"] is None:
        assert [one for one in found.suspects if one.probability >= 0.5] == []
        return
    host, part = incident["first"]
    first = found.suspects[0]
    assert (first.host, first.part if part else "") == (host, part)
    assert first.evidence
    assert first.next


@pytest.mark.parametrize("incident", roce_incidents(), ids=lambda incident: incident.name)
def test_folders_of_hosts_say_the_same(incident: RoceIncident, roce: Fabric, tmp_path: Path) -> None:
    found = examine([write_roce(incident, tmp_path / "incident")], roce)
    if not incident.first:
        assert [one for one in found.suspects if one.probability >= 0.5] == []
        return
    first = found.suspects[0]
    assert any(first.host == host and part in ("", first.part) for host, part in incident.first)


@pytest.mark.parametrize("incident", gathered_incidents(), ids=lambda incident: incident.name)
def test_output_that_is_grouped_by_hosts_says_the_same(
    incident: GatheredIncident, gathered: Fabric, tmp_path: Path
) -> None:
    found = examine([write_gathered(incident, tmp_path / "incident")], gathered)
    if not incident.first:
        assert [one for one in found.suspects if one.probability >= 0.5] == []
        return
    first = found.suspects[0]
    assert any(first.host == host and part in ("", first.part) for host, part in incident.first)


def test_the_fault_that_doctor_prints_makes_the_prediction_the_measurement(tmp_path: Path) -> None:
    (incident,) = (one for one in roce_incidents() if one.name == "half-rate-and-old-flap")
    folder = write_roce(incident, tmp_path / "incident")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(yaml.safe_dump(ROCE))
    answer = doctor(str(folder), cluster=str(cluster))
    (line,) = (text for text in str(answer).splitlines() if "in the cluster file: faults: [" in text)
    entry = line.split("faults: ")[1].split("  ->")[0]
    cluster.write_text(yaml.safe_dump(ROCE) + f"faults: {entry}\n")
    again = doctor(str(folder), cluster=str(cluster))
    assert answer.measured is not None
    assert answer.measured.is_slow
    assert again.measured is not None
    assert not again.measured.is_slow
    assert [one.place for one in again.suspects if one.is_described] == ["node10/nic-5"]
    assert again.suspects[0].place == "node03/nic-1"


def test_a_suspect_that_is_not_likely_is_no_headline(roce: Fabric, tmp_path: Path) -> None:
    (incident,) = (one for one in roce_incidents() if one.name == "healthy-by-design")
    answer = doctor(str(write_roce(incident, tmp_path / "incident")), cluster=roce)
    assert str(answer).startswith("Slower than this cluster should be, and nothing in these files says why")
    possible = replace(answer, suspects=tuple(replace(one, probability=0.3) for one in answer.suspects))
    what = "node01/nic-0: PCIe of 0000:1a:00.0"
    assert str(possible).startswith(f"No likely cause in these files; the likeliest is {what}")
    likely = replace(answer, suspects=tuple(replace(one, probability=0.6) for one in answer.suspects))
    assert str(likely).startswith(what)


def test_ranks_that_waited_are_no_hosts(tmp_path: Path) -> None:
    (incident,) = (one for one in roce_incidents() if one.name == "crc")
    (tmp_path / "train.out").write_text(incident.job)
    (only,) = examine([tmp_path]).suspects
    assert (only.host, only.part) == ("", "rank 3, 40, 77")


def test_a_fault_that_the_cluster_file_has_is_no_news(tmp_path: Path) -> None:
    (incident,) = (one for one in incidents() if one["name"] == "pcie-x4")
    folder = write(incident, tmp_path / "incident")
    answer = doctor(str(folder), cluster=load({**CLUSTER, "faults": [{"device": "gpu11/nic-5", "rate": "126Gbps"}]}))
    text = str(answer)
    assert text.startswith("Nothing that the cluster file has not already: gpu11/nic-5, PCIe of 0000:c0:00.0")
    assert "116 GB/s bus; the cluster with its faults gives 109" in text


def test_a_suspect_is_a_fault_whose_price_is_the_measurement(fabric: Fabric, tmp_path: Path) -> None:
    (incident,) = (one for one in incidents() if one["name"] == "pcie-x4")
    answer = doctor(str(write(incident, tmp_path / "incident")), cluster=fabric)
    first = answer.suspects[0]
    assert first.fault == "{device: gpu11/nic-5, rate: 126Gbps}"
    assert answer.measured is not None
    assert answer.measured.is_slow
    assert first.predicted_GBps == pytest.approx(answer.measured.busbw_GBps, rel=0.1)
    assert first.probability > 0.9
    text = str(answer).splitlines()
    assert text[0].startswith("gpu11/nic-5: PCIe of 0000:c0:00.0 trained at 126 Gb/s of 504")
    assert text[1].startswith("next: ssh gpu11")


def test_pdsh_and_folders_name_the_hosts(tmp_path: Path) -> None:
    lines = [f"gpu{n:02d}: [   30.5000{n:02d}] mlx5_core 0000:18:00.0 eth0: Link up" for n in range(8)]
    lines += ["gpu05: [  900.100000] NVRM: Xid (PCI:0000:44:00): 79, pid=1234, GPU has fallen off the bus."]
    (tmp_path / "all-dmesg.txt").write_text("\n".join(lines) + "\n")
    assert examine([tmp_path]).suspects[0].host == "gpu05"
    (tmp_path / "all-dmesg.txt").unlink()
    (tmp_path / "gpu03").mkdir()
    (tmp_path / "gpu03" / "dmesg.txt").write_text(lines[-1].removeprefix("gpu05: ") + "\n")
    assert examine([tmp_path]).suspects[0].host == "gpu03"


def test_a_rank_that_others_wait_for_in_traces_is_a_suspect(tmp_path: Path) -> None:
    ranks(tmp_path, Written, [400, 400, 900, 400])
    first = examine([tmp_path]).suspects[0]
    assert (first.rule, first.part) == ("rank.late", "rank 2")
    assert "others wait" in first.cause


def test_a_bundle_holds_files_and_answer_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwx\nloading https://me:pass1234@host/x\nERROR: boom\n"
    )
    answer = doctor(str(tmp_path / "job.log"))
    answer.pack(tmp_path / "ticket.tar.gz")
    with tarfile.open(tmp_path / "ticket.tar.gz") as archive:
        names = archive.getnames()
        texts = [file.read().decode() for name in names if (file := archive.extractfile(name))]
    assert len(names) == 2
    assert not [text for text in texts if "abcdefghij" in text or "pass1234" in text]
    assert any("ERROR: boom" in text for text in texts)


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter22",
        "Authorization: Bearer abc.def.ghi",
        "aws_secret_access_key=abcdEFGH1234",
        "key AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_secrets_of_many_forms_are_removed(line: str) -> None:
    assert without_secrets(line).count("[removed]") == 1
    assert not set(without_secrets(line).split()) & {"hunter22", "abc.def.ghi", "abcdEFGH1234", "AKIAABCDEFGHIJKLMNOP"}


def test_it_is_public() -> None:
    assert callable(syncline.doctor)


def test_one_port_down_on_half_the_hosts_is_seen_beside_the_others_of_its_host(tmp_path: Path) -> None:
    for number in range(1, 5):
        states = {port: "Down" if port == 3 and number in (1, 3) else "Active" for port in range(4)}
        text = "".join(f"CA 'mlx5_{port}'\n\tPort 1:\n\t\tState: {state}\n" for port, state in states.items())
        (tmp_path / f"ibstat-node{number:02d}.txt").write_text(text)
    assert [one.place for one in examine([tmp_path]).suspects] == ["node01/nic-3", "node03/nic-3"]


def test_a_lost_gpu_is_one_suspect_with_the_list_that_misses_it(tmp_path: Path) -> None:
    line = "Nov 19 03:01:02 node02 kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid=42, GPU has fallen off the bus."
    (tmp_path / "kern-node02.log").write_text(f"{line}\n")
    for number in (1, 2, 3):
        rows = "".join(f"GPU {gpu}: NVIDIA H100 (UUID: GPU-{gpu})\n" for gpu in range(8 - (number == 2)))
        (tmp_path / f"nvidia-smi-L-node{number:02d}.txt").write_text(rows)
    (suspect,) = examine([tmp_path]).suspects
    assert suspect.place == "node02/0000:5d:00"
    assert "nvidia-smi lists 7" in suspect.evidence


def test_a_local_disk_that_hangs_is_no_remote_storage(tmp_path: Path) -> None:
    (tmp_path / "kern-node02.log").write_text(
        "Nov 19 03:01:02 node02 kernel: nvme nvme1: I/O 12 QID 5 timeout, aborting\n"
        "Nov 19 03:01:33 node02 kernel: blk_update_request: I/O error, dev nvme1n1, sector 1333248 op 0x0:(READ)\n"
    )
    assert [one.rule for one in examine([tmp_path]).suspects] == ["kernel.disk"]
