from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from tests.auditing.samples import HOSTS

from syncline.advice import bundle, check_effect
from syncline.advice.host_names import read_names
from syncline.advice.setting import recommend
from syncline.advice.tuning import KeptChoice, TunerRow, judge, tuner_csv
from syncline.auditing.environment import lint
from syncline.errors import UsageError
from syncline.fabric import load
from syncline.fabric.formats import check_nccl_topology
from syncline.host.root import Root
from syncline.sim.nccl.belief import CHOSEN_OPS
from syncline.workload.read_job import load_job

IB, ROCE, EFA = "h100-64-rail", "llama3-24k-roce", "p5-ultracluster"


@pytest.mark.parametrize("name", [IB, ROCE, EFA, "nd-h100-v5", "gb200-nvl72-pod", "old-10gbe", "a3-mega"])
def test_what_is_advised_passes_our_own_lint(name: str) -> None:
    fabric = load(name)
    settings = recommend(fabric)
    env = {s.name: s.value for s in settings if s.is_set}
    vendor = {"nccl.env.protocol-forced"} if name == "a3-mega" else set()
    assert {finding.rule for finding in lint(env, fabric)} <= vendor
    assert all(s.reason.endswith(".") and s.changes and s.source.startswith("https://") for s in settings)


def test_roce_gets_a_class_and_infiniband_none() -> None:
    names = {name: {s.name for s in recommend(load(name))} for name in (IB, ROCE)}
    assert "NCCL_IB_TC" in names[ROCE] and "NCCL_IB_TC" not in names[IB]
    assert "NCCL_IB_GID_INDEX" not in names[ROCE]
    assert "NCCL_IB_GID_INDEX" in {s.name for s in recommend(load(ROCE), nccl="2.18")}


def test_large_jobs_wait_longer() -> None:
    assert "NCCL_IB_TIMEOUT" in {s.name for s in recommend(load(ROCE))}
    assert "NCCL_IB_TIMEOUT" not in {s.name for s in recommend(load(ROCE), ranks=64)}


def test_the_tuner_file_is_what_the_example_plugin_reads() -> None:
    rows = judge(load(IB), ops=("all_reduce",)).rows
    assert rows
    for row in rows:
        op, low, high, algorithm, protocol, channels, hosts, ranks = row.line.split(",")
        assert op == "allreduce" and int(low) < int(high)
        assert algorithm in ("tree", "ring", "nvls", "nvls_tree", "collnet_direct", "collnet_chain", "pat")
        assert protocol in ("ll", "ll128", "simple") and channels == "-1"
        assert (int(hosts), int(ranks)) == (64, 512)
        assert row.gain >= 0.3 and row.instead_of in row.reason


@pytest.mark.parametrize("cluster", [IB, "dgx-h100-superpod-1su"])
def test_every_pair_of_every_collective_is_judged_and_every_range_has_a_reason(cluster: str) -> None:
    fabric = load(cluster)
    tuning = judge(fabric, ranks=64)
    judged: list[TunerRow | KeptChoice] = [*tuning.rows, *tuning.kept]
    assert {row.op for row in judged} == set(CHOSEN_OPS)
    for op in CHOSEN_OPS:
        spans = sorted((row.min_bytes, row.max_bytes) for row in judged if row.op == op)
        assert spans[0][0] == 1 << 10
        assert all(before[1] + 1 == after[0] for before, after in pairwise(spans))
    assert max(row.num_pairs for row in tuning.kept if row.op == "all_reduce") >= 6
    text = tuner_csv(tuning, fabric).splitlines()
    assert sum(not line.startswith("#") for line in text) == len(tuning.rows)
    assert all(" pairs" in row.reason for row in judged)


def test_no_tuner_file_where_the_vendors_tuner_chooses_or_the_model_is_unproven() -> None:
    assert judge(load(EFA), ranks=64).rows == ()
    assert "tuner" in bundle(load(EFA), ranks=64).skipped["nccl-tuner.csv"]
    assert "proven up to 64 hosts" in bundle(load(ROCE), ranks=2048).skipped["nccl-tuner.csv"]


