"""`backend="cudagraphs"` on a GPU: results are eager's to the bit, whatever moves, and nothing is left behind.

What needs no GPU is in `tests/cudagraphs`.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differential.support import api
from torch import Tensor, nn
from torch.nn import functional as F

import stator
from bench.gpu import VOCABULARY, Sizes, Transformer

if api.PLAIN:
    pytest.skip("it looks into what is captured", allow_module_level=True)

CALLS = 8
kept: list[Tensor] = []
"""Keeps memory from being used again, so that a new tensor is elsewhere."""


@pytest.fixture(autouse=True)
def _without_gradients(cuda: str) -> Iterator[None]:
    with torch.no_grad():
        yield
    kept.clear()


def fresh(*sizes: int) -> Tensor:
    kept.append(torch.randn(*sizes, device="cuda"))
    return kept[-1]


def compiled(fn: Any) -> Any:
    return stator.compile(fn, backend="cudagraphs")


def is_captured(ours: Any) -> bool:
    return "compiled" in stator.stats(ours).tiers


def same(
    fn: Any, make: Callable[[int], tuple[Any, ...]], calls: int = CALLS, captured: bool = True
) -> Any:
    """The same arguments for the plain function and the compiled one, at each call: results, kept to the end, what was
    written, the generator's state."""
    ours, found, expected = compiled(fn), [], []
    for at in range(calls):
        args = make(at)
        copies = [it.clone() if isinstance(it, Tensor) else it for it in args]
        state = torch.cuda.get_rng_state()
        found.append(ours(*args))
        after = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(state)
        expected.append(fn(*copies))
        assert torch.equal(after, torch.cuda.get_rng_state()), f"call {at} has drawn other numbers"
        for mine, plain in zip(args, copies, strict=True):
            assert mine is plain or torch.equal(mine, plain), (
                f"call {at} has written something else"
            )
    for at, (mine, plain) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(mine, plain, rtol=0, atol=0, equal_nan=True, msg=f"call {at}")
    assert not captured or is_captured(ours), stator.stats(ours).why
    return ours


def chain(x: Tensor, y: Tensor) -> Tensor:
    return ((x @ y).sin() * 2 + x).exp()


def test_inputs_that_stay_and_inputs_that_move() -> None:
    x, y = fresh(8, 8), fresh(8, 8)
    same(chain, lambda at: (x, y))
    same(chain, lambda at: (fresh(8, 8), y))
    same(chain, lambda at: (x if at < 4 else fresh(8, 8), y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_alignments(dtype: torch.dtype) -> None:
    """Libraries choose kernels by addresses, too."""
    linear = nn.Linear(64, 64, device="cuda", dtype=dtype)

    def runs(x: Tensor) -> Tensor:
        return linear(linear(x).relu()).relu()

    def make(at: int) -> tuple[Tensor]:
        flat = torch.randn(64 * 32 + 64, device="cuda", dtype=dtype)
        kept.append(flat)
        return (flat[at % 4 : at % 4 + 64 * 32].view(32, 64),)

    same(runs, make, 24)


def test_a_transformer() -> None:
    torch.manual_seed(0)
    model = Transformer(Sizes(layers=3, width=128, heads=2, tokens=32)).cuda().eval()
    ours = compiled(model)
    for _ in range(20):
        tokens = torch.randint(VOCABULARY, (4, 32), device="cuda")
        kept.append(tokens)
        assert torch.equal(ours(tokens), model(tokens))
    assert stator.stats(ours).tiers == ["compiled"], stator.stats(ours).why


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("where", ["within", "around", "both"])
def test_autocast(where: str, dtype: torch.dtype) -> None:
    model = Transformer(Sizes(layers=1, width=64, heads=1, tokens=16)).cuda().eval()

    def within(tokens: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=dtype, enabled=where != "around"):
            return model(tokens)

    fn = model.forward if where == "around" else within
    ours = compiled(fn)
    with torch.autocast("cuda", dtype=dtype, enabled=where != "within"):
        for _ in range(CALLS):
            tokens = torch.randint(VOCABULARY, (2, 16), device="cuda")
            assert torch.equal(ours(tokens), fn(tokens))
            # The cache of casts isn't the graph's.
            assert torch.equal(model.head(kept_input(64)), model.head(kept_input(64)))
    assert is_captured(ours), stator.stats(ours).why


def kept_input(width: int) -> Tensor:
    return torch.ones(2, width, device="cuda")


def test_convolutions() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)
    ).cuda()
    same(model.eval().forward, lambda at: (fresh(2, 3, 16, 16),))


