//! Replay over plain Python objects: no PyTorch needed.

use pyo3::ffi::c_str;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use stator_cpython::modules;
use stator_graph::{Arg, Graph, NoSource, NodeId, Operator, Target, Value};

use super::{Program, export};

/// A graph with its table of objects.
struct Trace<'py> {
    py: Python<'py>,
    graph: Graph,
    objects: Vec<Py<PyAny>>,
}

impl<'py> Trace<'py> {
    fn new(py: Python<'py>) -> Self {
        Self { py, graph: Graph::new(), objects: Vec::new() }
    }

    fn input(&mut self, source: &str) -> Arg {
        Arg::Node(self.graph.placeholder(source, Value::Unknown))
    }

    fn object(&mut self, expression: &str) -> stator_graph::ObjectId {
        let code = std::ffi::CString::new(expression).unwrap();
        let globals = PyDict::new(self.py);
        globals.set_item("collections", modules::import(self.py, "collections").unwrap()).unwrap();
        self.objects.push(self.py.eval(&code, Some(&globals), None).unwrap().unbind());
        self.graph.add_object(expression)
    }

    fn operator(&mut self, operator: Operator, args: &[Arg]) -> Arg {
        Arg::Node(self.graph.call(Target::Operator(operator), args, None))
    }

    fn function(&mut self, expression: &str, args: &[Arg], keywords: &[&str]) -> NodeId {
        let object = self.object(expression);
        let name = self.graph.intern(expression);
        let keywords: Vec<_> = keywords.iter().map(|name| self.graph.intern(name)).collect();
        self.graph.call_with_keywords(Target::Function { name, object }, args, &keywords, None)
    }

    fn method(&mut self, name: &str, class: Option<&str>, args: &[Arg]) -> Arg {
        let object = class.map(|class| self.object(&format!("{class}.__dict__['{name}']")));
        let name = self.graph.intern(name);
        Arg::Node(self.graph.call(Target::Method { name, object }, args, None))
    }

    fn program(&mut self, outputs: &[Arg]) -> Program {
        self.graph.set_outputs(outputs);
        self.graph.verify().unwrap();
        Program::new(self.py, &self.graph, &self.objects).unwrap()
    }

    /// The outputs' `repr` for inputs given as expressions.
    fn run(&mut self, outputs: &[Arg], inputs: &[&str]) -> Vec<String> {
        let program = self.program(outputs);
        run(self.py, &program, inputs)
    }
}

fn run(py: Python<'_>, program: &Program, inputs: &[&str]) -> Vec<String> {
    let inputs: Vec<_> = inputs
        .iter()
        .map(|input| py.eval(&std::ffi::CString::new(*input).unwrap(), None, None).unwrap())
        .collect();
    let borrowed: Vec<_> = inputs.iter().map(Bound::as_borrowed).collect();
    let outputs = program.run(py, &borrowed).unwrap();
    outputs.iter().map(|output| output.repr().unwrap().to_string()).collect()
}

