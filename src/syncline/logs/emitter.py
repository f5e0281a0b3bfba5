"""Who wrote a line, how grave it is by its own word, and whether a rule is at home there.

A daemon, a runtime or a mount helper often ends its line in words of the operating system ("No space left on device",
"cannot open shared object file"). Whatever those words mean elsewhere, here they are a failure of its own, which only
a rule that knows it can name. Any other rule that takes such a line has met a word, not a cause.

Much that says "failed" is none of a job's business: parts of the kernel that no training uses, desktops and daemons
beside it, and lines that call themselves information. Those speak only through rules that know them.
"""

from __future__ import annotations

import re

# By who writes: how its lines look, and the rules (by the beginning of their names) that know it.
_JOBS = ("job.", "k8s.", "slurm.", "torch.process.", "log.")
_OWNERS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (
        re.compile(
            r"nvidia-container-(?:cli|runtime)|\blibcontainer\b|\bnvc\.c:|could not start driver service"
            r"|\bpyxis: |\bspank\S{0,10}: error|/libexec/(?:singularity|apptainer)/|\bdocker: Error response"
        ),
        (
            *_JOBS,
            "host.container",
            "host.driver",
            "host.permission",
            "gpu.mig",
            "storage.full",
            "fallback.container",
            "cuda.driver-old",
            "launch.",
        ),
    ),
    (
        re.compile(
            r"\b(?:slurmd|slurmctld|slurmstepd|slurmdbd)(?:\[\d+\])?: (?:\w+: )?(?:error|fatal): (?!\*\*\*|pyxis)"
        ),
        (*_JOBS, "kernel.oom", "host.memory", "net.name", "cxi.", "fallback.scheduler", "host.clock", "nccl.", "mpi."),
    ),
    (
        re.compile(r"\b(?:rpd|bgpd|zebra|ospf6?d|isisd|exabgp|gobgpd|bird6?|mgd|lacpd|chassisd)(?:\[\d+\])?: "),
        ("switch.", "kernel.", "host.", "net.", "log."),
    ),
    (
        re.compile(r"\bmount\.(?:lustre|nfs|ceph|beegfs|gpfs)\b|\bLustreError: |\bLNet(?:Error)?: "),
        ("storage.", "kernel.", "fallback.", "k8s.", "log."),
    ),
    (
        re.compile(r"(?:\(raylet|\(gcs_server|\[core\] |\bcore_worker\.cc:|\bgcs_\w+\.cc:|\braylet/\w+\.cc:)"),
        ("ray.", "torch.", "host.", "net.", "storage.", "fallback.", "serve.", "cuda.", "job.", "log.", "kernel."),
    ),
    (
        re.compile(
            r"^(?:\S.{12,56} |(?:\S+ )?)(?:EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO|DEBUG)"
            r" [\w.-]+#/?[\w.-]+(?:\[\d+\])?:? "
        ),
        ("switch.", "kernel.", "ib.", "host.", "log."),
    ),
)

# Words of the operating system that mean storage where a line speaks of files, and anything elsewhere (a queue that is
# full, a control group, a connection).
_STORAGE_WORDS = re.compile(r"No space left on device|Input/output error")
_STORAGE = ("storage.full", "storage.file-system")
_SOURCE = re.compile(r"\S+\.(?:c|cc|cpp|cu|cuh|h|hpp|go|rs|pyx)(?::\d+|\(\d+\))")
_NETWORK = re.compile(
    r"\bUC[XPT]\b|\buc[pt]_|\bpml_|\bbtl_|\bmtl_|libfabric|\bOFI\b|\bfi_\w+|\bibv_|\brdma_|\bPMIX\b|\bMPI_|NVSHMEM|\bmlx\d_"
    r"|\bQP\b|\bepoll|[Ss]ocket|[Cc]onnect"
)
_FILES = re.compile(
    r"/[\w.@+-]+|\b[Ff]iles?\b|\b[Ww]rit|\b[Rr]ead(?:ing)?\b|\b[Dd]is[ck]|\b[Ss]av(?:e|ing)|[Cc]heckpoint|OSError|IOError|\[Errno"
    r"|[Ff]older|[Dd]irector|\btmp|\b[Cc]ache|\b[Cc]op(?:y|ied)|\b[Dd]ump|\b[Mm]ount|nvme|\bsd[a-z]\b|EXT\d|XFS|[Dd]ownload"
    r"|[Ee]xtract|\btar\b|\bcp:|\brsync|[Ll]ayer|[Ii]mage|[Uu]npack|\bpip\b|[Dd]ataset|\bdd:|memmap|h5py|HDF5|sqlite|database|\blog\b"
)
# A failed check of PyTorch is its bug, but not where ranks talk: there it is mostly another rank or host.
_TALKS = re.compile(r"c10d|[Tt]ensor[Pp]ipe|gloo|TCPStore|ProcessGroup|NCCLUtils|torch/csrc/distributed")
_CHECKS = ("torch.internal", "fallback.check")


