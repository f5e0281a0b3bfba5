"""What a row's free text says of the network: rates with their unit, of a GPU, a port or a host, or a question.

    read_network("50 GB/s per GPU", host)          # 400 Gb/s a GPU
    read_network("8x HDR 200Gb/s", host)           # eight ports of 200 Gb/s a host
    read_network("504 GB/s GPU-PCIe", host)        # not the network: no rate
    read_network("100GbE InfiniBand", host)        # two networks in one name: asked for

GB and Gb differ by eight, so the case of the letter counts. A bare rate is that of a port or a host only where the
host's usual ports say which; otherwise the reading is a question, and nothing is guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from syncline.fabric.catalog import HostModel

#: Rates of ports and hosts, in Gb/s: "400G" and "8x400" mean these and no others, so that "80G" stays memory.
_USUAL = (10, 25, 40, 50, 56, 100, 200, 400, 800, 1600, 1800, 3200, 6400)
#: No port and no GPU has as much, and no host more: a bare rate between these is a host's.
_HOST_GBPS = (1000.0, 12_800.0)
#: Gb/s of one port.
_NAMES = {"NDR200": 200.0, "NDR400": 400.0, "NDR": 400.0, "HDR100": 100.0, "HDR200": 200.0, "HDR": 200.0,
          "EDR100": 100.0, "EDR": 100.0, "FDR": 56.0, "XDR800": 800.0, "XDR": 800.0,
          "CONNECTX-8": 800.0, "CX-8": 800.0, "CX8": 800.0, "CONNECTX-7": 400.0, "CX-7": 400.0, "CX7": 400.0,
          "BLUEFIELD-3": 400.0, "QUANTUM-2": 400.0, "QUANTUM-X800": 800.0, "CONNECTX-6": 200.0, "CX-6": 200.0,
          "CX6": 200.0, "CONNECTX-5": 100.0, "CX-5": 100.0, "CX5": 100.0, "CASSINI": 200.0,
          "OMNI-PATH": 100.0, "OMNIPATH": 100.0, "OPA": 100.0, "SLINGSHOT-11": 200.0, "SLINGSHOT 11": 200.0,
          "SLINGSHOT-10": 100.0, "SLINGSHOT": 200.0}  # fmt: skip
_UNIT = (
    r"[KMGTkmgt](?:[Bb]it|[Bb]yte)?s?(?:[Bb])?(?:/s(?:ec)?|/S(?:ec)?|ps|PS)"
    r"|[Gg]iga(?:bit|byte)s?(?:/s(?:ec)?| per second)?\b"
    r"|[Gg][Bb]E|GE\b|G(?:b|bit)?(?![\w/])"
)
_RATE = re.compile(
    rf"(?:(?P<count>\d{{1,3}})\s*[x×*]\s*(?P<between>[^,;:]*?))?(?<![\d.])(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>{_UNIT})"
)
#: A count and a rate without a unit: "HDR 8x200".
_UNITLESS = re.compile(r"\b(?P<count>\d{1,2})\s*[x×*]\s*(?P<number>\d{2,3})\b(?!\s*[\w/])")
_NAMED = re.compile(
    r"(?:(?P<count>\d{1,3})\s*[x×*]\s*(?:\w[\w-]*\s+){0,3}?)?(?<![A-Z])(?P<name>"
    + "|".join(sorted(map(re.escape, _NAMES), key=len, reverse=True))
    + r")(?![A-Z0-9])",
    re.IGNORECASE,
)
_OF_GPU = re.compile(r"(?:\bper|/|\ba|\beach)\s*(?:GPU|device|chip|accelerator|rank)\b", re.IGNORECASE)
_OF_GPUS = re.compile(r"(?:\bper|/|\ba|\bshared by)\s*(?:every )?(two|four|eight|[248])\s+GPUs\b", re.IGNORECASE)
_MANY = {"one": 1, "single": 1, "two": 2, "four": 4, "eight": 8, "2": 2, "4": 4, "8": 8}
#: Ports named before their rate, or counted after it: "8 HCAs of 200 Gb/s", "200 Gbps x 8".
_COUNTED_BEFORE = re.compile(
    r"(\d{1,3}|two|four|eight)\s+(?:[\w-]+\s+)?(?:NIC|port|HCA|adapter|rail)s?\s+(?:of|at|with|@)\s*$", re.IGNORECASE
)
_COUNTED_AFTER = re.compile(r"^\s*(?:NICs?|ports?|HCAs?|adapters?)?\s*[x×*]\s*(\d{1,3})\b", re.IGNORECASE)
#: Ports counted anywhere in a clause: "4 Slingshot-11 NICs", "4 IB NICs (HDR)".
_COUNTED = re.compile(
    r"\b(\d{1,2}|one|single|two|four|eight)\s+(?:[\w/-]+\s+){0,3}?(?:NIC|port|HCA|adapter|rail|card)s?\b"
    r"(?!\s*(?:per|/)\s*GPU)",
    re.IGNORECASE,
)
#: A count that stands a clause before its rate is moved to it: "8 rails, 400 Gb/s each", "1 NIC per GPU, 400G".
_PORT = r"(?:NIC|port|HCA|adapter|rail)"
_MOVED = (
    (re.compile(rf"\b(\d{{1,2}}|two|four|eight)\s+({_PORT})s?\s*[,:]\s*(?=\d)", re.IGNORECASE), r"\1 \2s of "),
    (re.compile(rf"\b(?:1|one|a)\s+{_PORT}\s+(?:per|/)\s*GPU\s*[,:]\s*(\d[^,;]*)", re.IGNORECASE), r"\1 per GPU"),
    (re.compile(r"(?<=\d),(?=\d{3}(?!\d))"), ""),
)  # fmt: skip
#: What a count may be of that is no port: "64x A100 200 Gb/s".
_NO_PORTS = re.compile(r"GPU|node|host|\b(?:[ABHVL]\d{2,3}|GB\d{3}|GH\d{3}|MI\d{3}|DGX|HGX|TPU)", re.IGNORECASE)
#: More ports than this before "per GPU" are a host's, one or some a GPU.
_PORTS_OF_GPU = 2
_OF_PORT = re.compile(r"(?:\bper|/|\ba|\beach)\s*(?:NIC|port|rail|HCA|adapter|card|link)\b", re.IGNORECASE)
_BOTH_WAYS = re.compile(r"bi-?dir\w*\s*$", re.IGNORECASE)
_OF_HOST = re.compile(
    r"node-?\s?(?:to-?)?node|inter-?node|inter-?host|\b(?:per|a)\s+(?:node|host|server|instance|VM|machine|DGX|HGX)",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(r"PCI-?e|NVLink|NVSwitch|xGMI|Infinity Fabric|\bHBM|memory|\bdisk|\bSSD", re.IGNORECASE)
_NETWORK = re.compile(
    r"\bIB\b|InfiniBand|RoCE|Ethernet|\bEth\b|\bEFA|Elastic Fabric|\bNICs?\b|ConnectX|\bCX-?\d|BlueField|RDMA"
    r"|Omni-?Path|Slingshot|Cassini|\bTCP|Quantum|Spectrum|\b[EHNX]DR",
    re.IGNORECASE,
)
_OTHER_USE = re.compile(r"\b(?:storage|management|mgmt|frontend|front-end|boot)\b", re.IGNORECASE)
_COMPUTE = re.compile(r"\bcompute\b", re.IGNORECASE)
#: Less rate above the first switches; what it takes from a job depends on where its ranks are.
_THIN = re.compile(r"\b(?:[2-9]|1\d):1\b|\boversubscri\w+|\bblocking\b", re.IGNORECASE)
_SCALE = {"k": 1e-6, "m": 1e-3, "g": 1.0, "t": 1e3}
ASK = 'write it as "400 Gb/s per GPU", "8x 400 Gb/s" or "3200 Gb/s per host", or give `network:` in a --systems file'


#: Networks whose rate is that of the instance, whatever its ports.
_OF_INSTANCE = re.compile(r"\bEFA|Elastic Fabric|TCPX", re.IGNORECASE)


@dataclass(frozen=True)
class NetworkReading:
    """What a text says of the network: the share of one GPU, in words, or what must be asked."""

    gpu_Bps: float | None = None
    words: str = ""
    question: str = ""


@dataclass(frozen=True)
class _Mention:
    """One rate of a text: Gb/s as counted by `of` (gpu, port, host, or nothing said)."""

    gbps: float
    of: str
    text: str
    question: str = ""

    @property
    def rank(self) -> tuple[int, float]:
        return ("", "port", "instance", "host", "gpu").index(self.of), self.gbps


def read_network(text: str, host: HostModel, port_gbps: float | None) -> NetworkReading:
    """Return the network share of one GPU that a text states; `port_gbps` is the rate of the host's usual ports."""
    mentions, passed = _mentions(text)
    if not mentions:
        return NetworkReading(words="".join(f'"{one}" is not the network' for one in passed[:1]))
    # What says whose rate it is counts before what does not; of equals the largest is the compute network.
    best = max(mentions, key=lambda mention: mention.rank)
    if best.question:
        return NetworkReading(question=f'"{best.text}" {best.question}; {ASK}')
    found = _share(best, host, port_gbps)
    thin = _THIN.search(text)
    if thin is None or not found.words:
        return found
    return replace(found, words=f'{found.words}; "{thin.group()}" not counted: give `cluster:` in a --systems file')


