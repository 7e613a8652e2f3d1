//! Recipes against Python's own constructors.

use pyo3::ffi::c_str;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use stator_graph::{Arg, Graph, NodeId, Value};
use stator_guards::ObjectId;

use super::{GraphOutputs, Instance, Items, Recipe, RecipeId, Recipes, Storage, Values};

/// Recipes with their table of objects, and the namespace that tests evaluate expressions in.
struct Bench<'py> {
    py: Python<'py>,
    globals: Bound<'py, PyDict>,
    objects: Vec<Py<PyAny>>,
    recipes: Recipes,
}

const CLASSES: &std::ffi::CStr = c_str!(
    "
import collections, functools, types

def forbidden(*args, **kwargs):
    raise AssertionError('user code ran')

class Plain:
    __init__ = __new__ = __setattr__ = __getattribute__ = forbidden

class Slotted:
    __slots__ = ('a', 'b', '__dict__')
    __init__ = forbidden

class Output(collections.OrderedDict):
    __init__ = __setitem__ = __setattr__ = forbidden

class Table(dict):
    __init__ = __setitem__ = forbidden

class Stack(list):
    append = extend = __init__ = forbidden

class Pair(collections.namedtuple('Pair', 'x y')):
    __new__ = forbidden

class Failing(Exception):
    pass
"
);

impl<'py> Bench<'py> {
    fn new(py: Python<'py>) -> Self {
        let globals = PyDict::new(py);
        py.run(CLASSES, Some(&globals), None).unwrap();
        Self { py, globals, objects: Vec::new(), recipes: Recipes::new() }
    }

    fn eval(&self, expression: &str) -> Bound<'py, PyAny> {
        let code = std::ffi::CString::new(expression).unwrap();
        self.py.eval(&code, Some(&self.globals), None).unwrap()
    }

    fn object(&mut self, expression: &str) -> ObjectId {
        self.objects.push(self.eval(expression).unbind());
        ObjectId::new(self.objects.len() - 1)
    }

    fn constant(&mut self, expression: &str) -> RecipeId {
        let object = self.object(expression);
        self.recipes.push(Recipe::Constant(object))
    }

    fn instance(&mut self, class: &str, storage: Storage) -> Instance {
        let ty = self.eval(class).cast_into::<PyType>().unwrap();
        assert_eq!(Storage::of(&ty).unwrap(), Some(storage));
        let class = self.object(class);
        Instance { class, storage, items: Items::None, attributes: vec![], slots: vec![] }
    }

    /// Rebuilds the roots and binds them as `r`.
    fn rebuild(&self, roots: &[RecipeId], outputs: &[Bound<'py, PyAny>]) {
        let sources = [self.globals.as_any().as_borrowed()];
        let values = Values { outputs, sources: &sources, objects: &self.objects };
        let made = self.recipes.rebuild(self.py, roots, &values).unwrap();
        self.globals.set_item("r", made.into_vec()).unwrap();
    }

    fn check(&self, condition: &str) {
        assert!(self.eval(condition).is_truthy().unwrap(), "{condition}");
    }
}

