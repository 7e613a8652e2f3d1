//! Texts that a table has at a number: `labels[logits.argmax().item()]`, `vocabulary[token]`.
//!
//! A table is a text, or a list, a tuple or a dictionary from outside that holds nothing but texts; a dictionary's keys are
//! numbers that follow each other. A number that was read from a tensor decides only that it is one of the table's. What
//! stands there a node says, which looks into a copy of the table: the table's contents are guarded.
//!
//! Lists and tuples of floats are such tables, too (`weights[step]`), also for a number that counts. What stands there is
//! carried like a number that was read.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyString};
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::heap::dict;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::CompareOp;
use stator_cpython::{Result, ops};
use stator_graph::Arg;

use super::read_numbers::own;
use crate::recorder::Recorder;
use crate::recorder::notes::above::Looks;
use crate::recorder::notes::effects::CONTENTS;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Noted, Origin, State};
use crate::recorder::notes::symbols::{Piece, Spelling, Table};

/// So many texts a table has at most: each is guarded.
const MOST: usize = 4096;

impl Recorder {
    /// The text that a table has at a number that was read. `None`: it's something else, or the number is none of the
    /// table's; nothing was executed.
    pub(in crate::recorder) fn text_at<'py>(
        &self,
        frame: &Frame<'py>,
        table: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        if !self.has_symbols() || !self.session.takes_steps() {
            return None;
        }
        let number = {
            let mut state = self.state.borrow_mut();
            let number = state.number(key).filter(|number| state.is_read(*number))?;
            (key.is_exact_instance_of::<PyInt>() && state.is_table(table)).then_some(number)?
        };
        let Table { first, end, copy } = self.note(frame, |state| state.table(table)).flatten()?;
        let py = frame.py();
        match self.is_of_table(frame, key, first, end) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(raised) => return Some(Err(raised)),
        }
        let get = copy.bind(py).getattr("__getitem__").ok()?;
        let spelling = self.note(frame, |state| {
            let target = state.value_function(get.as_borrowed());
            let pieces = vec![Piece::Number(number)];
            Ok(Spelling { target, pieces, keywords: SmallVec::new(), stack: state.place(frame) })
        })?;
        let found = match ops::get_item(table, key) {
            Ok(found) => found,
            Err(raised) => return Some(Err(raised)),
        };
        let own = self.carry(frame, spelling, &[key], &found);
        if !own.is(&found) {
            self.state.borrow_mut().stands_in_for(own.as_borrowed(), &found);
        }
        Some(Ok(own))
    }

    /// The float that a table has at a number that varies. `None`: it's something else, or the number is none of the
    /// table's; nothing was executed.
    pub(in crate::recorder) fn float_at<'py>(
        &self,
        frame: &Frame<'py>,
        table: Borrowed<'_, 'py>,
        key: Borrowed<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let is_row = heap::is_exact_list(table) || heap::is_plain_tuple(table);
        if !is_row || !self.has_symbols() || !key.is_exact_instance_of::<PyInt>() {
            return None;
        }
        if !self.session.is_replayed() || !self.may_read(frame) {
            return None;
        }
        let number = {
            let mut state = self.state.borrow_mut();
            let may_be = state.is_table(table) && !state.enclosed.is_on();
            state.number(key).filter(|_| may_be)?
        };
        let Table { first, end, copy } = self.note(frame, |state| state.floats(table)).flatten()?;
        match self.is_of_table(frame, key, first, end) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(raised) => return Some(Err(raised)),
        }
        let get = copy.bind(frame.py()).getattr("__getitem__").ok()?;
        let found = match ops::get_item(table, key) {
            Ok(found) => found,
            Err(raised) => return Some(Err(raised)),
        };
        let float = own(&found)?;
        self.carries(frame, &float, |state| {
            let place = Arg::Node(state.number_node(number));
            let name = "builtins.list.__getitem__".into();
            Ok(state.called(frame, get.as_borrowed(), name, &[place]))
        })?;
        self.state.borrow_mut().stands_in_for(float.as_borrowed(), &found);
        Some(Ok(float))
    }

    /// Whether a number is one of a table's: a guard or a decision.
    fn is_of_table(
        &self,
        frame: &Frame<'_>,
        key: Borrowed<'_, '_>,
        first: i64,
        end: i64,
    ) -> Result<bool> {
        for (op, bound) in [(CompareOp::Ge, first), (CompareOp::Lt, end)] {
            let bound = PyInt::new(frame.py(), bound).into_any();
            if !self.comparison_holds(frame, op, key, bound.as_borrowed())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl State {
    /// Whether an object is the same text in each call, or one from outside to which the trace has written nothing.
    fn is_table(&mut self, table: Borrowed<'_, '_>) -> bool {
        if table.is_exact_instance_of::<PyString>() {
            return self.spelt(table).is_empty();
        }
        let address = table.as_ptr() as usize;
        matches!(self.origin(table), Some(Origin::Source(_)))
            && !self.written.has(&(address, CONTENTS))
            && !self.written.dict(address)
    }

    /// What is known of a table of floats, which is guarded.
    fn floats(&mut self, object: Borrowed<'_, '_>) -> Noted<Option<Table>> {
        let address = object.as_ptr() as usize;
        let known = self.symbols.as_ref().and_then(|symbols| symbols.float_tables.get(&address));
        if let Some(known) = known {
            return Ok(Some(known.clone_ref(object.py())));
        }
        let items = heap::children(object);
        let is_float = |item: &Object<'_>| item.is_exact_instance_of::<PyFloat>();
        if !(2..=MOST).contains(&items.len()) || !items.iter().all(is_float) {
            return Ok(None);
        }
        self.adopt_deep(object)?;
        // One that varies itself stands in the list for what is there.
        if items.iter().any(|item| self.number(item.as_borrowed()).is_some()) {
            return Ok(None);
        }
        let end = items.len() as i64;
        let Ok(copy) = PyList::new(object.py(), items) else { return Ok(None) };
        let table = Table { first: -end, end, copy: copy.into_any().unbind() };
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.float_tables.insert(address, table.clone_ref(object.py()));
        }
        Ok(Some(table))
    }

    /// What is known of a table, which is guarded.
    fn table(&mut self, object: Borrowed<'_, '_>) -> Noted<Option<Table>> {
        let address = object.as_ptr() as usize;
        let known = self.symbols.as_ref().and_then(|symbols| symbols.tables.get(&address));
        if let Some(known) = known {
            return Ok(Some(known.clone_ref(object.py())));
        }
        let Some(table) = table_of(object) else { return Ok(None) };
        if object.is_exact_instance_of::<PyString>() {
            return Ok(Some(table));
        }
        self.adopt_deep(object)?;
        if let Some(symbols) = self.symbols.as_mut() {
            symbols.tables.insert(address, table.clone_ref(object.py()));
        }
        Ok(Some(table))
    }
}

/// The numbers of a table, and its texts. `None`: it's none.
fn table_of(object: Borrowed<'_, '_>) -> Option<Table> {
    let py = object.py();
    // An empty text is the same object everywhere.
    let is_text = |item: &Object<'_>| {
        item.cast_exact::<PyString>().is_ok_and(|text| text.len().is_ok_and(|len| len > 0))
    };
    let are_texts =
        |items: &[Object<'_>]| (1..=MOST).contains(&items.len()) && items.iter().all(is_text);
    let by_place = |length: usize, copy: Object<'_>| {
        let end = i64::try_from(length).ok()?;
        Some(Table { first: -end, end, copy: copy.unbind() })
    };
    if let Ok(text) = object.cast_exact::<PyString>() {
        return by_place(text.len().ok()?, text.to_owned().into_any());
    }
    if heap::is_exact_list(object) || heap::is_plain_tuple(object) {
        let items = heap::children(object);
        if !are_texts(&items) {
            return None;
        }
        return by_place(items.len(), PyList::new(py, items).ok()?.into_any());
    }
    if !object.is_exact_instance_of::<PyDict>() {
        return None;
    }
    let (keys, texts): (Vec<_>, Vec<_>) = dict::items(object)?.into_iter().unzip();
    let number = |key: &Object<'_>| {
        key.is_exact_instance_of::<PyInt>().then(|| key.extract::<i64>().ok()).flatten()
    };
    let numbers = keys.iter().map(number).collect::<Option<Vec<_>>>()?;
    let (first, last) = (*numbers.iter().min()?, *numbers.iter().max()?);
    let (end, count) = (last.checked_add(1)?, i64::try_from(numbers.len()).ok()?);
    if end.checked_sub(first) != Some(count) || !are_texts(&texts) {
        return None;
    }
    let copy = PyDict::new(py);
    for (key, text) in keys.iter().zip(texts) {
        copy.set_item(key, text).ok()?;
    }
    Some(Table { first, end, copy: copy.into_any().unbind() })
}
