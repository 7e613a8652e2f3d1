"""The checker: arguments, aliasing, global state, snapshots, lifetimes, printed forms."""

import collections
import gc
import weakref

import torch
from torch import nn

from .support import Box, Guards, settle


def tensor_guards(*tensors):
    guards = Guards()
    sources = [guards.arg(name) for name, _ in zip("abcdefgh", tensors)]
    for source, tensor in zip(sources, tensors):
        guards.guard(source, "tensor", tensor)
    return guards, sources


def test_tensor_arguments_are_known_by_metadata():
    guards, (a, b) = tensor_guards(torch.zeros(4, 3), torch.zeros(4, 3))
    guards.guard(a, "distinct", [b]).build(a, b)
    for _ in range(5):
        x, y = torch.ones(4, 3), torch.ones(4, 3)
        assert guards.objects(x, y) == [x, y] or True
        assert guards.objects(x, y)[0] is x
    assert guards.set.report()[0] >= 5
    x, y = torch.ones(4, 3), torch.ones(4, 3)
    assert "L['a'] is not L['b']" in guards.why(x, x)
    assert "check_tensor(L['a'], torch.float32" in guards.why(x.double(), y)
    assert not guards.passes(x, y.clone().requires_grad_())
    assert not guards.passes(x, torch.ones(3, 4).t())
    assert not guards.passes(x, torch.ones(4, 2))
    assert not guards.passes(x, y.to("meta"))
    assert not guards.passes(x, nn.Parameter(y))
    assert not guards.passes(x, y.to_sparse())
    assert not guards.passes(x, 3)
    assert not guards.passes(x, None)
    with torch.inference_mode():
        assert not guards.passes(x, torch.ones(4, 3))
    assert not guards.passes(x, torch.ones(4, 3, dtype=torch.complex64).conj())


def test_argument_aliasing_with_a_parameter():
    box = Box(p=torch.zeros(2), q=torch.zeros(2))
    guards = Guards()
    x, y = guards.arg("box"), guards.arg("t")
    p, q = guards.attr(x, "p"), guards.attr(x, "q")
    for source in (p, q, y):
        guards.guard(source, "tensor", box.p)
    guards.guard(y, "distinct", [p, q]).build(y, p)
    settle(guards, box, torch.zeros(2))
    assert not guards.passes(box, box.q)
    assert guards.passes(box, torch.zeros(2))
    box.q = box.p
    assert not guards.passes(box, torch.zeros(2))


def test_same_object_on_two_paths():
    box = Box(p=torch.zeros(2))
    guards = Guards()
    x, y = guards.arg("box"), guards.arg("t")
    guards.guard(y, "same", guards.attr(x, "p")).build(y)
    settle(guards, box, box.p)
    assert not guards.passes(box, torch.zeros(2))
    box.p = torch.ones(2)
    assert guards.passes(box, box.p)


def test_constants_among_arguments():
    guards = Guards()
    x = guards.arg()
    guards.guard(x, "equals", 1000).build()
    settle(guards, 1000)
    assert guards.passes(int("1000"))
    assert not guards.passes(1000.0)
    assert not guards.passes(1001)
    assert "L['x'] == 1000, found 'no'" in guards.why("no")


def test_a_user_equality_is_never_run():
    class Liar:
        def __eq__(self, other):
            raise AssertionError("ran")

        def __hash__(self):
            return hash("k")

    box = Box(d={"k": 1})
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.item(guards.attr(x, "d"), "k"), "equals", 1).build()
    settle(guards, box)
    box.d = {Liar(): 1}
    assert not guards.passes(box)
    box.d = {"k": Liar()}
    assert not guards.passes(box)


def test_global_state():
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.global_state(), "global_state").guard(x, "none").build()
    settle(guards, None)
    attention = nn.attention
    changes = [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu"),
        lambda: torch.autocast("cpu", dtype=torch.float16),
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.graph.saved_tensors_hooks(abs, abs),
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
        torch.autograd.forward_ad.dual_level,
        lambda: torch.device("meta"),
        lambda: attention.sdpa_kernel(attention.SDPBackend.MATH),
        lambda: torch._C.DisableTorchFunctionSubclass(),
        lambda: torch.backends.cudnn.flags(benchmark=True),
        lambda: torch.backends.mkldnn.flags(enabled=False),
    ]
    for change in changes:
        with change():
            assert not guards.passes(None), change
        assert guards.passes(None), (change, guards.why(None))
    for change, undo in [
        (
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
        ),
        (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
        ),
        (
            lambda: torch.set_autocast_dtype("cpu", torch.float16),
            lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        ),
        (
            lambda: torch.set_autocast_cache_enabled(False),
            lambda: torch.set_autocast_cache_enabled(True),
        ),
    ]:
        change()
        assert not guards.passes(None)
        undo()
        assert guards.passes(None)
    torch.func.vmap(lambda t: (guards.why(None), t)[1])(torch.zeros(2))
    torch.set_float32_matmul_precision("high")  # Setting it back leaves other settings behind.
    assert "precision" in guards.why(None)
    torch.set_float32_matmul_precision("highest")
    with torch.no_grad():
        assert "torch.is_grad_enabled() == True, found False" in guards.why(None)


