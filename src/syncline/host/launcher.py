"""The variables that torchrun sets for a rank."""

from __future__ import annotations


def torchrun_environment(
    rank: int, world: int, local: int, num_local: int, host: int, num_hosts: int, job: str = "syncline"
) -> dict[str, object]:
    """Return the variables of a rank: its place among all, among those of its host, and its host's among all hosts."""
    return {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": local,
        "LOCAL_WORLD_SIZE": num_local,
        "GROUP_RANK": host,
        "GROUP_WORLD_SIZE": num_hosts,
        "NODE_RANK": host,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "TORCHELASTIC_RUN_ID": job,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
