"""Rule 5: facts about tensors that `check_tensor` doesn't cover."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..probe import Steps, right_after


@right_after
def test_grad_is_read() -> Steps:
    w = torch.ones(3, requires_grad=True)
    yield (lambda x: x if w.grad is None else x + w.grad), (torch.ones(3),)
    (w * 2).sum().backward()
    yield None
    w.grad.mul_(3)  # type: ignore[union-attr]
    yield None
    w.grad = None
    yield None


@right_after
def test_version_is_read() -> Steps:
    w = torch.ones(3)
    yield (lambda x: x + w._version), (torch.ones(3),)
    w.add_(1)
    yield None


@right_after
def test_data_pointer_is_read() -> Steps:
    a, b = torch.ones(3), torch.ones(3)
    yield (lambda x, y: x if x.data_ptr() == y.data_ptr() else -x), (a, a)
    yield a, b
    yield b, b
    yield a, a.view(3)


@right_after
def test_grad_fn_is_read() -> Steps:
    leaf = torch.ones(3, requires_grad=True)
    yield (lambda x: x.detach() * (2 if x.grad_fn is None else 3)), (leaf,)
    yield (leaf * 1,)
    yield (leaf + 0,)


@right_after
def test_name_of_grad_fn_is_read() -> Steps:
    leaf = torch.ones(3, requires_grad=True)
    yield (lambda x: x.detach() * len(type(x.grad_fn).__name__)), (leaf * 2,)
    yield (leaf.sinh(),)


@right_after
def test_is_leaf_is_read() -> Steps:
    leaf = torch.ones(3, requires_grad=True)
    yield (lambda x: x.detach() * (2 if x.is_leaf else 3)), (leaf,)
    yield (leaf * 1,)


@right_after
def test_storage_offset_is_read() -> Steps:
    base = torch.arange(8.0)
    yield (lambda x: x + x.storage_offset()), (base[:3],)
    yield (base[2:5],)
    yield (base[4:7],)


@right_after
def test_base_is_read() -> Steps:
    base = torch.arange(6.0)
    yield (lambda x: x + (x._base is None)), (base,)
    yield (base.view(6),)


@right_after
def test_storage_size_is_read() -> Steps:
    yield (lambda x: x + x.untyped_storage().nbytes()), (torch.ones(3),)
    yield (torch.ones(30)[:3],)


@right_after
def test_requires_grad_of_parameter() -> Steps:
    p = nn.Parameter(torch.ones(3))
    yield (lambda x: x * p if p.requires_grad else x), (torch.ones(3),)
    p.requires_grad_(False)
    yield None


@right_after
def test_tensor_hooks() -> Steps:
    leaf = torch.ones(3, requires_grad=True)

    def fn(x: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad((x * leaf).sum(), leaf)
        return grad

    yield fn, (torch.ones(3),)
    handle = leaf.register_hook(lambda g: g * 5)
    yield None
    handle.remove()
    yield None


@right_after
def test_python_attributes_of_tensors() -> Steps:
    a, b = torch.ones(3), torch.ones(3)
    a.scale = 3  # type: ignore[attr-defined]
    yield (lambda x: x * getattr(x, "scale", 1)), (a,)
    yield (b,)
    a.scale = 4  # type: ignore[attr-defined]
    yield (a,)


@right_after
def test_conjugate_and_negative_views() -> Steps:
    z = torch.tensor([1 + 2j, 3 - 1j])
    yield (lambda x: (x.is_conj(), x.is_neg(), x * 2)), (z,)
    yield (z.conj(),)
    yield (z.conj().imag,)


@right_after
def test_pinned_shared_and_sparse() -> Steps:
    yield (lambda x: x + 1 if x.is_shared() else x + 2), (torch.ones(3),)
    yield (torch.ones(3).share_memory_(),)


@right_after
def test_strides_of_same_shape() -> Steps:
    yield (lambda x: x.view(-1) if x.is_contiguous() else x.sum(0)), (torch.ones(3, 4),)
    yield (torch.ones(4, 3).t(),)
    yield (torch.ones(1, 4).expand(3, 4),)


@right_after
def test_memory_format() -> Steps:
    x = torch.randn(2, 3, 4, 4)
    fmt = torch.channels_last
    yield (lambda v: v + 1 if v.is_contiguous(memory_format=fmt) else v - 1), (x,)
    yield (x.to(memory_format=fmt),)


@right_after
def test_layout() -> Steps:
    x = torch.eye(3)
    yield (lambda v: v.to_dense() * 2 if v.is_sparse else v), (x,)
    yield (x.to_sparse(),)
    yield (x.to_sparse_csr(),)


@right_after
def test_subclass_of_tensor() -> Steps:
    class Own(Tensor):
        pass

    yield (lambda v: v * len(type(v).__name__)), (torch.ones(3),)
    yield (torch.ones(3).as_subclass(Own),)
    yield (nn.Parameter(torch.ones(3)),)
    yield (nn.Buffer(torch.ones(3)),)
