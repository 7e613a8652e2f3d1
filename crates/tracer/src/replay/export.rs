//! A graph described to Python, for `stator._fx.graphs`, which makes a `torch.fx.GraphModule` of it.
//!
//! The description is a list with one tuple for each node:
//! `(op, name, target, args, kwargs, stack_trace, modules)`, where
//! * `op` is an opcode of `torch.fx`: `placeholder`, `call_function`, `call_method`, `output`;
//! * `name` is the name that the graph prints;
//! * `args` of a placeholder are the names of its symbolic sizes, or its own name if it's a number;
//! * `target` is the source's text for a placeholder, a callable for `call_function` (for an
//!   operator the function in `operator`), a name for `call_method`, `"output"` for the output;
//! * in `args` and `kwargs` other nodes appear as `reference(name)`;
//! * `stack_trace` is text as in Python's tracebacks, or `None`;
//! * `modules` are the calls of modules that the node was recorded in, outermost first, each as
//!   `(source, class, number)`: the class is `None` if it has died, the number counts the calls of one source.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyString, PyTuple};
use rustc_hash::FxHashMap;
use stator_cpython::modules;
use stator_cpython::object::Object;
use stator_graph::names::Names;
use stator_graph::print::stack_trace;
use stator_graph::{Arg, Graph, Locate, NodeId, NodeKind, StackId, Target, Value};

use super::constant::to_object;

/// The calls of modules, as rows have them, by their places.
pub struct Modules<'py>(FxHashMap<StackId, Bound<'py, PyTuple>>);

impl<'py> Modules<'py> {
    /// Of the place of each call, the module's source, and its class if it's alive.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn of(
        py: Python<'py>,
        calls: impl IntoIterator<Item = (StackId, String, Option<Object<'py>>)>,
    ) -> PyResult<Self> {
        let mut counts = FxHashMap::<String, u32>::default();
        let mut rows = FxHashMap::default();
        for (stack, source, class) in calls {
            let count = counts.entry(source.clone()).or_default();
            rows.insert(stack, (source, class, *count).into_pyobject(py)?);
            *count += 1;
        }
        Ok(Self(rows))
    }

    /// Those that are around a place.
    fn around(
        &self,
        py: Python<'py>,
        graph: &Graph,
        place: StackId,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let places = graph.stacks().ids(place);
        let mut found: Vec<_> = places.filter_map(|place| self.0.get(&place)).collect();
        found.reverse();
        PyTuple::new(py, found)
    }
}

/// Describes a graph. `objects` is the tracer's table for it; `reference` is called with a node's
/// name wherever an argument mentions the node.
///
/// # Errors
/// If a constant can't be made, or what `reference` raises.
pub fn describe<'py>(
    py: Python<'py>,
    graph: &Graph,
    objects: &[Py<PyAny>],
    locate: &dyn Locate,
    modules: &Modules<'py>,
    reference: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyList>> {
    let names = Names::new(graph);
    let exporter = Exporter {
        py,
        graph,
        objects,
        names,
        reference,
        operator: modules::import(py, "operator")?,
    };
    let rows = PyList::empty(py);
    for id in graph.shown_nodes() {
        let trace = graph.node(id).stack.map(|stack| stack_trace(graph.stacks(), stack, locate));
        let around = match graph.node(id).stack {
            Some(place) => modules.around(py, graph, place)?,
            None => PyTuple::empty(py),
        };
        rows.append(exporter.row(id, trace.filter(|trace| !trace.is_empty()), around)?)?;
    }
    let outputs = exporter.args(graph.outputs())?;
    let none = py.None();
    let name = exporter.names.output();
    rows.append(("output", name, "output", (outputs,), PyDict::new(py), none, PyTuple::empty(py)))?;
    Ok(rows)
}

struct Exporter<'g, 'py> {
    py: Python<'py>,
    graph: &'g Graph,
    objects: &'g [Py<PyAny>],
    names: Names,
    reference: &'g Bound<'py, PyAny>,
    operator: Bound<'py, PyModule>,
}

