"""Read a job file; errors name the file, the line, the rule and the next step.

job = load_job("job.yaml")
job = load_job({"model": "llama3-70b", "batch": {"global": 1024}})
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from syncline.describe.document import Document
from syncline.describe.guide import cite
from syncline.describe.mistakes import problem, read_described
from syncline.errors import DescriptionError, SynclineError
from syncline.workload.family.config import read_config
from syncline.workload.job import Job
from syncline.workload.layer_list import LayerList
from syncline.workload.parallel import check_split
from syncline.workload.shape import Shape
from syncline.workload.zoo import model as named_model

GUIDE = cite("job-file")


def load_job(source: str | os.PathLike[str] | Mapping[str, Any]) -> Job:
    """Return the job that a file or a mapping describes, checked against its model."""
    if isinstance(source, Mapping):
        return parse_job(Document(dict(source), {}, "job"), Path())
    if not isinstance(source, (str, os.PathLike)):
        raise DescriptionError(f"a job cannot be {type(source).__name__} ({str(source)[:40]}).",
                               hint="Give the path of a file, or a mapping with its keys.")  # fmt: skip
    path = Path(source)
    return parse_job(read_described(path, GUIDE), path.parent)


def parse_job(document: Document, folder: Path) -> Job:
    """Validate a document as a job."""
    if not isinstance(document.data, dict):
        raise DescriptionError(
            "a job file is a mapping.", where=document.source, hint="Three lines are enough: model, parallel and batch."
        )
    data = dict(document.data)
    if "phases" in data:
        raise DescriptionError(
            "the file has several phases, and this asks about one.", where=document.where(("phases",)),
            hint="`syncline plan` takes it whole; write one phase to a file of its own for the other commands.",
        )  # fmt: skip
    try:
        data["model"] = _model(data.get("model"), folder)
    except ValidationError as error:
        kind = LayerList if error.title == LayerList.__name__ else Shape
        raise problem(document, error, GUIDE, kind, ("model",)) from None
    except SynclineError as error:
        error.where = error.where or document.where(("model",))
        raise
    try:
        job = Job.model_validate(data)
        if isinstance(job.model, Shape):
            check_split(job.model, job.parallel)
    except ValidationError as error:
        found = problem(document, error, GUIDE, Job)
        if found.message.endswith('unknown key "lora".'):
            found.hint = "LoRA is `frozen: true`, and its rank `adapter_rank: 16`: the model's own weights stay."
        if found.message.startswith(("a global batch", "a sequence")):
            found.where = document.where(("batch",))
        raise found from None
    except SynclineError as error:
        error.where = error.where or document.where(("parallel",))
        raise
    if "name" not in job.model_fields_set and document.source != "job":
        job = job.model_copy(update={"name": Path(document.source).stem})
    return job


def _model(given: Any, folder: Path) -> Shape | LayerList:
    """Return a model by name, by shape, by `like` with changes, or from a config.json."""
    if given is None:
        raise DescriptionError(
            '"model" is missing.', hint="Write `model: llama3-70b`, a shape, or `model: {hf: config.json}`."
        )
    if isinstance(given, (Shape, LayerList)):
        return given
    if isinstance(given, str):
        return read_config(folder / given) if given.endswith(".json") else named_model(given)
    if not isinstance(given, dict):
        raise DescriptionError(f"model {given!r} is neither a name nor a shape.")
    if "hf" in given:
        return read_config(folder / str(given["hf"]))
    if isinstance(given.get("layers"), list):
        return LayerList.model_validate({"name": "layers", **given})
    if "like" in given:
        known = named_model(str(given["like"]))
        if isinstance(known, LayerList):
            raise DescriptionError(
                f"{known.name} is a list of layers, which has no sizes to change.",
                hint="Write its layers: `model: {layers: [...]}`, or a transformer after `like`.",
            )
        base = known.model_dump(exclude_unset=True)
        rest = {key: value for key, value in given.items() if key != "like"}
        return Shape.model_validate({**base, "name": f"{given['like']} changed", **rest})
    return Shape.model_validate(given)
