"""Guards on what a snapshot can't watch: they are walked at every call, and are right."""

from __future__ import annotations

import collections
import contextvars
import itertools

import pytest

from .support import Box, Guards


def check(guards, box, steps):
    """Each step changes `box`; then the guards hold or don't."""
    assert guards.passes(box), guards.why(box)
    for step, holds in steps:
        step(box)
        assert guards.passes(box) is holds
        assert guards.passes(box) is holds
    assert guards.set.report()[4] is not None, "nothing is unwatchable here"


def test_elements_of_a_deque():
    guards = Guards()
    queue = guards.attr(guards.local(), "q")
    guards.guard(queue, "length", 2)
    guards.guard(guards.deque(queue, index=0), "equals", 1)
    guards.guard(guards.deque(queue, index=1), "equals", 2)
    guards.guard(guards.deque_maxlen(queue), "equals", 3)
    guards.build()
    check(
        guards,
        Box(q=collections.deque([1, 2], maxlen=3)),
        [
            (lambda o: o.q.append(3), False),
            (lambda o: o.q.pop(), True),
            (lambda o: o.q.rotate(1), False),
            (lambda o: o.q.rotate(1), True),
            (lambda o: o.q.__setitem__(1, 2.0), False),
            (lambda o: setattr(o, "q", collections.deque([1, 2], maxlen=4)), False),
            (lambda o: setattr(o, "q", collections.deque([1, 2], maxlen=3)), True),
            (lambda o: setattr(o, "q", [1, 2]), False),
        ],
    )


def stepped(iterator, count=1):
    for _ in range(count):
        next(iterator)
    return iterator


@pytest.mark.parametrize(
    ("make", "position"),
    [
        (lambda: stepped(iter([5, 6, 7])), (1, 0, 0)),
        (lambda: stepped(iter((5, 6, 7)), 2), (2, 0, 0)),
        (lambda: stepped(reversed([5, 6, 7])), (1, 0, 0)),
        (lambda: stepped(reversed((5, 6, 7))), (1, 0, 0)),
        (lambda: stepped(iter(range(3, 30, 4)), 2), (11, 4, 5)),
        (lambda: stepped(iter(range(9, 0, -2)), 5), (-1, -2, 0)),
        (lambda: stepped(iter({1: 2, 3: 4, 5: 6})), (2, 0, 0)),
        (lambda: stepped(iter({1: 2, 3: 4}.values()), 2), (0, 0, 0)),
        (lambda: stepped(iter({1: 2, 3: 4}.items())), (1, 0, 0)),
        (lambda: stepped(itertools.repeat(7, 4)), (3, 0, 0)),
        (lambda: stepped(enumerate([5, 6, 7], 4)), (5, 0, 0)),
        (lambda: stepped(zip([5, 6], (7, 8), range(9))), (3, 0, 0)),
    ],
)
def test_where_an_iterator_stands(make, position):
    guards = Guards()
    iterator = guards.attr(guards.local(), "i")
    guards.guard(iterator, "iterator_at", position)
    guards.build()
    box = Box(i=make())
    before = list(make())
    steps = [(lambda o: setattr(o, "i", make()), True)]
    if before:
        # The others say by what they go over how far they have come.
        is_told = not isinstance(box.i, zip)
        steps.append((lambda o: next(o.i), not is_told))
    steps += [
        (lambda o: setattr(o, "i", make()), True),
        (lambda o: setattr(o, "i", iter("abc")), False),
        (lambda o: setattr(o, "i", None), False),
    ]
    check(guards, box, steps)
    # Nothing was advanced by who looked.
    box.i = make()
    assert guards.passes(box)
    assert list(box.i) == before


def test_what_an_iterator_goes_over():
    items, other = [1, 2], [1, 2]
    guards = Guards()
    iterator = guards.attr(guards.local(), "i")
    inner = guards.iterated(iterator, index=1)
    guards.guard(guards.iterated(inner), "is", items)
    guards.build()
    check(
        guards,
        Box(i=zip(other, iter(items))),
        [
            (lambda o: next(o.i), True),
            (lambda o: setattr(o, "i", zip(items, iter(other))), False),
            (lambda o: setattr(o, "i", zip(other, reversed(items))), True),
            (lambda o: setattr(o, "i", zip(range(5), iter(items))), True),
            (lambda o: list(o.i), False),
            (lambda o: setattr(o, "i", zip(iter(items))), False),
            (lambda o: setattr(o, "i", enumerate(items)), False),
        ],
    )


def test_a_dictionary_changed_below_its_iterator():
    """It would raise: such an iterator stands nowhere."""
    guards = Guards()
    guards.guard(guards.attr(guards.local(), "i"), "iterator_at", (2, 0, 0))
    guards.build()
    held = {1: 1, 2: 2, 3: 3}
    box = Box(i=stepped(iter(held)))
    assert guards.passes(box)
    held[4] = 4
    assert not guards.passes(box)
    del held[4]
    assert guards.passes(box)
    # As many entries, but not those that the iterator counts on.
    del held[1]
    held[5] = 5
    assert not guards.passes(box)


@pytest.mark.parametrize("default", [False, True])
def test_value_of_a_context_variable(default):
    def make(value):
        made = contextvars.ContextVar("v", default=7) if default else contextvars.ContextVar("v")
        if value is not None:
            made.set(value)
        return made

    guards = Guards()
    variable = guards.attr(guards.local(), "v")
    guards.guard(guards.context(variable), "equals", 5)
    guards.build()
    check(
        guards,
        Box(v=make(5)),
        [
            (lambda o: o.v.set(6), False),
            (lambda o: o.v.set(5), True),
            (lambda o: setattr(o, "v", make(None)), False),
            (lambda o: setattr(o, "v", make(7)), False),
            (lambda o: setattr(o, "v", make(5)), True),
            (lambda o: setattr(o, "v", 5), False),
        ],
    )


def test_default_of_a_context_variable():
    guards = Guards()
    variable = guards.attr(guards.local(), "v")
    guards.guard(variable, "context_unset")
    guards.guard(guards.context_default(variable), "equals", 7)
    guards.build()
    check(
        guards,
        Box(v=contextvars.ContextVar("v", default=7)),
        [
            (lambda o: o.v.set(7), False),
            (lambda o: setattr(o, "v", contextvars.ContextVar("w", default=7)), True),
            (lambda o: setattr(o, "v", contextvars.ContextVar("w", default=8)), False),
            (lambda o: setattr(o, "v", contextvars.ContextVar("w")), False),
        ],
    )
