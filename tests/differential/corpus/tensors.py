"""Tensor methods and functions: pointwise, reductions, views, factories, in place, random."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..support.case import Corpus, call, ints, one, pos, t, two

case = Corpus()

TABLE = torch.linspace(0, 1, 10)
DTYPE = torch.float64


@case(lambda: (t(200), t(200)))
def mse(x: Tensor, y: Tensor) -> Tensor:
    z = (x - y) ** 2
    return z.sum()


@case(lambda: (pos(3, 4, grad=True),), grad=True)
def pointwise_methods(x: Tensor) -> Tensor:
    return x.sin().cos().exp().log1p().sqrt().tanh().sigmoid().abs().neg().square()


@case(one)
def pointwise_functions(x: Tensor) -> tuple[Tensor, ...]:
    return torch.relu(x), torch.clamp(x, -1, 1), torch.sign(x), torch.floor(x), torch.erf(x)


@case(lambda: (t(3, 4, grad=True),), grad=True)
def activations(x: Tensor) -> Tensor:
    return F.gelu(x) + F.silu(x) + F.leaky_relu(x, 0.1) + F.softplus(x) + F.elu(x, alpha=0.5)


@case(one)
def reductions(x: Tensor) -> tuple[Any, ...]:
    return x.sum(), x.mean(1, keepdim=True), x.max(), x.min(dim=0), x.std(), x.norm(), x.argmax(-1)


@case(one)
def structured_results(x: Tensor) -> Tensor:
    values, indices = x.max(dim=1)
    top = x.topk(2, dim=1)
    ordered = torch.sort(x, descending=True)
    return values * indices + top.values[:, 0] + top.indices[:, 1] + ordered.values.sum()


@case(one)
def cumulative(x: Tensor) -> tuple[Tensor, ...]:
    return x.cumsum(0), x.cumprod(1), x.logsumexp(-1), x.softmax(0), x.log_softmax(1)


@case(lambda: (t(2, 3, 4),))
def views(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.view(6, 4),
        x.reshape(-1),
        x.transpose(0, 1),
        x.permute(2, 0, 1),
        x.unsqueeze(1),
        x.flatten(1),
        x.expand(2, 3, 4),
        x.narrow(1, 0, 2),
        x.movedim(0, -1),
        x.mT,
    )


@case(lambda: (t(2, 3, 4),))
def view_then_write(x: Tensor) -> Tensor:
    y = x.clone()
    row = y[0]
    row.add_(1)
    y.view(-1)[:3].zero_()
    y.transpose(0, 1)[1].mul_(2)
    return y


@case(lambda: (t(6),), grad=False)
def write_through_view_of_argument(x: Tensor) -> Tensor:
    x.view(2, 3)[1].fill_(7)
    return x * 2


@case(lambda: (t(2, 6),))
def splits(x: Tensor) -> tuple[Any, ...]:
    a, b, c = x.chunk(3, dim=1)
    return a * b - c, x.split([2, 4], dim=1), torch.unbind(x), x.unfold(1, 3, 2)


@case(two)
def joins(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.cat([x, y], 1),
        torch.stack((x, y)),
        torch.hstack((x, y)),
        torch.cat((x, y), dim=-1),
    )


@case(lambda: (t(3, 4), ints(3, 2, high=4)))
def gather_scatter(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    picked = x.gather(1, index)
    spread = torch.zeros_like(x).scatter_(1, index, picked)
    return picked, spread, x.index_select(0, index[:, 0] % 3), x.take(index)


@case(one)
def where_and_masks(x: Tensor) -> Tensor:
    mask = x > 0
    y = torch.where(mask, x, torch.zeros_like(x))
    return y.masked_fill(~mask, -1.0) + x.masked_fill(mask, float("-inf")).clamp(min=-2)


@case(one)
def factories(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.zeros(2, 3),
        torch.ones(x.shape),
        torch.full((2,), 3.5),
        torch.arange(1, 7, 2),
        torch.linspace(0, 1, 3),
        torch.eye(2),
        torch.tensor([1, 2, 3]),
        torch.tensor([[1.5], [2.5]], dtype=torch.float64),
        torch.empty(0),
        torch.zeros_like(x, dtype=torch.int32),
        x.new_ones(2),
        x.new_tensor([4.0]),
        torch.scalar_tensor(2.0),
    )


@case(one)
def tensor_from_shape_numbers(x: Tensor) -> Tensor:
    rows = torch.arange(x.shape[0], device=x.device, dtype=x.dtype)
    return x * rows[:, None] + torch.tensor(x.shape[1])


@case(one)
def causal_mask(x: Tensor) -> Tensor:
    n = x.size(-1)
    mask = torch.full((n, n), torch.finfo(x.dtype).min).triu(1)
    return x @ (mask > -1).to(x.dtype) + torch.tril(torch.ones(n, n)).sum()


@case(one)
def finfo_and_iinfo(x: Tensor) -> Tensor:
    limit = torch.finfo(x.dtype)
    return (
        x * limit.eps + torch.iinfo(torch.int8).max + limit.bits + torch.finfo(torch.bfloat16).tiny
    )


@case(lambda: (t(3, 4),), again=lambda: (t(3, 4, dtype=torch.bfloat16),))
def metadata_reads(x: Tensor) -> Tensor:
    score = x.ndim + x.numel() + x.element_size() + x.stride(0) + x.stride()[1] + len(x)
    score += x.is_contiguous() + x.is_floating_point() + x.dtype.itemsize + x.is_complex()
    return (
        x * score
        + (x.device == torch.device("cpu"))
        + x.requires_grad
        + (x.layout is torch.strided)
    )


@case(one)
def size_objects(x: Tensor) -> tuple[Any, ...]:
    size = x.size()
    more = size + (2,)
    return size, more, torch.Size([1, 2]).numel(), size[::-1], x.shape == (3, 4), list(size)


@case(one)
def device_and_dtype_objects(x: Tensor) -> tuple[Any, ...]:
    device = torch.device("cpu", 0)
    return device.type, device.index, str(x.dtype), x.dtype.is_floating_point, torch.int8 is x.dtype


@case(one, change=lambda: globals().update(DTYPE=torch.int32))
def conversions(x: Tensor) -> tuple[Tensor, ...]:
    return x.to(DTYPE), x.double(), x.half().float(), x.int(), x.bool(), x.to("cpu"), x.type_as(x)


@case(one)
def to_that_changes_nothing(x: Tensor) -> tuple[Tensor, bool]:
    y = x.to(torch.float32)
    return y, y is x


@case(one)
def contiguity(x: Tensor) -> tuple[Tensor, bool, bool]:
    y = x.t()
    return y.contiguous(), y.is_contiguous(), x.contiguous() is x


@case(one)
def in_place_methods(x: Tensor) -> Tensor:
    y = x.clone()
    y.add_(1).mul_(2).clamp_(min=0).sqrt_().t_()
    y.copy_(torch.ones_like(y)).fill_(3).sub_(1, alpha=0.5)
    return y


@case(one)
def out_arguments(x: Tensor) -> tuple[Tensor, Tensor]:
    buffer = torch.empty(3, 4)
    result = torch.add(x, 1, out=buffer)
    torch.mul(x, 2, out=buffer)
    return result, buffer


@case(lambda: (t(3, 4), torch.zeros(3, 4)))
def out_argument_of_caller(x: Tensor, out: Tensor) -> Tensor:
    return torch.exp(x, out=out)


@case(lambda: (t(3, grad=True),), grad=True)
def detach_and_requires_grad(x: Tensor) -> Tensor:
    y = x.detach() * 2
    z = y.requires_grad_()
    return x * z.sum() + x.data


@case(lambda: (t(3, grad=True),), expect="any")
def autograd_inside(x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad((x**3).sum(), x)
    return gradient


@case(lambda: (t(3, grad=True),), expect="any")
def backward_inside(x: Tensor) -> Tensor:
    loss = (x * 3).sum()
    loss.backward()
    return x.grad.clone()  # type: ignore[union-attr]


class Cube(torch.autograd.Function):
    """A custom gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2 + 1


