//! What names are bound to while a tree is transformed.

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use stator_federated::ast::walk::{Transformed, with_children};
use stator_federated::ast::{BlockKind, BuildingBlock};

use super::callbacks::transformed;
use super::passes::pair;
use super::{unwrap_or_err, wrap};
use crate::federated::errors::IntoPython;

/// The scopes of a tree with the names bound in them, and the place that a walk has reached.
///
/// Each name has a payload, made by `payload_type(name, value)`: a `BoundVariableTracker`. Scopes
/// are kept when they are left: a second walk over the same tree finds them again.
#[pyclass(name = "SymbolTree", module = "stator.federated.framework", weakref)]
pub struct SymbolTree {
    payload_type: Py<PyAny>,
    nodes: Vec<Node>,
    active: usize,
}

/// The beginning of a scope, or a name in it.
struct Node {
    /// `None` at the beginning of a scope.
    payload: Option<Py<PyAny>>,
    /// The node before it in the scope; of a scope's beginning, the node that it was opened at.
    before: Option<usize>,
    /// The name bound after it in the scope.
    younger: Option<usize>,
    /// The scopes opened at it, by their numbers.
    children: Vec<(i64, usize)>,
}

impl Node {
    fn new(payload: Option<Py<PyAny>>, before: Option<usize>) -> Self {
        Self { payload, before, younger: None, children: Vec::new() }
    }
}

impl SymbolTree {
    /// The payloads that can be seen, nearest first.
    fn visible(&self) -> impl Iterator<Item = &Py<PyAny>> {
        let mut at = Some(self.active);
        std::iter::from_fn(move || {
            let node = &self.nodes[at?];
            at = node.before;
            Some(node.payload.as_ref())
        })
        .flatten()
    }

    fn find(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        for payload in self.visible() {
            if payload.bind(py).getattr("name")?.eq(name)? {
                return Ok(Some(payload.clone_ref(py)));
            }
        }
        Ok(None)
    }

    fn drop_down(&mut self, id: i64) {
        let children = &self.nodes[self.active].children;
        if let Some(&(_, child)) = children.iter().find(|(other, _)| *other == id) {
            self.active = child;
            return;
        }
        let child = self.nodes.len();
        self.nodes.push(Node::new(None, Some(self.active)));
        self.nodes[self.active].children.push((id, child));
        self.active = child;
    }

    fn rewind(&mut self) {
        while self.nodes[self.active].payload.is_some() {
            self.active = self.nodes[self.active].before.expect("a scope begins somewhere");
        }
    }

    fn pop_up(&mut self) -> PyResult<()> {
        self.rewind();
        match self.nodes[self.active].before {
            Some(outer) => {
                self.active = outer;
                Ok(())
            }
            None => Err(PyValueError::new_err("this is the outermost scope: there is none above")),
        }
    }

    /// What is to be bound, with its payload made, while the tree isn't borrowed.
    fn ingest(
        slf: &Bound<'_, Self>,
        name: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = slf.py();
        if name.is_none() && value.is_none() {
            return Ok(());
        }
        let (younger, payload) = {
            let tree = slf.borrow();
            let younger = tree.nodes[tree.active].younger;
            (younger, younger.and_then(|at| Some(tree.nodes[at].payload.as_ref()?.clone_ref(py))))
        };
        if let (Some(younger), Some(payload)) = (younger, payload) {
            let payload = payload.bind(py);
            let known = payload.getattr("name")?;
            if !known.eq(name)? {
                let found = name.map_or_else(
                    || Ok("None".to_owned()),
                    |name| Ok::<_, PyErr>(name.str()?.to_string()),
                )?;
                return Err(PyValueError::new_err(format!(
                    "the tree of symbols is of another tree of blocks\n  expected: the name {}\n  \
                     found:    the name {found}",
                    known.str()?,
                )));
            }
            payload.setattr("value", value)?;
            slf.borrow_mut().active = younger;
            return Ok(());
        }
        let class = slf.borrow().payload_type.clone_ref(py);
        let payload = class.bind(py).call1((name, value))?.unbind();
        let mut tree = slf.borrow_mut();
        let (at, active) = (tree.nodes.len(), tree.active);
        tree.nodes.push(Node::new(Some(payload), Some(active)));
        tree.nodes[active].younger = Some(at);
        tree.active = at;
        Ok(())
    }
}

