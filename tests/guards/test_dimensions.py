"""A snapshot compares every size and stride of the tensors that an object holds, whatever their number."""

import itertools

import pytest
import torch

from .support import Box, Guards, settle

SIZES = (2, 3, 4, 5, 2)


def strided(sizes, strides):
    """A tensor with these sizes and strides, over memory that is large enough."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    return torch.zeros(reach).as_strided(sizes, strides)


def changes(sizes, strides):
    """Each size and each stride by itself another one; a dimension more, and one less."""
    for index in range(len(sizes)):
        larger = (*sizes[:index], sizes[index] + 1, *sizes[index + 1 :])
        yield larger, strides
        wider = (*strides[:index], strides[index] + 7, *strides[index + 1 :])
        yield sizes, wider
    yield (*sizes, 1), (*strides, 1)
    if sizes:
        yield sizes[:-1], strides[:-1]


@pytest.mark.parametrize("count", range(6))
def test_each_size_and_stride_of_a_parameter_is_compared(count):
    sizes = SIZES[:count]
    strides = torch.zeros(sizes).stride()
    box = Box(p=torch.nn.Parameter(strided(sizes, strides)))
    before = box.p.data
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.attr(x, "p"), "tensor", box.p).build(x)
    assert settle(guards, box) > 0
    tried = 0
    for changed in itertools.chain(changes(sizes, strides), [(sizes, strides)]):
        box.p.data = strided(*changed)
        assert box.p.stride() == changed[1]
        fits = changed == (sizes, strides)
        # Twice: the second check is that of a snapshot, if the first has taken one.
        assert [guards.passes(box), guards.passes(box)] == [fits, fits], changed
        box.p.data = before
        assert settle(guards, box) > 0
        tried += 1
    assert tried == 2 * count + (3 if count else 2)


def test_many_tensors_of_several_kinds_are_told_apart():
    tensors = [torch.zeros(SIZES[:count]) for count in (2, 1, 4, 0, 3, 5, 2, 1)]
    box = Box(**{f"t{index}": tensor for index, tensor in enumerate(tensors)})
    guards = Guards()
    x = guards.arg()
    for name, tensor in vars(box).items():
        guards.guard(guards.attr(x, name), "tensor", tensor)
    guards.build(x)
    assert settle(guards, box) > 0
    for tensor, other in itertools.product(tensors, tensors):
        was = tensor.data
        tensor.data = other.data
        assert guards.passes(box) == (was.shape == other.shape)
        tensor.data = was
        assert settle(guards, box) > 0
