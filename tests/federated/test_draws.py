"""What clients draw: each has numbers of its own, which a seed decides, however work is done."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional as F

import stator.federated as fl
from stator._program_tracing.drawing import Draws
from stator._program_tracing.table import _table, draws_nothing
from stator.federated.execution import LocalContext
from stator.programs import TensorProgram

from .plain import C, T, at, f32

X = T(f32, [4, 6])


def trains(x):
    weights = (torch.ones(6, 3) + 0 * x[0, 0]).requires_grad_()
    for _ in range(3):
        hidden = F.dropout(torch.tanh(x @ weights), 0.3) + 0.1 * torch.randn(4, 3)
        (gradient,) = torch.autograd.grad((hidden**2).mean(), weights)
        weights = (weights - 0.5 * gradient).detach().requires_grad_()
    return weights.detach()


def own(x):
    return x.clone() * 1


OPERATIONS: dict[str, Callable[..., Any]] = {
    "rand": lambda x: torch.rand(2, 2) + x[0, 0],
    "randn": lambda x: torch.randn(20) + x[0, 0],
    "randint": lambda x: torch.randint(0, 1000, (3,)) + x.sum().to(torch.int64),
    "randperm": lambda x: x[torch.randperm(4)],
    "rand_like": lambda x: torch.rand_like(x),
    "normal": lambda x: torch.normal(x, 2.0),
    "normal_": lambda x: own(x).normal_(),
    "uniform_": lambda x: own(x).uniform_(-1, 1),
    "exponential_": lambda x: own(x).exponential_(),
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x)),
    "bernoulli_": lambda x: own(x).bernoulli_(0.5),
    "multinomial": lambda x: torch.multinomial(torch.sigmoid(x), 3),
    "poisson": lambda x: torch.poisson(x.exp()),
    "empty": lambda x: torch.empty(20).normal_() + x[0, 0],
    "zeros": lambda x: torch.zeros(20).uniform_() + x[0, 0],
    "full": lambda x: torch.full((20,), 0.5).bernoulli_() + x[0, 0],
    "new_ones": lambda x: x.new_ones(20).normal_() + x[0, 0],
    "ones_like": lambda x: torch.ones_like(torch.rand(20)).exponential_(),
    "new_empty": lambda x: x.new_empty(5).uniform_(),
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout in place": lambda x: F.dropout(own(x), 0.4, inplace=True),
    "dropout2d": lambda x: F.dropout2d(x.reshape(1, 4, 2, 3), 0.5),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], None, 0.5),
    "twice": lambda x: torch.rand(2) + torch.rand(2) * x[0, 0],
    "trains": trains,
}


def mapped(function: Callable[..., Any]) -> Any:
    local = fl.local_computation(X)(function)
    return fl.federated_computation(
        lambda x: fl.federated_collect(fl.federated_map(local, x)), at(C, X)
    )


def rows(clients: int) -> list[Any]:
    drawn = np.random.default_rng(5)
    return [drawn.normal(size=(4, 6)).astype(f32) for _ in range(clients)]


def run(comp: Any, *args: Any, seed: int | None = 3, **settings: Any) -> Any:
    if seed is not None:
        torch.manual_seed(seed)
    with fl.framework.get_context_stack().install(LocalContext(**settings)):
        return comp(*args)


def by_hand(function: Callable[..., Any], rows: list[Any], place: int = 0, seed: int = 3) -> Any:
    """What PyTorch gives for each client, drawing where that client draws."""
    torch.manual_seed(seed)
    draws, found = Draws(), []
    draws.enter()
    for client, row in enumerate(rows):
        draws.become(place, client)
        found.append(function(torch.from_numpy(row)).numpy())
    draws.leave()
    return found


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For how many clients programs were run at once, each time."""
    counts: list[int] = []
    plain = TensorProgram._run_together

    def noted(self: Any, count: int, *given: Any) -> Any:
        made = plain(self, count, *given)
        counts.append(count)
        return made

    monkeypatch.setattr(TensorProgram, "_run_together", noted)
    return counts


