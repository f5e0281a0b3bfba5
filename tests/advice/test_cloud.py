"""A cloud's own guide goes first: its variables, its profile, its sidecar; a tuner file only when asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from syncline.advice import bundle
from syncline.advice.cloud import cloud_of, cloud_profiles
from syncline.fabric import load


def test_every_profile_says_where_it_stands_and_when_it_was_read() -> None:
    for profile in cloud_profiles():
        assert profile.source.startswith("https://") and profile.read and profile.variables and profile.hosts
        assert all(value and reason for value, reason in profile.variables.values())


@pytest.mark.parametrize(
    ("cluster", "wanted"),
    [
        ("a3-mega", {"NCCL_FASTRAK_IFNAME", "NCCL_FASTRAK_CTRL_DEV", "NCCL_SOCKET_IFNAME"}),
        ("p5-ultracluster", {"FI_PROVIDER", "NCCL_SOCKET_IFNAME"}),
        ("nd-h100-v5", {"NCCL_TOPO_FILE", "NCCL_SOCKET_IFNAME"}),
    ],
)
def test_what_the_cloud_sets_is_set_once(cluster: str, wanted: set[str]) -> None:
    made = bundle(load(cluster), ranks=64)
    names = [setting.name for setting in made.settings if not setting.optional]
    assert wanted <= set(names)
    assert len(names) == len(set(names))


def test_azures_machines_have_their_own_topology_files() -> None:
    files = {host: cloud_of(host, "infiniband") for host in ("nd-a100-v4", "nd-h100-v5", "nd-gb200-v6")}
    names = {host: profile.variables.get("NCCL_TOPO_FILE", ("", ""))[0] for host, profile in files.items() if profile}
    assert names == {
        "nd-a100-v4": "/opt/microsoft/ndv4-topo.xml", "nd-h100-v5": "/opt/microsoft/ndv5-topo.xml", "nd-gb200-v6": "",
    }  # fmt: skip


def test_a_host_of_ones_own_has_no_cloud() -> None:
    assert cloud_of("dgx-h100", "infiniband") is None
    assert cloud_of("anything", "tcpxo") is not None


def test_the_vendors_profile_is_sourced_and_its_absence_said(tmp_path: Path) -> None:
    bundle(load("a3-mega"), ranks=64).write(tmp_path)
    ran = subprocess.run(
        ["/bin/bash", "-euc", f'source "{tmp_path}/nccl.env"; echo "$NCCL_CROSS_NIC"'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "0\n")
    assert "nccl-env-profile.sh is not here" in ran.stderr


def test_pods_of_tcpxo_have_the_daemon_beside_them() -> None:
    job = yaml.safe_load(bundle(load("a3-mega"), ranks=64).files["pytorchjob.yaml"])
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (daemon,) = pod["initContainers"]
    assert daemon["restartPolicy"] == "Always"
    shared = {mount["name"] for mount in daemon["volumeMounts"]}
    assert shared <= {volume["name"] for volume in pod["volumes"]}
    assert shared <= {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