@case(lambda: (t(3, grad=True),), grad=True, expect="any")
def autograd_function(x: Tensor) -> Tensor:
    return Cube.apply(x) * 2  # type: ignore[no-any-return]


@case(lambda: (t(3, grad=True),), expect="any")
def hook_of_a_local(x: Tensor) -> Tensor:
    scale, found = x.detach().sum(), []
    y = x * 3
    handle = y.register_hook(lambda grad: found.append(grad) or grad * scale)
    y.sum().backward()
    handle.remove()
    return x.grad.clone() + len(found)  # type: ignore[union-attr]


@case(lambda: (t(3, 4, grad=True),), expect="any")
def checkpointed(x: Tensor) -> Tensor:
    factor = x.detach().mean()

    def run(it: Tensor) -> Tensor:
        return torch.tanh(it) * factor

    y = checkpoint(run, x, use_reentrant=False)
    y.sum().backward()
    return x.grad.clone() + run(x).detach()  # type: ignore[union-attr]


@case(one)
def random_with_equal_seeds(x: Tensor) -> Tensor:
    return x + torch.randn(3, 4) * torch.rand_like(x) + torch.randint(0, 5, (3, 4))


@case(lambda: (t(20, 20, grad=True),), grad=True)
def dropout(x: Tensor) -> Tensor:
    return F.dropout(x, 0.3) + F.dropout(x, 0.5, training=False)