def test_an_entry_dies_with_what_it_knows_by_identity():
    def local():
        return 1

    guards = Guards()
    x = guards.arg()
    guards.guard(x, "is", local).build()
    settle(guards, local)
    died = weakref.ref(local)
    assert guards.set.is_alive()
    del local
    gc.collect()
    assert died() is None
    assert not guards.set.is_alive()
    assert not guards.passes(None)


def test_a_snapshot_keeps_no_module_alive():
    module = nn.Linear(2, 3)
    guards = Guards()
    x = guards.arg()
    guards.guard(
        guards.item(guards.item(guards.dict(x), "_parameters"), "weight"), "tensor", module.weight
    )
    guards.build()
    settle(guards, module)
    died = weakref.ref(module), weakref.ref(module.weight)
    del module
    gc.collect()
    assert died[0]() is None and died[1]() is None
    assert guards.set.is_alive()
    assert guards.passes(nn.Linear(2, 3))


def test_two_objects_share_an_entry_with_a_snapshot_each():
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.attr(x, "n"), "equals", 1).build(x)
    boxes = [Box(n=1) for _ in range(4)]
    for _ in range(5):
        for box in boxes:
            assert guards.objects(box)[0] is box
    fast, walked, snapshots, _, _ = guards.set.report()
    assert (walked, snapshots) == (4, 4) and fast == 16


def test_an_address_used_again_is_no_proof():
    """A freed object's address comes back with another value."""
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.list(guards.attr(x, "l"), index=0), "equals", 1.5)
    guards.guard(
        guards.attr(guards.list(guards.attr(x, "l"), index=1), "n"), "equals", 10**9
    ).build()
    box = Box(l=[float("1.5"), Box(n=10**9)])
    settle(guards, box)
    for value in range(300):
        box.l[0] = None
        box.l[0] = float(value)
        assert guards.passes(box) is (value == 1.5)
        box.l[0] = float("1.5")
        box.l[1] = None
        box.l[1] = Box(n=10**9 + value)
        assert guards.passes(box) is (value == 0)
        box.l[1] = Box(n=int("1000000000"))
        assert guards.passes(box)


def spread_guards(config):
    """Guards of `def f(*args, **kwargs)`, which reads `kwargs['config'].n` and tensors of both."""
    guards = Guards()
    args, kwargs = guards.arg("args"), guards.arg("kwargs")
    first = guards.tuple(args, index=0)
    x, y = guards.item(kwargs, "x"), guards.item(kwargs, "config")
    guards.guard(args, "type", tuple).guard(args, "length", 1)
    guards.guard(kwargs, "type", dict).guard(kwargs, "keys", {"x": 0, "config": 0})
    guards.guard(first, "tensor", torch.ones(2)).guard(x, "tensor", torch.ones(3))
    guards.guard(x, "distinct", [first])
    guards.guard(y, "type", type(config)).guard(guards.attr(y, "n"), "equals", config.n)
    return guards.build(first, x, y)


def test_new_args_and_kwargs_with_new_tensors_stay_fast():
    config = Box(n=1)
    guards = spread_guards(config)
    kept = []
    for _ in range(20):
        kept.append(((torch.ones(2),), {"x": torch.ones(3), "config": config}))
        args, kwargs = kept[-1]
        found = guards.objects(args, kwargs)
        assert found[0] is args[0] and found[1] is kwargs["x"] and found[2] is config
    fast, walked, snapshots, _, reason = guards.set.report()
    assert (fast, walked, snapshots, reason) == (19, 1, 1, None)


