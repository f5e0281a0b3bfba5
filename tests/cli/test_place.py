"""`syncline place` as a user calls it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from syncline.cli.shell.app import run

CLUSTER = """
hosts: 8
host: 8 x H100
network: {topology: leaf-spine, link: 100GbE, oversubscription: "8:1", hosts_per_leaf: 4}
"""
JOB = "name: small\nmodel: llama3-8b\nbatch: {global: 16, sequence: 2048}\nparallel: {tp: 8, pp: 2}\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "j.yaml").write_text(JOB)
    return str(tmp_path / "c.yaml"), str(tmp_path / "j.yaml")


def test_it_writes_an_order_for_every_launcher(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out", tmp_path / "p.html"
    arguments = ["place", *files, "--hosts", "0,4,1,5", "--out", str(out), "--html", str(page), "--json"]
    assert run(arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["gain"] > 0.05
    hosts = answer["hosts"]
    assert (out / "hostfile.slurm").read_text().split() == [row["host"] for row in answer["ranks"]]
    assert (out / "hostfile").read_text().splitlines() == [f"{host} slots=8" for host in hosts]
    assert (out / "rankfile").read_text().splitlines()[9] == f"rank 9={hosts[1]} slot=1"
    subprocess.run(["bash", "-n", str(out / "torchrun.sh")], check=True)
    config, jobs = yaml.safe_load_all((out / "jobset.yaml").read_text())
    assert config["data"]["torchrun.sh"] == (out / "torchrun.sh").read_text()
    assert jobs["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 4
    assert "rank 31" in page.read_text()


def test_torchrun_finds_its_node_rank(files: tuple[str, str], tmp_path: Path) -> None:
    assert run(["place", *files, "--hosts", "0,4,1,5", "--out", str(tmp_path / "out"), "--json"]) == 0
    (tmp_path / "torchrun").write_text('#!/bin/bash\necho "$@" "$CUDA_VISIBLE_DEVICES"\n')
    (tmp_path / "torchrun").chmod(0o755)
    hosts = json.loads((tmp_path / "out" / "placement.json").read_text())["hosts"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "NODE_NAME": hosts[2]}
    script = ["bash", str(tmp_path / "out" / "torchrun.sh"), "train.py"]
    said = subprocess.run(script, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"--node-rank=2 --master-addr={hosts[0]}" in said
    assert said.split()[-2:] == ["train.py", "0,1,2,3,4,5,6,7"]
    lost = subprocess.run(script, env=environment | {"NODE_NAME": "other"}, capture_output=True, text=True, check=False)
    assert (lost.returncode, "other is not in this placement" in lost.stderr) == (2, True)


def test_a_replaced_host(files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(["place", *files, "--hosts", "0,4,1,5", "--out", str(out)]) == 0
    kept = ["--keep", str(out / "placement.json")]
    capsys.readouterr()
    assert run(["place", *files, "--hosts", "0,4,1,5", *kept, "--replace", "host-01=host-02"]) == 0
    assert "no other host moves" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "no hosts are given"),
        (["--hosts", "0", "--allocation", "x"], "no hosts are given"),
        (["--hosts", "0,1", "--replace", "host-01"], "does not say which host replaces which"),
        (["--hosts", "0,1", "--replace", "host-07=host-06"], "is not in the allocation"),
        (["--hosts", "0,1", "--keep", "none.json"], "cannot be read"),
        (["--hosts", "0,1", "--routing", "luck"], 'no routing is called "luck"'),
        (["--hosts", "0"], "do not divide into replicas"),
    ],
)
def test_mistakes(files: tuple[str, str], options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["place", *files, *options]) == 2
    assert words in capsys.readouterr().err