impl<'py> Exporter<'_, 'py> {
    fn row(
        &self,
        id: NodeId,
        trace: Option<String>,
        modules: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = self.py;
        let kwargs = PyDict::new(py);
        let (op, target, args) = match self.graph.node(id).kind {
            NodeKind::Placeholder { source } => {
                let symbols = self.symbols(id, self.graph.text(source))?;
                ("placeholder", self.str(self.graph.text(source)), symbols)
            }
            NodeKind::GetItem { of, index } => {
                let args = (self.node(of)?, index).into_pyobject(py)?;
                ("call_function", self.operator.getattr("getitem")?, args)
            }
            NodeKind::Call { target, args, keywords } => {
                let args = self.graph.args(args);
                let (positional, named) = args.split_at(args.len() - keywords.len());
                for (&name, &arg) in self.graph.keywords(keywords).iter().zip(named) {
                    kwargs.set_item(self.graph.text(name), self.arg(arg)?)?;
                }
                self.call(target, positional)?
            }
        };
        (op, self.names.get(id), target, args, kwargs, trace, modules).into_pyobject(py)
    }

    /// How the sizes of a placeholder print where some are symbolic, `None` for plain ones; the name
    /// of a number; empty for others.
    fn symbols(&self, id: NodeId, source: &str) -> PyResult<Bound<'py, PyTuple>> {
        if matches!(self.graph.node(id).value, Value::Integer | Value::Float) {
            return PyTuple::new(self.py, [source]);
        }
        let sizes = self.graph.symbolic_sizes(id).unwrap_or_default();
        PyTuple::new(self.py, sizes.iter().map(|size| size.map(|text| self.graph.text(text))))
    }

    fn call(
        &self,
        target: Target,
        args: &[Arg],
    ) -> PyResult<(&'static str, Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let args = self.args(args)?;
        Ok(match target {
            Target::Function { object, .. } => {
                ("call_function", self.objects[object.index()].bind(self.py).clone(), args)
            }
            Target::Operator(operator) => {
                ("call_function", self.operator.getattr(operator.name())?, args)
            }
            Target::Method { name, .. } => ("call_method", self.str(self.graph.text(name)), args),
            Target::GetAttr { name } => {
                let getattr = modules::import(self.py, "builtins")?.getattr("getattr")?;
                let args = (args.get_item(0)?, self.graph.text(name)).into_pyobject(self.py)?;
                ("call_function", getattr, args)
            }
            Target::Decide | Target::Catch => {
                unreachable!("a graph with a way out is given to backends in parts")
            }
        })
    }

    fn args(&self, args: &[Arg]) -> PyResult<Bound<'py, PyTuple>> {
        let args = args.iter().map(|&arg| self.arg(arg)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(self.py, args)
    }

    fn arg(&self, arg: Arg) -> PyResult<Bound<'py, PyAny>> {
        match arg {
            Arg::Node(node) => self.node(node),
            Arg::Constant(_) | Arg::Object(_) => to_object(self.py, self.graph, self.objects, arg),
            Arg::Tuple(items) => Ok(self.args(self.graph.args(items))?.into_any()),
            Arg::List(items) => Ok(self.args(self.graph.args(items))?.to_list().into_any()),
            Arg::Slice(parts) => {
                self.py.get_type::<PySlice>().call1(self.args(self.graph.args(parts))?)
            }
            Arg::Dict(items) => {
                let dict = PyDict::new(self.py);
                for pair in self.graph.args(items).chunks_exact(2) {
                    dict.set_item(self.arg(pair[0])?, self.arg(pair[1])?)?;
                }
                Ok(dict.into_any())
            }
        }
    }

    fn node(&self, node: NodeId) -> PyResult<Bound<'py, PyAny>> {
        self.reference.call1((self.names.get(node),))
    }

    fn str(&self, text: &str) -> Bound<'py, PyAny> {
        PyString::new(self.py, text).into_any()
    }
}
