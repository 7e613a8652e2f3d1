"""Random trees, built alike with our building blocks and with those of `federated_language`."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np

import stator.federated as sf
from stator.federated import framework
from stator.federated.compiler import (
    building_block_analysis,
    building_block_factory,
    intrinsic_defs,
    transformation_utils,
    tree_analysis,
)


def ours() -> SimpleNamespace:
    return SimpleNamespace(
        name="ours",
        types=sf,
        fw=framework,
        factory=building_block_factory,
        analysis=tree_analysis,
        blocks=building_block_analysis,
        utils=transformation_utils,
        defs=intrinsic_defs,
    )


def theirs() -> SimpleNamespace:
    import federated_language as fl
    from federated_language.compiler import (
        building_block_analysis,
        building_block_factory,
        intrinsic_defs,
        transformation_utils,
        tree_analysis,
    )

    return SimpleNamespace(
        name="theirs",
        types=fl,
        fw=fl.framework,
        factory=building_block_factory,
        analysis=tree_analysis,
        blocks=building_block_analysis,
        utils=transformation_utils,
        defs=intrinsic_defs,
    )


class Maker:
    """Makes the same tree for the same seed, with either package."""

    def __init__(self, side: SimpleNamespace, seed: int) -> None:
        self.side = side
        self.random = random.Random(seed)
        self.pool: list[Any] = []

    def name(self) -> str:
        return self.random.choice(["a", "b", "long_name", "v", "x1"])

    def type(self, depth: int = 2) -> Any:
        types = self.side.types
        kind = self.random.randrange(7 if depth else 2)
        if kind <= 1:
            return types.TensorType(
                self.random.choice([np.int32, np.float32, np.bool_, np.str_]),
                self.random.choice([(), (), (2,), (None, 3)]),
            )
        if kind <= 3:
            count = self.random.randrange(4)
            names = self.random.sample(["a", "b", "c", "d"], count)
            fields = [
                (name, self.type(depth - 1)) if self.random.random() < 0.5 else self.type(depth - 1)
                for name in names
            ]
            return types.StructType(fields)
        if kind == 4:
            placement = self.random.choice([types.CLIENTS, types.SERVER])
            return types.FederatedType(
                types.TensorType(np.int32), placement, self.random.choice([True, False, None])
            )
        if kind == 5:
            return types.SequenceType(types.TensorType(np.int32))
        parameter = self.type(depth - 1) if self.random.random() < 0.7 else None
        return types.FunctionType(parameter, self.type(depth - 1))

    def tree(self, depth: int) -> Any:
        if self.pool and self.random.random() < 0.15:
            return self.random.choice(self.pool)
        made = self.fresh(depth)
        self.pool.append(made)
        return made

    def leaf(self) -> Any:
        fw, types = self.side.fw, self.side.types
        kind = self.random.randrange(7)
        if kind <= 2:
            return fw.Reference(self.name(), self.type())
        if kind == 3:
            return fw.Placement(self.random.choice([types.CLIENTS, types.SERVER]))
        if kind == 4:
            value = self.random.choice([1, -3, 2.5, True, b"hi", np.int32(7), np.float32(0.5)])
            dtype = {int: np.int32, float: np.float32, bool: np.bool_, bytes: np.str_}
            found = dtype.get(type(value), type(value))
            return fw.Literal(value, types.TensorType(found))
        if kind == 5:
            return fw.Intrinsic(self.random.choice(["an_op", "op"]), self.type())
        return fw.Reference(self.name(), self.type(), "scope")

    def fresh(self, depth: int) -> Any:
        fw, types = self.side.fw, self.side.types
        if not depth:
            return self.leaf()
        kind = self.random.randrange(8)
        if kind == 0:
            return self.leaf()
        if kind == 1:
            count = self.random.randrange(4)
            names = self.random.sample(["a", "b", "c", "d"], count)
            elements: list[Any] = []
            for name in names:
                value = self.tree(depth - 1)
                elements.append((name, value) if self.random.random() < 0.5 else value)
            return fw.Struct(elements)
        if kind == 2:
            source = self.tree(depth - 1)
            if not isinstance(source.type_signature, types.StructType):
                return fw.Lambda(None, None, source)
            count = len(source.type_signature)
            names = [name for name, _ in source.type_signature.items() if name is not None]
            if names and self.random.random() < 0.5:
                return fw.Selection(source, name=self.random.choice(sorted(names)))
            if count:
                return fw.Selection(source, index=self.random.randrange(count))
            return source
        if kind in (3, 4):
            argument = self.tree(depth - 1)
            result = self.tree(depth - 1)
            if self.random.random() < 0.5:
                function = fw.Lambda(self.name(), argument.type_signature, result)
            else:
                function = fw.Reference(
                    self.name(), types.FunctionType(argument.type_signature, result.type_signature)
                )
            return fw.Call(function, argument)
        if kind == 5:
            if self.random.random() < 0.5:
                return fw.Call(fw.Lambda(None, None, self.tree(depth - 1)))
            return fw.Lambda(self.name(), self.type(), self.tree(depth - 1))
        count = self.random.randrange(4)
        locals_ = [(self.name(), self.tree(depth - 1)) for _ in range(count)]
        return fw.Block(locals_, self.tree(depth - 1))


def tree(side: SimpleNamespace, seed: int) -> Any:
    return Maker(side, seed).tree(4)


def federated_tree(side: SimpleNamespace, seed: int) -> Any:
    """A tree of calls of the language's operations, with names for some of them."""
    fw, types, factory = side.fw, side.types, side.factory
    chance = random.Random(seed)
    number = types.TensorType(np.int32)
    clients = types.FederatedType(number, types.CLIENTS)
    server = types.FederatedType(number, types.SERVER)
    bound: list[tuple[str, Any]] = []

    def known(ty: Any) -> Any:
        fitting = [
            (name, value)
            for name, value in bound
            if value.type_signature == ty or ty.is_assignable_from(value.type_signature)
        ]
        if fitting and chance.random() < 0.7:
            name, value = chance.choice(fitting)
            return fw.Reference(name, value.type_signature)
        return fw.Reference("c" if ty is clients else "s", ty)

    def step() -> Any:
        function = fw.Reference("f", types.FunctionType(number, number))
        kind = chance.randrange(8)
        if kind == 0:
            return factory.create_federated_sum(known(clients))
        if kind == 1:
            return factory.create_federated_broadcast(known(server))
        if kind == 2:
            return factory.create_federated_map(function, known(clients))
        if kind == 3:
            return factory.create_federated_apply(function, known(server))
        if kind == 4:
            return factory.create_federated_secure_sum(
                known(clients), fw.Literal(3, types.TensorType(np.int32))
            )
        if kind == 5:
            # A lambda that is called at once.
            inner = factory.create_federated_sum(fw.Reference("p", clients))
            return fw.Call(fw.Lambda("p", clients, inner), known(clients))
        if kind == 6:
            both = fw.Struct([known(server), factory.create_federated_sum(known(clients))])
            return fw.Selection(both, index=chance.randrange(2))
        return factory.create_federated_broadcast(
            factory.create_federated_mean(
                fw.Reference("w", types.FederatedType(types.TensorType(np.float32), types.CLIENTS)),
                None,
            )
        )

    for at in range(chance.randrange(1, 6)):
        bound.append((f"v{at}", step()))
    result = fw.Struct([fw.Reference(name, value.type_signature) for name, value in bound[-2:]])
    if chance.random() < 0.3:
        return fw.Lambda("s", server, fw.Block(bound, result))
    return fw.Block(bound, result)