def test_statistics_of_batches() -> None:
    models = [
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).cuda() for _ in range(2)
    ]
    models[1].load_state_dict(models[0].state_dict())
    ours = compiled(models[0])
    for _ in range(CALLS):
        x = fresh(2, 3, 16, 16)
        assert torch.equal(ours(x), models[1](x))
        for mine, plain in zip(models[0].buffers(), models[1].buffers(), strict=True):
            assert torch.equal(mine, plain)


def test_random_numbers() -> None:
    def noisy(x: Tensor) -> Tensor:
        return (F.dropout(x, 0.5) + torch.rand_like(x)).sin() * torch.randn(64, device="cuda")

    def seeded(at: int) -> tuple[Tensor]:
        if at == 5:
            torch.manual_seed(7)
        return (fresh(64),)

    same(noisy, seeded, 12)


def test_two_functions_draw_in_turn() -> None:
    def first(x: Tensor) -> Tensor:
        return (F.dropout(x, 0.5) * 2 + 1).sin()

    def second(x: Tensor) -> Tensor:
        return (torch.rand_like(x) * 2 + x).exp() * torch.rand(3, device="cuda").sum()

    mine, x = (compiled(first), compiled(second)), fresh(5)

    def draws(fns: tuple[Any, Any]) -> list[Tensor]:
        torch.manual_seed(3)
        return [
            value
            for _ in range(CALLS)
            for value in (fns[0](x), fns[1](x), torch.rand(2, device="cuda"))
        ]

    for own, plain in zip(draws(mine), draws((first, second)), strict=True):
        assert torch.equal(own, plain)
    assert all(map(is_captured, mine))


def test_random_numbers_first_in_inference_mode() -> None:
    def noisy(x: Tensor) -> Tensor:
        return (F.dropout(x, 0.5) * 2 + 1).sin()

    with torch.inference_mode():
        same(noisy, lambda at: (fresh(64),))
    same(noisy, lambda at: (fresh(64),))
    torch.rand(2, device="cuda")


def test_writes() -> None:
    cache, other = torch.zeros(16, 4, device="cuda"), torch.zeros(16, 4, device="cuda")

    def step(x: Tensor, cache: Tensor, at: Tensor) -> Tensor:
        cache.index_copy_(0, at, x * 2)
        return (cache.sum(0) + x).exp()

    ours = compiled(step)
    for at in range(12):
        x, place = fresh(1, 4), torch.tensor([at], device="cuda")
        assert torch.equal(ours(x, cache, place), step(x, other, place)) and torch.equal(
            cache, other
        )
        assert cache._version == other._version
    assert is_captured(ours)


def test_results_that_are_views() -> None:
    def views(x: Tensor) -> tuple[Tensor, ...]:
        y = (x @ x).sin() + 1
        return x[1], y, y[0], *y.chunk(2, dim=1), (y * 2).exp().t()

    ours = compiled(views)
    for _ in range(CALLS):
        x = fresh(4, 4)
        mine, plain = ours(x), views(x)
        mine[1].mul_(2), plain[1].mul_(2)
        for own, other in zip(mine, plain, strict=True):
            assert torch.equal(own, other)
            assert (own.stride(), own.storage_offset()) == (other.stride(), other.storage_offset())
        mine[0].zero_()
        assert x[1].eq(0).all()
    assert is_captured(ours)


