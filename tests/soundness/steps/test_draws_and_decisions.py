"""Decisions beside random numbers of `random`'s: the generator is where plain Python leaves it, whichever way a call goes."""

import random

import pytest
import torch

import stator
from stator import stats

LAYERS = [torch.relu, torch.neg, torch.abs, torch.sign]
OWN = random.Random(7)


def behind_a_draw(x, layers):
    x = x * random.random()
    if x.sum() > 1:
        x = x + random.random()
    return x + random.uniform(0, 1)


def before_a_draw(x, layers):
    if x.sum() > 3:
        return x * random.random()
    if x.sum() > 1:
        x = x + random.random() + random.random()
    return x, random.random()


def between(x, layers):
    for _ in range(3):
        p = random.random()
        if (x * p).sum() > 1:
            x = x - random.random()
        else:
            x = x + OWN_SCALE * p
    return x


OWN_SCALE = 0.5


def choice(x, layers):
    return random.choice(layers)(x) + random.random()


def choices_of_layers(x, layers):
    for _ in range(3):
        x = random.choice(layers)(x)
    return x * random.random()


def own_generator(x, layers):
    y = OWN.choice(layers)(x)
    return y * OWN.random() if y.sum() > 0 else y


def drop(x, layers):
    for layer in layers:
        if random.random() < 0.5:
            x = layer(x)
        if x.sum() > 2:
            x = x / 2
    return x


def carried(x, layers):
    scale = random.uniform(0, 1)
    loss = (x * scale).sum().item()
    if loss > 1:
        return f"{loss:.3f}", x * random.random()
    return loss, x


def mixup(x, layers):
    weight = random.betavariate(0.4, 0.4)
    y = weight * x + (1 - weight) * x.flip(0)
    return y if y.max() > 1 else y * random.gauss(0, 1)


def written(x, layers):
    layers.append(random.random())
    x.mul_(random.random())
    if x.sum() > 1:
        layers.append(random.random())
    return layers.pop(), layers.pop() if len(layers) > 4 else None


def raised(x, layers):
    p = random.random()
    if x.sum() * p > 1:
        random.random()
        raise ValueError("large")
    return x * random.random()


def handled(x, layers):
    try:
        return raised(x, layers)
    except ValueError:
        return x - random.random()


def sampled(x, layers):
    return [layer(x) for layer in random.sample(layers, 2)], random.choices(layers, k=2)[0](x)


def shuffled(x, layers):
    order = list(range(3))
    random.shuffle(order)
    return x[order], random.random()


def beta(x, layers):
    share = random.betavariate(0.4, 0.4)
    return x * share + (1 - share)


def gamma(x, layers):
    return (
        x * random.gammavariate(2.0, 0.5) + random.gammavariate(1, 2) - random.gammavariate(0.3, 1)
    )


def normal(x, layers):
    return x + random.normalvariate(0, 1) * random.gauss(1, 2) + random.lognormvariate(0, 0.25)


def angle(x, layers):
    return x + random.vonmisesvariate(0.5, 2.0)


def until_it_fits(x, layers):
    tries = 0
    while True:
        tries += 1
        p = random.random()
        if p > 0.7 or p < 0.1:
            break
        x = x + 1
    return x * p, tries


def weighted(x, layers):
    scale = random.choices([0.5, 1.0, 2.0], weights=[1, 2, 1])[0]
    for layer in random.choices(layers, weights=[1, 2, 3, 4], k=2):
        x = layer(x)
    return x * scale


def layers_left_out(x, layers):
    for layer in layers * 3:
        if random.random() < 0.3:
            continue
        x = layer(x) + 1
    return x


def shuffled_list(x, layers):
    order = [0, 1, 2]
    random.shuffle(order)
    return x[order], order


FUNCTIONS = [
    value
    for value in list(globals().values())
    if callable(value) and getattr(value, "__module__", "") == __name__
]

REJECTED = [beta, gamma, normal, angle, until_it_fits]


def played(function, seed, scale):
    random.seed(seed)
    OWN.seed(seed)
    x = torch.tensor([1.0, -0.5, 0.75]) * scale
    layers = list(LAYERS)
    try:
        result = repr(function(x, layers))
    except ValueError as error:
        result = repr(error)
    return result, x.tolist(), len(layers), random.getstate(), OWN.getstate(), random.random()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_generators_stand_as_in_plain_python(function):
    compiled = stator.compile(function)
    for seed in range(24):
        for scale in (1.0, 3.0, -1.0):
            assert played(compiled, seed, scale) == played(function, seed, scale)


@pytest.mark.parametrize("function", [behind_a_draw, before_a_draw, carried, choice, own_generator])
def test_nothing_breaks(function):
    compiled = stator.compile(function)
    for seed in range(24):
        for scale in (1.0, 3.0, -1.0):
            played(compiled, seed, scale)
    assert stats(compiled).breaks == 0
    assert stats(compiled).native == 0


@pytest.mark.parametrize("function", REJECTED, ids=lambda function: function.__name__)
def test_draws_that_are_drawn_again(function):
    """How often that is makes no new trace, and no call runs natively."""
    compiled = stator.compile(function)
    for seed in range(60):
        assert played(compiled, seed, 1.0) == played(function, seed, 1.0)
    graphs = stats(compiled).graphs
    for seed in range(60, 200):
        assert played(compiled, seed, 1.0) == played(function, seed, 1.0)
    assert stats(compiled).graphs <= graphs + 6
    assert stats(compiled).native == 0, stats(compiled).reason
