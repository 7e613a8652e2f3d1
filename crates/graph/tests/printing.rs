//! The printed forms, against the deep dive's own examples where it has one.

mod common;

use common::{Program, contiguous, function, method, mse, operator, tensor};
use insta::assert_snapshot;
use stator_graph::print::{graph_code, graph_sizes, graph_table, stack_trace};
use stator_graph::{Arg, Constant, Graph, NoSource, Operator, Target, Value};

#[test]
fn deep_dive_mse() {
    let (graph, program) = mse();
    graph.verify().unwrap();
    assert_snapshot!(graph_code(&graph, &program), @r"
    def forward(l_x_: torch.Tensor, l_y_: torch.Tensor):
        # File: example.py:5, code: z = (x - y) ** 2
        sub = l_x_ - l_y_
        z = sub ** 2
        # File: example.py:6, code: return z.sum()
        sum_1 = z.sum()
        return (sum_1,)
    ");
    assert_snapshot!(graph_table(&graph), @r"
    opcode         name    target        args          kwargs
    -------------  ------  ------------  ------------  ------
    placeholder    l_x_    L['x']        ()            {}
    placeholder    l_y_    L['y']        ()            {}
    call_function  sub     operator.sub  (l_x_, l_y_)  {}
    call_function  z       operator.pow  (sub, 2)      {}
    call_method    sum_1   sum           (z,)          {}
    output         output  output        ((sum_1,),)   {}
    ");
}

#[test]
fn deep_dive_constant_times_tensor() {
    let mut graph = Graph::new();
    let x = tensor(&mut graph, "L['x']", &[200]);
    let line5 = graph.stack(None, 0, 5);
    let y = operator(&mut graph, Operator::Pow, &[Arg::Node(x), Arg::int(2)], line5);
    graph.set_local_name(y, "y");
    let line7 = graph.stack(None, 0, 7);
    let mul = operator(&mut graph, Operator::Mul, &[Arg::int(3), Arg::Node(y)], line7);
    graph.set_outputs(&[Arg::Node(mul)]);
    let lines = &[(5, "y = x ** 2"), (7, "return (n + 1) * y")];
    assert_snapshot!(graph_code(&graph, &Program { file: "example.py", lines }), @r"
    def forward(l_x_: torch.Tensor):
        # File: example.py:5, code: y = x ** 2
        y = l_x_ ** 2
        # File: example.py:7, code: return (n + 1) * y
        mul = 3 * y
        return (mul,)
    ");
}

#[test]
fn deep_dive_symbolic_integer() {
    let mut graph = Graph::new();
    let x = tensor(&mut graph, "L['x']", &[200]);
    let n = graph.placeholder("L['n']", Value::Integer);
    let line5 = graph.stack(None, 0, 5);
    let y = operator(&mut graph, Operator::Pow, &[Arg::Node(x), Arg::int(2)], line5);
    graph.set_local_name(y, "y");
    let line7 = graph.stack(None, 0, 7);
    let add = operator(&mut graph, Operator::Add, &[Arg::Node(n), Arg::int(1)], line7);
    let mul = operator(&mut graph, Operator::Mul, &[Arg::Node(add), Arg::Node(y)], line7);
    graph.set_outputs(&[Arg::Node(mul)]);
    graph.verify().unwrap();
    let lines = &[(5, "y = x ** 2"), (7, "return (n + 1) * y")];
    assert_snapshot!(graph_code(&graph, &Program { file: "a.py", lines }), @r"
    def forward(l_x_: torch.Tensor, l_n_: torch.SymInt):
        # File: a.py:5, code: y = x ** 2
        y = l_x_ ** 2
        # File: a.py:7, code: return (n + 1) * y
        add = l_n_ + 1
        mul = add * y
        return (mul,)
    ");
}

#[test]
fn deep_dive_sizes() {
    let mut graph = Graph::new();
    let a = tensor(&mut graph, "L['a']", &[8, 3]);
    let b = tensor(&mut graph, "L['b']", &[8, 3]);
    let at = graph.stack(None, 0, 5);
    let size = method(&mut graph, "size", &[Arg::Node(a)], at);
    graph.set_value(size, Value::Structure(2));
    let first = graph.get_item(size, 0);
    graph.set_value(first, Value::Integer);
    let mul = operator(&mut graph, Operator::Mul, &[Arg::Node(first), Arg::Node(a)], at);
    let mul_1 = operator(&mut graph, Operator::Mul, &[Arg::Node(mul), Arg::Node(b)], at);
    for node in [mul, mul_1] {
        let meta = contiguous(&mut graph, &[8, 3]);
        graph.set_tensor(node, meta);
    }
    graph.set_outputs(&[Arg::Node(mul_1)]);
    assert_snapshot!(graph_sizes(&graph, "__compiled_fn_1"), @r"
    TRACED GRAPH TENSOR SIZES
    ===== __compiled_fn_1 =====
    l_a_: (8, 3)
    l_b_: (8, 3)
    mul: (8, 3)
    mul_1: (8, 3)
    ");
    for node in [a, b, mul, mul_1] {
        graph.set_symbolic_sizes(node, &[Some("s0"), None]);
    }
    graph.verify().unwrap();
    assert_snapshot!(graph_sizes(&graph, "__compiled_fn_1"), @r"
    TRACED GRAPH TENSOR SIZES
    ===== __compiled_fn_1 =====
    l_a_: (s0, 3)
    l_a_ (concrete): (8, 3)
    l_b_: (s0, 3)
    l_b_ (concrete): (8, 3)
    mul: (s0, 3)
    mul (concrete): (8, 3)
    mul_1: (s0, 3)
    mul_1 (concrete): (8, 3)
    ");
    assert_snapshot!(graph_code(&graph, &NoSource), @r"
    def forward(l_a_: torch.Tensor, l_b_: torch.Tensor):
        size = l_a_.size()
        getitem = size[0]
        mul = getitem * l_a_
        mul_1 = mul * l_b_
        return (mul_1,)
    ");
}

/// One statement of each kind.
#[test]
fn statements() {
    let mut graph = Graph::new();
    let weight = tensor(
        &mut graph,
        "L['self']._modules['layers']._modules['0']._parameters['weight']",
        &[4],
    );
    let arg = tensor(&mut graph, "L['MyArg']", &[4]);
    let nested = tensor(&mut graph, "L['d']['k'][0]", &[4]);
    let at = graph.stack(None, 0, 1);

    function(&mut graph, "torch.nn.functional.linear", &[Arg::Node(arg), Arg::Node(weight)], at);
    let y = function(&mut graph, "torch.nn.functional.linear", &[Arg::Node(arg), Arg::NONE], at);
    let max = function(&mut graph, "torch.max", &[Arg::Node(y), Arg::int(1)], at);
    graph.set_value(max, Value::Structure(2));
    let a = graph.get_item(max, 0);
    graph.set_local_name(a, "a");
    graph.set_local_name(a, "later_names_do_not_count");
    let iadd = operator(&mut graph, Operator::IAdd, &[Arg::Node(a), Arg::int(1)], at);
    graph.set_local_name(iadd, "a");
    let set =
        operator(&mut graph, Operator::SetItem, &[Arg::Node(y), Arg::int(0), Arg::float(3.5)], at);
    graph.set_value(set, Value::Nothing);
    let slice = graph.slice(Arg::int(1), Arg::NONE, Arg::NONE);
    let index = graph.tuple(&[slice, Arg::Constant(Constant::Ellipsis), Arg::NONE]);
    let item = operator(&mut graph, Operator::GetItem, &[Arg::Node(y), index], at);
    operator(&mut graph, Operator::Neg, &[Arg::Node(item)], at);
    operator(&mut graph, Operator::Pow, &[Arg::int(-2), Arg::Node(item)], at);
    operator(&mut graph, Operator::MatMul, &[Arg::Node(item), Arg::Node(item)], at);
    operator(&mut graph, Operator::Or, &[Arg::Node(item), Arg::bool(true)], at);

    let (float32, device) = (graph.add_object("torch.float32"), graph.intern("device"));
    let dtype = graph.intern("dtype");
    let cpu = graph.str("cpu");
    let to = graph.intern("to");
    let to = graph.call_with_keywords(
        Target::Method { name: to, object: None },
        &[Arg::Node(nested), cpu, Arg::Object(float32)],
        &[device, dtype],
        Some(at),
    );
    let list = graph.list(&[Arg::Node(to), Arg::Node(arg)]);
    let tuple = graph.tuple(&[Arg::int(3)]);
    let key = graph.str("it's");
    let dict = graph.dict(&[(key, tuple)]);
    let cat = function(&mut graph, "torch.cat", &[list, dict], at);
    let name = graph.intern("T");
    let transposed = graph.call(Target::GetAttr { name }, &[Arg::Node(cat)], Some(at));
    method(&mut graph, "__len__", &[Arg::Node(transposed)], at);
    method(&mut graph, "float", &[Arg::Node(transposed)], at);

    let both = graph.list(&[Arg::Node(iadd), Arg::Node(transposed)]);
    graph.set_outputs(&[both, Arg::int(7)]);
    graph.verify().unwrap();
    assert_snapshot!(graph_code(&graph, &NoSource), @r#"
    def forward(l_self_modules_layers_modules_0_parameters_weight_: torch.Tensor, l_my_arg_: torch.Tensor, l_d_k_0_: torch.Tensor):
        linear = torch.nn.functional.linear(l_my_arg_, l_self_modules_layers_modules_0_parameters_weight_)
        linear_1 = torch.nn.functional.linear(l_my_arg_, None)
        max_1 = torch.max(linear_1, 1)
        a = max_1[0]
        a += 1;  a_1 = a
        linear_1[0] = 3.5
        getitem_1 = linear_1[(slice(1, None, None), Ellipsis, None)]
        neg = -getitem_1
        pow_1 = (-2) ** getitem_1
        matmul = getitem_1 @ getitem_1
        or_ = getitem_1 | True
        to = l_d_k_0_.to(device = 'cpu', dtype = torch.float32)
        cat = torch.cat([to, l_my_arg_], {"it's": (3,)})
        getattr_1 = cat.T
        len_1 = getattr_1.__len__()
        float_1 = getattr_1.float()
        return ([a_1, getattr_1], 7)
    "#);
    assert_snapshot!(graph_table(&graph), @r#"
    opcode         name                                                target                                                            args                                                             kwargs
    -------------  --------------------------------------------------  ----------------------------------------------------------------  ---------------------------------------------------------------  -----------------------------------------
    placeholder    l_self_modules_layers_modules_0_parameters_weight_  L['self']._modules['layers']._modules['0']._parameters['weight']  ()                                                               {}
    placeholder    l_my_arg_                                           L['MyArg']                                                        ()                                                               {}
    placeholder    l_d_k_0_                                            L['d']['k'][0]                                                    ()                                                               {}
    call_function  linear                                              torch.nn.functional.linear                                        (l_my_arg_, l_self_modules_layers_modules_0_parameters_weight_)  {}
    call_function  linear_1                                            torch.nn.functional.linear                                        (l_my_arg_, None)                                                {}
    call_function  max_1                                               torch.max                                                         (linear_1, 1)                                                    {}
    call_function  a                                                   operator.getitem                                                  (max_1, 0)                                                       {}
    call_function  a_1                                                 operator.iadd                                                     (a, 1)                                                           {}
    call_function  setitem                                             operator.setitem                                                  (linear_1, 0, 3.5)                                               {}
    call_function  getitem_1                                           operator.getitem                                                  (linear_1, (slice(1, None, None), Ellipsis, None))               {}
    call_function  neg                                                 operator.neg                                                      (getitem_1,)                                                     {}
    call_function  pow_1                                               operator.pow                                                      (-2, getitem_1)                                                  {}
    call_function  matmul                                              operator.matmul                                                   (getitem_1, getitem_1)                                           {}
    call_function  or_                                                 operator.or_                                                      (getitem_1, True)                                                {}
    call_method    to                                                  to                                                                (l_d_k_0_,)                                                      {'device': 'cpu', 'dtype': torch.float32}
    call_function  cat                                                 torch.cat                                                         ([to, l_my_arg_], {"it's": (3,)})                                {}
    call_function  getattr_1                                           builtins.getattr                                                  (cat, 'T')                                                       {}
    call_method    len_1                                               __len__                                                           (getattr_1,)                                                     {}
    call_method    float_1                                             float                                                             (getattr_1,)                                                     {}
    output         output                                              output                                                            (([a_1, getattr_1], 7),)                                         {}
    "#);
}

#[test]
fn library_frames_give_way_to_the_users() {
    let mut graph = Graph::new();
    let x = tensor(&mut graph, "L['x']", &[4]);
    let user = graph.stack(None, 0, 5);
    let library = graph.stack(Some(user), 1, 134);
    method(&mut graph, "relu", &[Arg::Node(x)], library);
    let only_library = graph.stack(None, 1, 77);
    method(&mut graph, "relu", &[Arg::Node(x)], only_library);
    let user = graph.stack(None, 0, 5);
    let nested = graph.stack(Some(user), 0, 9);
    let program = Program { file: "model.py", lines: &[(5, "y = self.fc(x)")] };
    // Not snapshots: those don't hold the indentation, and readers of the text need it.
    let outer = "  File \"model.py\", line 5, in fn\n    y = self.fc(x)\n";
    let nested = stack_trace(graph.stacks(), nested, &program);
    assert_eq!(nested, format!("{outer}  File \"model.py\", line 9, in fn\n"));
    assert_eq!(stack_trace(graph.stacks(), library, &program), outer);
    assert_snapshot!(graph_code(&graph, &program), @r"
    def forward(l_x_: torch.Tensor):
        # File: model.py:5, code: y = self.fc(x)
        relu = l_x_.relu()
        # File: torch/nn/modules/linear.py:77
        relu_1 = l_x_.relu()
        return ()
    ");
}

#[test]
fn empty_graph_and_removed_placeholders() {
    let mut graph = Graph::new();
    assert_snapshot!(graph_code(&graph, &NoSource), @r"
    def forward():
        return ()
    ");
    let x = tensor(&mut graph, "L['x']", &[1]);
    let y = tensor(&mut graph, "L['y']", &[1]);
    let at = graph.stack(None, 0, 1);
    method(&mut graph, "abs", &[Arg::Node(y)], at);
    let z = tensor(&mut graph, "L['z']", &[1]);
    graph.set_outputs(&[Arg::Node(y), Arg::Node(y)]);
    assert_eq!(graph.remove_unused_placeholders(), [0, 2]);
    assert_eq!(graph.placeholders(), [y]);
    graph.verify().unwrap();
    assert_snapshot!(graph_code(&graph, &NoSource), @r"
    def forward(l_y_: torch.Tensor):
        abs_1 = l_y_.abs()
        return (l_y_, l_y_)
    ");
    method(&mut graph, "abs", &[Arg::Node(x)], at);
    assert_snapshot!(graph.verify().unwrap_err(), @r"
    graph node %4: 2: reads %0, a placeholder that is no longer taken
      %1 = placeholder L['y']
      %2 = .abs(%1)
      %3 = placeholder L['z']
    > %4 = .abs(%0)
    ");
    assert!(!graph.placeholders().contains(&z));
}

#[test]
fn placeholders_named_later() {
    let mut graph = Graph::with_room(&Graph::new().room().map(|_| 4));
    let x = graph.unnamed_placeholder(Value::Unknown);
    let n = graph.placeholder("n", Value::Integer);
    let y = graph.unnamed_placeholder(Value::Unknown);
    let at = graph.stack(None, 0, 1);
    let mul = method(&mut graph, "mul", &[Arg::Node(x), Arg::Node(n)], at);
    let add = method(&mut graph, "add", &[Arg::Node(mul), Arg::Node(y)], at);
    graph.set_outputs(&[Arg::Node(add)]);
    graph.verify().unwrap();
    let named = graph.named(["L['x']", "L['y']"].map(str::to_owned));
    named.verify().unwrap();
    assert_snapshot!(graph_code(&named, &NoSource), @r"
    def forward(l_x_: torch.Tensor, n: torch.SymInt, l_y_: torch.Tensor):
        mul = l_x_.mul(n)
        add = mul.add(l_y_)
        return (add,)
    ");
    let twice = graph.named(["L['x']", "L['x']"].map(str::to_owned));
    twice.verify().unwrap();
    assert_snapshot!(graph_code(&twice, &NoSource), @r"
    def forward(l_x_: torch.Tensor, n: torch.SymInt, l_x_2: torch.Tensor):
        mul = l_x_.mul(n)
        add = mul.add(l_x_2)
        return (add,)
    ");
}

#[test]
fn calls_that_another_node_makes_are_withdrawn() {
    let mut graph = Graph::new();
    let x = tensor(&mut graph, "L['x']", &[1]);
    let at = graph.stack(None, 0, 1);
    let kept = method(&mut graph, "abs", &[Arg::Node(x)], at);
    let from = graph.len();
    let inner = method(&mut graph, "neg", &[Arg::Node(kept)], at);
    let y = tensor(&mut graph, "L['y']", &[1]);
    graph.withdraw(from);
    let last = method(&mut graph, "exp", &[Arg::Node(y)], at);
    graph.set_outputs(&[Arg::Node(last), Arg::Node(kept)]);
    assert_eq!(graph.call_count(), 2);
    assert!(graph.is_withdrawn(inner) && !graph.is_withdrawn(y) && !graph.reads_withdrawn());
    graph.verify().unwrap();
    assert_snapshot!(graph_code(&graph, &NoSource), @r"
    def forward(l_x_: torch.Tensor, l_y_: torch.Tensor):
        abs_1 = l_x_.abs()
        exp = l_y_.exp()
        return (exp, abs_1)
    ");
    graph.set_outputs(&[Arg::Node(inner)]);
    assert!(graph.reads_withdrawn() && graph.verify().is_err());
}
