"""Whether a backend's code does what the replay of its graph does.

Code that was made beside the program is compared before it is used: values, sizes, strides, which
outputs share memory with an input, which ask for gradients, and the gradients themselves. The
native side runs both (`crates/tracer/src/entry/beside.rs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator._fx.laid import Layout, lay, with_layout
from stator._fx.modes import Modes
from stator._fx.tied import gradients_of

_TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
"""Relative and absolute, those of `torch.testing.assert_close`: one operation rounds so much."""

_MOST = 0.05
"""The largest relative tolerance, unless one operation has a larger one."""


class _DifferenceError(Exception):
    """Says what differs, and by how much."""


class Trial:
    """A graph that is run twice on the same inputs: by the replay and by a backend's code."""

    def __init__(
        self, inputs: Sequence[Any], operations: int, may_write: bool, has_fixed_sizes: bool
    ) -> None:
        """has_fixed_sizes: the code is for inputs of these sizes and strides alone."""
        self._inputs = inputs
        self._has_fixed_sizes = has_fixed_sizes
        self._layout: Layout | None = None
        self._modes = Modes.here()
        self._factor = math.sqrt(max(operations, 1))
        self._may_write = may_write
        self.untold = _uncopied(inputs) if may_write else None
        """Why the graph can't be run twice; None: it can."""

    def inputs(self) -> list[Any]:
        """The inputs for one run: the same memory, and leaves of its own where gradients are;
        copies where the graph may write to them."""
        taken = [_copy(value) if self._may_write else value for value in self._inputs]
        if not self._modes.gradients or self._modes.inference:
            return taken
        return [
            value.detach().requires_grad_()
            if isinstance(like, torch.Tensor) and like.requires_grad
            else value
            for like, value in zip(self._inputs, taken, strict=True)
        ]

    def put_back(self) -> None:
        """A run has ended: the modes are what they were."""
        self._modes.set()

    def compare(
        self,
        expected: Sequence[Any],
        own: Sequence[Any],
        found: Sequence[Any],
        theirs: Sequence[Any],
    ) -> tuple[float, str | None, str | None]:
        """The largest difference, relative to a tensor's largest value; what differs; why it
        can't be told. `own` and `theirs` are the inputs of the two runs."""
        try:
            return self._compare(expected, own, found, theirs), None, None
        except _DifferenceError as error:
            return math.inf, str(error), None
        except Exception as error:
            # Some kinds of tensors can't be computed with as others can.
            return 0.0, None, f"the results can't be compared ({type(error).__name__}: {error})"

    def laid(self, run: Callable[..., Any]) -> Callable[..., Any] | None:
        """The code with results that lie in memory as the replay's do. None: they do."""
        return None if self._layout is None else with_layout(run, self._layout)

    def _compare(
        self,
        expected: Sequence[Any],
        own: Sequence[Any],
        found: Sequence[Any],
        theirs: Sequence[Any],
    ) -> float:
        gap = 0.0
        if self._has_fixed_sizes:
            self._layout = _layout(expected, own, found, theirs)
            if self._layout is not None:
                found = lay(found, self._layout)
        scale = _Scale(self._factor, [*expected, *own], is_linear=False)
        for index, (left, right) in enumerate(zip(expected, found, strict=True)):
            name = f"output {index}"
            if not isinstance(left, torch.Tensor):
                if type(left) is not type(right) or left != right:
                    raise _DifferenceError(f"{name} is {right!r}, and should be {left!r}")
                continue
            _compare_looks(name, left, right)
            if _sharers(left, own) != _sharers(right, theirs):
                raise _DifferenceError(f"{name} shares memory with other inputs than it should")
            if _sharers(left, expected[:index]) != _sharers(right, found[:index]):
                raise _DifferenceError(f"{name} shares memory with other outputs than it should")
            gap = max(gap, scale.gap(name, left, right))
        if self._may_write:
            for index, (left, right) in enumerate(zip(own, theirs, strict=True)):
                if isinstance(left, torch.Tensor):
                    name = f"input {index}, which may be written to,"
                    _compare_looks(name, left, right)
                    gap = max(gap, scale.gap(name, left, right))
        left_gradients = _gradients(expected, own)
        right_gradients = _gradients(found, theirs)
        scale = _Scale(self._factor, left_gradients, is_linear=True)
        gradients = zip(left_gradients, right_gradients, strict=True)
        for index, (left, right) in enumerate(gradients):
            name = f"the gradient of input {index}"
            if left is not None and right is not None:
                gap = max(gap, scale.gap(name, left, right))
            elif left is not None or right is not None:
                raise _DifferenceError(f"{name} is computed by one of them alone")
        return gap


