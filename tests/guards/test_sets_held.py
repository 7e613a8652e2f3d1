"""Guards of one element of a set, beside `in`: tables with collisions, with removed elements, of all sizes."""

import random
import sys

import pytest

from .support import Guards


class Clash:
    """Compared by identity; its hash is chosen."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Tells:
    """Compared by code of its own, which no guard may run."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        raise AssertionError("user code ran")


def asked(wanted):
    """What a guard says of a set: True, False, or None where only somebody's code could tell."""
    both = []
    for kind in ("holds", "lacks"):
        guards = Guards()
        x = guards.arg()
        guards.guard(x, kind, wanted).build(x)
        both.append(guards)

    def ask(known):
        holds, lacks = (guards.passes(known) for guards in both)
        assert not (holds and lacks)
        return True if holds else False if lacks else None

    return ask


# Small integers are their own hash: these meet in tables of every size, and along their jumps.
NUMBERS = [*range(12), *(1 << k for k in range(3, 40, 3)), *(8 * k for k in range(12)), -1, -2]
OTHERS = ["a", "b", (1, 2), (1, (2, "x")), None, True, 2.5, Clash, int, frozenset({1}), Clash(1)]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [set, frozenset])
def test_elements_come_and_go(kind, seed):
    chosen = random.Random(seed)
    wanted = [(item, asked(item)) for item in chosen.sample(NUMBERS, 8) + chosen.sample(OTHERS, 4)]
    known = set()
    for _ in range(60):
        for _ in range(chosen.randrange(1, 12)):
            item = chosen.choice(NUMBERS + OTHERS)
            if chosen.random() < 0.5:
                known.add(item)
            else:
                known.discard(item)
        # A copy has a table without dummies; the set itself keeps them.
        looked_at = known if kind is set else frozenset(known)
        for item, ask in wanted:
            assert ask(looked_at) is (item in looked_at), (item, looked_at)


def test_equal_hashes():
    # Integers are hashed modulo 2**61 - 1, so all these meet at every step.
    clashing = [5 + k * (2**61 - 1) for k in range(40)]
    assert len({hash(item) for item in clashing}) == 1
    known = set(clashing)
    asks = [(item, asked(item)) for item in clashing]
    for removed in clashing[::3]:
        known.remove(removed)
        for item, ask in asks:
            assert ask(known) is (item in known)


@pytest.mark.parametrize("first", [True, False])
def test_elements_that_compare_by_code_of_their_own(first):
    tells = Tells(5)
    known = set([tells]) if first else set()
    ask = asked(5)
    if first:
        # Only it could say that it isn't 5, if it says so.
        assert ask(known) is None
        known.discard(tells)
    known.add(5)
    assert ask(known) is True
    # An element of another hash isn't asked by anybody.
    known.add(Tells(13))
    known.add(Tells(21))
    assert ask(known) is True
    assert asked(29)(known) is False


def test_what_is_behind_the_element_is_not_asked():
    # CPython finds 5 first and stops there.
    known = {5}
    with pytest.raises(AssertionError, match="user code ran"):
        known.add(Tells(5))
    assert 5 in known and asked(5)(known) is True


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="slices can be hashed")
def test_what_cannot_be_hashed():
    ask = asked(slice(1, 2))
    assert ask({1, 2}) is None
    assert ask(frozenset()) is None


def test_only_sets_hold():
    ask = asked(1)
    for other in ([1], (1,), {1: 1}, None, "1"):
        assert ask(other) is None
