"""Frames whose objects somebody has: they stay the same ones, whatever was replayed in between."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from torch import Tensor

from ..support.case import Corpus, one

case = Corpus()
HELD: list[Any] = []
FACTOR = 2.0


def _factor(*_: Any) -> None:
    global FACTOR
    FACTOR = 5.0


@case(one, change=_factor)
def held_while_an_exception_is_handled(x: Tensor) -> Any:
    frame = sys._getframe()
    try:
        sys.setswitchinterval("often")
    except TypeError as error:
        said = str(error)
    y = x * FACTOR
    return y, sys._getframe() is frame, said, sys.exception()


@case(one, change=_factor)
def held_outside(x: Tensor) -> Any:
    HELD[:] = [sys._getframe()]
    y = x * FACTOR
    for _ in range(2):
        try:
            sys.setswitchinterval("often")
        except TypeError as error:
            said = str(error)
            y = y + len(said)
        y = y * 2
        same = HELD[0] is sys._getframe()
    return y, same, HELD.pop() is sys._getframe()


def inner(x: Tensor) -> Any:
    frame = sys._getframe(1)
    try:
        sys.setswitchinterval("often")
    except TypeError as error:
        said = str(error)
        y = x * FACTOR + len(said)
        same = sys._getframe(1) is frame
    z = y + 1
    return z, same, sys._getframe(1) is frame, sys._getframe()


@case(one, change=_factor)
def held_by_what_it_calls(x: Tensor) -> Any:
    found = inner(x)
    y = x + found[0]
    return y, found[1:3], found[3].f_back


@case(one, change=_factor)
def held_while_another_exception_comes(x: Tensor) -> Any:
    frame = sys._getframe()
    try:
        try:
            sys.setswitchinterval("often")
        except TypeError as error:
            y = x * FACTOR
            sys.setswitchinterval(str(error))
    except TypeError as error:
        y = y + 1
        before = sys._getframe() is frame
        z = y * 2
        context = error.__context__
        after = sys._getframe() is frame
    w = z - 1
    return w, before, after, sys._getframe() is frame, repr(context)


@case(one, change=_factor)
def held_where_it_warns(x: Tensor) -> Any:
    frame = sys._getframe()
    sys.getswitchinterval()
    y = x * FACTOR
    warnings.warn("held")
    y = y + 1
    return y, sys._getframe() is frame


@case(one, change=_factor)
def held_by_a_traceback(x: Tensor) -> Any:
    try:
        sys.setswitchinterval("often")
    except TypeError as error:
        HELD.append(error)
    y = x * FACTOR
    entry = HELD.pop().__traceback__
    return y, entry.tb_frame is sys._getframe(), entry.tb_lasti < entry.tb_frame.f_lasti


class Noisy:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __del__(self) -> None:
        self.log.append((sys._getframe(1).f_code.co_name, repr(sys.exception())))


@case(one, change=_factor)
def let_go_behind_its_handler(x: Tensor) -> Any:
    log: list[Any] = []
    frame = sys._getframe()
    try:
        sys.setswitchinterval("often")
    except TypeError as error:
        error.noisy = Noisy(log)
        said = str(error)
    y = x * FACTOR
    return y, sys._getframe() is frame, log, said
