"""Measured collectives as a table of nccl-tests' shape, with what was expected beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syncline.bench.measured import PROGRAM
from syncline.bench.price import Loss
from syncline.bench.verdict import Judgement
from syncline.describe import units
from syncline.finding import Finding, Severity
from syncline.questions.bench import BenchAnswer

HEAD = (
    "#                                                              {place:^31}        ",
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong  spread",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)                ",
)
EXPECTED_HEAD = (
    "{expected:^70}",
    "     time        low..high   busbw        low..high    wire  of    verdict",
    "     (us)             (us)  (GB/s)           (GB/s)  (Gb/s) line",
)


def sweep_lines(rows: Sequence[Judgement]) -> list[str]:
    """Return the table's lines, algorithm by algorithm."""
    lines: list[str] = []
    for algorithm in dict.fromkeys(row.measured.algorithm for row in rows):
        mine = [row for row in rows if row.measured.algorithm == algorithm]
        lines.append(f"# algorithm {algorithm}")
        judged = any(row.expected for row in mine)
        lines += head(mine[0].measured.in_place, judged).splitlines()
        lines += [row_line(row, judged) for row in mine]
        links = dict.fromkeys(row.expected.link for row in mine if row.expected and row.expected.link)
        if links:
            lines.append(f"# limiting link: {'; '.join(list(links)[:3])}")
        lines += _source_lines(mine)
        average = sum(row.measured.busbw_Bps for row in mine) / len(mine) / 1e9
        lines += [f"# Avg bus bandwidth    : {average:.6g}", "#"]
    return lines


def _source_lines(rows: Sequence[Judgement]) -> list[str]:
    """Return which model predicted the rows, and what the library is predicted to choose at which sizes."""
    known = [row for row in rows if row.expected]
    if not known or known[0].expected is None:
        return []
    first = known[0].expected
    told = "; ".join(filter(None, [first.source, first.note, f"ignores {', '.join(first.ignores)}"]))
    chosen: list[tuple[str, list[int]]] = []
    for row in known:
        name = row.expected.chosen if row.expected else ""
        if not chosen or chosen[-1][0] != name:
            chosen.append((name, []))
        chosen[-1][1].append(row.measured.size_bytes)
    spans = [f"{name} {_span(sizes)}" for name, sizes in chosen if name]
    return [f"# predicted by {told}", *([f"# predicted choice: {', '.join(spans)}"] if spans else [])]


def _span(sizes: list[int]) -> str:
    first, last = units.show_size(sizes[0]), units.show_size(sizes[-1])
    return f"at {first}" if first == last else f"from {first} to {last}"


def head(in_place: bool, judged: bool = True) -> str:
    """Return the column heads; those of what was expected only where something was."""
    lines = [a + b for a, b in zip(HEAD, EXPECTED_HEAD, strict=True)] if judged else list(HEAD)
    told = {"place": "in-place" if in_place else "out-of-place", "expected": "this topology should give"}
    return "\n".join(line.format(**told).rstrip() for line in lines)


def row_line(row: Judgement, judged: bool = True) -> str:
    """Return one line, its first columns where nccl-tests has them."""
    measured = row.measured
    wrong = "N/A" if measured.num_wrong is None else f"{measured.num_wrong:g}"
    left = (
        f"{measured.size_bytes:12d}  {measured.num_elements:12d}  {measured.dtype:>8}  {measured.redop:>6}  "
        f"{measured.root:6d}  {_us(measured.timing.median_s):>7}  {_rate(measured.algbw_Bps):>6}  "
        f"{_rate(measured.busbw_Bps):>6}  {wrong:>6}  {100 * measured.timing.spread:4.0f} %"
    )
    if not judged:
        return left
    if row.expected is None:
        return f"{left}  {'-':>7} {'-':>16} {'-':>7} {'-':>16} {'-':>7} {'-':>5}  {row.label}"
    expected, wire = row.expected, row.wire_Bps or 0.0
    share = f"{100 * wire / expected.line_Bps:.0f} %" if expected.line_Bps else "-"
    span = f"{_us(expected.low_s)}..{_us(expected.high_s)}"
    slowest, bus, fastest = row.expected_busbw_Bps or (0.0, 0.0, 0.0)
    rates = f"{_rate(bus):>7} {f'{_rate(slowest)}..{_rate(fastest)}':>16}"
    return f"{left}  {_us(expected.time_s):>7} {span:>16} {rates} {wire * 8 / 1e9:7.4g} {share:>5}  {row.label}"


