//! Calls that are given symbolic numbers: what moves them, what computes with them, and what reads them.

use pyo3::prelude::*;
use pyo3::types::{
    PyBytes, PyDict, PyFrozenSet, PyFunction, PyInt, PyList, PySet, PyString, PyTuple,
};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::iterator::{self, Ahead};
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, ops};

use crate::functions::{Class, Emitter, Model, Numeric, Range, Traits, Writes};
use crate::recipe::Storage;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Calls;
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::Origin;
use crate::recorder::numbers::lazy_readers::reaches_tensor;
use crate::recorder::numbers::tensor_texts::named_fields;

/// Whether a class makes a dictionary of what it is called with.
fn makes_dict(name: &str) -> bool {
    matches!(name, "dict" | "OrderedDict")
}

/// Whether a call moves what it is given.
fn moves(traits: Traits, name: &str, args: &[Borrowed<'_, '_>], positional: usize) -> bool {
    traits.has(Traits::MOVES)
        && match name {
            // How often, from where on.
            "enumerate" | "repeat" => args.len() == 1,
            // C functions read what they are called with.
            name if makes_dict(name) => {
                args[..positional].iter().all(|arg| text_keys(*arg).is_some())
            }
            "map" => args.first().is_some_and(|called| {
                called.is_instance_of::<PyFunction>()
                    || heap::is_named(*called, &["len"])
                        && !args.iter().any(|arg| reaches_tensor(*arg))
            }),
            _ => true,
        }
}

/// The texts that a dictionary made of this has as keys, where they aren't those of another dictionary. `None`: it has
/// others, or they come from elsewhere.
fn text_keys<'py>(of: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
    let is_text = |key: &Object<'_>| key.is_exact_instance_of::<PyString>();
    let first = |pair: &Object<'py>| match pair.cast_exact::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => pair.get_item(0).ok().filter(is_text),
        _ => None,
    };
    if is_builtin_dict(of) {
        return Some(Vec::new());
    }
    if heap::is_exact_list(of) {
        return heap::list_items(of).iter().map(first).collect();
    }
    if heap::is_plain_tuple(of) {
        return heap::tuple_items(of).iter().map(first).collect();
    }
    let names = iterator::over(of, 0).filter(|_| iterator::is_zip(of) && iterator::parts(of) == 2);
    let names = names.as_ref()?.as_borrowed();
    let mut keys = Vec::new();
    while keys.len() < MOST_KEYS {
        match iterator::ahead(names, keys.len()) {
            Ahead::Item => keys.push(iterator::upcoming(names, keys.len()).filter(is_text)?),
            Ahead::End => return Some(keys),
            Ahead::Unknown => return None,
        }
    }
    None
}

/// So many keys are looked at that a `zip` gives.
const MOST_KEYS: usize = 256;

/// Whether an object is a dictionary of which C code alone tells the entries.
fn is_builtin_dict(object: Borrowed<'_, '_>) -> bool {
    let class = object.get_type();
    let is_one = |storage: Storage| storage.is_of(class.as_any().as_borrowed());
    heap::is_exact_dict(object) || is_one(Storage::DefaultDict) || is_one(Storage::OrderedDict)
}

/// Whether a call is that of a dictionary's method that looks at a key, and moves at most the value there.
fn asks_for_key(class: &Class, writes: Option<Writes>, args: &[Borrowed<'_, '_>]) -> bool {
    use Writes::{Deleted, Entry, Missing, Moved, Popped};
    match class {
        Class::Model(Model::DictSlotRead) => {
            args.first().is_some_and(|receiver| receiver.is_instance_of::<PyDict>())
        }
        Class::Model(Model::ContainerWrite) => {
            matches!(writes, Some(Entry | Missing | Deleted | Moved | Popped))
        }
        _ => false,
    }
}

/// Whether a call is that of `str.join`.
fn joins(callable: Borrowed<'_, '_>, separator: Borrowed<'_, '_>) -> bool {
    separator.is_exact_instance_of::<PyString>()
        && heap::is_named(callable, &["join"])
        && separator.get_type().getattr("join").is_ok_and(|join| join.is(callable))
}

/// Whether a call is that of `list.__getitem__` or `tuple.__getitem__`, of one that has no other.
fn is_item_of(callable: Borrowed<'_, '_>, container: Borrowed<'_, '_>) -> bool {
    (heap::is_exact_list(container) || heap::is_plain_tuple(container))
        && heap::is_named(callable, &["__getitem__"])
        && container.get_type().getattr("__getitem__").is_ok_and(|own| own.is(callable))
}

