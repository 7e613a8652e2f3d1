//! Printing sources and guards as TorchDynamo's deep dive shows them.

use std::fmt::Write;

use crate::tensor::dtype_name;
use crate::{Gives, Guard, GuardKind, ObjectId, Source, SourceId, Sources, TensorGuard};

/// What printing needs to know of the tracer's objects.
pub trait Objects {
    /// The object's address, as `id()` gives it.
    fn address(&self, object: ObjectId) -> usize;
    /// The object's `repr`, short.
    fn repr(&self, object: ObjectId) -> String;
    /// The address of the object's type.
    fn type_address(&self, object: ObjectId) -> usize;
}

/// Prints objects as their ids, where no table of objects is at hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObjects;

impl Objects for NoObjects {
    fn address(&self, object: ObjectId) -> usize {
        object.index()
    }

    fn repr(&self, object: ObjectId) -> String {
        format!("{object:?}")
    }

    fn type_address(&self, object: ObjectId) -> usize {
        object.index()
    }
}

/// A source's text, with where the texts of those on the way to it end; see [`Sources::print_next`].
#[derive(Clone, Debug, Default)]
pub struct Printed {
    text: String,
    ends: Vec<(SourceId, usize)>,
}

/// Room for most sources' texts.
const USUAL: usize = 128;

impl Sources {
    /// The source as the user would write it: `L['self'].layers[0]`.
    #[must_use]
    pub fn print(&self, id: SourceId) -> String {
        // A graph's inputs are printed while it is recorded: no growing step by step.
        let mut text = String::with_capacity(USUAL);
        self.write(&mut text, id);
        text
    }