def test_attention_with_masks_and_caches() -> None:
    mask = torch.ones(8, 8, dtype=torch.bool, device="cuda").tril()

    def attends(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return F.scaled_dot_product_attention(y, k, v, is_causal=True) * 2 + 1

    same(attends, lambda at: (fresh(2, 2, 8, 16), fresh(2, 2, 8, 16), fresh(2, 2, 8, 16)))


def test_streams() -> None:
    """A graph is launched where the call's operations would be."""
    ours, y = compiled(chain), fresh(8, 8)
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    results = []
    for at in range(30):
        stream = streams[at // 3 % 3]
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            x = fresh(8, 8)
            results.append((ours(x, y), chain(x, y)))
        torch.cuda.default_stream().wait_stream(stream)
    torch.cuda.synchronize()
    assert all(torch.equal(mine, plain) for mine, plain in results)
    assert is_captured(ours)


def test_threads() -> None:
    ours, y = compiled(chain), fresh(32, 32)
    wrong: list[int] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream() if number % 2 else torch.cuda.default_stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(100):
                x = torch.randn(32, 32, device="cuda")
                if not torch.equal(ours(x, y), chain(x, y)):
                    wrong.append(number)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_within_a_capture_of_the_programs() -> None:
    ours, x, y = compiled(chain), fresh(8, 8), fresh(8, 8)
    for _ in range(CALLS):
        ours(x, y)
    assert is_captured(ours)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ours(x, y)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(result, chain(x, y))
    assert torch.equal(ours(x, y), chain(x, y))


def test_whoever_clears_the_workspaces_of_libraries() -> None:
    linear = nn.Linear(64, 64, device="cuda")

    def runs(x: Tensor) -> Tensor:
        return linear(linear(x).relu()) @ x.t()

    fns = [compiled(runs), compiled(lambda x: runs(x) * 2)]
    for at in range(12):
        x = fresh(64, 64)
        assert torch.equal(fns[0](x), runs(x)) and torch.equal(fns[1](x), runs(x) * 2)
        if at % 3 == 2:
            torch._C._cuda_clearCublasWorkspaces()
        if at == 6:
            stator.reset()
            torch.cuda.empty_cache()


def test_an_optimizer() -> None:
    def train(wrap: Callable[[Any], Any]) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            return loss.detach()

        fn = wrap(step)
        losses = [fn(torch.randn(5, 8, device="cuda")) for _ in range(12)]
        return [*losses, *(it.detach() for it in model.parameters())]

    with torch.enable_grad():
        for mine, plain in zip(train(compiled), train(lambda fn: fn), strict=True):
            assert torch.equal(mine, plain)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Transformer(Sizes(layers=1, width=64, heads=1, tokens=16))
        self.drop = nn.Dropout(0.3)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.model(tokens)
        return F.cross_entropy(self.drop(logits).flatten(0, 1), tokens.flatten())


def trained(
    wrap: Callable[[Any], Any], dtype: torch.dtype | None, calls: int = 1
) -> tuple[list[Any], Any]:
    """Losses, gradients and random numbers of some steps."""
    torch.manual_seed(0)
    net, found = Network().cuda(), []
    fn, optimizer = wrap(net), torch.optim.SGD(net.parameters(), 0.1)
    with torch.enable_grad():
        for _ in range(6):
            losses = []
            for _ in range(calls):
                tokens = torch.randint(VOCABULARY, (4, 16), device="cuda")
                with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
                    losses.append(fn(tokens))
            for loss in losses:
                loss.backward()
            found += [*(loss.detach() for loss in losses), torch.rand(2, device="cuda")]
            found += [it.grad.clone() for it in net.parameters()]
            optimizer.step()
            optimizer.zero_grad()
    return found, fn


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_training(dtype: torch.dtype | None) -> None:
    # Gradients of embeddings are sums in no order, unless this says so.
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        plain, _ = trained(lambda fn: fn, dtype)
        again, _ = trained(lambda fn: fn, dtype)
        mine, ours = trained(compiled, dtype)
    finally:
        torch.use_deterministic_algorithms(False)
    assert stator.stats(ours).tiers == ["compiled"], stator.stats(ours).why
    for at, (own, other, same) in enumerate(zip(mine, plain, again, strict=True)):
        if torch.equal(other, same):
            assert torch.equal(own, other), at
        torch.testing.assert_close(own, other)


def test_training_with_gradients_that_are_gathered() -> None:
    plain, _ = trained(lambda fn: fn, None, calls=2)
    mine, _ = trained(compiled, None, calls=2)
    for own, other in zip(mine, plain, strict=True):
        torch.testing.assert_close(own, other)


def test_gradients_of_gradients() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1), nn.Softplus()).cuda()

    def penalty(fn: Any) -> list[Tensor]:
        torch.manual_seed(1)
        found = []
        for _ in range(CALLS):
            x = torch.randn(4, 8, device="cuda", requires_grad=True)
            (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
            first.square().sum().backward()
            fn(x.detach()).sum().backward()
            found += [first.detach(), *(it.grad.clone() for it in net.parameters())]
            net.zero_grad()
        return found

    with torch.enable_grad():
        ours = compiled(net)
        for own, other in zip(penalty(ours), penalty(net), strict=True):
            torch.testing.assert_close(own, other)
    assert is_captured(ours), stator.stats(ours).why


def test_memory_of_training_is_given_back() -> None:
    def taken() -> int:
        stator.reset()
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated()

    trained(compiled, None)
    before = taken()
    for _ in range(3):
        trained(compiled, None)
        assert taken() <= before


def test_memory_is_given_back() -> None:
    model = Transformer(Sizes(layers=2, width=128, heads=2, tokens=32)).cuda().eval()
    tokens = torch.randint(VOCABULARY, (4, 32), device="cuda")
    ours = compiled(model)

    def taken() -> tuple[int, int]:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    for _ in range(CALLS):
        ours(tokens)
    stator.reset()  # What libraries keep for a stream is there from now on.
    before = taken()
    for _ in range(3):
        for _ in range(CALLS):
            result = ours(tokens)
        assert stator.stats(ours).tiers == ["compiled"]
        with_graph = torch.cuda.memory_allocated()
        for _ in range(CALLS):
            result = ours(tokens)
        assert torch.cuda.memory_allocated() == with_graph, "calls keep memory"
        del result
        assert taken()[1] > before[1]
        stator.reset()
        after = taken()
        assert after[0] == before[0] and after[1] <= before[1]


FAILS = """
import torch, stator
from stator._cudagraphs import watching

watching._WAITS = frozenset()  # So that it isn't known to wait for the device.

def inverse(x, y):
    y.add_(torch.rand(3, device="cuda")).mul_(2)
    return torch.linalg.inv(x + 1) * 2 + y.sin().exp()

def noisy(x):
    return (torch.rand_like(x) + x).sin() * 2

with torch.no_grad():
    results = []
    for wrap in (lambda fn: fn, lambda fn: stator.compile(fn, backend="cudagraphs")):
        torch.manual_seed(1)
        y = torch.ones(3, device="cuda")
        fns, found = (wrap(inverse), wrap(noisy)), []
        for at in range(6):
            x = torch.eye(3, device="cuda") * (at + 1)
            found += [fns[0](x, y), torch.rand(3, device="cuda"), fns[1](x), y.clone()]
        results.append(found)
    print(all(map(torch.equal, *results)), [stator.stats(fn).tiers for fn in fns])
    print(stator.stats(fns[0]).why[0][:24], torch.cuda.is_current_stream_capturing())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = noisy(x)
    graph.replay()
    torch.cuda.synchronize()
    torch.rand(3, device="cuda")
    torch.cuda.empty_cache()
"""


def test_a_capture_that_fails() -> None:
    """An operation waits for the device, which nothing has told: PyTorch's state is put right."""
    done = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("couldn't be captured as a CUDA graph") == 1, done.stderr
    expected = ["True [['replay'], ['compiled']]", "it couldn't be captured: False"]
    assert done.stdout.splitlines() == expected


def test_quicker_than_the_replay() -> None:
    """Some hundred small operations: the host is the bottleneck."""

    def many(x: Tensor) -> Tensor:
        for _ in range(100):
            x = (x * 1.01).sin() + 1
        return x

    def seconds(fn: Any) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(10):
            fn(x)
        torch.cuda.synchronize()
        start.record()
        for _ in range(20):
            fn(x)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    x = fresh(64)
    assert seconds(compiled(many)) * 1.5 < seconds(stator.compile(many))
