"""1-bit Adam and 1-bit LAMB: Adam until its variance is steady, then only the signs of the momentum are sent.

    optimizer = syncline.torch.OneBitAdam(torch.optim.AdamW(model.parameters(), lr=3e-4), model, warmup=500)

Warm-up: gradients are averaged in float32 and the inner optimizer steps as it is. Then the variance v is frozen. Each
rank adds its own gradient to the momentum that all share, m = b1 m + (1 - b1) g; momenta are averaged in `codec` with
error feedback on both ways; and every rank steps along m / (sqrt(v) + eps), which is the same on all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from syncline.errors import SynchronizationError
from syncline.runtime.periodic.averaging import Averaging, at_least
from syncline.runtime.periodic.fragment import Fragment, cut
from syncline.runtime.periodic.target import Target, local_part, target
from syncline.runtime.periodic.trust import Trust
from syncline.runtime.periodic.wrapper import Closure, Wrapper, evaluate
from syncline.runtime.sync.settings import Settings

FRAGMENT_BYTES = 32 << 20
REFUSED = ("amsgrad", "maximize", "capturable", "differentiable", "fused")


class OneBitAdam(Wrapper):
    """Wraps torch's Adam or AdamW and takes rates, betas, eps and weight decay from it, at every step.

    warmup  steps of plain Adam, after which the variance is frozen
    codec   what momenta are sent in after that: "sign" is one bit; any codec will do
    group, levels and other options: as those of `BoundedStaleness`
    """

    name = "one-bit-adam"
    trusts = False

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        warmup: int = 500,
        codec: str = "sign:block=512",
        *,
        group: Any = None,
        levels: object = None,
        **options: Any,
    ) -> None:
        super().__init__(optimizer)
        _check(optimizer)
        self.warmup = at_least("warmup", warmup, 1)
        chosen = self._target = target(model, group, levels)
        self._groups = _groups(optimizer, chosen)
        if self.trusts and any(hasattr(parameter, "to_local") for parameter in chosen.parameters):
            raise SynchronizationError(
                "1-bit LAMB needs the norms of whole parameters, and FSDP2 shards them.",
                hint="Use OneBitAdam with FSDP2.",
            )
        self._settings = Settings.given(options, codec=codec, levels=chosen.levels, warmup=0)
        self._meaning = {"method": self.name, "warmup": warmup, "momentum codec": self._settings.codec}
        dense = Settings.given(options, codec="fp32", levels=chosen.levels)
        self._averaging: Averaging = Averaging(chosen, dense, self._meaning)
        self._averaging.compare(chosen)
        size = 4 * sum(value.numel() for value in chosen.values())
        self._fragments = cut(chosen, max(1, round(size / FRAGMENT_BYTES)))
        self._buffers = [fragment.new() for fragment in self._fragments]
        self._trust = [Trust() for _ in chosen.names] if self.trusts else []
        self._index = {id(parameter): index for index, parameter in enumerate(chosen.parameters)}
        self._warm_bytes = 0
        self.frozen = False
        if chosen.replaces is not None:
            chosen.replaces.require_backward_grad_sync = False

    @property
    def wire_bytes(self) -> int:
        """What this rank has sent across, in all."""
        return self._warm_bytes + self._averaging.wire_bytes

    @torch.no_grad()
    def step(self, closure: Closure = None) -> Any:
        """Make a step of Adam while warming up, of 1-bit Adam afterwards."""
        loss = evaluate(closure)
        if self.num_steps == self.warmup and not self.frozen:
            self._freeze()
        if self.frozen:
            self._compressed_step()
        else:
            self._dense_step()
        self.num_steps += 1
        return loss

    def synchronize(self) -> None:
        """Do nothing: replicas are equal after every step."""

    def close(self) -> None:
        """End the threads, and give DDP its averaging back."""
        if self._target.replaces is not None:
            self._target.replaces.require_backward_grad_sync = True
        super().close()

    # Warm-up

    def _dense_step(self) -> None:
        for fragment, buffer in zip(self._fragments, self._buffers, strict=True):
            fragment.read_gradients(buffer)
        self._average()
        for fragment, buffer in zip(self._fragments, self._buffers, strict=True):
            fragment.write_gradients(buffer)
        before = [p.detach().clone() for p in self._target.parameters] if self._trust else []
        self.inner.step()
        for trust, parameter, start in zip(self._trust, self._target.parameters, before, strict=False):
            # The inner step is lr times the direction: LAMB goes the same way, as far as it trusts it.
            moved = parameter - start
            lr = float(self._groups[id(parameter)]["lr"])
            parameter.copy_(start.add_(moved, alpha=trust.warm(start, moved, lr)))

    def _freeze(self) -> None:
        """Change over: from here on momenta are sent, and the variance stays as it is."""
        self._warm_bytes += self._averaging.wire_bytes
        self._averaging.close()
        self._averaging = Averaging(self._target, self._settings, self._meaning)
        self.frozen = True

    # Afterwards

    def _compressed_step(self) -> None:
        for fragment, buffer in zip(self._fragments, self._buffers, strict=True):
            self._momenta(fragment, buffer)
        self._average()
        for fragment, buffer in zip(self._fragments, self._buffers, strict=True):
            for parameter, momentum in zip(fragment.parameters, fragment.views(buffer), strict=True):
                self._move(parameter, momentum)

    def _momenta(self, fragment: Fragment, buffer: torch.Tensor) -> None:
        """Leave b1 m + (1 - b1) g of this rank in the buffer."""
        fragment.read_gradients(buffer)
        for parameter, part in zip(fragment.parameters, fragment.views(buffer), strict=True):
            group, state = self._groups[id(parameter)], self._of(parameter)
            if group["weight_decay"] and not _decoupled(self.inner):
                part.add_(local_part(parameter.detach()), alpha=group["weight_decay"])
            part.lerp_(local_part(state["exp_avg"]).to(part.dtype), float(group["betas"][0]))

    def _move(self, parameter: torch.Tensor, momentum: torch.Tensor) -> None:
        group, state = self._groups[id(parameter)], self._of(parameter)
        weights, average, variance = map(local_part, (parameter.detach(), state["exp_avg"], state["exp_avg_sq"]))
        before = average.clone() if self._trust else None
        average.copy_(momentum)
        state["step"] += 1
        beta1, beta2 = map(float, group["betas"])
        warm = 1 - beta2 ** (float(state["step"]) - (self.num_steps - self.warmup + 1))
        denominator = (variance / warm).sqrt_().add_(group["eps"])
        direction = momentum / denominator / (1 - beta1 ** float(state["step"]))
        # Where no gradient came during warm-up there is no variance to measure by: the noise of signs would explode.
        direction.masked_fill_(variance == 0, 0.0)
        lr, decay = float(group["lr"]), float(group["weight_decay"])
        if before is not None:
            gradient = (momentum - beta1 * before).div_(1 - beta1)
            lr *= self._trust[self._index[id(parameter)]].frozen(gradient, variance, beta2)
        if decay and _decoupled(self.inner):
            weights.mul_(1 - lr * decay)
        weights.sub_(direction.to(weights.dtype), alpha=lr)

    def _average(self) -> None:
        flights = [
            self._averaging.launch(index, buffer, fragment.layout, self.num_steps)
            for index, (fragment, buffer) in enumerate(zip(self._fragments, self._buffers, strict=True))
        ]
        for flight in flights:
            self.waited_s += flight.wait()

    def _of(self, parameter: torch.Tensor) -> dict[str, Any]:
        """Return what Adam keeps of a parameter; of one that never had a gradient, zeros."""
        state: dict[str, Any] = self.inner.state[parameter]
        if not state:
            state["step"] = torch.tensor(float(self.warmup))
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state

    def _save(self) -> dict[str, Any]:
        return {
            "warmup": self.warmup, "frozen": self.frozen, "exchange": self._averaging.state_dict(),
            "trust": [trust.to_list() for trust in self._trust],
        }  # fmt: skip

    def _load(self, state: Mapping[str, Any]) -> None:
        if int(state["warmup"]) != self.warmup:
            raise SynchronizationError(
                f"the saved state has warmup={state['warmup']} and this is warmup={self.warmup}.",
                hint="The frozen variance counts from there: keep it.",
            )
        if state["frozen"] and not self.frozen:
            self._freeze()
        self._load_exchange(state["exchange"])
        self._trust = [Trust.from_list(values) for values in state["trust"]]


class OneBitLamb(OneBitAdam):
    """The same for LAMB: each layer's step is scaled by its weights' norm over its direction's.

    The inner Adam or AdamW gives the direction. During warm-up the scale of each layer is LAMB's own and its running
    mean is kept; afterwards it is that mean times how much the variance has changed since it was frozen, within limits.
    """

    name = "one-bit-lamb"
    trusts = True


def _check(optimizer: Optimizer) -> None:
    if type(optimizer) not in (Adam, AdamW):
        raise SynchronizationError(
            f"1-bit Adam wraps torch.optim.Adam or AdamW; got {type(optimizer).__name__}.",
            hint="For another optimizer use LocalSGD, DiLoCo or BoundedStaleness.",
        )
    for group in optimizer.param_groups:
        found = [name for name in REFUSED if group.get(name)]
        if found:
            raise SynchronizationError(f"1-bit Adam cannot do {found[0]}=True.", hint=f"Leave {found[0]} out.")


def _groups(optimizer: Optimizer, chosen: Target) -> dict[int, dict[str, Any]]:
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in zip(chosen.names, chosen.parameters, strict=True):
        if id(parameter) not in groups:
            raise SynchronizationError(
                f'parameter "{name}" is trained but the optimizer does not have it.',
                hint="Give the optimizer all parameters that require a gradient.",
            )
    return groups


def _decoupled(optimizer: Optimizer) -> bool:
    """Tell whether weight decay is AdamW's, beside the gradient."""
    return isinstance(optimizer, AdamW) or bool(optimizer.defaults.get("decoupled_weight_decay"))