fn attach<T>(test: impl FnOnce(Python<'_>) -> T) -> T {
    Python::initialize();
    Python::attach(test)
}

#[test]
fn builtin_containers_with_sharing() {
    attach(|py| {
        let mut bench = Bench::new(py);
        let (one, key) = (bench.constant("1"), bench.constant("'k'"));
        let output = bench.recipes.push(Recipe::Output(0));
        let source = bench.recipes.push(Recipe::Source(0));
        let shared = bench.recipes.push(Recipe::List([one, output].into()));
        let tuple = bench.recipes.push(Recipe::Tuple([shared, shared, source].into()));
        let dict = bench.recipes.push(Recipe::Dict([(key, shared), (one, tuple)].into()));
        let set = bench.recipes.push(Recipe::Set([one, key].into()));
        let frozen = bench.recipes.push(Recipe::FrozenSet([one, key].into()));
        bench.rebuild(&[tuple, dict, set, frozen, shared], &[bench.eval("2.5")]);
        bench.check("r[4] == [1, 2.5] and r[0][0] is r[0][1] is r[4] and r[0][2] is globals()");
        bench.check("list(r[1]) == ['k', 1] and r[1]['k'] is r[4] and r[1][1] is r[0]");
        bench.check("r[2] == r[3] == {1, 'k'} and type(r[2]) is set and type(r[3]) is frozenset");
        bench.rebuild(&[shared], &[bench.eval("2.5")]);
        bench.check("r == [[1, 2.5]]");
    });
}

#[test]
fn cycles() {
    attach(|py| {
        let mut bench = Bench::new(py);
        // l = []; t = (l,); l.append(t), from either end; and an object that is its own attribute.
        let list = bench.recipes.reserve();
        let tuple = bench.recipes.push(Recipe::Tuple([list].into()));
        bench.recipes.set(list, Recipe::List([tuple].into()));
        bench.rebuild(&[tuple, list], &[]);
        bench.check("r[0][0] is r[1] and r[1][0] is r[0]");
        bench.rebuild(&[list, tuple], &[]);
        bench.check("r[0][0] is r[1] and r[1][0] is r[0]");

        let me = bench.recipes.reserve();
        let mut instance = bench.instance("Plain", Storage::Plain);
        instance.attributes.push((bench.object("'me'"), me));
        bench.recipes.set(me, Recipe::Object(Box::new(instance)));
        bench.rebuild(&[me], &[]);
        bench.check("type(r[0]) is Plain and object.__getattribute__(r[0], 'me') is r[0]");
    });
}

#[test]
fn deep_lists_need_no_deep_stack() {
    attach(|py| {
        let mut bench = Bench::new(py);
        let mut inner = bench.constant("0");
        for _ in 0..100_000 {
            inner = bench.recipes.push(Recipe::List([inner].into()));
        }
        bench.rebuild(&[inner], &[]);
        bench.check("len(r[0]) == 1");
        // Python itself takes such a list apart with care; so do we.
        bench.globals.del_item("r").unwrap();
    });
}

#[test]
fn instances_without_user_code() {
    attach(|py| {
        let mut bench = Bench::new(py);
        let (one, two) = (bench.constant("1"), bench.constant("2"));
        let (b, a) = (bench.constant("'b'"), bench.constant("'a'"));
        let name = bench.object("'note'");

        let mut slotted = bench.instance("Slotted", Storage::Plain);
        slotted.slots.push((bench.object("Slotted.b"), two));
        slotted.attributes.push((name, one));
        let slotted = bench.recipes.push(Recipe::Object(Box::new(slotted)));

        let mut output = bench.instance("Output", Storage::OrderedDict);
        output.items = Items::Entries(vec![(b, two), (a, one)]);
        output.attributes.push((name, slotted));
        let output = bench.recipes.push(Recipe::Object(Box::new(output)));

        let mut table = bench.instance("Table", Storage::Dict);
        table.items = Items::Entries(vec![(b, two)]);
        let table = bench.recipes.push(Recipe::Object(Box::new(table)));

        let mut stack = bench.instance("Stack", Storage::List);
        stack.items = Items::Elements(vec![two, one]);
        let stack = bench.recipes.push(Recipe::Object(Box::new(stack)));

        let mut default = bench.instance("collections.defaultdict", Storage::DefaultDict);
        default.items = Items::Entries(vec![(a, one)]);
        let factory = bench.constant("list");
        default.slots.push((bench.object("collections.defaultdict.default_factory"), factory));
        let default = bench.recipes.push(Recipe::Object(Box::new(default)));

        bench.rebuild(&[slotted, output, table, stack, default], &[]);
        bench.check("r[0].b == 2 and not hasattr(r[0], 'a') and vars(r[0]) == {'note': 1}");
        bench.check("type(r[1]) is Output and list(r[1].items()) == [('b', 2), ('a', 1)]");
        bench.check("list(reversed(r[1])) == ['a', 'b'] and r[1].note is r[0]");
        bench.check("type(r[2]) is Table and r[2] == {'b': 2}");
        bench.check("type(r[3]) is Stack and r[3] == [2, 1]");
        bench.check("r[4] == {'a': 1} and r[4]['new'] == []");
    });
}

#[test]
fn tuples_of_classes_and_calls() {
    attach(|py| {
        let mut bench = Bench::new(py);
        let (one, two) = (bench.constant("1"), bench.constant("2"));
        let class = bench.object("Pair");
        let pair = bench.recipes.push(Recipe::TupleOf { class, items: [one, two].into() });
        let callable = bench.object("slice");
        let slice = bench.recipes.push(Recipe::Call { callable, args: [one, two].into() });
        let print = bench.constant("print");
        let callable = bench.object("functools.partial");
        let partial = bench.recipes.push(Recipe::Call { callable, args: [print, pair].into() });
        bench.rebuild(&[pair, slice, partial], &[]);
        bench.check("type(r[0]) is Pair and r[0].x == 1 and r[0].y == 2");
        bench.check("r[1] == slice(1, 2) and r[2].func is print and r[2].args[0] is r[0]");
    });
}

#[test]
fn classes_that_cannot_be_made() {
    attach(|py| {
        let bench = Bench::new(py);
        for class in ["Failing", "int", "type", "type(lambda: 0)", "Pair", "type(iter([]))"] {
            let class = bench.eval(class).cast_into::<PyType>().unwrap();
            assert_eq!(Storage::of(&class).unwrap(), None, "{class}");
        }
    });
}

#[test]
fn graph_outputs_are_named_once() {
    let mut graph = Graph::new();
    let nodes: Vec<NodeId> =
        ["L['x']", "L['y']"].map(|source| graph.placeholder(source, Value::Unknown)).into();
    let mut outputs = GraphOutputs::default();
    let positions = [nodes[1], nodes[0], nodes[1]].map(|node| match outputs.recipe(node) {
        Recipe::Output(position) => position,
        other => panic!("{other:?}"),
    });
    assert_eq!(positions, [0, 1, 0]);
    outputs.set(&mut graph);
    assert_eq!(graph.outputs(), [Arg::Node(nodes[1]), Arg::Node(nodes[0])]);
}