/// Whether a function finds the least or the greatest one.
fn is_extreme(numeric: Option<Numeric>) -> bool {
    matches!(numeric, Some(Numeric::Least | Numeric::Greatest))
}

/// Whether one argument has a name: `default`.
fn names_default(names: Borrowed<'_, '_>) -> bool {
    matches!(&heap::tuple_items(names)[..], [name] if *heap::text(name.as_borrowed()) == *"default")
}

/// Whether a call makes a log record of a message and its arguments, at which a replay's own record looks.
fn is_record(class: &Class, names: Option<Borrowed<'_, '_>>) -> bool {
    matches!(class, Class::Emitter(Emitter::Log)) && names.is_none()
}

impl Recorder {
    /// Calls something the function table knows, where symbolic numbers may be met.
    pub(in crate::recorder) fn symbolic_call<'py>(
        &self,
        class: &Class,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        if let ([container, place], None) = (args, names)
            && is_item_of(callable, *container)
        {
            return self.get_item(frame, *container, *place);
        }
        let numeric = self.functions.numeric(callable);
        let taken = self.generator_taken(call);
        let collected = match taken {
            Some((place, takes)) => self.collected(frame, args[place], takes)?,
            None => None,
        };
        let (Some((place, _)), Some((list, is_cut))) = (taken, collected) else {
            return self.call_of_values(class, call);
        };
        if is_cut && numeric == Some(Numeric::Sum) {
            // What comes is added as it comes: it may be written to meanwhile.
            let sum = |args: &[Borrowed<'_, 'py>]| {
                let recorded = || self.call_object(Call { args, ..call });
                self.part(frame.py(), recorded, || Call { args, ..call }.natively())
            };
            let begun = sum(&[list.as_borrowed()])?;
            return sum(&[args[place], begun.as_borrowed()]);
        }
        let has_default = is_extreme(numeric) && names.is_some();
        if let (true, [_, default]) = (has_default, args)
            && heap::list_items(list.as_borrowed()).is_empty()
        {
            return Ok((*default).to_owned());
        }
        let given = if is_cut { self.continued(frame, &list, args[place])? } else { list };
        let mut args: Args<'_, 'py> = args.iter().copied().collect();
        args[place] = given.as_borrowed();
        // What stands for nothing isn't asked for.
        let names = names.filter(|_| !has_default);
        args.truncate(if has_default { 1 } else { args.len() });
        let call = Call { args: &args, names, ..call };
        // The generator has run: its elements stand for it, whatever fails from here on.
        let recorded = || match self.is_stopped() {
            true => call.natively(),
            false => self.call_of_values(class, call),
        };
        self.part(frame.py(), recorded, || call.natively())
    }

    /// As [`Recorder::symbolic_call`], of arguments that are no generators that are to be run first.
    fn call_of_values<'py>(&self, class: &Class, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let Call { frame, callable, args, names } = call;
        let name = heap::callable_name(callable);
        let traits = self.functions.traits(callable);
        let numeric = self.functions.numeric(callable);
        if let ([sequence, _], Some(names)) = (args, names)
            && is_extreme(numeric)
            && names_default(names)
            && self.elements(*sequence).is_some_and(|items| !items.is_empty())
        {
            // What stands for nothing isn't asked for.
            return self.call_of_values(class, Call { args: &args[..1], names: None, ..call });
        }
        if let Some(result) = self.ordered_numbers(class, numeric, call) {
            return result;
        }
        if names.is_none()
            && let Some(numeric) = numeric
            && let Some(result) = self.symbolic_function(numeric, call)
        {
            return result;
        }
        if let Some(result) = numeric.and_then(|numeric| self.float_function(numeric, call)) {
            return result;
        }
        if matches!(class, Class::Model(Model::SequenceRead))
            && matches!(&*name, "index" | "count")
            && let Some(found) = self.symbolic_search(call)
        {
            return found;
        }
        if name == "reduce"
            && let Some(result) = self.reduced(call)
        {
            return result;
        }
        if matches!(class, Class::Pure)
            && let Some((args, names)) = named_fields(call)
        {
            let args: Args<'_, 'py> = args.into_iter().collect();
            let names = names.as_ref().map(|names| names.as_any().as_borrowed());
            return self.call_of_values(class, Call { args: &args, names, ..call });
        }
        // A number that varies stays one beside those that are read for the text.
        if matches!(class, Class::Pure)
            && let Some(numbers) = self.format_numbers(call)
        {
            let args: Args<'_, 'py> = numbers.iter().map(Bound::as_borrowed).collect();
            return self.call_of_values(class, Call { args: &args, ..call });
        }
        if matches!(class, Class::Pure)
            && names.is_none()
            && name == "Size"
            && let Some(size) = self.symbolic_size(call)
        {
            return size;
        }
        let is_len = matches!(class, Class::Model(Model::Len)) && args.len() == 1;
        let known = match class {
            Class::StateRead => {
                let found = self.symbolic_metadata(traits, &name, call);
                Some(found.unwrap_or_else(|| self.call_known(class, call)))
            }
            // What has been read is looked at where its text is made.
            Class::Model(Model::Repr)
                if args.len() == 1
                    || args.len() == 2 && self.state.borrow_mut().holds_numbers(args[0]) =>
            {
                let text = self.call_known(class, call)?;
                self.spells(frame, args, text.as_borrowed());
                Some(Ok(text))
            }
            Class::Model(Model::Print | Model::Stream) => Some(self.call_known(class, call)),
            Class::Pure => self.carried_method(call),
            _ if is_len => self.symbolic_length(frame, args[0]),
            _ => None,
        };
        if let Some(result) = known {
            return result;
        }
        if name == "map"
            && let Some(made) = self.make_over(call)
        {
            return made;
        }
        // A place in a list, what is put there and what is taken out: no element is looked at.
        let takes_place = traits.has(Traits::COUNTS);
        let moves = takes_place || moves(traits, &name, args, call.positional().len());
        if moves {
            self.note(frame, |state| {
                args.iter().try_for_each(|arg| match state.kind_alone(*arg) {
                    Kind::Dict => state.adopt_dict_of(&name, *arg),
                    _ => Ok(()),
                })
            });
        }
        if is_len || moves && traits.has(Traits::ITERATES) {
            self.reads_texts(frame, args, &name);
        }
        self.fix_what_is_read(class, call, &name, moves);
        // What says its place may be Python code.
        let _consuming = (!moves || takes_place).then(|| self.consuming(frame));
        let result = self.call_known(class, call)?;
        let reads_later = !moves && self.state.borrow_mut().reads_later(result.as_borrowed());
        if reads_later {
            // It goes on reading: what it iterates, and what it calls.
            self.concrete(frame, &[result.as_borrowed()], &format!("read by {name}"));
        }
        Ok(result)
    }

    /// The numbers among a call's arguments that it looks at are fixed.
    fn fix_what_is_read(&self, class: &Class, call: Call<'_, '_>, name: &str, moves: bool) {
        let Call { frame, callable, args, names } = call;
        let is_len =
            (matches!(class, Class::Model(Model::Len)) || name == "__len__") && args.len() == 1;
        let traits = self.functions.traits(callable);
        let second = args.get(1..2).unwrap_or_default();
        let is_ordered = name == "sorted" && self.is_ordered_by_names(call);
        if moves && name.ends_with("attr") {
            self.concrete(frame, second, "the name of an attribute");
        }
        if moves && makes_dict(name) {
            let keys = call.positional().iter().filter_map(|arg| text_keys(*arg)).flatten();
            let keys: SmallVec<[_; 4]> = keys.collect();
            let keys: SmallVec<[_; 4]> = keys.iter().map(|key| key.as_borrowed()).collect();
            self.concrete(frame, &keys, "a key");
        }
        let asks_key = asks_for_key(class, self.functions.writes(callable), args);
        if traits.has(Traits::COUNTS) || asks_key {
            let stays =
                asks_key && matches!(args, [dict, key, ..] if self.keeps_key(frame, *dict, *key));
            if !stays {
                self.concrete(frame, second, "an index or key");
            }
        } else if !moves
            && !is_len
            // It fixes what it can't take.
            && !matches!(class, Class::Model(Model::Numpy | Model::Arrays(_) | Model::Values | Model::Order))
            && !self.hands_on(class, self.functions.writes(callable), call.positional())
            && !is_ordered
            && !self.is_order_decided(call)
        {
            let read = if is_record(class, names) { &args[..2] } else { args };
            self.concrete(frame, read, &format!("read by {name}"));
        }
        if matches!(name, "islice" | "deque") {
            self.concrete(frame, args.get(1..).unwrap_or_default(), &format!("read by {name}"));
        }
    }

    /// Whether what is put in order are tuples that begin with different texts: nothing behind these is looked at, such as
    /// the numbers of `sorted(losses.items())`.
    fn is_ordered_by_names(&self, call: Call<'_, '_>) -> bool {
        let [sequence] = *call.args else { return false };
        if call.names.is_some() {
            return false;
        }
        let Some(items) = self.elements(sequence) else { return false };
        let state = self.state.borrow();
        let mut names = FxHashSet::default();
        items.iter().all(|item| {
            let item = item.as_borrowed();
            let first = item.cast_exact::<PyTuple>().ok().and_then(|tuple| tuple.get_item(0).ok());
            first.is_some_and(|first| {
                first.is_exact_instance_of::<PyString>()
                    && state.spelt(first.as_borrowed()).is_empty()
                    && names.insert(heap::text(first.as_borrowed()))
            })
        })
    }

    /// Whether a call puts values that have names, or those of new dictionaries, into a dictionary, and looks at none of
    /// them. `args`: those without names.
    fn hands_on(&self, class: &Class, writes: Option<Writes>, args: &[Borrowed<'_, '_>]) -> bool {
        let is_new = |object: &Borrowed<'_, '_>| {
            let is_one = heap::is_exact_dict(*object)
                || heap::is_exact_list(*object) && self.has_plain_texts_as_keys(*object);
            is_one && self.origin(*object) == Some(Origin::Fresh)
        };
        matches!(class, Class::Model(Model::ContainerWrite))
            && matches!(writes, Some(Writes::Merged))
            && args.split_first().is_some_and(|(receiver, given)| {
                receiver.is_instance_of::<PyDict>() && given.iter().all(is_new)
            })
    }

    /// Whether a list holds pairs, of which a dictionary is to have the first ones as keys: texts that spell no number.
    fn has_plain_texts_as_keys(&self, pairs: Borrowed<'_, '_>) -> bool {
        let state = self.state.borrow();
        text_keys(pairs)
            .is_some_and(|keys| keys.iter().all(|key| state.spelt(key.as_borrowed()).is_empty()))
    }

    /// C code looks at texts that spell numbers, or at those in a container.
    fn reads_texts(&self, frame: &Frame<'_>, args: &[Borrowed<'_, '_>], name: &str) {
        if !self.has_symbols() {
            return;
        }
        let is_text = |object: Borrowed<'_, '_>| {
            object.is_exact_instance_of::<PyString>() || object.is_exact_instance_of::<PyBytes>()
        };
        for arg in args {
            if is_text(*arg) {
                self.concrete(frame, &[*arg], &format!("read by {name}"));
            } else if name == "from_iterable" {
                for part in
                    heap::plain_parts(*arg).iter().filter(|part| is_text(part.as_borrowed()))
                {
                    self.concrete(frame, &[part.as_borrowed()], "read by from_iterable");
                }
            }
        }
    }

    /// `torch.Size` of a tuple or list with symbolic numbers: it holds these very objects.
    fn symbolic_size<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let [items] = *args else { return None };
        if !heap::is_plain_tuple(items) && !heap::is_exact_list(items) {
            return None;
        }
        let numbers = heap::children(items);
        let mut state = self.state.borrow_mut();
        let is_symbolic = numbers.iter().any(|item| state.number(item.as_borrowed()).is_some());
        if !is_symbolic || !numbers.iter().all(|item| item.is_exact_instance_of::<PyInt>()) {
            return None;
        }
        drop(state);
        let size = {
            let _native = Suspended::new(frame.py());
            ops::call(callable, args, None)
        };
        if let Ok(size) = &size {
            self.note(frame, |state| {
                state.set_fresh(size.as_borrowed());
                Ok(())
            });
        }
        Some(size)
    }

    /// Whether a call is given a generator whose items are kept first, which may read them from tensors.
    pub(in crate::recorder) fn folds_generator(&self, call: Call<'_, '_>) -> bool {
        self.generator_taken(call).is_some_and(|(place, _)| ops::is_generator(call.args[place]))
    }

    /// Where the argument stands of which a call takes all that it gives, and how.
    fn generator_taken(&self, call: Call<'_, '_>) -> Option<(usize, Takes)> {
        let Call { callable, args, names, .. } = call;
        let numeric = self.functions.numeric(callable);
        let makes = |storage: Storage| storage.is_of(callable);
        match (args, names) {
            ([_, ..], _) if numeric == Some(Numeric::Sorted) => Some((0, Takes::All)),
            ([_], None) if numeric == Some(Numeric::Sum) => Some((0, Takes::ToTensor)),
            ([_], None) if numeric == Some(Numeric::Floats(Range::Summable)) => {
                Some((0, Takes::All))
            }
            ([_], None) if is_extreme(numeric) => Some((0, Takes::All)),
            ([_, _], Some(names)) if is_extreme(numeric) && names_default(names) => {
                Some((0, Takes::All))
            }
            ([separator, _], None) if joins(callable, *separator) => Some((1, Takes::All)),
            ([_], None) if makes(Storage::Dict) || makes(Storage::OrderedDict) => {
                Some((0, Takes::ToOther(is_plain_pair)))
            }
            ([_], None) if is_set_type(callable) => Some((0, Takes::ToOther(is_plain_element))),
            ([_, room @ ..], _) if makes(Storage::Deque) && room.iter().all(|it| is_room(*it)) => {
                Some((0, Takes::All))
            }
            _ => None,
        }
    }

    /// A list of what a generator yields, for a function that reads it to its end, and whether the list ends before the
    /// generator does.
    fn collected<'py>(
        &self,
        frame: &Frame<'py>,
        generator: Borrowed<'_, 'py>,
        takes: Takes,
    ) -> Result<Option<(Object<'py>, bool)>> {
        let is_known = heap::type_name(generator) == "generator"
            && self.kind(generator) == Kind::Iterator
            && self.may_advance(frame, generator);
        if !is_known || self.is_stopped() {
            return Ok(None);
        }
        let list = PyList::empty(frame.py());
        let _collecting = self.collecting(frame);
        let mut is_cut = false;
        while !is_cut && let Some(item) = ops::next(generator)? {
            is_cut = match takes {
                Takes::All => false,
                Takes::ToTensor => tensor::is_tensor(item.as_borrowed()),
                Takes::ToOther(is_plain) => !is_plain(item.as_borrowed()),
            };
            list.append(&item).map_err(|error| Raised::set(frame.py(), error))?;
        }
        let list = list.into_any();
        self.note(frame, |state| state.register(list.as_borrowed()));
        Ok(Some((list, is_cut)))
    }

    /// An iterator that gives what a list holds, and then what the generator yields that it was taken from.
    fn continued<'py>(
        &self,
        frame: &Frame<'py>,
        list: &Object<'py>,
        generator: Borrowed<'_, 'py>,
    ) -> Result<Object<'py>> {
        static CHAIN: Named = Named::new("itertools", "chain");
        let chain = CHAIN.get(frame.py()).map_err(|error| Raised::set(frame.py(), error))?;
        let args = [list.as_borrowed(), generator];
        let call = Call::new(frame, chain.as_borrowed(), &args);
        self.part(frame.py(), || self.call_object(call), || call.natively())
    }
}

