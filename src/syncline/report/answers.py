"""Answers rendered: `show` prints one on a console, `text` returns that, `html` is its page."""

from __future__ import annotations

from html import escape
from io import StringIO
from typing import TYPE_CHECKING

from syncline.errors import UsageError
from syncline.questions.answer import Answer
from syncline.report.by_name import by_name

if TYPE_CHECKING:
    from rich.console import Console

    from syncline.questions.advise import Advice, EffectCheck
    from syncline.questions.audit import AuditAnswer
    from syncline.questions.calibrate import CollectiveProfile, StepProfile
    from syncline.questions.cost import CostAnswer
    from syncline.questions.design import DesignAnswer
    from syncline.questions.diagnose import DiagnosisAnswer
    from syncline.questions.fabric import InventoryAnswer
    from syncline.questions.fabric_build import FabricBuild
    from syncline.questions.fabric_diff import CableComparison
    from syncline.questions.phases import RunAnswer
    from syncline.questions.plan import ClusterAnswer, FabricComparison, PlanAnswer
    from syncline.questions.preview import PreviewAnswer
    from syncline.questions.rehearse import RehearsalAnswer
    from syncline.questions.serve import ServeAnswer
    from syncline.questions.share import ShareAnswer
    from syncline.questions.step import DecodePrediction, StepPrediction, TracePrediction
    from syncline.questions.validate import CollectiveErrors, IntervalErrors, TrainingErrors
    from syncline.questions.volumes import Transfer, Volumes

WIDTH = 120


def text(answer: Answer) -> str:
    """Return what the command prints."""
    from rich.console import Console

    out = StringIO()
    show(answer, Console(file=out, width=WIDTH, markup=False, highlight=False, emoji=False))
    return out.getvalue().rstrip("\n")


@by_name
def html(answer: Answer) -> str:
    """Return the page of an answer; one that has none is its text."""
    return f"<pre>{escape(text(answer))}</pre>"


@by_name
def show(answer: Answer, console: Console) -> None:
    """Print an answer."""
    raise UsageError(f"{type(answer).__name__} has no text.", hint="Use to_json().")


def _lines(console: Console, lines: list[str]) -> None:
    console.print("\n".join(lines), soft_wrap=True)


@show.register("StepProfile")
def _(answer: StepProfile, console: Console) -> None:
    from syncline.report.text.profile import step_profile_lines

    _lines(console, step_profile_lines(answer.to_json()))


@show.register("CollectiveProfile")
def _(answer: CollectiveProfile, console: Console) -> None:
    from syncline.report.text.profile import collective_profile_lines

    _lines(console, collective_profile_lines(answer.to_json()))


@show.register("ShareAnswer")
def _(answer: ShareAnswer, console: Console) -> None:
    from syncline.report.text.share import show_share

    show_share(console, answer.to_json())


@html.register("ShareAnswer")
def _(answer: ShareAnswer) -> str:
    from syncline.report.page.share import share_page

    return share_page(answer)


@show.register("StepPrediction")
def _(answer: StepPrediction, console: Console) -> None:
    from syncline.report.text.step import step_lines

    _lines(console, step_lines(answer.to_json()))


@html.register("StepPrediction")
def _(answer: StepPrediction) -> str:
    from syncline.report.page.step import step_page

    return step_page(answer)


@show.register("DecodePrediction")
def _(answer: DecodePrediction, console: Console) -> None:
    from syncline.report.text.step import decode_lines

    _lines(console, decode_lines(answer.to_json()))


@show.register("TracePrediction")
def _(answer: TracePrediction, console: Console) -> None:
    from syncline.report.text.step import replay_lines

    _lines(console, replay_lines(answer.to_json()))


@show.register("Volumes")
def _(answer: Volumes, console: Console) -> None:
    from dataclasses import asdict

    from syncline.report.text.step import volume_lines

    rows = [asdict(volume) for volume in answer.volumes]
    _lines(console, volume_lines(answer.job.name, rows, answer.num_gpus))


@show.register("Transfer")
def _(answer: Transfer, console: Console) -> None:
    from syncline.describe import units

    size, rate = answer.size_bytes, answer.rate_Bps
    console.print(
        f"{units.show_given_size(size)} ({size:,.0f} B) at {units.show_rate(rate)} ({units.show_bandwidth(rate)}) take "
        f"{units.show_time(answer.time_s)}"
    )


@show.register("PlanAnswer")
def _(answer: PlanAnswer, console: Console) -> None:
    from syncline.report.text.plan import plan_lines

    _lines(console, plan_lines(answer.result))


@html.register("PlanAnswer")
def _(answer: PlanAnswer) -> str:
    from syncline.plan.scaling import scaling
    from syncline.plan.space import USUAL
    from syncline.report.page.plan import plan_page

    found = answer.result
    return plan_page(found, answer.fabric, scaling(found.question, found.best, found.money, USUAL))


@show.register("FabricComparison")
def _(answer: FabricComparison, console: Console) -> None:
    from syncline.report.text.plan import comparison_lines

    _lines(console, comparison_lines(answer.result))


