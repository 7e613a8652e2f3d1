"""A compiled `nn.Module`: a call is compiled, everything else is the module's own.

The wrapper has no state. Attributes are read from, written to and deleted from the module it
wraps, so there is one truth, and `state_dict` has no prefixes. Methods run on the module itself;
those that return it return the wrapper instead. It says that it is of the module's class.

Other parts import this file only when they are handed a module: it needs torch.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import types
import weakref
from collections.abc import Callable
from typing import Any, cast

from torch import nn

from stator._ran import Watch, watch
from stator._settings import Settings, settings_of
from stator._stator import Compiled
from stator._targets import compile_target, native_of
from stator._warnings import never_called

# The methods of nn.Module that return the module.
_FLUENT = (
    "apply",
    "bfloat16",
    "cpu",
    "cuda",
    "double",
    "eval",
    "float",
    "half",
    "ipu",
    "mtia",
    "requires_grad_",
    "share_memory",
    "to",
    "to_empty",
    "train",
    "type",
    "xpu",
)

# What the wrapper answers itself; all other names are the module's.
_OWN = frozenset(
    (
        *_FLUENT,
        "__call__",
        "__copy__",
        "__deepcopy__",
        "__delattr__",
        "__getattribute__",
        "__reduce__",
        "__reduce_ex__",
        "__setattr__",
        "__wrapped__",
        "_orig_mod",
        "_stator_call",
        "_stator_module",
    )
)

# Special methods that Python looks up on the class: those about construction and attributes stay
# the wrapper's; all others that a module's class defines are passed on by `_class_for`.
_NOT_PASSED_ON = _OWN | {
    "__class_getitem__",
    "__del__",
    "__getattr__",
    "__getstate__",
    "__init__",
    "__init_subclass__",
    "__new__",
    "__setstate__",
    "__subclasshook__",
}


_PYTORCHS = frozenset(vars(nn.Module)) - {"forward"}


class _WrapperType(type):
    """The type of wrappers: who asks one for its `forward` gets that of the module's class."""

    _stator_type: Callable[[], type[nn.Module] | None] = staticmethod(lambda: None)

    @property
    def forward(cls) -> Callable[..., Any]:
        module_type = cls._stator_type()
        return nn.Module.forward if module_type is None else module_type.forward


