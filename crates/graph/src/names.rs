//! The names that nodes print as. Recording gives none; they are made here, all at once.
//!
//! The rules are those of `torch.fx` and TorchDynamo, so that a graph reads as it would there:
//! * a placeholder is named after its source: runs of signs become `_` (`L['x']` is `l_x_`);
//! * another node is named after what it calls (`sub`, `linear`, `view`);
//! * a node whose result was stored to a local variable takes the variable's name instead. The
//!   name it would have had is used up all the same, as in TorchDynamo;
//! * names are snake case (variables excepted), unique, and shadow no builtin: `sum` is `sum_1`,
//!   the second `mul` is `mul_1`;
//! * the row of the outputs is named last: `output`, or `output_1` where a variable has that name.
//!
//! A variable may have any name, so every name that something else goes by is known here: Python's,
//! those of `torch.fx`'s generated code, and the first parts of the functions that the graph calls.
//! `torch.fx` keeps a name that is unique and none of those.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, NodeKind, Target};
use crate::ids::NodeId;

/// The names of a graph's nodes.
#[derive(Clone, Debug)]
pub struct Names {
    names: Vec<String>,
    output: String,
}

impl Names {
    /// Names all nodes of a graph: first the placeholders, then the others in order.
    pub fn new(graph: &Graph) -> Self {
        let mut namespace = Namespace::default();
        for (_, node) in graph.nodes() {
            if let NodeKind::Call { target: Target::Function { name, .. }, .. } = node.kind {
                let name = graph.text(name);
                namespace.reserve(name.split_once('.').map_or(name, |(root, _)| root));
            }
        }
        let mut names = vec![String::new(); graph.len()];
        for id in graph.shown_nodes() {
            names[id.index()] = name_node(graph, id, &mut namespace);
        }
        Self { names, output: namespace.create("output") }
    }

    /// The name of a node. Empty for placeholders that are no longer taken.
    pub fn get(&self, node: NodeId) -> &str {
        &self.names[node.index()]
    }

    /// The name of the row that holds the graph's outputs.
    pub fn output(&self) -> &str {
        &self.output
    }
}

fn name_node(graph: &Graph, id: NodeId, namespace: &mut Namespace) -> String {
    let node = graph.node(id);
    let candidate = match node.kind {
        NodeKind::Placeholder { source } => {
            return namespace.create(&placeholder_name(graph.text(source)));
        }
        NodeKind::GetItem { .. } => "getitem",
        NodeKind::Call { target, .. } => target_name(graph, target),
    };
    let name = namespace.create(&snake_case(candidate));
    match node.local.map(|local| graph.text(local)) {
        Some(local) if local != name => namespace.create(local),
        _ => name,
    }
}

fn target_name(graph: &Graph, target: Target) -> &str {
    match target {
        Target::Operator(operator) => operator.name(),
        Target::GetAttr { .. } => "getattr",
        Target::Decide => "decide",
        Target::Catch => "catch",
        Target::Function { name, .. } => {
            let name = graph.text(name);
            name.rsplit_once('.').map_or(name, |(_, last)| last)
        }
        Target::Method { name, .. } => {
            let name = graph.text(name);
            let magic = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
            magic.filter(|inner| !inner.is_empty()).unwrap_or(name)
        }
    }
}

/// The name, not yet made unique, of a placeholder with this source.
pub fn placeholder_name(source: &str) -> String {
    let mut name = String::with_capacity(source.len());
    for c in source.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    snake_case(&name)
}

/// Lower case, with `_` where a capital follows a small letter: `MyArg` is `my_arg`.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for c in name.chars() {
        if after_lower && c.is_ascii_uppercase() {
            snake.push('_');
        }
        after_lower = c.is_ascii_lowercase();
        snake.extend(c.to_lowercase());
    }
    snake
}

/// Hands out names that are valid, unique and shadow nothing (`torch.fx.graph._Namespace`).
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    used: FxHashSet<String>,
    /// For each base the last number that was appended to it.
    last_number: FxHashMap<String, u64>,
}

impl Namespace {
    /// Keeps a name from being given to anything.
    pub fn reserve(&mut self, name: &str) {
        self.used.insert(name.to_owned());
    }

    /// The candidate itself where it is free, otherwise with a number behind it.
    pub fn create(&mut self, candidate: &str) -> String {
        let mut name = identifier(candidate);
        let (base, suffix) = split_number(&name);
        let base = base.to_owned();
        let mut number = match suffix {
            Some(number) if !self.used.contains(&name) => number,
            _ => {
                let number = self.last_number.get(&name).copied().unwrap_or(0);
                if is_taken_by_python(&name) {
                    name = format!("{base}_{}", number + 1);
                    number + 1
                } else {
                    number
                }
            }
        };
        while self.used.contains(&name) {
            number += 1;
            name = format!("{base}_{number}");
        }
        self.used.insert(name.clone());
        self.last_number.insert(base, number);
        name
    }
}

