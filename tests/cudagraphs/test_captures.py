"""Calls that a captured graph serves give what plain Python gives, and leave behind what that leaves."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator import stats

from .stand_in import StandIn

CALLS = 6
kept: list[Any] = []
"""Keeps memory from being used again, so that a new tensor is elsewhere."""


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    with torch.no_grad():
        yield
    kept.clear()


def fresh(*sizes: int) -> Tensor:
    """A tensor that is aligned as CUDA's are."""
    while True:
        kept.append(torch.empty(*sizes))
        if kept[-1].data_ptr() % 256 == 0:
            return kept[-1].normal_()


def compiled(fn: Any, **settings: Any) -> Any:
    return stator.compile(fn, backend="cudagraphs", **settings)


def check(
    fn: Callable[..., Any], *calls: Callable[[], tuple[Any, ...]], captured: bool = True
) -> Any:
    """The function of `calls`' arguments, plain and compiled: results, kept to the end, and the arguments behind it."""
    ours = compiled(fn)
    found, expected = [], []
    for args in calls:
        torch.manual_seed(1)
        given = args()
        copies = [it.clone() if isinstance(it, Tensor) else it for it in given]
        state = torch.get_rng_state()
        found.append(ours(*given))
        after = torch.get_rng_state()
        torch.set_rng_state(state)
        expected.append(fn(*copies))
        assert torch.equal(after, torch.get_rng_state())
        for mine, plain in zip(given, copies, strict=True):
            assert mine is plain or torch.equal(mine, plain)
    for at, (mine, plain) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0, equal_nan=True, msg=f"call {at}")
    if captured:
        assert stats(ours).tiers == ["compiled"], stats(ours).why
    return ours


def chain(x: Tensor, y: Tensor) -> Tensor:
    return ((x + y).sin() * 2).exp()


def test_inputs_in_their_places(device: StandIn) -> None:
    x, y = fresh(3), fresh(3)

    def call() -> tuple[Tensor, Tensor]:
        x.add_(1)
        return x, y

    check(chain, *[call] * CALLS)
    # Recorded, watched, captured; and launched from then on.
    assert (device.captures, device.launches) == (1, CALLS - 2)


def test_inputs_that_move_are_copied(device: StandIn) -> None:
    y = fresh(3)
    ours = check(chain, *[lambda: (fresh(3), y)] * CALLS)
    assert (device.captures, device.launches) == (1, CALLS - 2)
    assert stats(ours).hits == CALLS - 1


def test_an_input_that_moves_later_on(device: StandIn) -> None:
    x, y = fresh(3), fresh(3)
    check(
        chain,
        *[lambda: (x, y)] * 4,
        *[lambda: (fresh(3), y)] * 3,
        *[lambda: (fresh(3), fresh(3))] * 3,
    )
    # In place, one copied, both copied.
    assert device.captures == 3