def test_the_bundle_is_whole_and_readable(tmp_path: Path) -> None:
    made = bundle(load(IB), ranks=64)
    assert made.num_hosts == 8
    paths = made.write(tmp_path / "new" / "folder")
    assert {path.name for path in paths} >= {
        "nccl.env", "job.sbatch", "mpijob.yaml", "pytorchjob.yaml", "kueue-topology.yaml", "topology.conf",
        "topology-labels.yaml",
    }  # fmt: skip
    assert "a host's own" in made.skipped["nccl-topology.xml"]
    mpi = yaml.safe_load(made.files["mpijob.yaml"])
    assert mpi["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 8
    assert "&id" not in made.files["pytorchjob.yaml"]
    levels = [row["nodeLabel"] for row in yaml.safe_load(made.files["kueue-topology.yaml"])["spec"]["levels"]]
    labels = yaml.safe_load(made.files["topology-labels.yaml"])["items"][0]["metadata"]["labels"]
    assert set(levels[:-1]) <= set(labels)
    assert "--nodes=8" in made.files["job.sbatch"]
    assert made.files["nccl.env"].count("export ") == len(made.settings)


@pytest.mark.parametrize(
    ("cluster", "host", "nics"),
    [
        (IB, "dgx-h100", "=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"),
        ("nd-h100-v5", "cloud-vm", "=mlx5_ib0,mlx5_ib1,mlx5_ib2,mlx5_ib3,mlx5_ib4,mlx5_ib5,mlx5_ib6,mlx5_ib7"),
    ],
)
def test_names_are_those_of_the_host_that_was_read(cluster: str, host: str, nics: str) -> None:
    draft = HOSTS[host]()
    names = read_names(Root.of(draft.tree(), draft.host))
    made = bundle(load(cluster), ranks=64, host=names)
    found = {setting.name: setting for setting in made.settings}
    assert found["NCCL_IB_HCA"].value == nics
    assert found["NCCL_IB_HCA"].is_set
    assert f"export NCCL_IB_HCA='{nics}'" in made.files["nccl.env"].splitlines()
    assert check_nccl_topology(made.files["nccl-topology.xml"], "x") is not None
    assert not [device for device in names.nics if device not in made.files["nccl-topology.xml"]]


@pytest.mark.parametrize(
    "cluster", ["nd-h100-v5", "dgx-h100-superpod-1su", "p5-ultracluster", "a3-mega", "eos", "llama3-24k-roce"]
)
def test_without_a_host_nothing_is_named(cluster: str) -> None:
    made = bundle(load(cluster), ranks=64)
    lines = [line.strip() for name, text in made.files.items() if "topology" not in name for line in text.splitlines()]
    named = re.compile(r"mlx5_|\b(?:eth|ib|ibp|rdma|enp|ens|bond)\d|/opt/|/etc/nccl")
    assert [line for line in lines if not line.startswith("#") and named.search(line)] == []
    assert "FILL IN" in made.files["nccl.env"] or cluster == "p5-ultracluster"


def test_a_job_sets_ranks_and_collectives() -> None:
    job = load_job({"model": "llama3-8b", "parallel": {"tp": 8, "dp": 8}, "batch": {"global": 64, "micro": 1}})
    made = bundle(load(IB), job)
    assert made.num_hosts == 8
    assert "all_reduce" in made.collectives or "reduce_scatter" in made.collectives


def test_what_does_not_run_nccl_is_refused() -> None:
    with pytest.raises(UsageError, match="do not run NCCL"):
        bundle(load("tpu-v4-pod"))


GOOD = "".join(
    f"n{h}:1:2 [{g}] NCCL INFO {text}\n"
    for h in range(2)
    for g in range(8)
    for text in (
        f"comm 0x55 rank {h * 8 + g} nranks 16 cudaDev {g} nvmlDev {g} busId 1c000 - Init START",
        "NET/IB : Using " + " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(8)) + " [RO]; OOB eth0:10.0.0.1<0>",
        "Using network IB",
        f"Channel 0{g}/0 : {h * 8 + g}[{g}] -> {(1 - h) * 8 + g}[{g}] [send] via NET/IB/{g}/GDRDMA",
        "NVLS comm 0x55d headRank 1 nHeads 8 buffSize 4194304 memSize 2097152",
        "16 coll channels, 0 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer",
        "NCCL version 2.27.3+cuda12.9",
        "NCCL_IB_TIMEOUT set by environment to 22.",
        "TUNER/Plugin: Using libnccl-tuner-example.so",
    )
)


def states(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> dict[str, str]:
    (tmp_path / "nccl.log").write_text(text)
    effects, unread = check_effect([tmp_path], load(IB), env)
    assert unread == []
    return {effect.what: effect.state for effect in effects}


def test_a_healthy_log_says_yes_to_all(tmp_path: Path) -> None:
    found = states(tmp_path, GOOD, {"NCCL_IB_TIMEOUT": "22", "NCCL_TUNER_PLUGIN": "x.so", "NCCL_DEBUG": "INFO"})
    assert set(found.values()) == {"yes"}
    assert len(found) == 10


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("Using network IB", "Using network Socket", "network in use"),
        ("[7]mlx5_7:1/IB ", "", "NICs found"),
        ("[7]mlx5_7:1/IB ", "[7]mlx5_7:1/RoCE ", "NICs found"),
        ("/7/GDRDMA", "/7", "GPUDirect RDMA on every channel"),
        ("via NET/IB/7/", "via NET/IB/0/", "NICs in use"),
        ("-> 9[1]", "-> 10[2]", "rings on their rail"),
        ("NVLS comm 0x55d headRank", "NVLS multicast support is available on dev", "NVLink SHARP (NVLS)"),
        ("16 coll channels", "2 coll channels", "channels"),
        ("n1:1:2 [0] NCCL INFO NCCL version 2.27.3", "n1:1:2 [0] NCCL INFO NCCL version 2.21.5", "one NCCL release"),
        ("to 22.", "to 20.", "NCCL_IB_TIMEOUT"),
        ("TUNER/Plugin: Using", "TUNER/Plugin: Could not find", "tuner plugin"),
    ],
)
def test_available_is_not_used(tmp_path: Path, old: str, new: str, what: str) -> None:
    assert old in GOOD
    found = states(tmp_path, GOOD.replace(old, new), {"NCCL_IB_TIMEOUT": "22", "NCCL_TUNER_PLUGIN": "x.so"})
    assert {name for name, state in found.items() if state == "no"} == {what}


def test_a_log_that_shows_nothing_is_unknown_not_no(tmp_path: Path) -> None:
    assert set(states(tmp_path, "nothing here\n", {"NCCL_IB_HCA": "=mlx5_0"}).values()) == {"unknown"}
