"""Guards on what a snapshot can't watch: they are walked at every call, and are right."""

from __future__ import annotations

import collections
import contextvars

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