def test_other_data_in_place(device: StandIn) -> None:
    """Parameters are used where they are: what an optimizer has written is seen."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    ours = compiled(model)
    for _ in range(CALLS):
        x = fresh(5, 3)
        assert torch.equal(ours(x), model(x))
        for parameter in model.parameters():
            parameter.mul_(0.9)
    model[0].weight = nn.Parameter(fresh(4, 3))
    for _ in range(CALLS):
        x = fresh(5, 3)
        assert torch.equal(ours(x), model(x))
    assert stats(ours).tiers[-1] == "compiled"


def test_results_are_the_callers(device: StandIn) -> None:
    ours = compiled(chain)
    x, results, expected = fresh(3), [], []
    for _ in range(CALLS):
        x.add_(1)
        expected.append(chain(x, x).clone())
        results.append(ours(x, x))
    for mine, plain in zip(results, expected, strict=True):
        assert torch.equal(mine, plain)
    results[-1].zero_()
    assert torch.equal(ours(x, x), chain(x, x))


def adds(x: Tensor, total: Tensor) -> Tensor:
    y = x.sin() * 2
    total.add_(y)
    return total * 2


def test_writes_in_place(device: StandIn) -> None:
    total = torch.zeros(3)
    plain = torch.zeros(3)
    ours = compiled(adds)
    for _ in range(CALLS):
        x = fresh(3)
        before = total._version
        assert torch.equal(ours(x, total), adds(x, plain))
        assert torch.equal(total, plain) and total._version == before + 1
    assert device.captures == 1 and stats(ours).tiers == ["compiled"]


def test_what_is_written_is_never_copied(device: StandIn) -> None:
    ours = compiled(adds)
    for _ in range(CALLS):
        x, total, plain = fresh(3), fresh(3), fresh(3)
        plain.copy_(total)
        assert torch.equal(ours(x, total), adds(x, plain)) and torch.equal(total, plain)
    assert device.captures == 0
    assert stats(ours).tiers == ["replay"]
    assert stats(ours).why == ["an input that it writes to is elsewhere than at the call before"]


def test_two_buffers_in_turn(device: StandIn) -> None:
    buffers = [(torch.zeros(3), torch.zeros(3)) for _ in range(2)]
    ours = compiled(adds)
    for at in range(12):
        total, plain = buffers[at // 3 % 2]
        x = fresh(3)
        assert torch.equal(ours(x, total), adds(x, plain)) and torch.equal(total, plain)
    assert device.captures == 2


def test_captures_are_bounded(device: StandIn) -> None:
    ours = compiled(adds)
    for _ in range(12):
        total, plain = fresh(3).zero_(), torch.zeros(3)
        for _ in range(3):
            x = fresh(3)
            assert torch.equal(ours(x, total), adds(x, plain)) and torch.equal(total, plain)
    assert device.captures == 8
    assert stats(ours).tiers == ["replay"] and "there are 8 graphs" in stats(ours).why[0]


def overlaps(x: Tensor, row: Tensor) -> Tensor:
    row.mul_(2)
    return (x.sum(0) + row).exp() - x


def test_inputs_that_share_memory(device: StandIn) -> None:
    ours = compiled(overlaps)
    x = torch.rand(2, 3)
    plain = x.clone()
    for at in range(CALLS):
        assert torch.equal(ours(x, x[1]), overlaps(plain, plain[1]))
        assert torch.equal(x, plain)
        if at == CALLS // 2:
            x, plain = fresh(2, 3), fresh(2, 3)
            plain.copy_(x)
    other, copy = fresh(2, 3), fresh(2, 3)
    copy.copy_(other)
    for _ in range(CALLS):
        row, plain_row = torch.ones(3), torch.ones(3)
        assert torch.equal(ours(other, row), overlaps(copy, plain_row))
    assert device.captures >= 2


def test_inputs_that_share_memory_and_move(device: StandIn) -> None:
    def both(x: Tensor, y: Tensor) -> Tensor:
        return (x.sin() + y).exp() * 2

    def call() -> tuple[Tensor, Tensor]:
        x = fresh(6)
        return x[:3], x[1:4]

    check(both, *[call] * CALLS)


def test_expanded_and_strided_inputs(device: StandIn) -> None:
    def read(x: Tensor, y: Tensor) -> Tensor:
        return (x * 2 + y).sin().sum(1)

    def call() -> tuple[Tensor, Tensor]:
        return fresh(1, 3).expand(4, 3), fresh(4, 6)[:, ::2]

    check(read, *[call] * CALLS)
    check(
        read,
        *[lambda: (fresh(3, 4).t(), fresh(0, 3).expand(4, 3) if False else fresh(4, 3))] * CALLS,
    )


def test_empty_tensors(device: StandIn) -> None:
    check(chain, *[lambda: (torch.empty(0, 3), fresh(1, 3))] * CALLS)


def test_a_view_of_an_input(device: StandIn) -> None:
    def views(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = (x * 2).sin() + 1
        return x.t()[1:], y, x

    ours = compiled(views)
    for _ in range(CALLS):
        x = fresh(3, 4)
        view, _, same = ours(x)
        plain = views(x)[0]
        assert same is x and view._base is x
        assert (view.shape, view.stride(), view.storage_offset()) == (
            *(plain.shape, plain.stride(), plain.storage_offset()),
        )
        view.zero_()
        assert x[:, 1:].eq(0).all()
    assert stats(ours).tiers == ["compiled"]


def test_results_that_share_memory(device: StandIn) -> None:
    def parts(x: Tensor) -> tuple[Tensor, ...]:
        y = (x * 2).sin() + 1
        return y, y[1], *y.chunk(2, dim=1), (y.exp() * 2).t(), (y * 3)[0], y.cos().unbind(0)[1]

    ours = compiled(parts)
    for _ in range(CALLS):
        x = fresh(2, 4)
        mine, plain = ours(x), parts(x)
        for at in (0, 2):
            mine[at].mul_(3), plain[at].mul_(3)
        for own, other in zip(mine, plain, strict=True):
            assert torch.equal(own, other) and own.stride() == other.stride()
            assert own.storage_offset() == other.storage_offset()
            assert own.untyped_storage().nbytes() == other.untyped_storage().nbytes()
            assert (own._base is None) == (other._base is None)
        assert mine[1]._base is mine[0]
    assert stats(ours).tiers == ["compiled"]


def test_one_result_twice(device: StandIn) -> None:
    def twice(x: Tensor) -> list[Tensor]:
        y = x.sin() * 2
        z = y.add_(1)
        return [y, z, x.exp()]

    ours = compiled(twice)
    for _ in range(CALLS):
        x = fresh(3)
        first, second, _ = ours(x)
        assert first is second and torch.equal(first, twice(x)[0])
    assert stats(ours).tiers == ["compiled"]


def test_random_numbers(device: StandIn) -> None:
    def noisy(x: Tensor) -> Tensor:
        return (x + torch.rand_like(x)).sin() * torch.randn(3)

    check(noisy, *[lambda: (fresh(3),)] * CALLS)


def test_inference_mode(device: StandIn) -> None:
    ours = compiled(chain)
    y = fresh(3)
    with torch.inference_mode():
        for _ in range(CALLS):
            x = fresh(3)
            result = ours(x, y)
            assert result.is_inference() and torch.equal(result, chain(x, y))
    assert stats(ours).tiers == ["compiled"]
    for _ in range(CALLS):
        x = fresh(3)
        result = ours(x, y)
        assert not result.is_inference() and torch.equal(result, chain(x, y))


def test_random_numbers_in_inference_mode(device: StandIn) -> None:
    """PyTorch's dispatcher shows operations there that are made of others."""

    def noisy(x: Tensor) -> Tensor:
        return (nn.functional.dropout(x, 0.5) * 2 + 1).sin()

    with torch.inference_mode():
        check(noisy, *[lambda: (fresh(3),)] * CALLS)