class _Scale:
    """How far values may differ that are computed from one another.

    One operation may round as `torch.testing.assert_close` lets it. Its absolute part is for
    values around one; where all are smaller, the part is as much smaller.
    """

    def __init__(self, factor: float, values: Sequence[Any], *, is_linear: bool) -> None:
        """factor: what many operations add up to. is_linear: nothing is added to the values that
        isn't among them, as in gradients; else a graph's constants may be, which are around one."""
        self._factor = factor
        self._largest = 0.0
        self._is_linear = is_linear
        for value in values:
            if self._largest < 1.0 and isinstance(value, torch.Tensor):
                self._largest = max(self._largest, _largest(value))

    def gap(self, name: str, left: torch.Tensor, right: torch.Tensor) -> float:
        """The largest difference, relative to the largest value. Raises if it is too much."""
        left, right = left.detach(), right.detach()
        if left.numel() == 0:
            return 0.0
        if not (left.is_floating_point() or left.is_complex()):
            if not torch.equal(left, right):
                count = int((left != right).sum())
                raise _DifferenceError(f"{name} differs in {count} of {left.numel()} elements")
            return 0.0
        relative, absolute = self._tolerances(left.dtype)
        wide = torch.complex128 if left.is_complex() else torch.float64
        left, right = left.to(wide), right.to(wide)
        same = (left == right) | (left.isnan() & right.isnan())
        apart = torch.where(same, 0.0, (left - right).abs())
        largest = _largest(left)
        allowed = relative * largest + absolute
        worst = float(apart.max())
        # What isn't a number differs from all numbers.
        if not worst <= allowed:
            count = int((~(apart <= allowed)).sum())
            raise _DifferenceError(
                f"{name} differs in {count} of {left.numel()} elements, by up to {worst:.3g} where "
                f"{allowed:.3g} is allowed and the largest value is {largest:.3g}"
            )
        # What cancels out is as far apart as all the values are that it's computed from.
        base = largest if worst <= relative * largest else max(largest, self._largest)
        return worst / base if base > 0 else 0.0

    def _tolerances(self, dtype: torch.dtype) -> tuple[float, float]:
        """Relative to a tensor's largest value, and besides that."""
        rounding = torch.finfo(dtype).eps
        # Dtypes of eight bits and less have rows nowhere: one operation rounds to a neighbour.
        relative, absolute = _TOLERANCES.get(dtype, (2 * rounding, rounding))
        least = 0.0 if self._is_linear else min(rounding * self._factor, absolute)
        absolute = max(absolute * min(self._largest, 1.0), least)
        return max(relative, min(relative * self._factor, _MOST)), absolute


def _largest(value: torch.Tensor) -> float:
    """The largest value that is finite; 0 where it has no numbers that are rounded."""
    if value.numel() == 0 or not (value.is_floating_point() or value.is_complex()):
        return 0.0
    if value.dtype.itemsize == 1:
        value = value.to(torch.float32)
    sizes = value.detach().abs()
    return float(torch.where(sizes.isfinite(), sizes, 0.0).max())


def _uncopied(inputs: Sequence[Any]) -> str | None:
    """Why no copies are made of inputs that a graph may write to; None: they are."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if any(value.requires_grad and not value.is_leaf for value in tensors):
        return "it writes to its inputs, and gradients are computed through these"
    if not all(map(_is_plain, tensors)):
        return "it writes to its inputs, and not all of these are plain tensors"
    if len({value.untyped_storage().data_ptr() for value in tensors}) < len(tensors):
        return "it writes to its inputs, and these share memory"
    if sum(value.nbytes for value in tensors) > _LARGE:
        return "it writes to its inputs, and these are large"
    return None


_LARGE = 1 << 28
"""Bytes of which no copy is made only to compare."""


def _is_plain(value: torch.Tensor) -> bool:
    """Whether a tensor's elements are all that it is, each at a place of its own."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.layout == torch.strided
        and not value.is_conj()
        and not value.is_neg()
        and not value.is_quantized
        and torch._debug_has_internal_overlap(value) == 0
    )


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return made.copy_(value.detach())