#[pymethods]
impl SymbolTree {
    #[new]
    fn new(payload_type: Py<PyAny>) -> Self {
        Self { payload_type, nodes: vec![Node::new(None, None)], active: 0 }
    }

    /// The payload of the nearest name like this, or `None`.
    fn get_payload_with_name(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyAny>>> {
        slf.borrow().find(slf.py(), name)
    }

    /// Calls `update(name)` of the payload of the nearest name like this.
    fn update_payload_with_name(slf: &Bound<'_, Self>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = slf.py();
        let payload = slf.borrow().find(py, name)?;
        let Some(payload) = payload else {
            return Err(PyValueError::new_err(format!(
                "the name {} isn't bound here\n  found:    {}",
                name.repr()?,
                slf.str()?,
            )));
        };
        payload.bind(py).call_method1("update", (name,))?;
        Ok(())
    }

    /// The payloads of names that are bound to `value`, nearest first. With `equal_fn`, of those
    /// with whose values and `value` it holds.
    #[pyo3(signature = (value, equal_fn=None))]
    fn get_higher_payloads_with_value<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        equal_fn: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let payloads: Vec<_> =
            slf.borrow().visible().map(|payload| payload.bind(py).clone()).collect();
        let found = PyList::empty(py);
        for payload in payloads {
            let bound = payload.getattr("value")?;
            if bound.is_none() {
                continue;
            }
            let equal = match equal_fn {
                None => value.eq(&bound)?,
                Some(equal) => equal.call1((value, &bound))?.is_truthy()?,
            };
            if equal {
                found.append(payload)?;
            }
        }
        Ok(found)
    }

    /// Goes to the scope of this number that is opened here.
    fn drop_scope_down(&mut self, comp_id: i64) {
        self.drop_down(comp_id);
    }

    /// Goes to where this scope was opened.
    fn pop_scope_up(&mut self) -> PyResult<()> {
        self.pop_up()
    }

    /// Goes to the beginning of this scope, before its names.
    fn walk_to_scope_beginning(&mut self) {
        self.rewind();
    }

    /// Goes to the name that is bound next in this scope.
    fn walk_down_one_variable_binding(&mut self) -> PyResult<()> {
        match self.nodes[self.active].younger {
            Some(younger) => {
                self.active = younger;
                Ok(())
            }
            None => Err(PyValueError::new_err("no name is bound after this one in its scope")),
        }
    }

    /// Binds a name in this scope, or, on a second walk, goes to it and renews its value.
    fn ingest_variable_binding(
        slf: &Bound<'_, Self>,
        name: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::ingest(slf, name, value)
    }

    fn __str__(slf: &Bound<'_, Self>) -> PyResult<String> {
        enum Step {
            Node(usize),
            Text(&'static str),
        }
        let py = slf.py();
        let tree = slf.borrow();
        let mut text = String::new();
        let mut steps = vec![Step::Node(0)];
        while let Some(step) = steps.pop() {
            let at = match step {
                Step::Text(piece) => {
                    text.push_str(piece);
                    continue;
                }
                Step::Node(at) => at,
            };
            let node = &tree.nodes[at];
            text.push('[');
            match &node.payload {
                None => text.push_str("BeginScope"),
                Some(payload) => text.push_str(payload.bind(py).str()?.to_str()?),
            }
            text.push_str(if at == tree.active { "*]" } else { "]" });
            if let Some(younger) = node.younger {
                steps.extend([Step::Node(younger), Step::Text("-")]);
            }
            if !node.children.is_empty() {
                steps.push(Step::Text(")}"));
                for (at, (_, child)) in node.children.iter().enumerate().rev() {
                    let before = if at == 0 { "->{(" } else { "),((" };
                    steps.extend([Step::Node(*child), Step::Text(before)]);
                }
            }
        }
        Ok(text)
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = slf.py();
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        if slf.is(other) {
            return Ok(true);
        }
        let (a, b) = (slf.borrow(), other.borrow());
        let mut pairs = vec![(0, 0)];
        while let Some((left, right)) = pairs.pop() {
            let (left, right) = (&a.nodes[left], &b.nodes[right]);
            let payloads = match (&left.payload, &right.payload) {
                (None, None) => true,
                (Some(left), Some(right)) => left.bind(py).eq(right.bind(py))?,
                _ => false,
            };
            if !payloads
                || left.younger.is_some() != right.younger.is_some()
                || left.children.len() != right.children.len()
            {
                return Ok(false);
            }
            pairs.extend(left.younger.zip(right.younger));
            let children = left.children.iter().zip(&right.children);
            pairs.extend(children.map(|(left, right)| (left.1, right.1)));
        }
        Ok(true)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.payload_type)?;
        self.nodes.iter().filter_map(|node| node.payload.as_ref()).try_for_each(|of| visit.call(of))
    }

