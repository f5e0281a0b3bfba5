"""A function chosen by the name of its first argument's class.

As `functools.singledispatch`, but a class may be given by its name: the text of a plan is rendered without loading
what a rehearsal is made of (which needs PyTorch) or an audit.

    @by_name
    def show(answer, console): ...

    @show.register("PlanAnswer")
    def _(answer: PlanAnswer, console: Console) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")
Function = Callable[..., Result]


class ByName(Generic[Result]):
    """The function and its variants."""

    def __init__(self, otherwise: Function[Result]) -> None:
        self._otherwise = otherwise
        self._variants: dict[str, Function[Result]] = {}
        update_wrapper(self, otherwise)

    def register(self, kind: str | type) -> Callable[[Function[Result]], Function[Result]]:
        """Take the decorated function for a class and its subclasses; a name that is taken is an error."""
        name = kind if isinstance(kind, str) else kind.__name__

        def take(function: Function[Result]) -> Function[Result]:
            if name in self._variants:
                raise ValueError(f"{name} is registered twice")
            self._variants[name] = function
            return function

        return take

    def __call__(self, first: Any, *rest: Any) -> Result:
        known = (self._variants[kind.__name__] for kind in type(first).__mro__ if kind.__name__ in self._variants)
        return next(known, self._otherwise)(first, *rest)


def by_name(otherwise: Function[Result]) -> ByName[Result]:
    """Return a function whose variants are chosen by class name; `otherwise` is called where there is none."""
    return ByName(otherwise)