    /// As [`Sources::print`] of many sources that lie near each other (the parameters of a model's
    /// modules): what the way to this one shares with the way to the last one isn't printed again.
    pub fn print_next<'a>(&self, id: SourceId, last: &'a mut Printed) -> &'a str {
        self.extend(last, id);
        &last.text
    }

    /// Makes `printed` the way to this source.
    fn extend(&self, printed: &mut Printed, id: SourceId) {
        if let Some(index) = printed.ends.iter().rposition(|(known, _)| *known == id) {
            printed.text.truncate(printed.ends[index].1);
            printed.ends.truncate(index + 1);
            return;
        }
        match self.get(id) {
            Source::DictItem { parent, text: key, .. } => {
                if let (Source::Dict(owner), Some(name)) = (self.get(*parent), identifier(key)) {
                    self.extend(printed, *owner);
                    printed.text.push('.');
                    printed.text.push_str(name);
                } else {
                    self.extend(printed, *parent);
                    printed.text.push('[');
                    printed.text.push_str(key);
                    printed.text.push(']');
                }
            }
            Source::ListItem { parent, index } | Source::TupleItem { parent, index } => {
                self.extend(printed, *parent);
                let _ = write!(printed.text, "[{index}]");
            }
            // Others are few, and not all of them begin as their parent does.
            _ => {
                printed.ends.clear();
                printed.text.clear();
                self.write(&mut printed.text, id);
            }
        }
        printed.ends.push((id, printed.text.len()));
    }

    fn write(&self, out: &mut String, id: SourceId) {
        if let Some(suffix) = suffix(self.get(id)) {
            if let Some(parent) = self.get(id).parent() {
                self.write(out, parent);
            }
            out.push_str(suffix);
            return;
        }
        match self.get(id) {
            Source::Local { name, .. } => {
                let _ = write!(out, "L['{name}']");
            }
            Source::Anchor { text, .. } => out.push_str(text),
            Source::SysModule { name } => {
                let _ = write!(out, "sys.modules['{name}']");
            }
            Source::GlobalState => out.push_str("global state"),
            Source::DictItem { parent, text, .. } => self.write_item(out, *parent, text),
            Source::HashedItem { parent, hash } => {
                self.write(out, *parent);
                let _ = write!(out, ".___of_hash({hash})");
            }
            Source::HashedKey { parent, hash } => {
                self.write(out, *parent);
                let _ = write!(out, ".___key_of_hash({hash})");
            }
            Source::ListItem { parent, index }
            | Source::TupleItem { parent, index }
            | Source::DequeItem { parent, index } => {
                self.write_indexed(out, *parent, "", *index);
            }
            Source::LastItem { parent, index } => {
                self.write(out, *parent);
                let _ = write!(out, "[-{index}]");
            }
            Source::Iterated { parent, index } => {
                self.write_indexed(out, *parent, ".___over", *index);
            }
            Source::Upcoming { parent, index } => {
                self.write_indexed(out, *parent, ".___upcoming", *index);
            }
            Source::UpcomingKey { parent, index } => {
                self.write_indexed(out, *parent, ".___upcoming_keys", *index);
            }
            Source::GeneratorSlot { parent, index } => {
                self.write_indexed(out, *parent, ".gi_frame.___slots", *index);
            }
            Source::ClosureCell { parent, index } => {
                self.write_indexed(out, *parent, ".__closure__", *index);
            }
            Source::FunctionField { parent, field } => {
                self.write_attribute(out, *parent, field.name());
            }
            Source::ClassField { parent, field } => {
                self.write_attribute(out, *parent, field.name());
            }
            Source::Slot { parent, name, .. } => self.write_attribute(out, *parent, name),
            Source::TypeLookup { parent, text, .. } => self.write_attribute(out, *parent, text),
            Source::SuperLookup { parent, after, text, .. } => {
                let _ = write!(out, "super({after:?}, ");
                self.write(out, *parent);
                let _ = write!(out, ").{text}");
            }
            Source::TypeOf(parent) => {
                out.push_str("type(");
                self.write(out, *parent);
                out.push(')');
            }
            Source::Globals(parent) => {
                if self.entry.is_none_or(|entry| entry == *parent) {
                    out.push('G');
                } else {
                    self.write_attribute(out, *parent, "__globals__");
                }
            }
            other => unreachable!("{other:?} has a suffix"),
        }
    }

    fn write_attribute(&self, out: &mut String, parent: SourceId, name: &str) {
        self.write(out, parent);
        out.push('.');
        out.push_str(name);
    }

    fn write_indexed(&self, out: &mut String, parent: SourceId, middle: &str, index: usize) {
        self.write(out, parent);
        let _ = write!(out, "{middle}[{index}]");
    }

    /// An entry of an instance dictionary prints as an attribute where its key can be one.
    fn write_item(&self, out: &mut String, parent: SourceId, key: &str) {
        if let (Source::Dict(owner), Some(name)) = (self.get(parent), identifier(key)) {
            self.write_attribute(out, *owner, name);
            return;
        }
        self.write(out, parent);
        out.push('[');
        out.push_str(key);
        out.push(']');
    }

    /// The value at a key of a dictionary, which need not have been read; `key` is its `repr`.
    #[must_use]
    pub fn print_item(&self, dict: SourceId, key: &str) -> String {
        let mut text = String::new();
        self.write_item(&mut text, dict, key);
        text
    }

    /// The guard as the deep dive prints it. Equality with a constant has two lines, because it
    /// includes the type: `___check_type_id(L['b'], 94334122025024)` and `L['b'] == 'Hello'`. The
    /// global state has one for each fact.
    #[must_use]
    pub fn print_guard_lines(&self, guard: &Guard, objects: &impl Objects) -> Vec<String> {
        let mut lines = Vec::new();
        if let GuardKind::GlobalState(state) = &guard.kind {
            lines.push("___check_global_state(".to_owned());
            lines.extend(state.facts.iter().map(|fact| format!("    {fact},")));
            lines.push(")".to_owned());
            return lines;
        }
        if let GuardKind::Vacant(vacancy) = &guard.kind {
            let absent = vacancy.absent.iter();
            lines.extend(absent.map(|(_, text)| self.print_absence(guard.source, text)));
            let empty = vacancy.empty.iter();
            lines.extend(empty.map(|(_, text)| self.print_emptiness(guard.source, text)));
            return lines;
        }
        if let GuardKind::AbsentWithin { text, holders, .. } = &guard.kind {
            lines.push(self.print_absence(guard.source, text));
            for (_, holder) in &holders.0 {
                lines.push(self.print_plainness(guard.source, holder));
                lines.push(self.print_absence_within(guard.source, holder, text));
            }
            return lines;
        }
        if let GuardKind::Equals(object) = guard.kind {
            let source = self.print(guard.source);
            lines.push(format!("___check_type_id({source}, {})", objects.type_address(object)));
        }
        lines.push(self.print_guard(guard, objects));
        lines
    }

    /// The guard in one line, which is what a failure names.
    #[must_use]
    pub fn print_guard(&self, guard: &Guard, objects: &impl Objects) -> String {
        let source = self.print(guard.source);
        match &guard.kind {
            GuardKind::TypeIs(object) => {
                format!("___check_type_id({source}, {})", objects.address(*object))
            }
            GuardKind::Is(object) => {
                format!("___check_obj_id({source}, {})", objects.address(*object))
            }
            GuardKind::IsNone => format!("{source} is None"),
            GuardKind::IsNotNone => format!("{source} is not None"),
            GuardKind::Equals(object) | GuardKind::SetEquals(object) => {
                format!("{source} == {}", objects.repr(*object))
            }
            GuardKind::Holds(object) => format!("___value({source}) == {}", objects.repr(*object)),
            GuardKind::Length(length) | GuardKind::DictLength(length) => {
                format!("len({source}) == {length}")
            }
            GuardKind::SetHolds { item, holds: true } => {
                format!("{} in {source}", objects.repr(*item))
            }
            GuardKind::SetHolds { item, holds: false } => {
                format!("{} not in {source}", objects.repr(*item))
            }
            GuardKind::DictKeys(keys) => {
                let keys: Vec<_> = keys.iter().map(|key| objects.repr(*key)).collect();
                format!("list({source}) == [{}]", keys.join(", "))
            }
            GuardKind::KeyAbsent { text, .. } => self.print_absence(guard.source, text),
            GuardKind::HashAbsent(hash) => {
                format!("all(hash(key) != {hash} for key in {source})")
            }
            GuardKind::Vacant(_) | GuardKind::AbsentWithin { .. } => {
                self.print_guard_lines(guard, objects).join(" and ")
            }
            GuardKind::LookupAbsent { text, .. } => format!("not hasattr({source}, '{text}')"),
            GuardKind::SlotUnset { name, .. } => format!("not hasattr({source}, '{name}')"),
            GuardKind::MethodOf { name, .. } => format!("___check_method_of({source}, {name})"),
            GuardKind::IteratorAt([a, b, c]) => {
                format!("___check_position({source}, ({a}, {b}, {c}))")
            }
            GuardKind::Gives(Gives { items, ends, parts }) => {
                let ends = if *ends { " and ends" } else { "" };
                format!("___check_gives({source}, {items} of {parts}{ends})")
            }
            GuardKind::GeneratorAt(rests) => {
                let place = if rests.started { rests.unit.to_string() } else { "begin".into() };
                let bound = rests.bound;
                format!("___check_generator({source}, {place}, {} slots, {bound:#x})", rests.slots)
            }
            GuardKind::NoTensorHooks => {
                format!("not {source}._backward_hooks and not {source}._post_accumulate_grad_hooks")
            }
            GuardKind::Place { is_leaf, view: None } => {
                format!("{source}.is_leaf == {} and not {source}._is_view()", truth(*is_leaf))
            }
            GuardKind::Place { is_leaf, view: Some(made) } => {
                format!(
                    "{source}.is_leaf == {} and ___check_view({source}, {made})",
                    truth(*is_leaf)
                )
            }
            GuardKind::ContextUnset => format!("{source} not in copy_context()"),
            GuardKind::TokenOf(variable) => {
                format!("{}.reset({source}) is possible", self.print(*variable))
            }
            GuardKind::CellEmpty => format!("not hasattr({source}, 'cell_contents')"),
            GuardKind::NoDefaults => format!("{source}.__defaults__ is None"),
            GuardKind::NoKwDefaults => format!("{source}.__kwdefaults__ is None"),
            GuardKind::NoInstanceDict => format!("not hasattr({source}, '__dict__')"),
            GuardKind::Tensor(tensor) => check_tensor(&source, tensor),
            GuardKind::SameAs(other) => format!("{source} is {}", self.print(*other)),
            GuardKind::Distinct(others) => self.print_distinct(&source, others),
            GuardKind::AbstractClasses(count) => format!("abc.get_cache_token() == {count}"),
            GuardKind::Symbolic { text } => text.to_string(),
            GuardKind::Accelerator(selected) => format!("___check_accelerator({selected})"),
            GuardKind::GlobalState(state) => {
                let facts: Vec<_> = state.facts.iter().map(ToString::to_string).collect();
                format!("___check_global_state({})", facts.join(", "))
            }
        }
    }

    /// A dictionary holds an empty one at a key, given by its `repr`.
    #[must_use]
    pub fn print_emptiness(&self, dict: SourceId, key: &str) -> String {
        format!("len({}) == 0", self.print_item(dict, key))
    }

    /// A dictionary lacks a key, given by its `repr`.
    #[must_use]
    pub fn print_absence(&self, dict: SourceId, key: &str) -> String {
        match (self.get(dict), identifier(key)) {
            (Source::Dict(owner), Some(_)) => format!("{key} not in vars({})", self.print(*owner)),
            _ => format!("{key} not in {}", self.print(dict)),
        }
    }

    /// A dictionary holds a `dict` at a key, given by its `repr`.
    #[must_use]
    pub fn print_plainness(&self, dict: SourceId, holder: &str) -> String {
        format!("type({}) is dict", self.print_item(dict, holder))
    }

    /// What a dictionary holds at a key lacks another one; both are given by their `repr`.
    #[must_use]
    pub fn print_absence_within(&self, dict: SourceId, holder: &str, key: &str) -> String {
        format!("{key} not in {}", self.print_item(dict, holder))
    }

    /// One other source prints as the deep dive's negated aliasing; more as one call.
    fn print_distinct(&self, source: &str, others: &[SourceId]) -> String {
        if let [other] = others {
            return format!("{source} is not {}", self.print(*other));
        }
        let others: Vec<_> = others.iter().map(|other| self.print(*other)).collect();
        format!("___check_distinct({source}, {})", others.join(", "))
    }
}

