"""The JobSet against its published shape (kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go)."""

from __future__ import annotations

import re

import pytest
import yaml

from syncline.errors import DescriptionError
from syncline.placing.files import RankMap, RankSeat, jobset, read_rank_map

SPEC = {
    "replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy", "suspend", "coordinator",
    "managedBy", "ttlSecondsAfterFinished", "volumeClaimPolicies",
}  # fmt: skip
REPLICATED = {"name", "groupName", "template", "replicas", "dependsOn"}
JOB = {"parallelism", "completions", "completionMode", "backoffLimit", "template"}
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize("name", ["llama3-70b", "70B run_7", "", "x" * 80, "größe"])
def test_a_jobset_has_the_fields_of_its_type_and_names_that_kubernetes_takes(name: str) -> None:
    ranks = RankMap(name, tuple(RankSeat(2 * h + g, f"gpu-{h}", g) for h in range(3) for g in range(2)))
    config, jobs = yaml.safe_load_all(jobset(ranks))
    assert (jobs["apiVersion"], jobs["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert set(jobs["spec"]) <= SPEC
    (workers,) = jobs["spec"]["replicatedJobs"]
    assert set(workers) <= REPLICATED and workers["replicas"] == 1
    job = workers["template"]["spec"]
    assert set(job) <= JOB and job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"] == 3
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    # A pod is called JOBSET-WORKERS-0-INDEX and five more letters, and that must be a DNS label.
    called = f"{jobs['metadata']['name']}-{workers['name']}-0-2-abcde"
    assert LABEL.fullmatch(called) and len(called) <= 63
    (volume,) = pod["volumes"]
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    apart = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    assert apart["labelSelector"]["matchLabels"]["jobset.sigs.k8s.io/jobset-name"] == jobs["metadata"]["name"]


@pytest.mark.parametrize("data", [{}, [], {"ranks": []}, {"ranks": [{"rank": 0}]}, {"ranks": {"rank": 0}}])
def test_what_is_no_placement_is_refused(data: object) -> None:
    with pytest.raises(DescriptionError, match="it has no list of ranks"):
        read_rank_map(data, "placement.json")


@pytest.mark.parametrize(
    ("hosts", "blocks"), [("aabb", True), ("bbaa", True), ("abab", False), ("abba", False), ("aab", False), ("a", True)]
)
def test_torchrun_numbers_ranks_host_by_host(hosts: str, blocks: bool) -> None:
    """Only an order in which every host has consecutive ranks, as many as any other, can be started with torchrun."""
    seats = tuple(RankSeat(rank, host, hosts[:rank].count(host)) for rank, host in enumerate(hosts))
    assert RankMap("job", seats).blocks is blocks