@show.register("ClusterAnswer")
def _(answer: ClusterAnswer, console: Console) -> None:
    from syncline.report.text.clusters import cluster_lines

    _lines(console, cluster_lines(answer.result))


@html.register("ClusterAnswer")
def _(answer: ClusterAnswer) -> str:
    from syncline.report.page.clusters import clusters_page

    return clusters_page(answer.result)


@show.register("RunAnswer")
def _(answer: RunAnswer, console: Console) -> None:
    from syncline.report.text.phases import run_lines

    _lines(console, run_lines(answer.result))


@html.register("RunAnswer")
def _(answer: RunAnswer) -> str:
    from syncline.report.page.figures import run_page

    return run_page(answer.result)


@html.register("ServeAnswer")
def _(answer: ServeAnswer) -> str:
    from syncline.report.page.figures import serve_page

    return serve_page(answer.result)


@show.register("ServeAnswer")
def _(answer: ServeAnswer, console: Console) -> None:
    from syncline.report.text.serve import serve_lines

    _lines(console, serve_lines(answer.result))


@show.register("CostAnswer")
def _(answer: CostAnswer, console: Console) -> None:
    from syncline.report.text.cost import show_cost

    show_cost(console, answer.statement)


@show.register("InventoryAnswer")
def _(answer: InventoryAnswer, console: Console) -> None:
    from syncline.report.text.fabric import bill_notes, bill_table, inventory_lines

    counted = answer.inventory
    title, *rest = inventory_lines(counted)
    _lines(console, [title, "", *(f"  assumed    {text}" for text in answer.assumed), *rest])
    console.print()
    console.print(bill_table(counted.bill))
    console.print("", *bill_notes(counted.bill), sep="\n", soft_wrap=True)


@html.register("InventoryAnswer")
def _(answer: InventoryAnswer) -> str:
    from syncline.report.fabric_picture import draw_html

    return draw_html(answer.fabric, dict(answer.to_json()))


@show.register("DesignAnswer")
def _(answer: DesignAnswer, console: Console) -> None:
    from syncline.report.text.design import design_lines

    _lines(console, design_lines(answer))


@html.register("DesignAnswer")
def _(answer: DesignAnswer) -> str:
    from syncline.report.page.design import design_page

    return design_page(answer)


@show.register("FabricBuild")
def _(answer: FabricBuild, console: Console) -> None:
    from syncline.report.text.fabric_build import build_lines

    _lines(console, build_lines(answer.installation, len(answer.files)))


@html.register("FabricBuild")
def _(answer: FabricBuild) -> str:
    from syncline.report.page.fabric_build import build_page

    return build_page(answer)


@show.register("CableComparison")
def _(answer: CableComparison, console: Console) -> None:
    from syncline.report.text.fabric_diff import diff_lines

    _lines(console, diff_lines(answer))


@show.register("DiagnosisAnswer")
def _(answer: DiagnosisAnswer, console: Console) -> None:
    from syncline.report.text.check.diagnosis import diagnosis_lines

    _lines(console, diagnosis_lines(answer.diagnosis))


@show.register("AuditAnswer")
def _(answer: AuditAnswer, console: Console) -> None:
    from syncline.report.text.check.audit import audit_lines

    _lines(console, audit_lines(answer.reports, answer.across))


@show.register("Advice")
def _(answer: Advice, console: Console) -> None:
    from syncline.report.text.check.advice import advice_lines

    _lines(console, advice_lines(answer.bundle))


@show.register("EffectCheck")
def _(answer: EffectCheck, console: Console) -> None:
    from syncline.report.text.check.advice import effect_lines

    _lines(console, effect_lines(answer.effects, answer.unread))


@show.register("CollectiveErrors")
def _(answer: CollectiveErrors, console: Console) -> None:
    from syncline.report.text.collective_errors import show_collective_errors

    show_collective_errors(console, answer.to_json())


@show.register("TrainingErrors")
def _(answer: TrainingErrors, console: Console) -> None:
    from syncline.report.text.training import training_lines

    _lines(console, training_lines(answer.to_json()))


@show.register("IntervalErrors")
def _(answer: IntervalErrors, console: Console) -> None:
    from syncline.report.text.coverage import coverage_lines

    _lines(console, coverage_lines(answer.to_json()))


@show.register("RehearsalAnswer")
def _(answer: RehearsalAnswer, console: Console) -> None:
    from syncline.report.text.check.rehearsal import rehearsal_lines

    console.print("\n".join(rehearsal_lines(answer.rehearsal)), soft_wrap=True, highlight=False)


@html.register("RehearsalAnswer")
def _(answer: RehearsalAnswer) -> str:
    from syncline.report.page.rehearsal import rehearsal_page
    from syncline.report.text.check.rehearsal import rehearsal_lines

    return rehearsal_page(answer.rehearsal, rehearsal_lines(answer.rehearsal))


@show.register("PreviewAnswer")
def _(answer: PreviewAnswer, console: Console) -> None:
    from syncline.report.text.preview import preview_lines

    _lines(console, preview_lines(answer.to_json()))


@html.register("PreviewAnswer")
def _(answer: PreviewAnswer) -> str:
    from syncline.report.page.step import preview_page

    return preview_page(answer)
