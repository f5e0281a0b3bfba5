"""An emulated copy of a fabric: network namespaces, shaped links, real TCP, and processes that run on it.

    with Lab(load("cluster.yaml")) as lab:
        result = lab.run([sys.executable, "train.py"], ranks_per_host=1)
        result.exit_code, result.ranks[0].stdout

Works as root and, where user namespaces are allowed, as anybody. Everything is gone when the block ends, however it
ends. Only the network between hosts is emulated; see `drafting.IGNORES`.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from syncline.errors import LabError
from syncline.fabric import Fabric
from syncline.fault.fault import Fault, parse_fault
from syncline.lab.blueprint import Blueprint
from syncline.lab.drafting import draft
from syncline.lab.environment import LAUNCHERS, MASTER_PORT, rank_environment, seats
from syncline.lab.inside.protocol import Message
from syncline.lab.lines import Lines, pipes
from syncline.lab.link import LabControl
from syncline.lab.paths import PathTable
from syncline.lab.process import LabJob, OnLine, Process, RankResult, RunResult
from syncline.lab.profile import DEFAULT, Profile
from syncline.lab.recording import LabRecording
from syncline.lab.refusal import refusal
from syncline.lab.trouble import FaultEvent, trouble


class Lab:
    """A running lab. Use it as a context manager; the constructor only draws it up."""

    def __init__(
        self,
        fabric: Fabric | Blueprint,
        *,
        scale: float | None = None,
        profile: Profile = DEFAULT,
        hosts: int | Sequence[str] | None = None,
        user_namespace: bool | None = None,
    ) -> None:
        if isinstance(fabric, Blueprint):
            self.blueprint = fabric
        else:
            self.blueprint = draft(fabric, scale=scale, profile=profile, hosts=hosts)
        self._own_user = os.geteuid() != 0 if user_namespace is None else user_namespace
        self._link: LabControl | None = None
        self._processes: dict[int, Process] = {}
        self._early: dict[int, Message] = {}
        self._helpers: dict[int, threading.Event] = {}
        self.events: list[FaultEvent] = []
        """What happened to faults, as it happened."""
        self._lock = threading.Lock()
        self.notes: tuple[str, ...] = ()
        """What could not be set as the profile wants it."""

    # Beginning and end

    def __enter__(self) -> Lab:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def open(self) -> Lab:
        """Build the lab; raises a LabError that says which step failed where that is not allowed."""
        if self._link is not None:
            raise LabError("this lab is already open.")
        if platform.system() != "Linux":
            raise LabError(
                f"a lab needs Linux; this is {platform.system() or 'an unknown system'}.",
                hint="Run it in a Linux virtual machine, or use `syncline simulate`.",
            )
        if find_spec("pyroute2") is None:
            raise LabError("a lab needs the package pyroute2.", hint="Install it: pip install 'syncline[lab]'.")
        self._link = LabControl(own_user=self._own_user, on_event=self._on_event)
        try:
            first = self._link.wait_ready()
            if first["event"] == "refused":
                raise refusal(first["step"], first["reason"])
            answer, _ = self._link.ask("build", blueprint=self.blueprint.to_json())
            failed: Mapping[str, str] = answer["failed_settings"]
            self.notes = tuple(f"{name}: {reason}" for name, reason in sorted(failed.items()))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End every process and remove everything; safe to call twice."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    @property
    def name(self) -> str:
        """The name under which other processes of this user find the lab."""
        return self._open_link.name

    @property
    def _open_link(self) -> LabControl:
        if self._link is None:
            raise LabError("the lab is not open.", hint="Use it as `with Lab(fabric) as lab:`.")
        return self._link

    # What it is

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names of the hosts."""
        return tuple(self.blueprint.boxes[host].name for host in self.blueprint.hosts)

    def address(self, host: str, interface: str = "eth0") -> str:
        """Return the address of a host's interface."""
        addresses = self.blueprint.addresses(self.blueprint.host(host))
        if interface not in addresses:
            raise LabError(f'{host} has no interface "{interface}".', hint=f"It has: {', '.join(addresses)}.")
        return addresses[interface]

    def paths(self) -> PathTable:
        """Return the links every flow crosses now, as the kernel itself says."""
        answer, _ = self._open_link.ask("paths")
        return PathTable.of(self.blueprint, answer["paths"])

    # Faults and counters

    def fault(self, fault: Fault | str) -> int:
        """Let a fault happen, its `at` counted from now; returns its number. What becomes of it is in `events`."""
        wanted = parse_fault(fault) if isinstance(fault, str) else fault
        answer, _ = self._open_link.ask("fault", (), **trouble(self.blueprint, wanted).to_json())
        return int(answer["fault"])

    def mend(self, fault: int) -> None:
        """End a fault before its time."""
        self._open_link.ask("mend", fault=fault)

    def reshape(self, rates_Bps: Mapping[str, float]) -> None:
        """Set emulated rates of links, by name (`leaf-00 -> spine-00`), while traffic runs; ranks stay alive."""
        by_name = {name: link for link, name in self.blueprint.link_names.items()}
        for name, rate_Bps in rates_Bps.items():
            if name not in by_name:
                raise LabError(f'the lab has no link "{name}".', hint="List them: syncline lab show.")
            if not rate_Bps > 0:
                raise LabError(f"{name} cannot have a rate of {rate_Bps!r} B/s.", hint="Use a `down` fault instead.")
        self._open_link.ask("reshape", rates={by_name[name]: rate for name, rate in rates_Bps.items()})
        cables = tuple(
            replace(
                cable,
                rate_Bps=rates_Bps.get(self.blueprint.link_names[cable.link], cable.rate_Bps),
                back_Bps=rates_Bps.get(self.blueprint.link_names[cable.link ^ 1], cable.back_Bps),
            )
            for cable in self.blueprint.cables
        )
        self.blueprint = replace(self.blueprint, cables=cables)

    def counters(self, *, interval_s: float = 0.001, queue_interval_s: float = 0.01) -> LabRecording:
        """Return a recording of every link's counters: `with lab.counters() as recording: ...`."""
        if not 1e-4 <= interval_s <= 10 or queue_interval_s < interval_s:
            raise LabError("counters are read every 0.1 ms to 10 s, and queues not more often.")
        return LabRecording(self._open_link, self.blueprint, interval_s, queue_interval_s, self.helper)

    def helper(self, do: str, **request: Any) -> tuple[int, threading.Event]:
        """Start one of the lab's own helpers; returns its number and an event that is set when it has ended."""
        answer, _ = self._open_link.ask(do, **request)
        with self._lock:
            ended = self._helpers.setdefault(answer["recording"], threading.Event())
            if not self._open_link.alive:
                ended.set()
        return int(answer["recording"]), ended

    # Processes

    def spawn(
        self,
        host: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        on_line: OnLine | None = None,
        keep: bool = True,
        rank: int | None = None,
        core: int | None = None,
        sysfs: bool = False,
    ) -> Process:
        """Start a command on a host.

        `env` is laid over this process's own. Lines of output go to `on_line` and, with `keep`, into the Process.
        `sysfs` mounts a /sys that shows the host's own interfaces (and hides cgroups).
        """
        if isinstance(command, str) or not command:
            raise LabError("a command is a list of words.", hint='Write ["python", "train.py"].')
        process = Process(host, rank, self._signal)
        with open(os.devnull, "rb") as nothing:
            readers, writers = pipes()
            try:
                answer, _ = self._open_link.ask(
                    "spawn",
                    files=(nothing.fileno(), *writers),
                    host=self.blueprint.host(host),
                    argv=[os.fspath(word) for word in command],
                    env={**os.environ, **(env or {})},
                    cwd=os.fspath(cwd or os.getcwd()),
                    label="" if rank is None else f"rank {rank}",
                    core=core,
                    sysfs=sysfs,
                )
            except BaseException:
                for reader in readers:
                    os.close(reader)
                raise
            finally:
                for writer in writers:
                    os.close(writer)
        process.number, process.pid, process.pipes = answer["process"], answer["pid"], readers
        for stream, reader in zip(("stdout", "stderr"), readers, strict=True):
            self._open_link.watch(reader, Lines(process, stream, on_line, keep).take)
        with self._lock:
            self._processes[process.number] = process
            early = self._early.pop(process.number, None)
        if early is not None:
            self._open_link.later(lambda: self._ended(process, early))
        return process

    def start(
        self,
        command: Sequence[str],
        *,
        ranks_per_host: int | None = None,
        num_ranks: int | None = None,
        env: Mapping[str, str] | Callable[[int], Mapping[str, str]] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        on_line: OnLine | None = None,
        keep: bool = True,
        interface: str = "eth0",
        rail_per_rank: bool = False,
        launchers: Sequence[str] = LAUNCHERS,
        port: int = MASTER_PORT,
        pin: bool = False,
        sysfs: bool = False,
        faults: Sequence[Fault | str] = (),
    ) -> LabJob:
        """Start a command once per rank, with the environment that distributed programs expect, and return at once.

        `rail_per_rank` gives the k-th rank of a host the interface eth(k mod rails) instead of `interface`; `pin` ties
        rank i to core i mod cores. `faults` happen at their times after the start.
        """
        ordered = [trouble(self.blueprint, parse_fault(fault) if isinstance(fault, str) else fault) for fault in faults]
        places = seats(self.blueprint, ranks_per_host, num_ranks)
        cores = sorted(os.sched_getaffinity(0))
        processes: list[Process] = []
        started_s = time.monotonic()
        try:
            for seat in places:
                rails = list(self.blueprint.addresses(seat.host))
                own = rails[seat.local % len(rails)] if rail_per_rank else interface
                values = rank_environment(self.blueprint, seat, interface=own, launchers=launchers, port=port)
                values.setdefault("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
                extra = env(seat.rank) if callable(env) else (env or {})
                processes.append(
                    self.spawn(
                        self.blueprint.boxes[seat.host].name,
                        command,
                        env={**values, **extra},
                        cwd=cwd,
                        on_line=on_line,
                        keep=keep,
                        rank=seat.rank,
                        core=cores[seat.rank % len(cores)] if pin else None,
                        sysfs=sysfs,
                    )
                )
        except BaseException:
            LabJob(processes, started_s).end(0.0)
            raise
        for each in ordered:
            self._open_link.ask("fault", (), **each.to_json())
        return LabJob(processes, started_s)

    def run(self, command: Sequence[str], *, timeout_s: float | None = None, **options: Any) -> RunResult:
        """Start a command once per rank (options of `start`) and wait; the first rank that fails ends the rest."""
        job = self.start(command, **options)
        try:
            return job.wait(timeout_s)
        except KeyboardInterrupt:
            job.end()
            raise

    def execute(
        self, host: str, command: Sequence[str], *, timeout_s: float | None = 60.0, **options: Any
    ) -> RankResult:
        """Run one command on one host and wait for it (options of `spawn`)."""
        process = self.spawn(host, command, **options)
        try:
            code = process.wait(timeout_s)
        except (TimeoutError, KeyboardInterrupt):
            process.kill()
            raise
        return RankResult(host, None, code, process.stdout, process.stderr)

    def _signal(self, process: Process, number: int) -> None:
        self._open_link.ask("signal", process=process.number, number=int(number))

    def _on_event(self, event: Message) -> None:
        if event["event"] == "lost":
            for ended in list(self._helpers.values()):
                ended.set()
            for process in list(self._processes.values()):
                with process.changed:
                    process.lost = "the lab ended while this ran."
                    process.changed.notify_all()
        elif event["event"] == "fault":
            self.events.append(
                FaultEvent(event["fault"], event["text"], event["what"], event["at_s"], event.get("error", ""))
            )
        elif event["event"] == "recorded":
            with self._lock:
                self._helpers.setdefault(event["recording"], threading.Event()).set()
        elif event["event"] == "exit":
            with self._lock:
                process_or_none = self._processes.get(event["process"])
                if process_or_none is None:
                    self._early[event["process"]] = event
            if process_or_none is not None:
                self._ended(process_or_none, event)

    def _ended(self, process: Process, event: Mapping[str, Any]) -> None:
        """Note an exit, after all that the process wrote: a child that outlives it may hold its pipes open for ever."""
        if self._link is not None:
            self._link.drain(process.pipes)
        with process.changed:
            process.exit_code, process.ended_s = event["code"], event["at_s"]
            process.changed.notify_all()