fn attach<T>(test: impl FnOnce(Python<'_>) -> T) -> T {
    Python::initialize();
    Python::attach(test)
}

#[test]
fn every_operator_does_what_pythons_does() {
    attach(|py| {
        let module = modules::import(py, "operator").unwrap();
        let examples = ["17", "-3", "2.5", "True", "{1, 2}", "[1, [2]]", "'%d!'"];
        for &operator in Operator::ALL {
            for left in examples {
                for right in ["3", "{2}", "[4]", "0"] {
                    compare_operator(py, &module, operator, &[left, right, "9"]);
                }
            }
        }
    });
}

/// Runs an operator on fresh operands by replay and by the `operator` module.
fn compare_operator(
    py: Python<'_>,
    module: &Bound<'_, PyModule>,
    operator: Operator,
    operands: &[&str; 3],
) {
    let fresh = || {
        let operands = operands[..operator.arity()].iter();
        let eval = |text: &&str| py.eval(&std::ffi::CString::new(*text).unwrap(), None, None);
        operands.map(eval).collect::<PyResult<Vec<_>>>().unwrap()
    };
    let text = |object: &Bound<'_, PyAny>| object.repr().unwrap().to_string();

    let expected_operands = fresh();
    let function = module.getattr(operator.name()).unwrap();
    let expected = function.call1(pyo3::types::PyTuple::new(py, &expected_operands).unwrap());

    let mut trace = Trace::new(py);
    let sources = ["L['a']", "L['b']", "L['c']"];
    let args: Vec<Arg> =
        sources[..operator.arity()].iter().map(|source| trace.input(source)).collect();
    let result = trace.operator(operator, &args);
    let program = trace.program(&[result]);
    let actual_operands = fresh();
    let inputs: Vec<_> = actual_operands.iter().map(Bound::as_borrowed).collect();
    let actual = program.run(py, &inputs);

    match (expected, actual) {
        (Ok(expected), Ok(actual)) => assert_eq!(text(&actual[0]), text(&expected)),
        (Err(expected), Err(actual)) => {
            assert!(actual.error.get_type(py).is(expected.get_type(py)), "{operator:?}");
        }
        (expected, actual) => {
            panic!("{operator:?} {operands:?}: {expected:?}, replayed: {}", actual.is_ok())
        }
    }
    for (expected, actual) in expected_operands.iter().zip(&actual_operands) {
        assert_eq!(text(actual), text(expected), "{operator:?} changed its operands differently");
    }
}

#[test]
fn calls_with_keywords_and_nested_arguments() {
    attach(|py| {
        let mut trace = Trace::new(py);
        let (x, y) = (trace.input("L['x']"), trace.input("L['y']"));
        let sum = trace.operator(Operator::Add, &[x, y]);
        let list = trace.graph.list(&[sum, x, Arg::int(-7)]);
        let sorted = Arg::Node(trace.function("sorted", &[list, Arg::bool(true)], &["reverse"]));
        let slice = trace.graph.slice(Arg::int(1), y, Arg::NONE);
        let part = trace.operator(Operator::GetItem, &[sorted, slice]);
        let key = trace.graph.str("k");
        let inner = trace.graph.tuple(&[part, Arg::int(1)]);
        let dict = trace.graph.dict(&[(key, inner)]);
        assert_eq!(
            trace.run(&[sorted, part, dict], &["3", "2"]),
            ["[5, 3, -7]", "[3]", "{'k': ([3], 1)}"]
        );
    });
}

#[test]
fn methods_through_descriptors_and_by_name() {
    attach(|py| {
        let mut trace = Trace::new(py);
        let x = trace.input("L['x']");
        let (old, new) = (trace.graph.str("a"), trace.graph.str("b"));
        let direct = trace.method("replace", Some("str"), &[x, old, new]);
        let by_name = trace.method("upper", None, &[direct]);
        let slot = trace.method("__len__", Some("str"), &[x]);
        // `fromkeys` is a class method: its descriptor can't be called with an object in front.
        let d = trace.input("L['d']");
        let class_method = trace.method("fromkeys", Some("dict"), &[d, x]);
        let name = trace.graph.intern("real");
        let real = Arg::Node(trace.graph.call(Target::GetAttr { name }, &[slot], None));
        assert_eq!(
            trace.run(&[direct, by_name, slot, class_method, real], &["'aXa'", "{}"]),
            ["'bXb'", "'BXB'", "3", "{'a': None, 'X': None}", "3"]
        );
    });
}

#[test]
fn elements_of_structured_results() {
    attach(|py| {
        let mut trace = Trace::new(py);
        let x = trace.input("L['x']");
        let pair = trace.function("divmod", &[x, Arg::int(5)], &[]);
        trace.graph.set_value(pair, Value::Structure(2));
        let remainder = Arg::Node(trace.graph.get_item(pair, 1));
        let quotient = Arg::Node(trace.graph.get_item(pair, 0));
        assert_eq!(trace.run(&[quotient, remainder], &["17"]), ["3", "2"]);
    });
}

#[test]
fn values_die_after_their_last_use() {
    attach(|py| {
        let counted = c_str!(
            "class Counted:\n    alive = peak = 0\n    def __init__(self, value):\n        self.value = value\n        Counted.alive += 1\n        Counted.peak = max(Counted.peak, Counted.alive)\n    def __del__(self): Counted.alive -= 1\n    def __add__(self, other): return Counted(self.value + other)\n"
        );
        let globals = PyDict::new(py);
        py.run(counted, Some(&globals), None).unwrap();
        let class = globals.get_item("Counted").unwrap().unwrap();
        let mut trace = Trace::new(py);
        let mut value = trace.input("L['x']");
        for step in 0..50 {
            // One result of each round is dropped at once.
            trace.operator(Operator::Add, &[value, Arg::int(100)]);
            value = trace.operator(Operator::Add, &[value, Arg::int(step)]);
        }
        let program = trace.program(&[value]);
        assert!(program.register_count() <= 2);
        let input = class.call1((0,)).unwrap();
        let outputs = program.run(py, &[input.as_borrowed()]).unwrap();
        assert_eq!(outputs[0].getattr("value").unwrap().extract::<i64>().unwrap(), 1225);
        let peak: i64 = class.getattr("peak").unwrap().extract().unwrap();
        assert!(peak <= 3, "{peak} alive at once");
        drop(outputs);
        assert_eq!(class.getattr("alive").unwrap().extract::<i64>().unwrap(), 1);
    });
}

#[test]
fn mutable_constants_are_fresh_for_python_callables() {
    attach(|py| {
        let mut trace = Trace::new(py);
        let x = trace.input("L['x']");
        let list = trace.graph.list(&[Arg::int(1)]);
        let appended = Arg::Node(trace.function("lambda l, x: l.append(x) or l", &[list, x], &[]));
        let output = trace.graph.list(&[Arg::int(2)]);
        let program = trace.program(&[appended, output]);
        for _ in 0..2 {
            assert_eq!(run(py, &program, &["5"]), ["[1, 5]", "[2]"]);
        }
    });
}

#[test]
fn failures_name_the_node() {
    attach(|py| {
        let mut trace = Trace::new(py);
        let x = trace.input("L['x']");
        let list = trace.graph.list(&[]);
        let set = trace.operator(Operator::SetItem, &[x, Arg::int(0), list]);
        let Arg::Node(set) = set else { unreachable!() };
        trace.graph.set_value(set, Value::Nothing);
        let quotient = trace.operator(Operator::TrueDiv, &[Arg::int(1), Arg::int(0)]);
        let program = trace.program(&[quotient]);
        let input = PyList::new(py, [7]).unwrap().into_any();
        let failure = program.run(py, &[input.as_borrowed()]).unwrap_err();
        assert_eq!(Arg::Node(failure.node), quotient);
        assert_eq!(failure.to_string(), "graph node %2 raised ZeroDivisionError: division by zero");
        assert_eq!(input.repr().unwrap().to_string(), "[[]]");
    });
}

#[test]
fn big_and_odd_constants() {
    attach(|py| {
        let mut trace = Trace::new(py);
        let big = trace.graph.big_int("123456789012345678901234567890");
        let bytes = trace.graph.bytes(&[0, 255, b'a']);
        let complex = Arg::Constant(stator_graph::Constant::Complex(-0.0, 1.5));
        let dots = Arg::Constant(stator_graph::Constant::Ellipsis);
        assert_eq!(
            trace.run(&[big, bytes, complex, dots, Arg::float(-0.0), Arg::NONE], &[]),
            [
                "123456789012345678901234567890",
                "b'\\x00\\xffa'",
                "(-0+1.5j)",
                "Ellipsis",
                "-0.0",
                "None"
            ]
        );
    });
}

#[test]
fn descriptions() {
    attach(|py| {
        let mut trace = Trace::new(py);
        let x = trace.input("L['x']");
        let neg = trace.operator(Operator::Neg, &[x]);
        let list = trace.graph.list(&[neg, Arg::int(1)]);
        let sorted = trace.function("sorted", &[list, Arg::bool(true)], &["reverse"]);
        let name = trace.graph.intern("T");
        let attribute = trace.graph.call(Target::GetAttr { name }, &[x], None);
        let first = trace.method("pop", None, &[Arg::Node(sorted), Arg::int(0)]);
        trace.graph.set_outputs(&[first, Arg::Node(attribute)]);
        let modules = export::Modules::of(py, []).unwrap();
        let reference = py.eval(c_str!("lambda name: '%' + name"), None, None).unwrap();
        let rows =
            export::describe(py, &trace.graph, &trace.objects, &NoSource, &modules, &reference)
                .unwrap();
        let rows: Vec<String> = rows.iter().map(|row| row.repr().unwrap().to_string()).collect();
        assert_eq!(
            rows,
            [
                "('placeholder', 'l_x_', \"L['x']\", (), {}, None, ())",
                "('call_function', 'neg', <built-in function neg>, ('%l_x_',), {}, None, ())",
                "('call_function', 'sorted_1', <built-in function sorted>, (['%neg', 1],), {'reverse': True}, None, ())",
                "('call_function', 'getattr_1', <built-in function getattr>, ('%l_x_', 'T'), {}, None, ())",
                "('call_method', 'pop', 'pop', ('%sorted_1', 0), {}, None, ())",
                "('output', 'output', 'output', (('%pop', '%getattr_1'),), {}, None, ())",
            ]
        );
    });
}
