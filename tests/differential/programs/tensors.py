"""Views, versions, storage, out= arguments, dtypes, complex and named tensors, subclasses, generators."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..support.case import Corpus, one, t

case = Corpus()
LOG: list[Any] = []


@case(one)
def views_written(x: Tensor) -> Any:
    y = x.clone()
    v, w = y[1:], y.t()
    v.add_(1)
    w[0] = 5
    y.view(-1)[::3] *= 2
    return y, v, w, y._version, v._version, w._is_view(), v._base is y


@case(lambda: (t(3, 4),), keep=True)
def argument_views(x: Tensor) -> Any:
    x[0].zero_()
    x.t()[1].add_(2)
    d = x.detach()
    d[2, 2] = 9
    return x._version, d._version, x.data._version


@case(lambda: (t(4, 4, grad=True),))
def version_error(x: Tensor) -> Any:
    y = x.exp()
    z = y * 2
    y.add_(1)
    try:
        z.sum().backward()
        y.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error), x.grad is None


@case(lambda: (t(4, grad=True),))
def leaf_in_place(x: Tensor) -> Any:
    try:
        x.add_(1)
    except RuntimeError as error:
        text = str(error)
    with torch.no_grad():
        x.mul_(2)
    return x * 2, text, x._version


@case(lambda: (t(2, 3),))
def resized(x: Tensor) -> Any:
    y = x.clone()
    y.resize_(3, 2)
    z = torch.empty(0)
    z.resize_(2).fill_(4)
    y.resize_as_(torch.empty(1, 2))
    return y, z


@case(lambda: (t(12),))
def strided(x: Tensor) -> Any:
    a = x.as_strided((3, 2), (4, 1), 1)
    a.mul_(2)
    b = torch.as_strided(x, (2, 2), (1, 1))
    c = x.view(3, 4).unfold(1, 2, 1)
    x.set_(torch.arange(12.0))
    return a, b, c, x, a.storage_offset(), c.stride()


@case(lambda: (t(6), torch.arange(6.0)), keep=True)
def storage_shared(x: Tensor, y: Tensor) -> Any:
    z = torch.empty(0)
    z.set_(x.untyped_storage(), 2, (2,), (1,))
    z.fill_(3)
    x.data = y.data
    x[0] = 11
    return z, x.data_ptr() == y.data_ptr(), x.untyped_storage().nbytes()


@case(lambda: (t(3, 3), t(3, 3)))
def out_arguments(x: Tensor, y: Tensor) -> Any:
    out = torch.empty(3, 3)
    r = torch.add(x, y, out=out)
    q = torch.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.mul(x, 2, out=q)
    values, indices = torch.empty(3), torch.empty(3, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    torch.mm(x, y, out=x)
    return r is out, out, q, values, indices, x


@case(lambda: (t(3),), change=lambda: torch.set_default_dtype(torch.float64))
def default_dtype(x: Tensor) -> Any:
    a = torch.zeros(2) + 1
    torch.set_default_dtype(torch.float64)
    b = torch.tensor([1.5]) + torch.ones(1)
    torch.set_default_dtype(torch.float32)
    return a, b, x.new_tensor([1, 2.0]), torch.get_default_dtype(), torch.tensor(1.0).dtype


@case(one)
def device_context(x: Tensor) -> Any:
    with torch.device("meta"):
        m = torch.empty(2, 3)
        net = nn.Linear(3, 4)
    with torch.device("cpu"):
        c = torch.zeros(2)
    return m.device, net.weight.is_meta, c + 1, (m @ m.T).shape


@case(one)
def inference_modes(x: Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            z = x + 1
    w = y + z
    try:
        y.add_(1)
    except RuntimeError as error:
        return w, y.is_inference(), z.is_inference(), str(error)[:20]


@case(lambda: (t(3, grad=True),))
def grad_modes(x: Tensor) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    with torch.set_grad_enabled(x.dim() > 5):
        c = x * 4
    a.requires_grad_()
    d = a * 2
    e = x.detach().requires_grad_(True)
    (e * 3).sum().backward()
    return a, b, c, d, e.grad, torch.is_grad_enabled()


@case(lambda: (t(4, grad=True),))
def saved_hooks(x: Tensor) -> Any:
    n = []

    def pack(v: Tensor) -> Any:
        n.append(v.dim())
        return v.double()

    def unpack(v: Tensor) -> Tensor:
        n.append("u")
        return v.float()

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).exp().sum()
    y.backward()
    return x.grad, n


@case(lambda: (t(4, grad=True),))
def save_on_cpu(x: Tensor) -> Any:
    with torch.autograd.graph.save_on_cpu():
        y = (x * x).sum()
    (g,) = torch.autograd.grad(y, x)
    with torch.autograd.graph.disable_saved_tensors_hooks("off"):
        z = x * 2
    return g, z


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@case(one)
def logging_subclass(x: Tensor) -> Any:
    y = x.as_subclass(Logged)
    z = (y + 1).relu()
    return z, type(z).__name__, z.sum().as_subclass(Tensor), len(LOG)


class Tagged(torch.Tensor):
    pass


@case(one)
def plain_subclass(x: Tensor) -> Any:
    y = x.as_subclass(Tagged)
    y.tag = "t"
    z = torch.stack([y, x])
    return type(z).__name__, z[0] * 2, y.tag, torch.Tensor._make_subclass(Tagged, x.clone())


class Unit:
    def __init__(self, data: Tensor, unit: str) -> None:
        self.data, self.unit = data, unit

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.mul:
            return Unit(func(*[getattr(a, "data", a) for a in args]), "product")
        if func is torch.Tensor.add or func is torch.add:
            return NotImplemented
        return Unit(func(*[getattr(a, "data", a) for a in args], **(kwargs or {})), args[0].unit)


@case(one)
def torch_function_objects(x: Tensor) -> Any:
    u = Unit(x, "m")
    a = torch.mul(u, u)
    b = torch.sum(u, dim=0)
    try:
        torch.add(u, 1)
    except TypeError as error:
        return a.data, a.unit, b.data, b.unit, str(error)[:30]


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append(getattr(func, "__name__", "?"))
        if func is torch.add:
            return func(*args, **(kwargs or {})) * 2
        return func(*args, **(kwargs or {}))


@case(one)
def function_mode(x: Tensor) -> Any:
    with Mode():
        y = torch.add(x, 1)
    return y, torch.add(x, 1), torch.overrides.is_tensor_like(x), list(LOG[-1:])


@case(lambda: (t(3, 4) + 1j * t(3, 4),))
def complex_tensors(x: Tensor) -> Any:
    y = torch.view_as_real(x)
    y[..., 0] *= 2
    z = torch.polar(torch.ones(2), torch.tensor([0.5, 1.0]))
    c = x.conj()
    return (
        x.abs(),
        c.is_conj(),
        c + 1,
        x.real,
        x.imag.is_neg(),
        c.imag.is_neg(),
        torch.view_as_complex(y.contiguous()),
        z * (1 + 2j),
        x.mH @ x,
        torch.fft.fft(x).angle(),
        c.resolve_conj().is_conj(),
        complex(z[0].real, 2),
    )


@case(lambda: (t(2, 3),))
def named_tensors(x: Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x.refine_names("N", "C")
        z = y.sum("C")
        w = y.align_to("C", "N").rename(None)
    return z.names, w, y.names, z.rename(None)


@case(one)
def generator_states(x: Tensor) -> Any:
    g = torch.Generator().manual_seed(3)
    state = g.get_state()
    a = torch.rand(3, generator=g)
    g.set_state(state)
    b = torch.rand(3, generator=g)
    return x, a, torch.equal(a, b), g.initial_seed()


GEN = torch.Generator().manual_seed(1)


@case(one, change=lambda: GEN.manual_seed(99))
def outside_generator(x: Tensor) -> Any:
    state = GEN.get_state()
    a = torch.randn(3, generator=GEN)
    GEN.set_state(state)
    b = torch.randn(3, generator=GEN)
    c = torch.randperm(4, generator=GEN)
    return x + 1, a - b, c, GEN.get_state()[:8]


@case(one)
def rng_states(x: Tensor) -> Any:
    state = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(state)
    b = torch.rand(2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        c = torch.rand(2)
    d = torch.rand(2)
    n = np.random.RandomState(3).rand()
    return torch.equal(a, b), c, d, x * n, torch.initial_seed() > 0


@case(lambda: (t(5), torch.tensor([0, 2, 4])), again=lambda: (t(5), torch.tensor([1, 1, 9])))
def index_errors(x: Tensor, i: Tensor) -> Any:
    x = x.clone()
    try:
        y = x[i]
        x.index_add_(0, i, y)
        x[i[0]] = 5
    except IndexError:
        LOG.append("bad")
        y = x
    return y, x


@case(lambda: (torch.arange(6), t(6)))
def dtype_mixing(i: Tensor, x: Tensor) -> Any:
    return (
        i / 2,
        i // 2,
        i % 4 == 1,
        i + True,
        (i > 2) + 1,
        i * 1.5,
        x.half() + x.bfloat16(),
        i.to(torch.uint8) - 3,
        ~(i > 2),
        i << 2,
        torch.result_type(i, 1.0),
        torch.promote_types(torch.int8, torch.uint8),
        x.to(torch.int32).dtype,
        torch.can_cast(torch.float32, torch.int32),
        i.float().type(torch.DoubleTensor).type(),
    )


@case(lambda: (t(3, 4), 0), again=lambda: (t(3, 4), -1))
def tensor_methods_in_python(x: Tensor, d: int) -> Any:
    a = [*x]
    b = list(reversed(x))
    n = len(x)
    first, *rest = x
    return (
        a[d],
        b[0],
        n,
        first + rest[d],
        x.tolist()[0][:0],
        x.__contains__(99.0),
        hash(x) == id(x),
        bool(x.numel()),
        dir(x)[0],
    )


@case(lambda: (t(3, 4),))
def attributes_on_tensors(x: Tensor) -> Any:
    x.label = "mine"
    y = x + 1
    y.src = x
    has = hasattr(x + 0, "label")
    z = y.src * 2
    del y.src
    return z, has, y, x.label, vars(x)


@case(lambda: (t(4, grad=True), t(4, grad=True)))
def requires_grad_midway(x: Tensor, y: Tensor) -> Any:
    a = x * 2
    y.requires_grad_(False)
    b = a * y
    y.requires_grad_(True)
    c = b + y
    c.sum().backward()
    return x.grad, y.grad, b.requires_grad


@case(lambda: (t(3, 3, grad=True),))
def retained(x: Tensor) -> Any:
    y = x * 2
    y.retain_grad()
    z = y.sum()
    z.backward(retain_graph=True)
    z.backward()
    g = torch.autograd.grad((x**3).sum(), x, create_graph=True)[0]
    gg = torch.autograd.grad(g.sum(), x)[0]
    return x.grad, y.grad, gg, z.grad_fn.next_functions[0][0].name(), y.is_leaf


@case(lambda: (t(3, 3), np.arange(3.0)))
def numpy_mixed(x: Tensor, a: Any) -> Any:
    y = torch.from_numpy(a)
    y.add_(1)
    n = x.numpy()
    n[0] = 4
    z = torch.as_tensor(a)
    z[1] = 8
    return x, a, y, np.add(n, a).sum(), torch.tensor(a) + 1, a.dtype.name


@case(one)
def data_assigned(x: Tensor) -> Any:
    p = nn.Parameter(torch.zeros(2))
    p.data = x
    v = p.view(-1)
    p.data = torch.ones(5)
    q = x.clone()
    q.data.zero_()
    return p, v, q, p.shape


@case(lambda: (t(3, 4), [0, 2]), again=lambda: (t(3, 4), [1, 1]))
def fancy_indices(x: Tensor, i: list[int]) -> Any:
    y = x.clone()
    y[i] = 0
    y[:, torch.tensor([True, False, True, False])] += 1
    y[..., None][0] = 3
    y[x > 0.5] = -1
    return (
        y,
        x[i, i],
        x[None, 1],
        x[torch.tensor(1)],
        x[[[0, 1], [1, 0]]],
        x[True],
        x[1, ..., -1],
        x[(slice(None), 1)],
    )


@case(one)
def in_place_chain(x: Tensor) -> Any:
    y = x.clone()
    z = y.add_(1).mul_(2).clamp_(max=2)
    y.index_fill_(0, torch.tensor([0]), 7).masked_fill_(y > 5, 1).t_()
    y.unsqueeze_(0).squeeze_(0)
    y.copy_(y.flip(0))
    y += y
    y **= 2
    y[0] -= 1
    y.swapaxes_(0, 1)
    return y, z is y, y._version


@case(one)
def functions_of_lists(x: Tensor) -> Any:
    a = torch._foreach_add([x, x + 1], 2.0)
    b = [x.clone(), x.clone()]
    torch._foreach_mul_(b, [2.0, 3.0])
    g = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
    s = torch.split(x, [1, 2])
    return (
        a,
        b,
        g,
        s,
        torch.broadcast_tensors(x, x[0]),
        torch.block_diag(*s),
        torch.cartesian_prod(g[0][:, 0], g[1][0]),
    )


@case(one)
def sparse_and_nested(x: Tensor) -> Any:
    s = x.relu().to_sparse()
    d = torch.sparse.mm(s, x.T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        n = torch.nested.nested_tensor([x[0], x[1, :2]])
        c = torch.eye(3).to_sparse_csr()
    return d, s.layout, c @ x, n.is_nested, n.unbind()[1], s.coalesce().indices()


@case(one)
def save_and_load(x: Tensor) -> Any:
    import io

    f = io.BytesIO()
    torch.save({"x": x, "n": 3}, f)
    f.seek(0)
    d = torch.load(f)
    return d["x"] + d["n"], f.tell() > 0


@case(one)
def tensor_truth(x: Tensor) -> Any:
    try:
        if x:
            return 1
    except RuntimeError as error:
        text = str(error)
    try:
        int(x)
    except (RuntimeError, TypeError, ValueError) as error:
        text += str(error)
    try:
        return float(x[0, 0] * 0), len(x.sum()), text
    except TypeError as error:
        return str(error), text


@case(lambda: (t(3), 3), again=lambda: (t(3), 4))
def shape_texts(x: Tensor, n: int) -> Any:
    try:
        return x.view(n, 2)
    except RuntimeError as error:
        a = str(error)
    try:
        x @ torch.zeros(n + 1, 2)
    except RuntimeError as error:
        b = str(error)
    return a, b, repr(x.shape), str(x.dtype), x.size() == (3,), x.shape + (n,)
