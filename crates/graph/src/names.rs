//! The names that nodes print as. Recording gives none; they are made here, all at once.
//!
//! The rules are those of `torch.fx` and TorchDynamo, so that a graph reads as it would there:
//! * a placeholder is named after its source: runs of signs become `_` (`L['x']` is `l_x_`);
//! * another node is named after what it calls (`sub`, `linear`, `view`);
//! * a node whose result was stored to a local variable takes the variable's name instead. The
//!   name it would have had is used up all the same, as in TorchDynamo;
//! * names are snake case (variables excepted), unique, and shadow no builtin: `sum` is `sum_1`,
//!   the second `mul` is `mul_1`.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, NodeKind, Target};
use crate::ids::NodeId;

/// The names of a graph's nodes.
#[derive(Clone, Debug)]
pub struct Names {
    names: Vec<String>,
}

impl Names {
    /// Names all nodes of a graph: first the placeholders, then the others in order.
    pub fn new(graph: &Graph) -> Self {
        let mut namespace = Namespace::default();
        let mut names = vec![String::new(); graph.len()];
        for id in graph.shown_nodes() {
            names[id.index()] = name_node(graph, id, &mut namespace);
        }
        Self { names }
    }

    /// The name of a node. Empty for placeholders that are no longer taken.
    pub fn get(&self, node: NodeId) -> &str {
        &self.names[node.index()]
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

/// The candidate with each run of signs that no (ASCII) identifier holds turned into `_`.
fn identifier(candidate: &str) -> String {
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

/// `mul_1` is `mul` and 1.
fn split_number(name: &str) -> (&str, Option<u64>) {
    let Some((base, digits)) = name.rsplit_once('_') else { return (name, None) };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if base.is_empty() || !is_number {
        return (name, None);
    }
    match digits.parse() {
        Ok(number) => (base, Some(number)),
        Err(_) => (name, None),
    }
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

/// What `torch.fx` puts into the globals of each graph's code.
const FX_GLOBALS: &[&str] = &["inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"];

/// `dir(builtins)` on CPython 3.11, with what `site` adds to it.
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
    "PendingDeprecationWarning", "PermissionError", "ProcessLookupError", "RecursionError",
    "ReferenceError", "ResourceWarning", "RuntimeError", "RuntimeWarning", "StopAsyncIteration",
    "StopIteration", "SyntaxError", "SyntaxWarning", "SystemError", "SystemExit", "TabError",
    "TimeoutError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError",
    "UnicodeError", "UnicodeTranslateError", "UnicodeWarning", "UserWarning", "ValueError",
    "Warning", "ZeroDivisionError", "__build_class__", "__debug__", "__doc__", "__import__",
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
