"""The exception tree.

Every error a user can cause derives from `SynclineError` and names the thing, the rule and the next step. The command
line prints it as text and exits with 2; library users catch the class.

    raise FabricError(
        'leaf switch "leaf-07" has 33 ports in use but "QM9700" has 32.',
        where="cluster.yaml line 41",
        detail="Links over the limit: leaf-07 -> spine-03.",
        hint="Drop a link, or pick a larger switch.",
    )
"""

from __future__ import annotations


class SynclineError(Exception):
    """Something the user can put right: what is wrong, where, the rule it breaks, and the next step."""

    def __init__(self, message: str, *, where: str = "", detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        first = f"{self.where}: {self.message}" if self.where else self.message
        return "\n  ".join(part for part in (first, self.detail, self.hint) if part)

    def to_json(self) -> dict[str, str]:
        """Return the error as the object that `--json` prints."""
        return {
            "error": type(self).__name__,
            "message": self.message,
            "where": self.where,
            "detail": self.detail,
            "hint": self.hint,
        }


class UsageError(SynclineError):
    """A command was called with words that do not go together."""


class UnitError(SynclineError):
    """A quantity such as "400Gbps" could not be read."""


class FileError(SynclineError):
    """A file cannot be read or written: missing, a directory, too large, not text."""


class DescriptionError(SynclineError):
    """A description (cluster, job) breaks a rule of its format."""


class CatalogError(SynclineError):
    """A part is not in the catalogue."""


class FabricError(SynclineError):
    """The described hardware cannot be built: ports overflow, a host is cut off, a size is out of range."""


class RouteError(SynclineError):
    """No route joins two devices, or the routing asked for does not fit the fabric."""


class ScheduleError(SynclineError):
    """A schedule cannot be made or read."""


class NotProvedError(ScheduleError):
    """A schedule does not do what its collective says; the text names rank, chunk and rounds."""


class ProgramError(SynclineError):
    """A schedule cannot be bound to this placement, or a program is inconsistent."""


class CodecError(SynclineError):
    """A codec is not known, cannot be made so, or was given a payload or an array that does not fit."""


class SimulationError(SynclineError):
    """A model was asked for something it cannot answer."""


class BelowBoundError(SimulationError):
    """An estimate that no execution could reach: a defect of the program, not an answer."""


class TimelineError(SynclineError):
    """A timeline cannot be read, written or compared."""


class CostError(SynclineError):
    """A price, a budget or an assumption about money cannot be, or is not known."""


class PlanError(SynclineError):
    """No plan answers the question: nothing fits, a fixed choice is impossible, or there is nothing to choose."""


class PictureError(SynclineError):
    """A picture cannot be made here: a piece that draws it is missing."""


class ExecutionError(SynclineError):
    """A program could not be carried out here: buffers that do not fit it, a rank that failed or did not answer."""


class DeadlineError(ExecutionError):
    """A rank did not answer in time; the text names who waited, for whom, and who was silent."""


class BenchError(SynclineError):
    """A measurement cannot be taken, read or held against a prediction."""


class LabError(SynclineError):
    """An emulated fabric cannot be built here, or what was asked of it cannot be."""


class FaultError(SynclineError):
    """A fault cannot be read, or names something that is not there."""


class WatchError(SynclineError):
    """Nothing can be watched this way: a source, an address, a history or a rule that cannot be."""


class SynchronizationError(SynclineError):
    """Gradients could not be averaged; the text names rank, parameter and step, and it is raised on every rank."""


class AgreementError(SynchronizationError):
    """Ranks do not mean the same thing: another codec, version, set of parameters, or a message out of its place."""


class LostRankError(SynchronizationError):
    """A rank is dead, hung or cut off, or gave up; the text names it and its host, on every rank that is left.

    `rank` and `host` are those of the lost rank, None and "" where no single one is known; `step` and `phase` say where
    the rank that raises this was: "start", "forward", "backward", "optimizer", "checkpoint" or "close".
    """

    rank: int | None = None
    host: str = ""
    step: int = -1
    phase: str = ""


class CrewFinishedError(SynchronizationError):
    """A rank came back to a crew whose other ranks have all come to their end: nothing is left for it to do."""


class NonFiniteError(SynchronizationError):
    """A gradient holds NaN or an infinity; the text names the rank, the parameter and the step."""


class ReplicaError(SynchronizationError):
    """Replicas that must be equal are not; the text names the first parameter that differs, and on which ranks."""


class CheckpointError(SynclineError):
    """A checkpoint cannot be written or taken over."""


class RuleError(SynclineError):
    """A rule of diagnosis breaks the format: a key, a pattern that could run away, a name that is no rule."""