/// How a C function takes what a generator yields.
#[derive(Clone, Copy)]
enum Takes {
    /// All of it, before it does anything else.
    All,
    /// One by one, and computes with it. Before a tensor comes, nobody can tell.
    ToTensor,
    /// One by one, and puts it into something new. Nobody can tell, as long as it runs no code for that and raises nothing.
    ToOther(fn(Borrowed<'_, '_>) -> bool),
}

/// Whether a set takes an element without running code.
fn is_plain_element(element: Borrowed<'_, '_>) -> bool {
    heap::is_constant(element)
}

/// Whether a dictionary takes a pair without running code.
fn is_plain_pair(pair: Borrowed<'_, '_>) -> bool {
    let is_row = heap::is_exact_list(pair) || pair.is_exact_instance_of::<PyTuple>();
    is_row && matches!(&heap::children(pair)[..], [key, _] if is_plain_element(key.as_borrowed()))
}

/// Whether a deque takes this for its greatest length: it refuses another one before it asks for an item.
fn is_room(length: Borrowed<'_, '_>) -> bool {
    let is_length = || length.extract::<i64>().is_ok_and(|length| length >= 0);
    length.is_none() || length.is_exact_instance_of::<PyInt>() && is_length()
}

fn is_set_type(callable: Borrowed<'_, '_>) -> bool {
    let py = callable.py();
    callable.is(py.get_type::<PySet>()) || callable.is(py.get_type::<PyFrozenSet>())
}