def test_what_is_in_args_and_kwargs_is_guarded_at_each_call():
    config, a, x = Box(n=1), torch.ones(2), torch.ones(3)
    guards = spread_guards(config)
    for _ in range(3):
        assert guards.passes((a,), {"x": x, "config": config})
    wrong = [
        ((), {"x": x, "config": config}),
        ((a, a), {"x": x, "config": config}),
        ([a], {"x": x, "config": config}),
        ((torch.ones(4),), {"x": x, "config": config}),
        ((a,), {"config": config, "x": x}),
        ((a,), {"x": x}),
        ((a,), {"x": x, "config": config, "z": 0}),
        ((a,), collections.OrderedDict(x=x, config=config)),
        ((a,), {"x": x.double(), "config": config}),
        ((a,), {"x": a, "config": config}),
        ((a,), {"x": x, "config": Box(n=2)}),
        ((a,), {"x": x, "config": None}),
        ((a,),),
        (),
    ]
    for arguments in wrong:
        assert not guards.passes(*arguments), arguments
        assert guards.passes((a,), {"x": x, "config": config})
    assert "len(L['args']) == 1" in guards.why((a, a), {"x": x, "config": config})
    assert guards.passes((a,), {"x": x, "config": Box(n=1)})
    config.n = 2
    assert not guards.passes((a,), {"x": x, "config": config})


def test_new_containers_in_new_containers_stay_fast():
    guards = Guards()
    args = guards.arg("args")
    pair = guards.tuple(args, index=1)
    named = guards.tuple(pair, index=0)
    x, flag = guards.item(named, "x"), guards.tuple(pair, index=1)
    guards.guard(args, "type", tuple).guard(pair, "type", tuple).guard(pair, "length", 2)
    guards.guard(named, "type", dict).guard(named, "dict_length", 1)
    guards.guard(x, "tensor", torch.ones(2)).guard(flag, "equals", True).build(x, named)
    for _ in range(5):
        named = {"x": torch.ones(2)}
        found = guards.objects((0, (named, True)))
        assert found[0] is named["x"] and found[1] is named
        assert not guards.passes((0, (named, 1)))
        assert not guards.passes((0, ({"x": torch.ones(3)}, True)))
        assert not guards.passes((0, ({"y": torch.ones(2)}, True)))
        assert not guards.passes((0, (named, True, True)))
        assert not guards.passes((0, named))
        assert not guards.passes((0,))
    assert guards.set.report()[:2] == (4, 1)


def test_the_same_tensor_in_args_and_kwargs():
    guards = Guards()
    args, kwargs = guards.arg("args"), guards.arg("kwargs")
    first, x = guards.tuple(args, index=0), guards.item(kwargs, "x")
    guards.guard(args, "type", tuple).guard(kwargs, "type", dict)
    guards.guard(first, "tensor", torch.ones(2)).guard(x, "same", first).build(x)
    for _ in range(5):
        tensor = torch.ones(2)
        assert guards.objects((tensor,), {"x": tensor})[0] is tensor
        assert not guards.passes((tensor,), {"x": torch.ones(2)})
    assert guards.set.report()[:2] == (4, 1)


def test_a_dictionary_that_changes_every_call_stays_fast():
    box = Box(step=0, n=1)
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.attr(x, "n"), "equals", 1).build()
    settle(guards, box)
    walked = guards.set.report()[1]
    for _ in range(50):
        box.step += 1
        assert guards.passes(box)
    assert guards.set.report()[1] == walked


def test_printed_guards():
    guards = Guards()
    x, y = guards.arg("l"), guards.arg("self")
    guards.guard(x, "type", list).guard(x, "length", 1).guard(guards.list(x), "equals", "Hi")
    guards.guard(guards.attr(y, "layers"), "type", list).guard(guards.attr(y, "d"), "absent", "z")
    guards.guard(guards.item(guards.attr(y, "d"), "k"), "equals", 1).build()
    assert guards.set.print_guards() == [
        f"___check_type_id(L['l'], {id(list)})",
        "len(L['l']) == 1",
        f"___check_type_id(L['l'][0], {id(str)})",
        "L['l'][0] == 'Hi'",
        f"___check_type_id(L['self'].layers, {id(list)})",
        "'z' not in L['self'].d",
        f"___check_type_id(L['self'].d['k'], {id(int)})",
        "L['self'].d['k'] == 1",
    ]


def test_absence_within_names_the_fact():
    box = Box(first={}, second={})
    guards = Guards()
    x = guards.arg()
    guards.guard(guards.dict(x), "absent_within", ("k", ["first", "second"])).build()
    assert guards.passes(box)
    box.k = 1
    assert guards.why(box) == "'k' not in vars(L['x']), found 1"
    del box.k
    box.second["k"] = 2
    assert guards.why(box) == "'k' not in L['x'].second, found 2"
    box.first = []
    assert guards.why(box) == "type(L['x'].first) is dict, found type list"
    del box.first
    assert guards.why(box) == "type(L['x'].first) is dict, found nothing there"