/// The candidate as a name that a variable of a graph's code can have.
fn identifier(candidate: &str) -> String {
    let name = ascii_identifier(candidate);
    if FX_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return name.trim_start_matches('_').to_owned();
    }
    name
}

/// The candidate with each run of signs that no (ASCII) identifier holds turned into `_`.
fn ascii_identifier(candidate: &str) -> String {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if candidate.chars().all(is_legal) && !candidate.starts_with(|c: char| c.is_ascii_digit()) {
        return if candidate.is_empty() { "_unnamed".to_owned() } else { candidate.to_owned() };
    }
    let mut name = String::with_capacity(candidate.len() + 1);
    let mut in_run = false;
    for c in candidate.chars() {
        if is_legal(c) {
            name.push(c);
        } else if !in_run {
            name.push('_');
        }
        in_run = !is_legal(c);
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// `mul_1` is `mul` and 1. Digits that no counting leads to are part of the name.
fn split_number(name: &str) -> (&str, Option<u64>) {
    let Some((base, digits)) = name.rsplit_once('_') else { return (name, None) };
    let is_number =
        (1..=18).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if base.is_empty() || !is_number {
        return (name, None);
    }
    match digits.parse() {
        Ok(number) => (base, Some(number)),
        Err(_) => (name, None),
    }
}

/// Whether source code can give an argument by this name: `f(**{"class": x})` names one as it can't.
pub(crate) fn is_argument_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.chars().all(is_legal)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !KEYWORDS.contains(&name)
}

fn is_taken_by_python(name: &str) -> bool {
    KEYWORDS.contains(&name) || BUILTINS.contains(&name) || FX_GLOBALS.contains(&name)
}

/// `keyword.kwlist`, the same on all supported versions.
const KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];

/// What `torch.fx` puts into the globals of each graph's code, and the first parameter of that.
const FX_GLOBALS: &[&str] =
    &["inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree", "self", "wrap"];

/// How variables begin that `torch.fx` makes for itself: objects that have no source form, records of
/// the profiler.
const FX_PREFIXES: &[&str] = &["_constant_", "_rf"];

/// `dir(builtins)` on CPython 3.11 to 3.13, with what `site` adds to it.
#[rustfmt::skip]
const BUILTINS: &[&str] = &[
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "BaseExceptionGroup",
    "BlockingIOError", "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError",
    "ConnectionAbortedError", "ConnectionError", "ConnectionRefusedError", "ConnectionResetError",
    "DeprecationWarning", "EOFError", "Ellipsis", "EncodingWarning", "EnvironmentError",
    "Exception", "ExceptionGroup", "FileExistsError", "FileNotFoundError", "FloatingPointError",
    "FutureWarning", "GeneratorExit", "IOError", "ImportError", "ImportWarning",
    "IndentationError", "IndexError", "InterruptedError", "IsADirectoryError", "KeyError",
    "KeyboardInterrupt", "LookupError", "MemoryError", "ModuleNotFoundError", "NameError",
    "NotADirectoryError", "NotImplemented", "NotImplementedError", "OSError", "OverflowError",
    "PendingDeprecationWarning", "PermissionError", "ProcessLookupError",
    "PythonFinalizationError", "RecursionError", "ReferenceError", "ResourceWarning", "RuntimeError", "RuntimeWarning", "StopAsyncIteration",
    "StopIteration", "SyntaxError", "SyntaxWarning", "SystemError", "SystemExit", "TabError",
    "TimeoutError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError",
    "UnicodeError", "UnicodeTranslateError", "UnicodeWarning", "UserWarning", "ValueError",
    "Warning", "ZeroDivisionError", "_IncompleteInputError", "__build_class__", "__debug__", "__doc__", "__import__",
    "__loader__", "__name__", "__package__", "__spec__", "abs", "aiter", "all", "anext", "any",
    "ascii", "bin", "bool", "breakpoint", "bytearray", "bytes", "callable", "chr", "classmethod",
    "compile", "complex", "copyright", "credits", "delattr", "dict", "dir", "divmod", "enumerate",
    "eval", "exec", "exit", "filter", "float", "format", "frozenset", "getattr", "globals",
    "hasattr", "hash", "help", "hex", "id", "input", "int", "isinstance", "issubclass", "iter",
    "len", "license", "list", "locals", "map", "max", "memoryview", "min", "next", "object", "oct",
    "open", "ord", "pow", "print", "property", "quit", "range", "repr", "reversed", "round", "set",
    "setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "vars",
    "zip",
];
