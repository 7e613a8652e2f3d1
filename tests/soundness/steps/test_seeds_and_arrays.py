"""Seeds of generators and NumPy's random numbers: calls give what plain ones give, and leave the generators where plain ones do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from differential.support import api
from torch import Tensor
from torch._compile import _disable_dynamo as disable_in_compiler

import stator

from .results import copied, same

OWN = torch.Generator()
RNG = np.random.default_rng(3)
STATE = np.random.RandomState(5)
LAYERS = [torch.relu, torch.neg, torch.abs, torch.sign]


def seeded(x: Tensor, i: int) -> Any:
    torch.manual_seed(42)
    return x + torch.randn(3)


def seeded_by_step(x: Tensor, i: int) -> Any:
    noise = torch.randn(3)
    torch.manual_seed(i)
    return x + torch.randn(3), noise


def own_generator(x: Tensor, i: int) -> Any:
    OWN.manual_seed(7 + i)
    order = torch.randperm(3, generator=OWN)
    return x[order] + torch.rand(3, generator=OWN)


def seeded_by_data(x: Tensor, i: int) -> Any:
    torch.manual_seed(int(x.sum().item()))
    return torch.rand(2)


def returned(x: Tensor, i: int) -> Any:
    assert torch.manual_seed(3) is torch.default_generator
    return OWN.manual_seed(5) is OWN, torch.rand(2)


def decided(x: Tensor, i: int) -> Any:
    torch.manual_seed(i)
    if (x + torch.rand(3)).sum() > 4.5:
        torch.manual_seed(11)
        x = x * torch.rand(3)
    return x + torch.rand(3)


def uniform(x: Tensor, i: int) -> Any:
    return x * np.random.rand() + np.random.uniform(-1, 1)


def mixed(x: Tensor, i: int) -> Any:
    lam = np.random.beta(0.4, 0.4)
    order = torch.randperm(3)
    return lam * x + (1 - lam) * x[order], lam


def flipped(x: Tensor, i: int) -> Any:
    if RNG.random() < 0.5:
        x = x.flip(0)
    return x + STATE.normal()


def unused(x: Tensor, i: int) -> Any:
    np.random.rand()
    np.random.permutation(4)
    return x * 2


def picked(x: Tensor, i: int) -> Any:
    return x[np.random.randint(3)] + x[np.random.choice(3)]


def shuffled(x: Tensor, i: int) -> Any:
    order = np.random.permutation(3)
    return x[order], x[order[:2]], x[torch.from_numpy(order)], x[torch.as_tensor(order)[1:]]


def shuffled_in_place(x: Tensor, i: int) -> Any:
    order = RNG.permutation(3)
    before = torch.from_numpy(order)
    first = x[before]
    np.random.shuffle(order)
    RNG.shuffle(order)
    return first, x[order], before + 0, order


def drawn_tensors(x: Tensor, i: int) -> Any:
    noise = np.random.normal(0.0, 1.0, size=3)
    again = RNG.random((2, 3))
    return (
        x + torch.from_numpy(noise),
        torch.tensor(again) * 2,
        torch.as_tensor(noise, dtype=x.dtype),
    )


def items(x: Tensor, i: int) -> Any:
    order = np.random.permutation(3)
    return x[order[0]], x * order[1], order[2]


def parts(x: Tensor, i: int) -> Any:
    order, found = np.random.permutation(8), []
    for start in range(0, 8, 3):
        part = order[start : start + 3]
        found.append(torch.arange(8.0)[part].sum() + x)
    return found


def masked(x: Tensor, i: int) -> Any:
    return x[np.random.rand(3) < 0.5]


def gated(x: Tensor, i: int) -> Any:
    order = np.random.permutation(3)
    if x[order[0]] > 1:
        x = x + np.random.rand()
    return x[order] + np.random.rand()


def numpy_seeded(x: Tensor, i: int) -> Any:
    np.random.seed(i)
    own = np.random.default_rng(i)
    return x * np.random.rand() + own.random(), x[own.permutation(3)]


def outside_array(x: Tensor, i: int) -> Any:
    np.random.shuffle(ORDER)
    return x[ORDER]


def own_list(x: Tensor, i: int) -> Any:
    order = [0, 1, 2]
    np.random.shuffle(order)
    return x[order], order


def filled(x: Tensor, i: int) -> Any:
    own = np.zeros(3)
    RNG.random(out=own)
    return x + torch.from_numpy(own)


def chosen(x: Tensor, i: int) -> Any:
    return x * np.random.choice([0.5, 0.25, 2.0]), np.random.choice(["a", "b"])


def layered(x: Tensor, i: int) -> Any:
    return LAYERS[np.random.randint(4)](x)


def state_asked(x: Tensor, i: int) -> Any:
    drawn = RNG.random()
    return x * drawn + RNG.bit_generator.state["state"]["state"] % 1000


def state_set(x: Tensor, i: int) -> Any:
    RNG.bit_generator.state = START
    return x + RNG.random()


def states_of_its_own(x: Tensor, i: int) -> Any:
    own = np.random.default_rng(np.random.randint(0, 100, 3))
    before = own.bit_generator.state["state"]["state"] % 1000
    own.bit_generator.state = START
    return x + own.random(), before


def drawn_by_others(x: Tensor, i: int) -> Any:
    order = torch.from_numpy(np.random.permutation(3))
    return (x * 2 + 1).sin() * np.random.rand(), x[np.random.permutation(3)], x[order]


def python_seeded(x: Tensor, i: int) -> Any:
    random.seed(i)
    return x * random.random() + random.uniform(-1, 1), random.random() < 0.5


def python_seeded_twice(x: Tensor, i: int) -> Any:
    random.seed(3)
    first = random.random()
    if random.random() < 0.9:
        x = x.neg()
    random.seed(i + 1)
    return x * first + random.random()


def python_seeded_behind_draws(x: Tensor, i: int) -> Any:
    first = random.random()
    random.seed(i)
    return x * first + random.random()


def python_seeded_between_decisions(x: Tensor, i: int) -> Any:
    """What is drawn behind an exit is given back, as long as nothing was seeded."""
    first = random.random()
    if (x * first).sum() > 1.5:
        return x + first, random.random()
    second = random.random() + random.uniform(0, 2)
    random.seed(i)
    third = random.random()
    if (x * third).sum() > 2:
        return x + second + random.random()
    random.seed(5)
    return x * second + random.random() * third


def python_seeded_and_raised(x: Tensor, i: int) -> Any:
    """An operation raises before the generator is seeded, and behind it."""
    first = random.random()
    try:
        x = x + torch.linalg.cholesky(torch.eye(2) * (i % 3 - 0.5)).sum()
    except RuntimeError:
        return x + random.random(), "before"
    random.seed(i)
    try:
        x = x + torch.linalg.cholesky(torch.eye(2) * (i % 4 - 0.5)).sum() * random.random()
    except RuntimeError:
        return x + random.random(), "behind"
    return x * first + random.random(), "well"


def another_seeded_behind_draws(x: Tensor, i: int) -> Any:
    first = random.random()
    PYTHONS.seed(i)
    return x * first + PYTHONS.random() + random.random()


def python_seeded_by_data(x: Tensor, i: int) -> Any:
    random.seed(int(x.sum().item()))
    return x + random.random(), random.getrandbits(20)


def own_python_seeded(x: Tensor, i: int) -> Any:
    PYTHONS.seed(i)
    return x + PYTHONS.random() * random.random()


def python_choices(x: Tensor, i: int) -> Any:
    random.seed(i)
    order = [0, 1, 2]
    random.shuffle(order)
    return x[order], random.choice(order), random.gauss(0, 1), random.randint(0, 9)


def all_seeded(x: Tensor, i: int) -> Any:
    random.seed(i)
    np.random.seed(i)
    torch.manual_seed(i)
    return x + torch.rand(3) * np.random.rand() * random.random()


def numpy_seeded_by_data(x: Tensor, i: int) -> Any:
    np.random.seed(int(x.sum().item()) + 5)
    return x + np.random.rand()


def numpy_seeded_beyond(x: Tensor, i: int) -> Any:
    try:
        np.random.seed(6 - i)
    except ValueError as error:
        return str(error)
    return x + np.random.rand()


def new_generator(x: Tensor, i: int) -> Any:
    own = torch.Generator()
    own.manual_seed(40 + i)
    return x[torch.randperm(3, generator=own)] + torch.rand(3, generator=own)


def generator_handed_out(x: Tensor, i: int) -> Any:
    own = torch.Generator(device="cpu").manual_seed(i)
    first = torch.rand(3, generator=own)
    return first + x, own.get_state()


PYTHONS = random.Random(8)
START = np.random.default_rng(9).bit_generator.state
ORDER = np.arange(3)
WHOLE = (
    *(seeded, seeded_by_data, returned, uniform, mixed, flipped, unused, picked, shuffled),
    *(shuffled_in_place, drawn_tensors, parts, seeded_by_step, own_generator, decided),
    *(python_seeded, python_seeded_twice, python_seeded_by_data, own_python_seeded, all_seeded),
    *(numpy_seeded_by_data, new_generator, python_seeded_behind_draws),
    *(python_seeded_between_decisions,),
)
OTHERS = (
    *(python_choices, numpy_seeded_beyond, generator_handed_out, python_seeded_and_raised),
    *(another_seeded_behind_draws,),
    *(numpy_seeded, items, gated, masked, outside_array, own_list, filled, chosen, layered),
)


def state_of_all() -> list[Any]:
    return [
        torch.get_rng_state(),
        repr(random.getstate()),
        repr(PYTHONS.getstate()),
        OWN.get_state(),
        repr(np.random.get_state()),
        repr(STATE.get_state()),
        repr(RNG.bit_generator.state),
    ]


def begin() -> None:
    random.seed(1)
    PYTHONS.seed(1)
    torch.manual_seed(1)
    OWN.manual_seed(1)
    np.random.seed(1)
    STATE.seed(1)
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state
    ORDER[:] = np.arange(3)


def as_told(result: Any) -> Any:
    if isinstance(result, (np.ndarray, np.generic)):
        return [str(result.dtype), result.tolist()]
    if isinstance(result, (list, tuple)):
        return type(result)(map(as_told, result))
    return copied(result)


def play(fn: Callable[..., Any], calls: int = 14) -> list[Any]:
    begin()
    seen = []
    for i in range(calls):
        x = torch.tensor([1.0, 2.0, 0.5]) * (1 + i % 3)
        seen.append((as_told(fn(x, i)), state_of_all()))
        if i % 5 == 4:
            # Others draw between the calls.
            np.random.rand(i)
            torch.rand(i)
            random.random()
            RNG.random(3)
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [*WHOLE, *OTHERS])
def test_calls_are_plain_ones(fn: Callable[..., Any], backend: str) -> None:
    compiled = api.compile(fn, backend=backend)
    # AOTAutograd refuses graphs with generators of the program's.
    with stator.config.patch(strict=backend == "eager"):
        for expected, found in zip(play(fn), play(compiled), strict=True):
            assert same(list(expected), list(found))


@pytest.mark.skipif(api.PLAIN, reason="plain mode has no statistics")
@pytest.mark.parametrize("fn", WHOLE)
@pytest.mark.parametrize("is_hidden", [False, True])
def test_they_are_whole(
    fn: Callable[..., Any], is_hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # From its first use on, PyTorch's compiler has put a function that it doesn't trace in its place.
    seed = torch.random.manual_seed
    monkeypatch.setattr(torch, "manual_seed", disable_in_compiler(seed) if is_hidden else seed)
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(fn, backend="eager")
        play(compiled)
    stats = stator.stats(compiled)
    assert stats.breaks == 0 and stats.hits > 0 and stats.native == 0


def fails(x: Tensor, i: int) -> Any:
    torch.manual_seed(i)
    OWN.manual_seed(i)
    random.seed(i)
    PYTHONS.random()
    drawn = torch.rand(3) * np.random.rand() + RNG.random()
    order = torch.as_tensor(np.random.permutation(3)) + (5 if FAR[0] else 0)
    try:
        return x[order] + torch.rand(3, generator=OWN)
    except IndexError:
        return drawn, np.random.rand(), torch.rand(2), random.random()


FAR = torch.zeros(1)


def test_a_replay_that_raises_is_undone() -> None:
    """The generators stand where plain Python leaves them when an index is out of range all at once."""

    def play_failing(fn: Callable[..., Any]) -> list[Any]:
        seen = []
        for far in (0, 0, 0, 1, 0, 1):
            FAR.fill_(far)
            seen += play(fn, 1)
        return seen

    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(fails, backend="eager")
        assert same(play_failing(fails), play_failing(compiled))


def fails_at_once(x: Tensor, index: Tensor) -> Any:
    torch.manual_seed(4)
    PYTHONS.seed(4)
    x = x * np.random.rand() + RNG.random() + PYTHONS.random()
    return x[index]


def test_errors_leave_the_generators_as_plain_ones_do() -> None:
    def play_indices(fn: Callable[..., Any]) -> list[Any]:
        begin()
        seen: list[Any] = []
        for index in (0, 1, 2, 9, 1, 9):
            try:
                seen.append(copied(fn(torch.ones(3), torch.tensor([index]))))
            except IndexError as error:
                seen.append(str(error))
            seen.append(state_of_all())
        return seen

    with stator.config.patch(skip_unprofitable=False):
        compiled = api.compile(fails_at_once, backend="eager")
        assert same(play_indices(fails_at_once), play_indices(compiled))
