"""Random writes to everything guards speak of, against a plain comparison."""

import copy
import random

import pytest
import torch
from torch import nn

from .support import Box, Guards, settle


def guard_module(guards, source, module, wanted):
    """Guards what a forward pass of a module reads, and more: every slot of every module."""
    guards.guard(source, "type", type(module))
    attributes = guards.dict(source)
    for name, value in module.__dict__.items():
        slot = guards.item(attributes, name)
        if isinstance(value, dict):
            guards.guard(slot, "keys", value)
            for key, item in value.items():
                child = guards.item(slot, key)
                if isinstance(item, nn.Module):
                    guard_module(guards, child, item, wanted)
                elif isinstance(item, torch.Tensor):
                    guards.guard(child, "tensor", item)
                    wanted.append(child)
        elif isinstance(value, (bool, int, float, str, tuple, type(None))):
            guards.guard(slot, "equals", value)


def module_guards(module):
    guards = Guards()
    x = guards.arg("self")
    wanted = []
    guard_module(guards, x, module, wanted)
    guards.build(*wanted)
    return guards


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * width, width)
        self.scale = 0.5


def slots_of(module):
    """Every (owner, key) a write can reach."""
    for child in module.modules():
        yield child.__dict__, "training"
        for name in child._parameters:
            yield child._parameters, name
        for name, value in child.__dict__.items():
            if isinstance(value, (int, float)):
                yield child.__dict__, name


@pytest.mark.parametrize("seed", range(20))
def test_random_writes(seed):
    """The checker passes exactly when a fresh walk over the recorded values would."""
    pick = random.Random(seed)
    module = nn.Sequential(*(Block(4) for _ in range(3)))
    guards = module_guards(module)
    settle(guards, module)
    original = [(owner, key, owner[key]) for owner, key in slots_of(module)]

    def same(now, then):
        if isinstance(then, torch.Tensor):
            return type(now) is type(then) and (
                (now.dtype, now.shape, now.stride(), now.requires_grad)
                == (torch.float32, shapes[id(then)], strides[id(then)], True)
            )
        return type(now) is type(then) and now == then

    shapes = {id(v): v.shape for _, _, v in original if isinstance(v, torch.Tensor)}
    strides = {id(v): v.stride() for _, _, v in original if isinstance(v, torch.Tensor)}
    for _ in range(200):
        owner, key, value = pick.choice(original)
        action = pick.randrange(6)
        if isinstance(value, torch.Tensor):
            if action == 0:
                owner[key] = nn.Parameter(torch.zeros(shapes[id(value)]))
            elif action == 1:
                owner[key] = torch.zeros(shapes[id(value)])
            elif action == 2:
                owner[key].requires_grad_(pick.random() < 0.5)
            else:
                value.requires_grad_(True)
                owner[key] = value
        elif action < 2:
            owner[key] = copy.copy(value) if action else type(value)(7)
        else:
            owner[key] = value
        expected = all(same(owner[key], value) for owner, key, value in original)
        assert guards.passes(module) is expected
        if pick.random() < 0.3:
            for owner, key, value in original:
                if isinstance(value, torch.Tensor):
                    value.requires_grad_(True)
                owner[key] = value
            assert guards.passes(module)


def random_tree(pick, depth):
    """A tree of boxes, lists, tuples and dicts with constants at its leaves."""
    if depth == 0:
        return pick.choice([1, 2.5, "s", None, True, (1, "a"), 10**12, float("nan")])
    children = [random_tree(pick, depth - 1) for _ in range(pick.randrange(1, 4))]
    kind = pick.randrange(4)
    if kind == 0:
        return Box(**{f"a{number}": child for number, child in enumerate(children)})
    if kind == 1:
        return children
    if kind == 2:
        return (*children, [])
    return {f"k{number}": child for number, child in enumerate(children)}


def is_leaf(tree):
    return tree is None or type(tree) in (int, float, str, bool) or tree == (1, "a")


def children_of(tree):
    """Keys and values of a container's children."""
    if isinstance(tree, Box):
        return list(tree.__dict__.items())
    if isinstance(tree, dict):
        return list(tree.items())
    return [] if is_leaf(tree) else list(enumerate(tree))


def guard_tree(guards, source, tree):
    if is_leaf(tree):
        guards.guard(source, "equals", tree)
        return
    guards.guard(source, "type", type(tree))
    if isinstance(tree, (list, tuple)):
        guards.guard(source, "length", len(tree))
    if isinstance(tree, dict):
        guards.guard(source, "keys", tree)
    for key, child in children_of(tree):
        if isinstance(tree, Box):
            path = guards.attr(source, key)
        elif isinstance(tree, dict):
            path = guards.item(source, key)
        else:
            path = getattr(guards, type(tree).__name__)(source, index=key)
        guard_tree(guards, path, child)


def alike(a, b):
    """What the guards of `guard_tree` say."""
    if type(a) is not type(b):
        return False
    if is_leaf(a) or is_leaf(b):
        return repr(a) == repr(b)
    ours, theirs = children_of(a), children_of(b)
    if not isinstance(b, Box) and [key for key, _ in ours] != [key for key, _ in theirs]:
        return False
    ours = dict(ours)
    return all(key in ours and alike(ours[key], child) for key, child in theirs)


def write_somewhere(pick, tree):
    """Writes to a random place of a tree: the same again, an equal copy, or something else."""
    containers = [tree]
    for container in containers:
        containers += [child for _, child in children_of(container) if not is_leaf(child)]
    container = pick.choice([c for c in containers if not isinstance(c, tuple) and children_of(c)])
    key, child = pick.choice(children_of(container))
    value = pick.choice(
        [lambda: child, lambda: copy.deepcopy(child), lambda: random_tree(pick, 1)]
    )()
    action = pick.randrange(8)
    if isinstance(container, Box):
        if action == 0:
            container.__dict__ = dict(container.__dict__)
        elif action == 1:
            container.extra = pick.random()
        else:
            setattr(container, key, value)
    elif isinstance(container, dict) and action == 0:
        container[key] = container.pop(key)
    elif isinstance(container, list) and action == 0:
        container.append(container.pop(0))
    else:
        container[key] = value


@pytest.mark.parametrize("seed", range(60))
def test_random_trees(seed):
    """Random writes, with objects freed and made again at the same addresses."""
    pick = random.Random(seed)
    original = Box(tree=random_tree(pick, 4))
    guards = Guards()
    guard_tree(guards, guards.attr(guards.arg(), "tree"), original.tree)
    guards.build()
    subject = Box(tree=copy.deepcopy(original.tree))
    settle(guards, subject)
    for _ in range(300):
        write_somewhere(pick, subject)
        expected = alike(subject.tree, original.tree)
        assert guards.passes(subject) is expected
        if not expected and pick.random() < 0.5:
            subject.tree = copy.deepcopy(original.tree)
            assert guards.passes(subject)
