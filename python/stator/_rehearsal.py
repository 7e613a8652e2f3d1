"""A small program of the kinds that most programs are made of, to be recorded before all others.

A process's first recording finds Stator's own code and tables in no cache. So the first
`stator.compile` records this program and throws the record away. When it does, and when it doesn't,
says `crates/tracer/src/compiled/rehearsal.rs`; it is never imported where torch isn't.

What PyTorch could tell anybody of is left out: nothing here is random, reads a default or makes a
class that others find, and no operation starts PyTorch's threads or its libraries of linear
algebra, as `gelu`, `softmax`, `layer_norm` and products of matrices do.
"""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["program"]

WIDTH = 4

# Hooks that PyTorch runs for each module.
_HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_buffer_registration_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)


def program() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None:
    """A function and its arguments; None where somebody would notice that it's called."""
    torch = sys.modules["torch"]
    if not _is_unwatched(torch) or not _is_untouched(torch):
        return None
    tokens = torch.zeros((1, 3), dtype=torch.int64, device="cpu")
    mask = torch.ones((1, 3), dtype=torch.int64, device="cpu")
    return _call, (_Model(torch), tokens), {"mask": mask, "scale": 0.5, "use_cache": True}


def _is_unwatched(torch: Any) -> bool:
    """Whether nobody hears of operations, modules or calls, or has them do something else."""
    c, modules = torch._C, sys.modules["torch.nn.modules.module"]
    monitoring = getattr(sys, "monitoring", None)
    return not (
        any(getattr(modules, hooks) for hooks in _HOOKS)
        or c._len_torch_function_stack()
        or c._len_torch_dispatch_stack()
        or c._functorch.peek_interpreter_stack() is not None
        or c._get_tracing_state() is not None
        or c._autograd._profiler_enabled()
        or torch.is_inference_mode_enabled()
        or torch.is_autocast_enabled("cpu")
        or (monitoring is not None and any(map(monitoring.get_tool, range(6))))
    )


def _is_untouched(torch: Any) -> bool:
    """Whether what the program calls is PyTorch's own."""
    nn, functional = torch.nn, torch.nn.functional
    used = [
        *(nn.Module.__init__, nn.Module.__setattr__, nn.Module.__getattr__, nn.Module.__call__),
        *(nn.Module._call_impl, nn.Module.eval, nn.Module.train, nn.Module.requires_grad_),
        *(nn.Embedding.__init__, nn.Embedding.forward, nn.Dropout.__init__, nn.Dropout.forward),
        *(nn.SiLU.__init__, nn.SiLU.forward, nn.ModuleList.__init__, nn.ModuleList.__iter__),
        *(nn.Parameter.__new__, functional.embedding, functional.dropout, functional.silu),
    ]
    root = torch.__file__.rpartition("/")[0]
    return all(
        isinstance(function, types.FunctionType) and function.__code__.co_filename.startswith(root)
        for function in used
    )


class _Config:
    """What a model reads its options from."""

    names = types.MappingProxyType({"hidden_size": "width"})

    def __init__(self) -> None:
        self.width = WIDTH
        self.heads = 2
        self.dropout = 0.1
        self.use_cache = False
        self.kind = "gelu"
        self.options: dict[str, Any] = {"window": None, "types": ["full", "full"]}

    def __getattribute__(self, name: str) -> Any:
        names = super().__getattribute__("names")
        return super().__getattribute__(names.get(name, name))

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class _Output(OrderedDict[str, Any]):
    """A result that is read by name, by key and by place."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __getitem__(self, key: Any) -> Any:
        return dict(self.items())[key] if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[name] for name in self)


class _Step:
    """What one block gives."""

    def __init__(self, hidden: Any, weights: Any = None) -> None:
        self.hidden = hidden
        self.weights = weights


class _Cache:
    """What a model keeps of earlier tokens."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.seen = 0

    def update(self, key: Any, layer: int, options: dict[str, Any] | None = None) -> Any:
        if len(self.keys) <= layer:
            self.keys.append(key)
        else:
            self.keys[layer] = sys.modules["torch"].cat([self.keys[layer], key], dim=-2)
        self.seen += key.shape[-2] if layer == 0 else 0
        return self.keys[layer]


