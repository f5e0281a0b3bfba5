"""A form instead of files: describe a cluster and a job in a browser, see the picture, the plan and the cost.

    app = make_form(Access())
    server = Server(app, access); port = server.start(); server.close()

What a browser sends are choices and numbers, never a path or a description, so that no request reads a file of this
machine. Requests are bounded, and one answer is computed at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Literal

import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from syncline.describe import units
from syncline.describe.plain import JsonObject, plain
from syncline.errors import SynclineError
from syncline.fabric import load
from syncline.watch.foreign import admit
from syncline.watch.serve.access import Access
from syncline.watch.serve.server import guarded_app, read_body, source_hash

MAX_HOSTS = 2048
Topology = Literal["rail-optimized", "fat-tree", "leaf-spine"]


class Choices(BaseModel):
    """What the form sends: every field is a choice or a number with its limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hosts: int = Field(ge=1, le=MAX_HOSTS)
    host: Literal["dgx-h100", "dgx-a100", "dgx-b200"]
    topology: Topology
    link: Literal["NDR", "HDR", "400GbE", "200GbE", "100GbE", "25GbE", "10GbE"]
    ratio: int = Field(ge=1, le=8, description="oversubscription of leaf switches, leaf-spine only")
    model: Literal["llama3-70b", "llama3-8b", "gpt3-175b", "gpt3-13b", "gpt3-2.7b", "mixtral-8x7b", "gpt-oss-120b"]
    batch: int = Field(ge=1, le=65_536)
    sequence: int = Field(ge=128, le=131_072)
    rate: int = Field(default=0, ge=0, le=100_000, description="requests a second to serve; 0: train")
    prompt: int = Field(default=1500, ge=1, le=131_072)
    answer: int = Field(default=300, ge=1, le=131_072)
    first_ms: int = Field(default=0, ge=0, le=600_000, description="most time to the first token, p99; 0: any")
    token_ms: int = Field(default=0, ge=0, le=600_000, description="most time between tokens, p99; 0: any")

    def cluster(self) -> JsonObject:
        """Return the description of the cluster, as a file would have it."""
        network = f"{self.topology} {self.link}" + (f" {self.ratio}:1" if self.topology == "leaf-spine" else "")
        return {"name": "my-cluster", "hosts": self.hosts, "host": {"model": self.host, "link": self.link},
                "network": network}  # fmt: skip

    def job(self) -> JsonObject:
        """Return the job, as a file would have it: a load to serve, or training."""
        if self.rate:
            limits = {"first_token": self.first_ms, "between_tokens": self.token_ms}
            return {"kind": "serve", "model": self.model,
                    "load": {"rate": self.rate, "prompt": self.prompt, "answer": self.answer},
                    "slo": {name: f"{limit}ms" for name, limit in limits.items() if limit}}  # fmt: skip
        return {"model": self.model, "batch": {"global": self.batch, "sequence": self.sequence}}


def make_form(access: Access) -> FastAPI:
    """Return the application that serves the form."""
    app = guarded_app("syncline serve", read_form(), form_policy(), access)
    busy = threading.Lock()

    @app.get("/healthz")
    async def healthz() -> Response:
        return PlainTextResponse("ok")

    async def answered(request: Request, answer: Callable[[Choices], JsonObject]) -> Response:
        try:
            choices = admit(Choices, await read_body(request))
        except ValueError as error:
            return JSONResponse({"error": f"{error}."}, 400)
        return await run_in_threadpool(_computed, busy, answer, choices)

    @app.post("/api/cluster")
    async def cluster(request: Request) -> Response:
        return await answered(request, shown_cluster)

    @app.post("/api/plan")
    async def plan(request: Request) -> Response:
        return await answered(request, shown_plan)

    return app


def _computed(busy: threading.Lock, answer: Callable[[Choices], JsonObject], choices: Choices) -> Response:
    with busy:
        try:
            return JSONResponse(plain(answer(choices)))
        except SynclineError as error:
            return JSONResponse({"error": str(error)}, 422)


def shown_cluster(choices: Choices) -> JsonObject:
    """Return the cluster in words and as a picture, what it costs, and both files."""
    from syncline.questions.cost import cost
    from syncline.questions.fabric import inventory
    from syncline.report.fabric_picture import draw_svg

    fabric = load(choices.cluster())
    return {
        "text": str(inventory(fabric)), "svg": draw_svg(fabric), "cost": str(cost(fabric)),
        "files": {"cluster.yaml": _text(choices.cluster()), "job.yaml": _text(choices.job())},
    }  # fmt: skip


def shown_plan(choices: Choices) -> JsonObject:
    """Return the plan in words, its first line, and its figures."""
    from syncline.questions.plan import plan
    from syncline.questions.serve import serve

    fabric = load(choices.cluster())
    if choices.rate:
        served = serve(fabric, choices.job())
        best = served.result.best
        verdict = "" if best.serves else "cannot be served within its limits; closest: "
        return {
            "text": str(served),
            "headline": f"{verdict}{best.num_gpus:,} GPU{'s' * (best.num_gpus != 1)}",
            "plan": served.to_json(),
        }
    answer = plan(fabric, choices.job(), workers=1)
    found = answer.report.best
    headline = f"{units.show_time(found.step_time_s)} a step, {found.tokens_per_s:,.0f} tokens/s"
    return {"text": str(answer), "headline": headline, "plan": answer.to_json()}


def _text(document: JsonObject) -> str:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None)


def _part(name: str) -> str:
    return (resources.files("syncline.report") / "page" / name).read_text("utf-8")


@cache
def read_form() -> str:
    """Return the page with its style and script inside."""
    return _part("form.html").replace("/*STYLE*/", _part("form.css")).replace("/*SCRIPT*/", _part("form.js"))


def form_policy() -> str:
    """Return what a browser may do here: this script and style, pictures as data, requests to this server."""
    return (
        f"default-src 'none'; script-src '{source_hash(_part('form.js'))}'; "
        f"style-src '{source_hash(_part('form.css'))}'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