    fn __clear__(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.payload = None);
    }
}

/// Replaces each block of a tree by what `transform(block, symbol_tree)` says, what is below it
/// first. Lambdas and blocks open scopes of `symbol_tree`, in which their names are bound.
///
/// `transform` answers with a block and whether it is another one; so does this. Each occurrence
/// of a block is asked about, because names may mean something else there. Selections from what
/// has changed are by position.
#[pyfunction]
fn transform_postorder_with_symbol_bindings<'py>(
    comp: &Bound<'py, PyAny>,
    transform: &Bound<'py, PyAny>,
    symbol_tree: &Bound<'py, SymbolTree>,
) -> PyResult<Bound<'py, PyTuple>> {
    enum Step<'a> {
        Visit(&'a BuildingBlock),
        /// Names the last block of `done`, or nothing for a parameter.
        Bind(&'a str, bool),
        /// The scope is one of the block.
        Build(&'a BuildingBlock, bool),
    }
    let py = comp.py();
    let root = unwrap_or_err(comp, "comp")?;
    let mut scopes = 0i64;
    let mut done: Vec<Transformed> = Vec::new();
    let mut steps = vec![Step::Visit(&root)];
    while let Some(step) = steps.pop() {
        match step {
            Step::Visit(block) => {
                let start = steps.len();
                match block.kind() {
                    BlockKind::Lambda(lambda) => {
                        let name = lambda.parameter.as_ref().map(|(name, _)| name);
                        steps.extend(name.map(|name| Step::Bind(name, false)));
                        steps.push(Step::Visit(&lambda.result));
                    }
                    BlockKind::Block(of) => {
                        for (name, value) in &of.locals {
                            steps.extend([Step::Visit(value), Step::Bind(name, true)]);
                        }
                        steps.push(Step::Visit(&of.result));
                    }
                    _ => steps.extend(block.children().into_iter().map(Step::Visit)),
                }
                let has_scope = matches!(block.kind(), BlockKind::Lambda(_) | BlockKind::Block(_));
                if has_scope {
                    symbol_tree.borrow_mut().drop_down(scopes);
                    scopes += 1;
                }
                steps.push(Step::Build(block, has_scope));
                steps[start..].reverse();
            }
            Step::Bind(name, has_value) => {
                let value = done.last().filter(|_| has_value);
                let value = value.map(|(value, _)| wrap(py, value)).transpose()?;
                let name = PyString::new(py, name).into_any();
                SymbolTree::ingest(symbol_tree, Some(&name), value.as_ref())?;
            }
            Step::Build(block, has_scope) => {
                let parts = done.split_off(done.len() - block.children().len());
                let changed = parts.iter().any(|(_, changed)| *changed);
                let rebuilt = match block.as_selection() {
                    _ if !changed => block.clone(),
                    Some(selection) => {
                        let source = parts.into_iter().next().expect("a selection has a source").0;
                        BuildingBlock::select_index(source, selection.position()).py()?
                    }
                    None => {
                        let parts = parts.into_iter().map(|(part, _)| part).collect();
                        with_children(block, parts).py()?
                    }
                };
                if has_scope {
                    symbol_tree.borrow_mut().rewind();
                }
                let answer = transform.call1((wrap(py, &rebuilt)?, symbol_tree))?;
                let (made, changed_here) = transformed(&answer)?;
                if has_scope {
                    symbol_tree.borrow_mut().pop_up()?;
                }
                done.push((made, changed || changed_here));
            }
        }
    }
    pair(py, done.pop().expect("the root was visited"))
}

/// Adds what users see of symbols.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SymbolTree>()?;
    module.add_function(wrap_pyfunction!(transform_postorder_with_symbol_bindings, module)?)
}