def at_home(rule: str, line: str) -> bool:
    """Say whether a rule knows whoever wrote a line; true where nobody in particular did."""
    head = line[:300]
    if rule in _STORAGE and _STORAGE_WORDS.search(line):
        bare = _SOURCE.sub("", line)
        if _NETWORK.search(bare) or not _FILES.search(bare):
            return False
    if rule in _CHECKS and _TALKS.search(line):
        return False
    return all(rule.startswith(known) or not looks.search(head) for looks, known in _OWNERS)


# What a line calls itself, in front: loggers of Python and Go, glog, Slurm, TensorFlow, Ray.
_CALM = re.compile(
    r"(?:^|[\s\[|(])(?:INFO|DEBUG|TRACE|VERBOSE)(?! \S*#/?supervisord)(?:[\s\]:|)]|$)|\blevel=(?:info|debug|trace)\b"
    r"|\"level\": ?\"(?:info|debug)|\b(?:debug\d?|verbose): |(?:^|[\s\]])[ID]\d{4} \d\d:\d\d:\d\d"
    r"|: I (?:tensorflow|external|xla)/|,\d{3} I \d+ \d+\]"
)
# Loggers often pass the words of others on as information: an exception stays one.
_GRAVE = re.compile(
    r"Traceback \(|\b[A-Za-z_][\w.]*(?:Error|Exception)\b|\berrors?_impl\b|terminate called|core dumped|[Ff]atal|FATAL"
    r"|Segmentation|\b[Pp]anic|exit(?:ed with)? (?:code|status)"
)


def is_grave(line: str) -> bool:
    """Say whether an exception or a process's end stands on a line."""
    return _GRAVE.search(line) is not None


_KERNEL = re.compile(r"(?:^|\bkernel: ?|^<\d+>)\[ *\d{1,8}\.\d{3,6}\] ")
# The parts of a kernel on which training stands. All others (USB, sound, desktops, firmware tables) are background.
_CONCERNS = re.compile(
    r"GPU HANG|\brtl\d|mlxsw|prestera|\bmt\d{4}|"
    r"csum|\bBAR \d|usercopy|SLUB|\bqed\w*|\br\d{4}|\be\d{4}e|\btg\d|\big[bc]\b|be\dnet|cxgb|\bhns|hinic|ionic|\bsfc\b"
    r"|atlantic|\bEDAC|mlx|nvidia|NVRM"
    r"|nvlink|nvswitch|amdgpu|kfd|habana|i\d{3}\b|\bxe \d|irdma|bnxt|\bib_|infiniband|rdma|RDMA|\befa\b"
    r"|\bena\b|\bgve\b|ixgbe|i\d\de|\bice \d|\bbond|\beth\d|\ben[ospx]\w+|nvme|\bsd [0-9]|\bata\d|EXT\d|XFS|BTRFS"
    r"|[Nn][Ff][Ss]|Lustre|LNet|ceph|beegfs|pcieport|\bAER\b|\bmce\b|[Hh]ardware [Ee]rror|[Oo]ut of memory|\boom|hung"
    r"|blocked for|lockup|stall|WARNING: |\bBUG\b|Oops|panic|Call Trace|segfault"
    r"|general protection|traps: |iommu|DMAR|AMD-Vi"
    r"|conntrack|cgroup|gdrdrv|knem|xpmem|hfi\d|cxi|neuron|gasket|virtio|vmxnet|netvsc|\bmana\b|mpt\dsas|megaraid|raid"
    r"|thermal|throttl|I/O error"
)
# A guide, not a log: words of an error between marks, in a sentence about it.
_PROSE = re.compile(
    r":code:`|\b(?:errors? (?:like|such as)|for example,|[Tt]his (?:kind of )?error (?:is|means|usually)) .{0,80}[`\"']"
    r"|[`\"'][^`\"']{4,80}[`\"'].{0,40}\b(?:usually|often) (?:means|is caused)"
)
_DAEMONS = re.compile(
    r"\b(?:snapd|gnome-shell|gdm\S*|sshd|CRON|cron|dbus-daemon|systemd-(?:udevd|resolved|networkd|logind|modules-load)"
    r"|polkitd|colord|pulseaudio|pipewire|ModemManager|bluetoothd|smartd|packagekitd|fwupd\S*|cupsd|avahi-daemon"
    r"|accounts-daemon|tracker-\S+|xdg-\S+|rtkit-daemon|thermald|irqbalance|multipathd|apport|whoopsie)(?:\[\d+\])?: "
)
DOUBT = "signal.doubt"
_HOST_RULES = ("kernel.", "host.", "storage.", "net.name", "launch.ssh", "slurm.", "dcgm.", "nvlink.", "gpu.", "pci.")


def is_calm(line: str) -> bool:
    """Say whether a line calls itself information."""
    return _CALM.search(line[:240]) is not None


def heeds(rule: str, line: str, *, general: bool) -> bool:
    """Say whether a rule should listen to this line; a `general` one (a fallback, or what is left over) to fewer."""
    head = line[:240]
    if rule == DOUBT:  # its words are weighed, and how grave it calls itself where it is shown
        return not _PROSE.search(line)
    if _DAEMONS.search(head) and (general or not rule.startswith(_HOST_RULES)):
        return False
    if not general:
        return True
    if _KERNEL.search(head) and not _CONCERNS.search(line):
        return False
    return _GRAVE.search(line) is not None or not (_CALM.search(head) or _PROSE.search(line))