def same(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_client_draws_the_same_alone_and_with_others(name: str, counted: list[int]) -> None:
    function = OPERATIONS[name]
    comp, given = mapped(function), rows(7)
    expected = by_hand(function, given)
    same(run(comp, given, exact=True), expected)
    assert not counted
    # The first time the first client is run alone as well, the second time not.
    for _ in range(2):
        same(run(comp, given), expected)
    assert counted == [7, 7]
    same(run(comp, given, threads=3), expected)
    # Who else takes part makes no difference.
    same(run(comp, given[:2]), expected[:2])
    assert len({np.asarray(each).tobytes() for each in expected}) == 7


def test_numbers_are_those_of_the_call_the_map_and_the_client() -> None:
    draw = fl.local_computation(X)(OPERATIONS["randn"])

    @fl.federated_computation(at(C, X))
    def twice(x):
        first, second = fl.federated_map(draw, x), fl.federated_map(draw, x)
        return fl.federated_collect(first), fl.federated_collect(second)

    given = rows(3)
    first, second = run(twice, given)
    # The next call draws other numbers, which the seed decides as well.
    again = run(twice, given, seed=None)
    same(first, by_hand(OPERATIONS["randn"], given))
    same(second, by_hand(OPERATIONS["randn"], given, place=1))
    assert not np.array_equal(again[0], first)
    run(twice, given, exact=True)
    same(run(twice, given, seed=None, exact=True)[0], again[0])
    assert not np.array_equal(run(twice, given, seed=4)[0], first)


def test_what_others_draw_does_not_depend_on_clients() -> None:
    noise = fl.local_computation(lambda: torch.randn(2))
    draw = fl.local_computation(X)(OPERATIONS["randn"])

    @fl.federated_computation(at(C, X))
    def both(x):
        before = fl.federated_eval(noise, fl.SERVER)
        clients = fl.federated_collect(fl.federated_map(draw, x))
        return before, clients, fl.federated_eval(noise, fl.SERVER)

    found = [run(both, rows(clients)) for clients in (1, 5)]
    after = []
    for clients in (1, 5):
        run(both, rows(clients))
        after.append(torch.rand(3).tolist())
    torch.manual_seed(3)
    expected = torch.randn(2).numpy(), torch.randn(2).numpy()
    for before, _, behind in found:
        same((before, behind), expected)
    assert after[0] == after[1]
    same(found[1][1][:1], found[0][1])
    # What clients draw follows from where the generator was, and is nowhere else there.
    same(found[1][1], by_hand(OPERATIONS["randn"], rows(5)))


def test_a_function_around_a_program_draws_for_its_client() -> None:
    draw = fl.local_computation(X)(OPERATIONS["randn"])

    @fl.federated_computation(X)
    def pair(x):
        return draw(x), draw(x)

    comp = fl.federated_computation(
        lambda x: fl.federated_collect(fl.federated_map(pair, x)), at(C, X)
    )

    def plain(x):
        return torch.stack([OPERATIONS["randn"](x), OPERATIONS["randn"](x)])

    same(run(comp, rows(4)), by_hand(plain, rows(4)))
    one = fl.federated_computation(
        lambda: fl.federated_collect(fl.federated_eval(noise, fl.CLIENTS))
    )
    found = run(one, clients=3)
    assert len(set(found.tolist() if hasattr(found, "tolist") else [float(v) for v in found])) == 3


noise = fl.local_computation(lambda: torch.rand(()))


def test_generators_of_the_programs_own_give_all_clients_the_same(counted: list[int]) -> None:
    def function(x):
        generator = torch.Generator()
        generator.manual_seed(7)
        return torch.randn(3, generator=generator) + own(x).normal_(generator=generator).sum()

    found = run(mapped(function), rows(5))
    assert len({each.tobytes() for each in found}) == 1 and counted == [5]
    same(run(mapped(function), rows(5), exact=True), found)


def test_a_client_that_fails_is_named_and_the_generator_is_where_it_was() -> None:
    def function(x):
        return torch.randn(4)[x[0, :1].to(torch.int64)]

    given = [np.full((4, 6), 9.0 if client == 3 else 1.0, f32) for client in range(5)]
    after = []
    for settings in ({}, {"exact": True}):
        with pytest.raises(IndexError) as met:
            run(mapped(function), given, **settings)
        assert met.value.__notes__[-1] == "at client 3"
        after.append(torch.rand(3).tolist())
    assert after[0] == after[1]


def test_rounds_of_learning_drop_by_the_seed() -> None:
    from stator.federated import learning

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Dropout(0.4), torch.nn.Linear(5, 3)
    )
    of = learning.Model(net, F.cross_entropy, inputs=T(f32, [None, 6]), labels=T(np.int64, [None]))
    process = learning.build_fed_avg(of, steps=3)
    data = [
        {"inputs": np.resize(row, (n, 6)), "labels": np.arange(n) % 3}
        for row, n in zip(rows(9), (4, 4, 5, 4, 5, 4, 3, 4, 5), strict=True)
    ]
    found = []
    for settings in ({}, {"exact": True}, {"threads": 1}):
        with fl.framework.get_context_stack().install(LocalContext(**settings)):
            found.append(learning.train(process, data, rounds=2, seed=5).state["weights"])
    for other in found[1:]:
        for name, weights in found[0].items():
            np.testing.assert_allclose(weights, other[name], rtol=1e-4, atol=1e-6)