def _with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hands keywords on, as decorators of libraries do."""

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **options: Any) -> Any:
        given = options.pop("as_dict", None)
        output = function(self, *args, **{"scale": 1.0, **options})
        return output if given is None or given else output.to_tuple()

    return wrapper


def _attend(query: Any, key: Any, mask: Any, scale: float, dropout: float = 0.0) -> Any:
    torch, functional = sys.modules["torch"], sys.modules["torch.nn.functional"]
    weights = (query.unsqueeze(-2) * key.unsqueeze(-3)).sum(dim=-1) * scale
    if mask is not None:
        weights = weights + mask[:, :, :, : key.shape[-2]]
    weights = torch.exp(weights - weights.amax(dim=-1, keepdim=True))
    weights = (weights / weights.sum(-1, keepdim=True)).to(query.dtype)
    return functional.dropout(weights, p=dropout, training=False)


_ATTENTIONS: dict[str, Callable[..., Any]] = {"plain": _attend}


class _Block:
    """Normalizes, attends, activates, and adds."""

    def __init__(self, torch: Any, config: _Config, layer: int) -> None:
        self.config, self.layer, self.training = config, layer, False
        self.weight = torch.ones((WIDTH,), dtype=torch.float32, device="cpu")
        self.drop = torch.nn.Dropout(config.dropout).eval()
        self.act = torch.nn.SiLU().eval()

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.forward(*args, **options)

    def _norm(self, x: Any, eps: float = 1e-6) -> Any:
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x * sys.modules["torch"].rsqrt(variance + eps)).to(x.dtype)

    def _split(self, x: Any, heads: int) -> Any:
        shape = (*x.shape[:-1], heads, -1)
        return x.view(shape).transpose(1, 2)

    def forward(
        self, x: Any, mask: Any = None, cache: _Cache | None = None, *, scale: float, **options: Any
    ) -> _Step:
        batch, length, width = x.size()
        y = self._norm(x)
        query, key = (self._split(part, self.config.heads) for part in (y, y * 2))
        if cache is not None:
            key = cache.update(key, self.layer, {"scale": scale})
        attention: Any = _ATTENTIONS.get(self.config.options["window"] or "plain", _attend)
        dropout = 0.0 if not self.training else self.config.dropout
        weights = attention(query, key, mask, scale=scale, dropout=dropout)
        y = (weights.unsqueeze(-1) * key.unsqueeze(2)).sum(3).transpose(1, 2).contiguous()
        y = self.drop(y.reshape(batch, length, width))
        if options.get("verbose") or getattr(self.config, "missing", False):
            raise NotImplementedError
        return _Step(self.act(x + y), weights)


class _Model:
    """Embeds, makes a mask, and goes through its blocks."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.config = torch, _Config()
        table = torch.zeros((WIDTH, WIDTH), dtype=torch.float32, device="cpu")
        self.embed = torch.nn.Embedding(WIDTH, WIDTH, _weight=table).requires_grad_(False)
        self.positions = torch.zeros((1, 8), dtype=torch.int64, device="cpu")
        self.blocks = [_Block(torch, self.config, layer) for layer in range(2)]
        self.acts = torch.nn.ModuleList([block.act for block in self.blocks]).eval()

    def _mask(self, mask: Any, x: Any) -> Any:
        if mask is None or not hasattr(mask, "shape"):
            return None
        if mask.dim() not in (2, 4):
            raise ValueError(f"a mask of shape {tuple(mask.shape)}")
        mask = 1.0 - mask[:, None, None, :].to(dtype=x.dtype)
        return mask.masked_fill(mask.bool(), self.torch.finfo(x.dtype).min)

    @_with_options
    def forward(
        self, tokens: Any = None, mask: Any = None, use_cache: bool | None = None, **options: Any
    ) -> _Output:
        use_cache = use_cache if use_cache is not None else self.config.use_cache
        config = copy.copy(self.config) if options.get("own") else self.config
        cache = _Cache() if use_cache else None
        places = self.positions[:, : tokens.shape[1]]
        x = self.embed(tokens) + self.embed(places)
        mask = self._mask(mask, x)
        seen: tuple[Any, ...] = ()
        for block, _act in zip(self.blocks, self.acts, strict=True):
            seen += (x,)
            step = block(x, mask=mask, cache=cache, **options)
            x = step.hidden
        for index, kind in enumerate(config.options["types"]):
            x = x * (index + 1) if kind == "full" else x
        output = _Output()
        output.last = x
        output.states = seen
        if cache is not None:
            output.cache = cache
        return output


def _call(model: _Model, tokens: Any, **options: Any) -> Any:
    return model.forward(tokens, **options)
