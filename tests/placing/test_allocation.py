"""Allocations in the words of schedulers."""

from __future__ import annotations

import json

import pytest

from syncline.errors import DescriptionError, UsageError
from syncline.fabric import Fabric, load
from syncline.placing.allocation import from_list, read_allocation


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return load({"hosts": [{"names": "gpu[000-011]", "host": "8 x H100"}], "network": "leaf-spine 100GbE"})


def test_a_list_keeps_its_order_and_numbers_name_hosts(fabric: Fabric) -> None:
    assert from_list(fabric, "gpu[004-005],gpu001").hosts == (4, 5, 1)
    assert from_list(fabric, "7,0-2").names == ("gpu007", "gpu000", "gpu001", "gpu002")


# The lines are those that `scontrol show job -d` of Slurm 23.02 prints.
SCONTROL = """JobId=1201 JobName=train
   Partition=gpu AllocNode:Sid=login1:1 NodeList=gpu[003,005-006] BatchHost=gpu003
     Nodes=gpu003 CPU_IDs=0-63 Mem=0 GRES=gpu:h100:4(IDX:0-3)
     Nodes=gpu[005-006] CPU_IDs=0-127 Mem=0 GRES=gpu:h100:8(IDX:0-7)
"""


def test_scontrol_says_which_gpus(fabric: Fabric) -> None:
    found = read_allocation(fabric, SCONTROL, "job.txt")
    assert found.hosts == (3, 5, 6)
    assert [len(gpus) for gpus in found.gpus] == [4, 8, 8]
    without = "\n".join(line for line in SCONTROL.splitlines() if "IDX" not in line)
    assert read_allocation(fabric, without, "job.txt").num_gpus == 24


def test_kubernetes_nodes_and_pods(fabric: Fabric) -> None:
    gpu = {"cpu": "96", "nvidia.com/gpu": "8"}
    nodes = [
        {"kind": "Node", "metadata": {"name": "control"}, "status": {"allocatable": {"cpu": "8"}}},
        {"kind": "Node", "metadata": {"name": "gpu002"}, "status": {"allocatable": gpu}},
        {"kind": "Node", "metadata": {"name": "gpu001.cluster.local"}, "status": {"allocatable": gpu}},
    ]
    assert read_allocation(fabric, json.dumps({"kind": "List", "items": nodes}), "nodes").hosts == (2, 1)
    pods = [{"kind": "Pod", "spec": {"nodeName": name}} for name in ("gpu007", "gpu003")]
    assert read_allocation(fabric, json.dumps({"kind": "PodList", "items": pods}), "pods").hosts == (7, 3)


def test_ray_nodes_of_both_interfaces(fabric: Fabric) -> None:
    listed = [
        {"node_name": "gpu004", "state": "ALIVE", "resources_total": {"GPU": 8.0, "CPU": 96.0}},
        {"node_name": "gpu005", "state": "DEAD", "resources_total": {"GPU": 8.0}},
    ]
    assert read_allocation(fabric, json.dumps(listed), "ray").hosts == (4,)
    asked = [{"NodeManagerHostname": "gpu006", "Alive": True, "Resources": {"GPU": 4.0, "CPU": 1.0}}]
    assert read_allocation(fabric, json.dumps(asked), "ray").gpus == ((0, 1, 2, 3),)


def test_a_hostfile(fabric: Fabric) -> None:
    found = read_allocation(fabric, "# mpi\ngpu009 slots=4\ngpu008:8\ngpu[001-002]\n", "hostfile")
    assert (found.hosts, [len(g) for g in found.gpus]) == ((9, 8, 1, 2), [4, 8, 8, 8])


def test_mistakes_say_what_to_do(fabric: Fabric) -> None:
    with pytest.raises(DescriptionError, match=r'has no host "gpu099".[^$]*gpu000 to gpu011'):
        from_list(fabric, "gpu099")
    with pytest.raises(DescriptionError, match="named twice"):
        from_list(fabric, "gpu001,gpu001")
    with pytest.raises(DescriptionError, match="there is no host 12"):
        from_list(fabric, "0-12")
    with pytest.raises(DescriptionError, match="no host was found"):
        read_allocation(fabric, "\n", "empty.txt")
    with pytest.raises(DescriptionError, match="not JSON"):
        read_allocation(fabric, "{broken", "x.json")
    with pytest.raises(DescriptionError, match="but it has 8"):
        read_allocation(fabric, "gpu001 slots=9", "hostfile")
    with pytest.raises(UsageError, match="not in the allocation"):
        from_list(fabric, "gpu001").replaced(fabric, "gpu002", "gpu003")