def _mentions(text: str) -> tuple[list[_Mention], list[str]]:
    """Return the rates of the network in a text, and the rates of something else."""
    found: list[_Mention] = []
    passed: list[str] = []
    for pattern, plain in _MOVED:
        text = pattern.sub(plain, text)
    for clause in re.split(r"[,;\n]|\s\+\s|\s-\s", text):
        if _OTHER_USE.search(clause) and not _COMPUTE.search(clause):
            continue
        rates = [rate for rate in _RATE.finditer(clause) if _is_rate(clause, rate)]
        for number, rate in enumerate(rates):
            end = rates[number + 1].start() if number + 1 < len(rates) else len(clause)
            if _is_elsewhere(clause, rate, clause[rate.end() : end]):
                passed.append(clause.strip())
            else:
                found.append(_of_rate(clause, rate, clause[rate.end() : end]))
        if rates:
            continue
        pair, name = _UNITLESS.search(clause), _NAMED.search(clause)
        if pair and int(pair["number"]) in _USUAL and _NETWORK.search(clause):
            found.append(_Mention(int(pair["count"]) * float(pair["number"]), "host", clause.strip()))
        elif name and not _ELSEWHERE.search(clause[name.end() :]):
            found.append(_of_name(clause, name))
    return [one for one in found if one.gbps > 0], passed


