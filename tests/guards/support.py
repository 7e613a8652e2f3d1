"""The checker by itself: `GuardSet`, the testing interface of the native module, spelled short."""

from stator import _stator

GuardSet = _stator.GuardSet


class Guards:
    """A `GuardSet` with short spellings: paths are made by methods, arguments are counted."""

    def __init__(self):
        self.set = GuardSet()
        self.arguments = 0

    def arg(self, name="x"):
        self.arguments += 1
        return self.set.source("local", key=name, index=self.arguments - 1)

    def __getattr__(self, kind):
        def source(parent=None, key=None, index=0, after=None):
            return self.set.source(kind, parent, key, index, after)

        return source

    def attr(self, parent, name):
        return self.item(self.dict(parent), name)

    def guard(self, source, kind, value=None):
        self.set.guard(source, kind, value)
        return self

    def build(self, *wanted):
        self.set.build(list(wanted))
        return self

    def passes(self, *args):
        found = self.set.check(list(args))
        return not isinstance(found, str)

    def why(self, *args):
        found = self.set.check(list(args))
        assert isinstance(found, str), found
        return found

    def objects(self, *args):
        found = self.set.check(list(args))
        assert not isinstance(found, str), found
        return found


def settle(guards, *args):
    """Checks until a snapshot has been taken and used, and says that it has."""
    for _ in range(3):
        assert guards.passes(*args), guards.why(*args)
    fast, walked, snapshots, words, reason = guards.set.report()
    assert reason is None
    return fast


class Box:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Hashing:
    """Hashes to a number, which it doesn't equal."""

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return self.value


class Slots:
    __slots__ = ("a", "b")


class Base:
    limit = 3

    def method(self):
        return "base"


class Derived(Base):
    def method(self):
        return super().method()


def function(x, y=2, *, z=3):
    return x + y + z


def closure(value):
    def inner():
        return value

    return inner
