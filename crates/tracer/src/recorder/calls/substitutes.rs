//! `re.sub` with a function: the recorder finds the matches, and calls the function for each as the program would.
//!
//! CPython's own code searches from match to match as `finditer` does, puts what the function gives in a list, without `None`,
//! and joins that. Pattern and text are the same in each replay, so the matches are.

use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PySlice, PyString, PyTuple};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result};

use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Looks};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;

/// Texts with more matches are left to C code.
const MOST_MATCHES: usize = 64;

impl Recorder {
    /// A pattern's `sub` or `subn` with a text. One with groups is read by Python code of the library's.
    pub(super) fn substituted_by_text<'py>(&self, call: Call<'_, 'py>) -> Result<Object<'py>> {
        let _native = Suspended::new(call.frame.py());
        self.pure_call(call)
    }

    /// What a pattern's `sub` or `subn` gives whose replacement is a Python function. `None`: it can't be followed, and nothing
    /// was called.
    pub(super) fn substituted<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        let Call { frame, args, names, .. } = call;
        let (pattern, function, text, count) = match (args, names) {
            ([pattern, function, text], None) => (*pattern, *function, *text, None),
            ([pattern, function, text, count], None) => (*pattern, *function, *text, Some(*count)),
            _ => return None,
        };
        let is_text = |object: Borrowed<'_, '_>| object.is_exact_instance_of::<PyString>();
        // From CPython 3.13 on, `re.sub` hands on a number of a class of its own for none.
        let is_count = |count: Borrowed<'_, '_>| {
            count.is_exact_instance_of::<PyInt>()
                || self.kind(count) == Kind::Singleton && count.is_instance_of::<PyInt>()
        };
        let is_function =
            matches!(self.kind(function), Kind::Function | Kind::Method | Kind::Partial);
        if !is_function || !is_text(text) || !count.is_none_or(is_count) || self.is_stopped() {
            return None;
        }
        let asked: Vec<_> = [text].into_iter().chain(count).collect();
        self.concrete(frame, &asked, "read by sub");
        self.note(frame, |state| state.adopt_deep(pattern))?;
        let most = count.map_or(Ok(0), |count| count.extract::<usize>()).ok()?;
        let (matches, rest) = matches_of(pattern, text, most)?;
        let pieces = PyList::empty(frame.py());
        let put = |piece: Object<'py>| {
            pieces.append(piece).map_err(|error| Raised::set(frame.py(), error))
        };
        for (before, found) in &matches {
            self.note(frame, |state| state.register(found.as_borrowed()));
            let piece = {
                self.links.clear();
                let _collecting = self.collecting(frame);
                self.call_object(Call::new(frame, function, &[found.as_borrowed()]))
            };
            let done = before
                .clone()
                .map_or(Ok(()), put)
                .and(piece)
                .and_then(|piece| if piece.is_none() { Ok(()) } else { put(piece) });
            if let Err(raised) = done {
                return Some(Err(raised));
            }
        }
        if let Some(Err(raised)) = rest.map(put) {
            return Some(Err(raised));
        }
        Some(self.pieced(call, pieces, matches.len()))
    }

    /// What comes of the pieces, and how many matches there were, if that is asked for.
    fn pieced<'py>(
        &self,
        call: Call<'_, 'py>,
        pieces: Bound<'py, PyList>,
        count: usize,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let py = frame.py();
        let set = |error| Raised::set(py, error);
        let pieces = pieces.into_any();
        self.note(frame, |state| {
            state.set_fresh(pieces.as_borrowed());
            Ok(())
        });
        let join = py.get_type::<PyString>().getattr("join").map_err(set)?;
        let nothing = PyString::intern(py, "").into_any();
        let args = [nothing.as_borrowed(), pieces.as_borrowed()];
        let text = self.call_object(Call::new(frame, join.as_borrowed(), &args))?;
        if !heap::is_named(callable, &["subn"]) {
            return Ok(text);
        }
        let count = PyInt::new(py, count).into_any();
        let both = PyTuple::new(py, [text, count]).map_err(set)?.into_any();
        self.note(frame, |state| {
            state.set_fresh(both.as_borrowed());
            Ok(())
        });
        Ok(both)
    }
}

/// A match, with the text between it and the one before, if there is any.
type Found<'py> = (Option<Object<'py>>, Object<'py>);

/// The matches that are replaced: all, or so many; and the text behind them. `None`: there are too many.
fn matches_of<'py>(
    pattern: Borrowed<'_, 'py>,
    text: Borrowed<'_, 'py>,
    most: usize,
) -> Option<(Vec<Found<'py>>, Option<Object<'py>>)> {
    let most = if most == 0 { usize::MAX } else { most };
    let part = |from: isize, to: isize| {
        let part = text.get_item(PySlice::new(text.py(), from, to, 1)).ok()?;
        Some((from < to).then_some(part))
    };
    let mut matches = Vec::new();
    let mut at = 0;
    for found in pattern.call_method1("finditer", (text,)).ok()?.try_iter().ok()?.take(most) {
        let found = found.ok().filter(|_| matches.len() < MOST_MATCHES)?;
        let (start, end) = found.call_method0("span").ok()?.extract().ok()?;
        matches.push((part(at, start)?, found));
        at = end;
    }
    let length = text.len().ok()?.try_into().ok()?;
    Some((matches, part(at, length)?))
}
