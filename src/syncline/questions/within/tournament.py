"""Which host, link, leaf or spine is slow, by flows between every pair of hosts?"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from syncline.bench.local import run_here
from syncline.bench.ranks.launched import launched
from syncline.bench.ranks.paths import crossings_of, flow_bytes, lanes, names_of
from syncline.describe import units
from syncline.describe.plain import JsonObject
from syncline.finding import Finding, worst
from syncline.questions.answer import Answer, Parameter, SaidElsewhere, question
from syncline.runtime.launch import detect

if TYPE_CHECKING:
    from syncline.bench.tournament import Result

NOT_PLAYED = "no flow was played: mend this first (--anyway plays all the same)"

DescribedOption = Annotated[
    str | None,
    Parameter(
        "The cluster; without one nothing is predicted.", names=("--cluster", "-c"), metavar="FILE|PRESET", kind=str
    ),
]
BackendOption = Annotated[
    str | None, Parameter("gloo, nccl or mpi (default: nccl where there are GPUs, else gloo).", rare=True)
]
LocalOption = Annotated[int | None, Parameter("Start N ranks on this machine, for a quick try.", metavar="N")]
SeatOption = Annotated[str | None, Parameter("packed, spread or rail-aware.", rare=True)]
CheckOption = Annotated[bool, Parameter("Exit like a Nagios check: 0 ok, 1 warning, 2 critical.", names=("--check",))]


@dataclass(frozen=True, eq=False)
class TournamentAnswer(Answer):
    """Every flow that was played with its rate, and what explains the slow ones; no result where packets are lost."""

    schema_name: ClassVar[str] = "bench-tournament"

    cluster: str | None
    hosts: list[str]
    findings: tuple[Finding, ...]
    result: Result | None = None
    live_hosts: tuple[str, ...] = ()
    flow_bytes: int = 0
    check: bool = False

    @property
    def exit_status(self) -> int:
        return int(worst(list(self.findings))) if self.check else 0

    def to_json(self) -> JsonObject:
        played: JsonObject = {"matches": [], "not_played": NOT_PLAYED}
        if self.result is not None:
            played = {"live_hosts": list(self.live_hosts), "flow_bytes": self.flow_bytes}
            played |= self.result.to_json(self.hosts)
        found = [finding.to_json() for finding in self.findings]
        return {"cluster": self.cluster, "hosts": self.hosts, **played, "findings": found}


def started_here(local: int | None, warn: Callable[[str], None]) -> SaidElsewhere | None:
    """Start this command once a rank on this machine, unless this process is one of them; rank 0 answers."""
    if local is None or detect(os.environ) is not None:
        return None
    status, complaint = run_here(sys.argv[1:], local)
    if complaint:
        warn(complaint)
    return SaidElsewhere(status)


@question(
    "syncline bench tournament --local 4",
    "srun -N 16 --ntasks-per-node 1 syncline bench tournament --cluster cluster.yaml",
    "mpirun -n 8 syncline bench tournament --cluster cluster.yaml --paths paths.json --json",
    line="Test pairs of hosts; name the slow host, link, leaf or spine.",
)
def tournament(
    *,
    cluster: DescribedOption = None,
    size: Annotated[str | None, Parameter("Bytes of one flow (default: 0.2 s worth).")] = None,
    repeats: Annotated[int, Parameter("Repetitions of a flow; the best counts.", names=("--repeats", "-n"), min=1)] = 3,
    max_rounds: Annotated[int, Parameter("At most this many rounds (default: every pair both ways).", min=0)] = 0,
    paths: Annotated[
        Path | None, Parameter('Known paths: JSON rows of {"from", "to", "links"}, as a lab prints.')
    ] = None,
    anyway: Annotated[bool, Parameter("Skip the check that full-size packets arrive.", names=("--anyway",))] = False,
    backend: BackendOption = None,
    local: LocalOption = None,
    placement: SeatOption = None,
    check: CheckOption = False,
    tell: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
) -> TournamentAnswer | SaidElsewhere:
    """Test every pair of hosts, and pin slow results on a host's TX or RX, a link, a leaf or a spine."""
    if (elsewhere := started_here(local, warn)) is not None:
        return elsewhere
    from syncline.bench.ranks.probe import packet_findings, work_findings
    from syncline.bench.tournament import run
    from syncline.bench.tournament_finding import findings
    from syncline.runtime.execute.pairs import PairTest
    from syncline.runtime.group import Group, meet

    launch = launched()
    crossings, placed = crossings_of(cluster, placement, paths, launch.num_ranks)
    names, first, store = names_of(placed), launch.rank == 0, meet(launch)
    found = [] if anyway else packet_findings(store, launch.rank, names, crossings.leaf)
    if found is None:
        return SaidElsewhere(0)
    if found:
        return TournamentAnswer(cluster, names, tuple(found), check=check)
    with Group.join(launch, backend=backend or Group.usual_backend(), store=store) as group:
        slow = work_findings(group, names)
        each = units.size(size) if size else flow_bytes(crossings, placed)
        test = PairTest(group, each, repeats=repeats)
        hear = tell if first else lambda text: None
        result = run(crossings, test.play, lanes=lanes(placed), max_rounds=max_rounds, tell=hear)
        result = result.judged(crossings, test.resent, test.seconds)
        live = group.texts(os.uname().nodename)
    if not first:
        return SaidElsewhere(0)
    result = result.relative() if cluster is None else result
    named = (*findings(result, names), *slow)
    return TournamentAnswer(cluster, names, named, result, tuple(live), each, check)