def test_draws_are_told_from_what_draws_nothing() -> None:
    """By names alone, so the names of PyTorch's that draw are listed here."""
    by_name, _ = _table()
    found = {
        name.rpartition(".")[2].rstrip("_")
        for name, of in by_name.items()
        if callable(of) and not draws_nothing(name)
    }
    assert found == {
        *("_sample_dirichlet", "_standard_gamma"),
        *("alpha_dropout", "bernoulli", "binomial", "cauchy", "dropout", "dropout1d", "dropout2d"),
        *("dropout3d", "exponential", "feature_alpha_dropout", "feature_dropout"),
        *("fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d"),
        *("fractional_max_pool3d_with_indices", "geometric", "gru", "gumbel_softmax", "lobpcg"),
        *("log_normal", "lstm", "multi_head_attention_forward", "multinomial", "native_dropout"),
        *("normal", "pca_lowrank", "poisson", "rand", "rand_like", "randint", "randint_like"),
        *("randn", "randn_like", "random", "randperm", "rnn_relu", "rnn_tanh", "rrelu"),
        *("rrelu_with_noise", "scaled_dot_product_attention", "svd_lowrank", "uniform"),
    }


def test_places_are_told_apart_by_more_than_a_seed_tells() -> None:
    draws = Draws(b"key")
    states = {draws.state(place, client).numpy().tobytes() for place in (0, 1) for client in (0, 1)}
    assert len(states) == 4
    assert torch.equal(draws.state(1, 2), Draws(b"key").state(1, 2))
    generator = torch.Generator()
    generator.set_state(draws.state(0, 0))
    numbers = torch.rand(100_000, generator=generator, dtype=torch.float64)
    # Six standard errors.
    assert abs(numbers.mean() - 0.5) < 6 / (12 * 100_000) ** 0.5
    assert abs(numbers.var() - 1 / 12) < 0.002


def test_calls_at_the_same_time_draw_as_alone() -> None:
    comp = mapped(OPERATIONS["trains"])
    given = rows(40)

    def drawn(key: bytes) -> Any:
        draws = Draws(key)
        found = []
        draws.enter()
        for client, row in enumerate(given):
            draws.become(0, client)
            found.append(trains(torch.from_numpy(row)))
        draws.leave()
        return found

    expected = [drawn(b"a"), drawn(b"b")]
    torch.manual_seed(4)
    before = torch.get_rng_state()
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        found = list(threads.map(drawn, (b"a", b"b")))
    for one, other in zip(found, expected, strict=True):
        same([each.numpy() for each in one], [each.numpy() for each in other])
    assert torch.equal(torch.get_rng_state(), before)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda _: comp(given), range(4)))
    # Each call has moved it on, and left it at no client's place.
    moved = torch.get_rng_state()
    torch.manual_seed(4)
    assert torch.initial_seed() == 4 and moved[:8].tolist() == torch.get_rng_state()[:8].tolist()