/// What a source that is spelled as its parent and a fixed suffix adds.
fn suffix(source: &Source) -> Option<&'static str> {
    Some(match source {
        Source::Dict(_) => ".__dict__",
        Source::Builtins(_) => ".__builtins__",
        Source::Code(_) => ".__code__",
        Source::Defaults(_) => ".__defaults__",
        Source::KwDefaults(_) => ".__kwdefaults__",
        Source::CellContents(_) => ".cell_contents",
        Source::MethodSelf(_) => ".__self__",
        Source::MethodFunc(_) | Source::StaticFunc(_) | Source::ClassFunc(_) => ".__func__",
        Source::PartialFunc(_) => ".func",
        Source::PartialArgs(_) => ".args",
        Source::ShownMapping(_) => ".mapping",
        Source::PartialKeywords(_) => ".keywords",
        Source::PropertyGet(_) => ".fget",
        Source::PropertySet(_) => ".fset",
        Source::Referent(_) => "()",
        Source::Cache(_) => ".cache",
        Source::CachedResult(_) => ".result",
        Source::DequeMaxLength(_) => ".maxlen",
        Source::GeneratorFunction(_) => ".___function",
        Source::Gradient(_) => ".grad",
        Source::ContextValue(_) | Source::ContextDefault(_) => ".get()",
        _ => return None,
    })
}

/// The identifier in a quoted string, if it is one.
fn identifier(repr: &str) -> Option<&str> {
    let name = repr.strip_prefix('\'')?.strip_suffix('\'')?;
    if name.is_ascii() {
        let fits = name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
        let starts = name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        return (fits && starts).then_some(name);
    }
    let mut chars = name.chars();
    let first = chars.next()?;
    let starts = first == '_' || first.is_alphabetic();
    (starts && chars.all(|c| c == '_' || c.is_alphanumeric())).then_some(name)
}

fn check_tensor(source: &str, tensor: &TensorGuard) -> String {
    let device =
        if tensor.device_type == 0 { "None".to_owned() } else { tensor.device_index.to_string() };
    format!(
        "check_tensor({source}, {}, device={device}, requires_grad={}, size={}, stride={})",
        dtype_name(tensor.dtype),
        truth(tensor.requires_grad),
        dimensions(&tensor.sizes),
        dimensions(&tensor.strides),
    )
}

fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn dimensions(values: &[Option<i64>]) -> String {
    let values: Vec<_> = values
        .iter()
        .map(|value| value.map_or_else(|| "None".to_owned(), |value| value.to_string()))
        .collect();
    format!("[{}]", values.join(", "))
}
