from __future__ import annotations

import pytest

from syncline.auditing.environment import JobSite, known_variables, lint, rule_ids
from syncline.fabric import load
from syncline.finding import Severity

IB = JobSite(network="infiniband", nvswitch=True, num_ranks=512, num_nics=16, rails=True, nccl=(2, 27))
ROCE = JobSite(network="roce", nvswitch=True, num_ranks=64, num_nics=8, rails=False, nccl=(2, 27))
EFA = JobSite(network="efa", nvswitch=True, num_ranks=64, num_nics=8, nccl=(2, 27))


@pytest.mark.parametrize(
    ("env", "site", "rule"),
    [
        ({"NCCL_IB_DISABLE": "1"}, IB, "nccl.env.rdma-off"),
        ({"NCCL_NET": "Socket"}, None, "nccl.env.rdma-off-unknown"),
        ({"NCCL_P2P_DISABLE": "1"}, None, "nccl.env.p2p-off"),
        ({"NCCL_SHM_DISABLE": "1"}, None, "nccl.env.p2p-off"),
        ({"NCCL_NVLS_ENABLE": "0"}, IB, "nccl.env.nvls-off"),
        ({"NCCL_IB_GID_INDEX": "3", "NCCL_IB_TC": "106"}, ROCE, "nccl.env.gid-index"),
        ({"NCCL_ALGO": "Ring"}, IB, "nccl.env.ring-forced"),
        ({"NCCL_PROTO": "LL"}, IB, "nccl.env.protocol-forced"),
        ({"NCCL_ALGO": "Ringg"}, None, "nccl.env.bad-value"),
        ({"NCCL_IB_CUDA_SUPPORT": "1"}, None, "nccl.env.obsolete"),
        ({"NCCL_TREE_THRESHOLD": "0"}, None, "nccl.env.obsolete"),
        ({"NCCL_MAX_NRINGS": "8"}, None, "nccl.env.deprecated"),
        ({"NCCL_ASYNC_ERROR_HANDLING": "1"}, None, "nccl.env.deprecated"),
        ({"NCCL_NET_GDR_LEVEL": "3"}, None, "nccl.env.gdr-level-number"),
        ({"NCCL_NET_GDR_LEVEL": "LOC"}, None, "nccl.env.gdr-off"),
        ({"NCCL_DEBUG": "INFO"}, IB, "nccl.env.debug-to-one-stream"),
        ({"NCCL_CHECKS_DISABLE": "1"}, None, "nccl.env.checks-off"),
        ({"RDMAV_FORK_SAFE": "1"}, EFA, "nccl.env.rdmav-on-efa"),
        ({"FI_EFA_USE_DEVICE_RDMA": "1"}, EFA, "nccl.env.efa-device-rdma"),
        ({"NCCL_BUFFSIZE": "8388608"}, EFA, "nccl.env.tuned-on-efa"),
        ({"NCCL_MIN_NCHANNELS": "8"}, EFA, "nccl.env.tuned-on-efa"),
        ({"NCCL_SOCKET_NTHREADS": "8"}, IB, "nccl.env.socket-threads-on-rdma"),
        ({}, ROCE, "nccl.env.traffic-class-missing"),
        ({"NCCL_SOCKET_IFNAME": "docker0"}, IB, "nccl.env.wrong-interface"),
        ({"NCCL_IB_HCA": "mlx5_1,mlx5_10"}, IB, "nccl.env.hca-prefix"),
        ({"NCCL_MAX_NCHANNELS": "2"}, IB, "nccl.env.few-channels"),
        ({"NCCL_IB_TIMEOUT": "5"}, IB, "nccl.env.ib-timeout"),
        ({"NCCL_IB_PCI_RELAXED_ORDERING": "0"}, None, "nccl.env.relaxed-ordering-off"),
        ({"NCCL_IGNORE_NET_MISMATCH": "1"}, None, "nccl.env.mismatch-ignored"),
        ({"NCCL_PXN_DISABLE": "1"}, IB, "nccl.env.pxn-off-on-rails"),
        ({"NCCL_CROSS_NIC": "1"}, IB, "nccl.env.cross-nic-on-rails"),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, None, "nccl.env.blocking-debug"),
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, None, "nccl.env.torch-debug"),
        ({"NCCL_IB_GIDINDEX": "3"}, None, "nccl.env.mistyped"),
    ],
)
def test_each_rule_finds_its_case_and_only_it(env: dict[str, str], site: JobSite | None, rule: str) -> None:
    found = lint(env, site)
    assert [finding.rule for finding in found] == [rule]
    assert found[0].fix and found[0].meaning and found[0].reference.startswith("https://")
    assert rule in rule_ids()


def test_a_variable_is_obsolete_from_the_release_on_that_took_it_away() -> None:
    old = {"NCCL_TREE_THRESHOLD": "0", "NCCL_SINGLE_RING_THRESHOLD": "1"}
    (found,) = lint(old, JobSite(nccl=(2, 4)))
    assert found.observed.startswith("NCCL_SINGLE_RING_THRESHOLD=1 is gone since NCCL 2.3")
    (found,) = lint(old, JobSite(nccl=(2, 27)))
    assert "NCCL_TREE_THRESHOLD=0 is gone since NCCL 2.5 (today NCCL_ALGO or a tuner)" in found.observed


GOOD = {
    "NCCL_IB_HCA": "=mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "=eth0", "NCCL_IB_TC": "106", "NCCL_IB_TIMEOUT": "22",
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/x.%h", "NCCL_NET_GDR_LEVEL": "PHB", "NCCL_CROSS_NIC": "0",
    "NCCL_ALGO": "allreduce:tree,nvls", "NCCL_PROTO": "^LL128", "NCCL_TESTS_DEVICE": "0", "NCCL_ROOT": "/usr",
    "NCCL_VERSION": "2.27.3", "PATH": "/bin", "NCCL_IB_DISABLE": "0",
}  # fmt: skip


@pytest.mark.parametrize("site", [None, IB, ROCE, EFA])
def test_good_settings_are_left_in_peace(site: JobSite | None) -> None:
    assert lint(GOOD, site) == []


def test_nothing_set_is_nothing_wrong() -> None:
    assert lint({}) == []


def test_an_old_release_needs_its_gid_index() -> None:
    assert lint({"NCCL_IB_GID_INDEX": "3", "NCCL_IB_TC": "106"}, ROCE, nccl=(2, 18)) == []


def test_the_cluster_sharpens_the_answer() -> None:
    assert lint({"NCCL_IB_DISABLE": "1"}, load("h100-64-rail"))[0].severity is Severity.CRITICAL
    assert lint({"NCCL_IB_DISABLE": "1"})[0].severity is Severity.WARNING
    assert lint({"NCCL_IB_DISABLE": "1"}, load("old-10gbe")) == []


def test_a_cluster_without_nccl_is_no_error() -> None:
    assert JobSite.of(load("tpu-v4-pod")) == JobSite()


def test_worst_comes_first() -> None:
    found = lint({"NCCL_CHECKS_DISABLE": "1", "NCCL_P2P_DISABLE": "1"})
    assert [finding.severity for finding in found] == [Severity.CRITICAL, Severity.WARNING]


def test_the_list_of_variables_is_whole() -> None:
    assert len(known_variables()) > 150
    assert {"NCCL_IB_HCA", "NCCL_TUNER_CONFIG_FILE", "NCCL_MNNVL_ENABLE"} <= known_variables()