def _us(time_s: float) -> str:
    value = time_s * 1e6
    return f"{value:.2f}" if value < 100 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _rate(rate_Bps: float) -> str:
    value = rate_Bps / 1e9
    return f"{value:.2f}" if value >= 1 or value == 0 else f"{value:.3f}" if value >= 0.01 else f"{value:.2g}"


_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.UNKNOWN: 2, Severity.OK: 3}


def headline(findings: Sequence[Finding]) -> list[str]:
    """Return the worst finding in one line, to stand above the table; nothing where all is well."""
    first = min(findings, key=lambda f: _ORDER[f.severity], default=None)
    if first is None or first.severity not in (Severity.CRITICAL, Severity.WARNING):
        return []
    return [f"# {first.severity.name}: {first.observed} ({first.place}); more below the table"]


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return the findings, the worst first."""
    lines = []
    for finding in sorted(findings, key=lambda f: _ORDER[f.severity]):
        lines.append(f"{finding.severity.name} {finding.rule}: {finding.place}")
        lines.append(f"  {finding.observed}" + (f"; expected {finding.expected}" if finding.expected else ""))
        lines += [f"    {line}" for line in finding.evidence]
        lines += [f"  {text}" for text in (finding.meaning, finding.fix) if text]
        if finding.confidence < 1:
            lines.append(f"  confidence {100 * finding.confidence:.0f} %")
        if finding.cost_usd_per_day is not None:
            lines.append(f"  costs {units.show_money(finding.cost_usd_per_day)} a day")
    return lines


def loss_lines(loss: Loss | None) -> list[str]:
    """Return what the gap costs, and what that was reckoned from."""
    if loss is None:
        return ["# cost: nothing was predicted, so there is no gap to price"]
    lines = [
        f"# cost: {units.show_size(loss.size_bytes)} takes {loss.factor:.2f} times the predicted time; "
        f"with {100 * loss.exposed_share:.0f} % of the step exposed that idles {loss.num_gpus:,} GPUs for "
        f"{loss.gpu_hours_per_day:,.1f} GPU-hours a day"
    ]
    if loss.usd_per_day is not None:
        lines.append(f"#   {units.show_money(loss.usd_per_day)} a day at ${loss.usd_per_gpu_hour:.2f} a GPU-hour "
                     f"({loss.price_source})")  # fmt: skip
    else:
        lines.append(f"#   no price: {loss.price_source}")
    return lines


def answer_lines(answer: BenchAnswer) -> list[str]:
    """Return what was measured beside what was expected, the worst finding above it and all below."""
    hosts = f", {units.counted(answer.hosts, 'host')}" if answer.hosts else ""
    where = f" on {answer.cluster}" if answer.cluster else ""
    return [
        *headline(answer.findings),
        *(f"# not judged ({name}): {why}" for name, why in answer.unpredicted.items()),
        f"# {PROGRAM[answer.rows[0].measured.kind].removesuffix('_perf')}{where}: {answer.ranks} ranks{hosts}, "
        f"{answer.library}",
        *(f"# {note}" for note in answer.notes),
        *sweep_lines(answer.rows),
        *finding_lines(answer.findings),
        *(loss_lines(answer.loss) if answer.judging.cost else []),
    ]


def text(answer: BenchAnswer, width: int) -> Iterable[str]:
    """Return a sweep, judged."""
    return answer_lines(answer)
