"""Products with sparse matrices: what is recorded holds however many elements a matrix has by then; other sizes, types and
layouts are other traces, and what follows from its elements' places breaks the graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator

Step = Callable[[Tensor, Tensor], Any]
WHOLE: dict[str, Step] = {}
BREAKING: dict[str, Step] = {}

torch.manual_seed(0)
WEIGHT = torch.randn(4, 4)
INDICES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 2]])


def whole(step: Step) -> Step:
    WHOLE[step.__name__] = step
    return step


def breaking(step: Step) -> Step:
    BREAKING[step.__name__] = step
    return step


@whole
def by_operator(adj: Tensor, x: Tensor) -> Any:
    return (adj @ x).relu()


@whole
def by_spmm(adj: Tensor, x: Tensor) -> Any:
    return torch.spmm(adj, x @ WEIGHT) + 1


@whole
def by_sparse_mm(adj: Tensor, x: Tensor) -> Any:
    return torch.sparse.mm(adj, torch.sparse.mm(adj, x))


@whole
def by_methods(adj: Tensor, x: Tensor) -> Any:
    return adj.matmul(x), adj.mm(x), adj.mv(x[:, 0]), torch.mv(adj, x[:, 1])


@whole
def by_addition(adj: Tensor, x: Tensor) -> Any:
    return torch.sparse.addmm(x, adj, x), torch.addmm(x, adj, x, beta=0.5)


@whole
def made_dense(adj: Tensor, x: Tensor) -> Any:
    return adj.to_dense() + x[0, 0]


@whole
def its_description(adj: Tensor, x: Tensor) -> Any:
    y = adj @ x / adj.shape[0]
    return y.to(adj.dtype), adj.layout, adj.is_sparse, adj.ndim, adj.device, adj.requires_grad


@whole
def made_in_the_call(adj: Tensor, x: Tensor) -> Any:
    made = torch.sparse_coo_tensor(INDICES, x.flatten()[:4], (3, 3))
    return made @ x, made.to_dense(), adj @ x


@whole
def counts_of_pairs(adj: Tensor, x: Tensor) -> Any:
    labels = (x.flatten()[:6] > 0).long()
    places = torch.stack((labels, labels.flip(0)))
    ones = torch.ones(6, dtype=x.dtype)
    return torch.sparse_coo_tensor(places, ones, (2, 2)).to_dense()


@whole
def given_back(adj: Tensor, x: Tensor) -> Any:
    made = torch.sparse_coo_tensor(INDICES, x.flatten()[:4], (3, 3))
    return made, made @ x


@whole
def a_gradient(adj: Tensor, x: Tensor) -> Any:
    weight = WEIGHT.clone().requires_grad_()
    loss = torch.sparse.mm(adj, x.detach() @ weight).pow(2).sum()
    loss.backward()
    return weight.grad, loss.detach()


@whole
def a_gradient_of_elements(adj: Tensor, x: Tensor) -> Any:
    values = x.detach().flatten()[:4].clone().requires_grad_()
    made = torch.sparse_coo_tensor(INDICES, values, (3, 3))
    torch.sparse.mm(made, x.detach()).pow(2).sum().backward()
    return values.grad


@breaking
def how_many(adj: Tensor, x: Tensor) -> Any:
    return adj @ x * adj._nnz()


@breaking
def its_elements(adj: Tensor, x: Tensor) -> Any:
    y = adj @ x
    return y + adj.to_sparse_coo().coalesce().values().sum()


@breaking
def in_order(adj: Tensor, x: Tensor) -> Any:
    made = torch.sparse_coo_tensor(INDICES, x.flatten()[:4], (3, 3))
    return made.coalesce().indices().shape, made @ x


@breaking
def multiplied_by_a_number(adj: Tensor, x: Tensor) -> Any:
    return (adj * 2) @ x


@whole
def turned(adj: Tensor, x: Tensor) -> Any:
    return adj.t() @ x, x.t() @ adj


@breaking
def changed_in_place(adj: Tensor, x: Tensor) -> Any:
    made = torch.sparse_coo_tensor(INDICES, x.flatten()[:4], (3, 3))
    made.mul_(2)
    return made @ x


@breaking
def of_an_unknown_size(adj: Tensor, x: Tensor) -> Any:
    return torch.sparse_coo_tensor(INDICES, x.flatten()[:4]).to_dense()


@breaking
def rows_that_data_chooses(adj: Tensor, x: Tensor) -> Any:
    chosen = x[x[:, 0] > -9]
    return adj @ chosen


def matrix(size: int = 3, kind: str = "coo", dtype: torch.dtype = torch.float32) -> Tensor:
    dense = torch.zeros(size, size, dtype=dtype)
    dense[torch.arange(size), torch.arange(size).flip(0)] = torch.arange(1, size + 1, dtype=dtype)
    return dense.to_sparse_csr() if kind == "csr" else dense.to_sparse()


def fuller() -> Tensor:
    """It has more elements, and holds two at one place."""
    places = torch.tensor([[0, 0, 1, 2, 2, 0], [0, 0, 2, 0, 1, 2]])
    return torch.sparse_coo_tensor(places, torch.arange(1.0, 7.0), (3, 3))


def calls() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)

    def rows(size: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(size, 4, generator=generator, dtype=dtype)

    for _ in range(3):
        yield matrix(), rows()
    yield fuller(), rows()
    yield torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), [], (3, 3)), rows()
    yield matrix(kind="csr"), rows()
    yield matrix(dtype=torch.float64), rows(dtype=torch.float64)
    yield matrix(), rows().requires_grad_()
    yield matrix().requires_grad_(), rows()
    yield matrix(5), rows(5)
    yield matrix(4), rows()  # It doesn't fit.
    yield matrix().to_dense(), rows()
    yield matrix(), rows()


def seen(step: Step) -> list[Any]:
    told: list[Any] = []
    for adj, x in calls():
        try:
            result = step(adj, x)
        except (RuntimeError, IndexError, TypeError) as error:
            told.append((type(error), str(error)))
            continue
        told.append([described(it) for it in (result if isinstance(result, tuple) else (result,))])
    return told


def described(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    facts = (value.layout, value.shape, value.dtype, value.requires_grad, value.is_leaf)
    if value.layout != torch.strided:
        return facts, value.detach().to_dense().tolist()
    return facts, value.stride(), value.detach().tolist()


@pytest.fixture(autouse=True)
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("name", WHOLE | BREAKING)
def test_results_are_plain_pythons(name: str, skips: bool, backend: str) -> None:
    step = (WHOLE | BREAKING)[name]
    expected = seen(step)
    # PyTorch has no stand-in for what lies in a compressed matrix: that backend fails there.
    with stator.config.patch(skip_unprofitable=skips, strict=backend == "eager"):
        assert seen(stator.compile(step, backend=backend)) == expected


@pytest.mark.parametrize("name", WHOLE)
def test_another_number_of_elements_is_no_other_trace(name: str) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(WHOLE[name], backend="eager")
        for adj, x in list(calls())[:5]:
            compiled(adj, x)
    stats = stator.stats(compiled)
    assert (stats.traces, stats.breaks, stats.hits) == (1, 0, 4)


@pytest.mark.parametrize("name", BREAKING)
def test_what_elements_say_breaks_the_graph(name: str) -> None:
    with stator.config.patch(skip_unprofitable=False):
        compiled = stator.compile(BREAKING[name], backend="eager")
        compiled(matrix(), torch.randn(3, 4))
    assert stator.stats(compiled).breaks > 0


class Convolution(nn.Module):
    """Two layers over a graph, whose matrix is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adj", matrix())
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.spmm(self.adj, self.second(torch.spmm(self.adj, self.first(x)).relu()))


def test_a_network_is_trained_as_in_plain_python() -> None:
    def trained(compiles: bool) -> tuple[list[Any], Any]:
        torch.manual_seed(2)
        net = Convolution()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)

        def step(x: Tensor, y: Tensor) -> float:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        call = stator.compile(step) if compiles else step
        losses: list[Any] = []
        for epoch in range(8):
            if epoch == 5:
                net.adj = fuller()
            losses.append(call(torch.randn(3, 4), torch.tensor([0, 1, 1])))
        return losses, call

    with stator.config.patch(skip_unprofitable=False):
        losses, call = trained(compiles=True)
    assert losses == trained(compiles=False)[0]
    assert stator.stats(call).breaks == 0