def test_gradients_switched_on_that_nobody_asks_for(device: StandIn) -> None:
    ours = compiled(chain)
    with torch.enable_grad():
        for _ in range(CALLS):
            x, y = fresh(3), fresh(3)
            result = ours(x, y)
            assert not result.requires_grad and torch.equal(result, chain(x, y))
    assert stats(ours).tiers == ["compiled"]


def test_autocast(device: StandIn) -> None:
    linear = nn.Linear(3, 3)

    def cast(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = linear(x).relu()
            y = linear(y.sin()).exp()
        return y * 2

    check(cast, *[lambda: (fresh(2, 3),)] * CALLS, captured=False)
    assert device.captures == 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(cast, *[lambda: (fresh(2, 3),)] * CALLS, captured=False)
    assert device.captures == 2


def test_decisions_run_between_graphs(device: StandIn) -> None:
    def decides(x: Tensor) -> Tensor:
        y = (x * 2).sin() + 1
        if y.sum() > 3:
            y = (y * y).exp() + 2
        return y

    calls = [
        lambda sign=sign: (fresh(3) * 0 + sign,) for sign in (1, 1, 1, 1, -1, 1, -1, -1, -1, -1, 1)
    ]
    ours = check(decides, *calls, captured=False)
    assert device.captures >= 2 and "compiled" in stats(ours).tiers


def test_sizes_that_vary(device: StandIn) -> None:
    def sized(x: Tensor) -> Tensor:
        y = (x * 2).sin() + 1
        return (y.exp() * x.shape[0]).view(-1)

    sizes = [2, 3, 4, 2, 3, 4, 5, 2, 3, 4, 2, 3, 4]
    ours = check(sized, *[lambda size=size: (fresh(size, 2),) for size in sizes], captured=False)
    assert device.captures >= 3 and stats(ours).entries <= 2


def test_one_pool_for_a_function(device: StandIn) -> None:
    ours = compiled(chain)
    for size in (2, 3):
        for _ in range(CALLS):
            ours(fresh(size), fresh(size))
    assert device.captures >= 2 and len(device.pools) == 1


def test_streams_have_graphs_of_their_own(device: StandIn) -> None:
    ours = compiled(chain)
    x, y = fresh(3), fresh(3)
    for at in range(12):
        device.selected = at // 4 % 2
        assert torch.equal(ours(x, y), chain(x, y))
    assert device.captures == 2 and len(device.pools) == 2


def test_reset_lets_go(device: StandIn) -> None:
    ours = compiled(chain)
    x, y = fresh(3), fresh(3)
    for _ in range(CALLS):
        ours(x, y)
    graphs = [it for it in gc.get_objects() if type(it).__name__ == "_Capture"]
    assert len(graphs) == 1
    graph = weakref.ref(graphs.pop())
    stator.reset()
    gc.collect()
    assert graph() is None
    for _ in range(CALLS):
        assert torch.equal(ours(x, y), chain(x, y))
    assert device.captures == 2


def test_no_tensor_of_the_programs_is_kept(device: StandIn) -> None:
    ours = compiled(chain)
    x, y = torch.rand(3), torch.rand(3)
    for _ in range(CALLS):
        ours(x, y)
    assert stats(ours).tiers == ["compiled"]
    dead = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert dead[0]() is None and dead[1]() is None


def test_threads(device: StandIn) -> None:
    ours = compiled(chain)
    wrong: list[int] = []

    def work(number: int) -> None:
        with torch.no_grad():
            for at in range(200):
                x, y = torch.full((50,), number + at / 100), torch.full((50,), 0.1)
                if not torch.equal(ours(x, y), chain(x, y)):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and device.launches > 0