def _is_rate(clause: str, rate: re.Match[str]) -> bool:
    """Say whether a number with its unit is a rate; a bare G ("400G") is one where it is usual and of a network."""
    if rate["unit"] not in ("G", "Gb", "Gbit"):
        return True
    alone = rate["count"] or _COUNTED_AFTER.match(clause[rate.end() :]) or rate.group() == clause.strip()
    named = _NETWORK.search(clause) or _OF_GPU.search(clause) or _OF_PORT.search(clause) or _OF_HOST.search(clause)
    return float(rate["number"]) in _USUAL and bool(alone or named)


def _is_elsewhere(clause: str, rate: re.Match[str], after: str) -> bool:
    """Say whether a rate is that of PCIe, NVLink or memory: by the words after it, else by those before it."""
    if _NETWORK.search(after) and not _ELSEWHERE.search(after):
        return False
    if _ELSEWHERE.search(after):
        return True
    before = clause[: rate.start()]
    nearest = max((m.start() for m in _NETWORK.finditer(before)), default=-1)
    return max((m.start() for m in _ELSEWHERE.finditer(before)), default=-2) > nearest or (
        "PCI" in before and before.rstrip().endswith(":")
    )


def _of_rate(clause: str, rate: re.Match[str], after: str) -> _Mention:
    gbps, question = _in_gbps(float(rate["number"]), rate["unit"])
    if re.search(r"bi-?dir", after.partition("(")[0], re.IGNORECASE) or _BOTH_WAYS.search(clause[: rate.start()]):
        gbps /= 2
    if rate["unit"].endswith("E") and re.search(r"InfiniBand|\bIB\b", clause, re.IGNORECASE):
        question = "names Ethernet and InfiniBand in one and says neither port nor host"
    shown = clause.strip()
    count = _count(clause, rate, after)
    if shared := _OF_GPUS.search(after):
        return _Mention(gbps / _MANY[shared.group(1).lower()], "gpu", shown, question)
    if _OF_GPU.search(after):
        return _Mention(gbps * (count if 1 <= count <= _PORTS_OF_GPU else 1), "gpu", shown, question)
    if count:
        return _Mention(count * gbps, "host", shown, question)
    if _OF_HOST.search(clause) or _HOST_GBPS[0] <= gbps <= _HOST_GBPS[1]:
        return _Mention(gbps, "host", shown, question)
    if _OF_INSTANCE.search(clause):
        return _Mention(gbps, "instance", shown, question)
    own = _NAMED.search(clause)
    port = _OF_PORT.search(after) or (own and _NAMES[own["name"].upper()] == gbps)  # "NDR 400G", "CX-8 800 Gb/s"
    return _Mention(gbps, "port" if port else "", shown, question)