@case(one, expect="any")
def seed_inside(x: Tensor) -> Tensor:
    torch.manual_seed(7)
    return x + torch.randn(3, 4)


@case(one, expect="any")
def own_generator(x: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return x + torch.randn(3, 4, generator=generator)


@case(one)
def random_in_place(x: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.empty(3).normal_(),
        torch.empty(2, 2).uniform_(-1, 1),
        x.bernoulli(0.5),
        x.bernoulli_(),
    )


@case(one)
def permutation(x: Tensor) -> Tensor:
    return x[torch.randperm(3)]


@case(lambda: (t(2, 3, 4), t(2, 4, 5)))
def matrix_products(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        torch.bmm(x, y),
        torch.einsum("bij,bjk->bik", x, y),
        x.matmul(y),
        torch.baddbmm(x @ y, x, y),
    )


@case(lambda: (t(5), t(5)))
def vector_products(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x.dot(y), torch.outer(x, y), torch.linalg.norm(x), torch.addcmul(x, x, y, value=0.5)


@case(lambda: (t(1, 2, 4, 8, grad=True), t(1, 2, 4, 8), t(1, 2, 4, 8)), grad=True)
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case(lambda: (t(4, 5, grad=True), ints(4, high=5)), grad=True)
def losses(x: Tensor, target: Tensor) -> Tensor:
    return (
        F.cross_entropy(x, target) + F.mse_loss(x, torch.zeros_like(x)) + F.smooth_l1_loss(x, x * 2)
    )


@case(lambda: (t(2, 3, 8, 8, grad=True), t(4, 3, 3, 3, grad=True)), grad=True)
def convolution(x: Tensor, w: Tensor) -> Tensor:
    y = F.conv2d(x, w, padding=1, stride=2)
    return F.max_pool2d(F.pad(y, (1, 1)), 2) + F.adaptive_avg_pool2d(y, 1)


@case(lambda: (t(2, 3, 4, grad=True),), grad=True)
def normalisation(x: Tensor) -> Tensor:
    return F.layer_norm(x, (4,)) + F.normalize(x, dim=-1) + F.rms_norm(x, (4,))


@case(lambda: (ints(3, high=7), t(7, 4, grad=True)), grad=True)
def embedding(index: Tensor, weight: Tensor) -> Tensor:
    return F.embedding(index, weight) + weight[index]


@case(lambda: (t(1, 2, 4, 4),))
def interpolation(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False).sum((2, 3))


@case(lambda: (t(4, dtype=torch.complex64),))
def complex_tensors(x: Tensor) -> tuple[Tensor, ...]:
    return x.conj(), x.real, torch.view_as_real(x), x.abs(), x.angle(), x * 1j, x.conj().imag


@case(lambda: (ints(5, high=3),), expect="any")
def data_dependent_shapes(x: Tensor) -> tuple[Any, ...]:
    return x.nonzero(), torch.unique(x), x.repeat_interleave(x)


@case(lambda: (ints(5, high=3),), expect="any")
def one_hot(x: Tensor) -> Tensor:
    return F.one_hot(x)


@case(two)
def torch_equal(x: Tensor, y: Tensor) -> Tensor:
    return x if torch.equal(x, y) else x + y


@case(one, change=lambda: TABLE.mul_(-1))
def global_table(x: Tensor) -> Tensor:
    return x + TABLE[:4]


@case(lambda: (t(3, 4), t(3, 4)), again=lambda: (t(5, 4), t(5, 4)))
def other_shapes(x: Tensor, y: Tensor) -> Tensor:
    return x.shape[0] * x * y


@case(lambda: (t(3, 4),), again=lambda: (t(4, 3).t(),))
def other_strides(x: Tensor) -> Tensor:
    return x.view(-1) if x.is_contiguous() else x * 2


@case(lambda: (t(3),), again=lambda: (t(3, grad=True),))
def other_requires_grad(x: Tensor) -> Tensor:
    return x.clone() if x.requires_grad else x + 1


@case(lambda: (t(3),), again=lambda: (torch.nn.Parameter(t(3)),))
def parameter_argument(x: Tensor) -> Tensor:
    return x * 2 if isinstance(x, torch.nn.Parameter) else x * 3


@case(lambda: (t(6)[::2],), again=lambda: (t(7)[1::2],))
def storage_offset(x: Tensor) -> Tensor:
    return x + x.storage_offset()


@case(lambda: (t(0, 3),))
def empty_tensors(x: Tensor) -> tuple[Tensor, ...]:
    return x.sum(), x.mean(0), torch.cat([x, x]), x.reshape(3, 0)


@case(lambda: (torch.tensor([float("nan"), -0.0, float("inf"), -1.0]),))
def special_values(x: Tensor) -> tuple[Tensor, ...]:
    return x * 0.0, x + 1, x == x, x.isnan(), torch.nan_to_num(x), -x, x.abs()


@case(lambda: (pos(4), torch.tensor(2.0)))
def scalar_tensors(x: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    return x * s, s + 1, s.expand(3), x**s, torch.full((2,), 1.0) * s


@case(lambda: (t(3, 4), t(2, 3, 4)))
def aliased_arguments(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return x + y


def _twice() -> tuple[Tensor, Tensor]:
    x = t(3, 4)
    return x, x


@case(_twice, again=two)
def same_tensor_for_two_arguments(x: Tensor, y: Tensor) -> Tensor:
    x.add_(1)
    return x * y if x is y else x - y


@case(lambda: ((lambda x: (x, x[1]))(t(3, 4)),))
def overlapping_tensors_in_argument(pair: tuple[Tensor, Tensor]) -> Tensor:
    pair[1].zero_()
    return pair[0] + 1


@case(lambda: call(t(3), dim=0), again=lambda: call(t(3), dim=None))
def optional_dimension(x: Tensor, dim: int | None = None) -> Tensor:
    return x.sum() if dim is None else x.sum(dim)


@case(lambda: (t(4),))
def versions_and_leaves(x: Tensor) -> tuple[Any, ...]:
    y = x + 1
    y.add_(1)
    return y.is_leaf, y.grad_fn is None, x.grad is None, y


@case(lambda: (t(4),), expect="any")
def version_counter(x: Tensor) -> int:
    y = x + 1
    y.add_(1)
    return y._version


@case(lambda: (t(4, 4),))
def named_functions_of_namespaces(x: Tensor) -> Tensor:
    return torch.special.expit(x) + torch.fft.fft(x).real + torch.linalg.matrix_norm(x)


@case(lambda: (t(4),))
def torch_ops_namespace(x: Tensor) -> Tensor:
    return (
        torch.ops.aten.sin.default(x) + torch.ops.aten.add.Tensor(x, x) + torch.ops.aten.mul(x, 2)
    )


@case(lambda: (t(3, 4),))
def asserting_shapes(x: Tensor) -> Tensor:
    torch._check(x.shape[0] == 3, lambda: "three rows are wanted")
    if x.ndim != 2 or not torch.is_tensor(x) or not torch.is_floating_point(x):
        raise ValueError(f"got {tuple(x.shape)}")
    return x.sum()


@case(lambda: (t(4),))
def tensor_attributes(x: Tensor) -> Tensor:
    y = x * 2
    y.note = 3  # type: ignore[attr-defined]
    return y + y.note  # type: ignore[attr-defined]


@case(lambda: (t(4),), expect="any")
def set_data(x: Tensor) -> Tensor:
    y = torch.zeros(2)
    y.data = x * 2
    return y + 1


@case(lambda: (t(4, dtype=torch.float64),), expect="any")
def numpy_round_trip(x: Tensor) -> Tensor:
    array = x.numpy() * 2
    return torch.from_numpy(array) + array.sum()