class CompiledModule(nn.Module, metaclass=_WrapperType):
    """A module whose calls are compiled. `__wrapped__` is the module."""

    __slots__ = ("_stator_call", "_stator_module")

    _stator_module: nn.Module
    _stator_call: types.MethodType

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        # A trace that meets a wrapper follows this, as it follows no descriptor's own method.
        return getattr(object.__getattribute__(self, "_stator_module"), name)

    def __getattr__(self, name: str) -> Any:
        # Python comes here when `__getattribute__` raised AttributeError; asking the module once
        # more raises it again, in the module's own words and not in those of nn.Module.__getattr__.
        return getattr(object.__getattribute__(self, "_stator_module"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_stator_module"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_stator_module"), name)

    @property
    def __wrapped__(self) -> Any:
        return _module_of(self)

    @property
    def _orig_mod(self) -> Any:
        """By this name those know it who unwrap what `torch.compile` returned."""
        return _module_of(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return wrap_module, (_module_of(self), _settings_of(self))

    def __copy__(self) -> Any:
        return wrap_module(copy.copy(_module_of(self)), _settings_of(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return wrap_module(copy.deepcopy(_module_of(self), memo), _settings_of(self))

    def __reduce__(self) -> Any:
        return self.__reduce_ex__(2)


def wrap_module(module: nn.Module, settings: Settings) -> Any:
    """`module`, compiled. A compiled module with the same settings is returned as it is."""
    if isinstance(module, CompiledModule):
        if settings in (_settings_of(module), Settings()):
            return module
        module = _module_of(module)
    call = compile_target(types.MethodType(type(module).__call__, module), settings)
    compiled = native_of(call)
    if compiled is None:
        return module
    _name_after_forward(compiled, type(module))
    wrapper_type = _class_for(type(module))
    wrapper = wrapper_type.__new__(wrapper_type)
    _CALL.__set__(wrapper, call)
    _MODULE.__set__(wrapper, module)
    methods = _methods(type(module))
    watched = watch(methods.values())
    weakref.finalize(wrapper, _tell_if_never_called, compiled, methods, watched, os.getpid())
    return wrapper


def _methods(module_type: type[nn.Module]) -> dict[str, types.CodeType]:
    """The public methods of a module's class that aren't PyTorch's, `forward` first."""
    found: dict[str, Any] = {"forward": module_type.forward}
    for base in module_type.__mro__[: module_type.__mro__.index(nn.Module)]:
        for name, method in vars(base).items():
            if isinstance(method, types.FunctionType) and name not in _PYTORCHS and name[0] != "_":
                found.setdefault(name, method)
    methods = {}
    for name, method in found.items():
        with contextlib.suppress(ValueError):  # Its wrappers go round in a circle.
            method = inspect.unwrap(method)
        if isinstance(method, types.FunctionType):
            methods[name] = method.__code__
    return methods


def _tell_if_never_called(
    compiled: Compiled, methods: dict[str, types.CodeType], watched: Watch, process: int
) -> None:
    """A wrapper dies, or the process ends. Who ends before anything has run isn't told."""
    if compiled._was_called or process != os.getpid():
        return
    ran = [name for name, code in methods.items() if watched.has_run(code)]
    if ran:
        code = methods[ran[0]]
        owner = code.co_qualname.rpartition(".")[0]
        never_called(owner, ran, code.co_filename, code.co_firstlineno)


def _name_after_forward(compiled: Compiled, module_type: type[nn.Module]) -> None:
    """Logs speak of the function the user wrote, not of `nn.Module._wrapped_call_impl`."""
    forward = module_type.forward
    for name in functools.WRAPPER_ASSIGNMENTS:
        if name != "__annotations__" and hasattr(forward, name):
            setattr(compiled, name, getattr(forward, name))
    with contextlib.suppress(ValueError):  # Its wrappers go round in a circle.
        compiled._named_after = inspect.unwrap(forward)  # type: ignore[attr-defined]


def _settings_of(wrapper: CompiledModule) -> Settings:
    compiled = native_of(_CALL.__get__(wrapper))
    assert compiled is not None
    return settings_of(compiled)


# The slots, read without a Python frame: `_module_of(wrapper)` is a call from C to C. That of the
# compiled call is also what Python finds as `type(wrapper).__call__`, and traces follow that.
_MODULE: Any = CompiledModule.__dict__["_stator_module"]
_CALL: Any = CompiledModule.__dict__["_stator_call"]
_module_of: Any = _MODULE.__get__
CompiledModule.__call__ = _CALL  # type: ignore[method-assign]


def _fluent(name: str) -> Callable[..., Any]:
    method = getattr(nn.Module, name)

    @functools.wraps(method)
    def call(self: CompiledModule, *args: Any, **kwargs: Any) -> Any:
        return _own(self, getattr(_module_of(self), name)(*args, **kwargs))

    return call


def _special(name: str) -> Callable[..., Any]:
    def call(self: CompiledModule, *args: Any) -> Any:
        module = _module_of(self)
        return _own(self, getattr(type(module), name)(module, *args))

    return call


def _own(wrapper: CompiledModule, result: Any) -> Any:
    """A method that returns its module returns the wrapper."""
    return wrapper if result is _module_of(wrapper) else result


for _name in _FLUENT:
    setattr(CompiledModule, _name, _fluent(_name))


def _class_for(module_type: type[nn.Module]) -> type[CompiledModule]:
    """The wrapper class that has the special methods `module_type` has (`__len__`, ...)."""
    names: dict[str, bool] = {}
    for base in module_type.__mro__[: module_type.__mro__.index(nn.Module)]:
        for name, value in vars(base).items():
            if _is_passed_on(name, value):
                names.setdefault(name, value is not None)
    found = _classes.get(module_type)
    if found is None or found[0] != names:
        _classes[module_type] = found = (names, _class_with(names, weakref.ref(module_type)))
    return found[1]


def _is_passed_on(name: str, value: object) -> bool:
    is_special = name.startswith("__") and name.endswith("__") and name not in _NOT_PASSED_ON
    return is_special and (callable(value) or name == "__hash__")


# No class here holds the module's class: it would never be freed.
_classes: weakref.WeakKeyDictionary[
    type[nn.Module], tuple[dict[str, bool], type[CompiledModule]]
] = weakref.WeakKeyDictionary()


def _class_with(
    names: dict[str, bool], module_type: Callable[[], type[nn.Module] | None]
) -> type[CompiledModule]:
    methods = {name: _special(name) if defined else None for name, defined in names.items()}
    own = {"__slots__": (), "_stator_type": staticmethod(module_type)}
    made = _WrapperType("CompiledModule", (CompiledModule,), {**own, **methods})
    return cast("type[CompiledModule]", made)