def _count(clause: str, rate: re.Match[str], after: str) -> int:
    """Return how many ports a rate is said of, before it (8x), named (8 HCAs of) or after it (x 8); 0: not said."""
    if rate["count"] and not _NO_PORTS.search(rate["between"]):
        return int(rate["count"])
    if named := _COUNTED_BEFORE.search(clause[: rate.start()]):
        return _many(named.group(1))
    if found := _COUNTED_AFTER.search(after):
        return int(found.group(1))
    return _many(named.group(1)) if (named := _COUNTED.search(clause)) else 0


def _many(word: str) -> int:
    return _MANY.get(word.lower()) or int(word)


def _of_name(clause: str, name: re.Match[str]) -> _Mention:
    gbps, after = _NAMES[name["name"].upper()], clause[name.end() :]
    if shared := _OF_GPUS.search(after):
        return _Mention(int(name["count"] or 1) * gbps / _MANY[shared.group(1).lower()], "gpu", clause.strip())
    later = _COUNTED_AFTER.search(after)
    named = None if _OF_GPU.search(clause) else _COUNTED.search(clause)
    count = name["count"] or (later and later.group(1)) or (named and named.group(1))
    if count:
        return _Mention(_many(count) * gbps, "host", clause.strip())
    return _Mention(gbps, "gpu" if _OF_GPU.search(clause) else "port", clause.strip())


def _in_gbps(number: float, unit: str) -> tuple[float, str]:
    """Return Gb/s, and a question where the unit may be bits or bytes."""
    scale = _SCALE[unit[0].lower()]
    if unit.lower().startswith("giga"):
        return number * (8.0 if "byte" in unit.lower() else 1.0), ""
    letter = next((c for c in unit[1:] if c in "Bb"), "b")
    if unit.endswith(("E", "e")) or (letter == "b" and not (unit.islower() and "/" in unit and "bit" not in unit)):
        return number * scale, ""
    if letter == "B" and not unit.isupper():
        return number * scale * 8, ""
    return number * scale, f'may mean bits or bytes ("{unit}": Gb/s and GB/s differ by eight)'


def _share(best: _Mention, host: HostModel, port_gbps: float | None) -> NetworkReading:
    gbps, gpus, ports = best.gbps, host.num_gpus, max(host.num_ports, 1)
    quoted = f'"{best.text}" read as '
    if best.of == "gpu":
        return NetworkReading(gbps * 1e9 / 8, f"{quoted}{gbps:g} Gb/s a GPU")
    if best.of == "host":
        return NetworkReading(gbps * 1e9 / 8 / gpus, f"{quoted}{gbps:g} Gb/s a host of {gpus} GPUs")
    if best.of == "port" or gbps == port_gbps:
        words = f"{quoted}{gbps:g} Gb/s a port, {ports} ports a host as {host.name} has"
        return NetworkReading(gbps * ports * 1e9 / 8 / gpus, words)
    if port_gbps and gbps == port_gbps * ports:
        return NetworkReading(gbps * 1e9 / 8 / gpus, f"{quoted}{gbps:g} Gb/s a host, what {host.name} has in all")
    if best.of == "instance":
        return NetworkReading(gbps * 1e9 / 8 / gpus, f"{quoted}{gbps:g} Gb/s an instance of {gpus} GPUs")
    return NetworkReading(
        question=f'"{best.text}" does not say whether {gbps:g} Gb/s is of a GPU, a port or a host; {ASK}'
    )