def untimed(inputs: Sequence[Any], outputs: Sequence[Any]) -> str | None:
    """Why it isn't measured whether a graph's code is quicker than its replay; None: it is."""
    if torch.are_deterministic_algorithms_enabled():
        return "the program wants deterministic algorithms"
    tensors = [value for value in (*inputs, *outputs) if isinstance(value, torch.Tensor)]
    if any(value.device.type != "cpu" for value in tensors):
        return "other devices than the CPU work behind the call"
    if any(_is_root(value, inputs) for value in outputs):
        return "gradients are computed behind the call"
    return None


def _compare_looks(name: str, left: torch.Tensor, right: Any) -> None:
    for what in ("dtype", "device", "layout", "shape", "requires_grad"):
        wanted, found = getattr(left, what), getattr(right, what)
        if wanted != found:
            raise _DifferenceError(f"{what} of {name} is {found}, and should be {wanted}")
    if left.layout == torch.strided and _strides(left) != _strides(right):
        raise _DifferenceError(
            f"strides of {name} are {right.stride()}, and should be {left.stride()} for sizes "
            f"{tuple(left.shape)}"
        )


def _layout(
    expected: Sequence[Any], own: Sequence[Any], found: Sequence[Any], theirs: Sequence[Any]
) -> Layout | None:
    """The strides that results are to be given. None: all have them, but for those that can't be
    copied as they share memory, or as several of their elements do."""
    layout: list[tuple[tuple[int, ...], tuple[int, ...]] | None] = []
    for index, (left, right) in enumerate(zip(expected, found, strict=True)):
        is_other = (
            isinstance(left, torch.Tensor)
            and _is_plain(left)
            and _is_plain(right)
            and left.shape == right.shape
            and _strides(left) != _strides(right)
            and not _sharers(left, [*own, *expected[:index], *expected[index + 1 :]])
            and not _sharers(right, [*theirs, *found[:index], *found[index + 1 :]])
        )
        layout.append((tuple(left.shape), left.stride()) if is_other else None)
    return layout if any(layout) else None


def _strides(tensor: torch.Tensor) -> list[int]:
    """The strides that say where elements are."""
    if tensor.numel() == 0:
        return []
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return [stride for size, stride in sizes if size != 1]


def _sharers(tensor: torch.Tensor, others: Sequence[Any]) -> list[int]:
    """Which of these a tensor shares memory with."""
    if tensor.layout != torch.strided or tensor.numel() == 0:
        return []
    address = tensor.untyped_storage().data_ptr()
    return [
        index
        for index, value in enumerate(others)
        if isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.untyped_storage().data_ptr() == address
    ]


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[torch.Tensor | None]:
    """The gradients of inputs, with the same tangents whoever has made the outputs."""
    wanted = [
        index
        for index, value in enumerate(inputs)
        if isinstance(value, torch.Tensor) and value.requires_grad
    ]
    roots = [value for value in outputs if _is_root(value, inputs)]
    gradients: list[torch.Tensor | None] = [None] * len(inputs)
    if not wanted or not roots:
        return gradients
    found = gradients_of(
        roots, [inputs[index] for index in wanted], [_tangent(root) for root in roots]
    )
    for index, gradient in zip(wanted, found, strict=True):
        gradients[index] = gradient
    return gradients


def _is_root(output: Any, inputs: Sequence[Any]) -> bool:
    """Whether gradients can be computed of an output: a view of a parameter that was made without
    them asks for gradients, too, and nothing goes back from it."""
    if not isinstance(output, torch.Tensor) or not output.requires_grad:
        return False
    return output.grad_fn is not None or any(output is value for value in inputs)


def _tangent(root: torch.Tensor) -> torch.Tensor:
    """Values of either sign, without a random number."""
    with torch.no_grad():
        places = torch.arange(root.numel(), dtype=torch.float32, device=root.device)
        return (places * 0.7 + 0.3).cos().reshape(root.shape).to(root.dtype)
