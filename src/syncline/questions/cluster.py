"""The cluster that a question is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from syncline.fabric import Fabric, load
from syncline.questions.parameter import Parameter

Cluster = str | Path | Mapping[str, object] | Fabric
"""A preset's name, a cluster file, a description as a mapping, or a Fabric that was built already."""

ClusterArgument = Annotated[Cluster, Parameter("A cluster file or a preset (`syncline fabric list`).", kind=str)]
"""The first argument of most questions."""

ClusterOption = Annotated[
    Cluster, Parameter("The cluster.", names=("--cluster", "-c"), metavar="FILE|PRESET", kind=str)
]
"""The cluster of questions that begin with something else."""


def built(cluster: Cluster) -> Fabric:
    """Return the Fabric of a preset, a file, a mapping, or the Fabric itself."""
    return cluster if isinstance(cluster, Fabric) else load(cluster)
