//! `raise`, `except`, `except*`.

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use stator_cpython::Raised;
use stator_cpython::heap::container;
use stator_cpython::ops::{self, Raise};

use super::{Done, Evaluation, Sites, Stop};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    pub(super) fn raise_varargs(&mut self, arg: u32) -> Done {
        self.sites.raises(&self.frame, (1..=2).contains(&arg).then(|| self.run.peek(arg as usize)));
        let cause = (arg == 2).then(|| self.run.pop());
        let exception = (arg == 1 || arg == 2).then(|| self.run.pop());
        if arg > 2 {
            return Err(Raised::system_error(self.py(), c"bad RAISE_VARARGS oparg").into());
        }
        match ops::raise(self.py(), exception, cause) {
            Raise::New => Err(Stop::Raised),
            Raise::Again => Err(Stop::RaisedAgain),
        }
    }

    /// Raises the top again; with an argument, as if from the position saved that deep.
    pub(super) fn reraise(&mut self, depth: usize) -> Done {
        self.sites.raises(&self.frame, Some(self.run.peek(1)));
        if depth > 0 {
            match self.run.peek(depth + 1).extract::<usize>() {
                Ok(unit) => self.run.pretend_at(unit),
                Err(_) => {
                    return Err(Raised::system_error(self.py(), c"lasti is not an int").into());
                }
            }
        }
        let exception = self.run.pop();
        let Raised = self.run.thread().restore_exception(exception);
        Err(Stop::RaisedAgain)
    }

    pub(super) fn push_exc_info(&mut self) -> Done {
        let exception = self.run.peek(1).to_owned();
        let handled = self.run.thread().swap_handled(Some(exception));
        let handled = handled.unwrap_or_else(|| self.py().None().into_bound(self.py()));
        let exception = self.run.replace(1, handled);
        self.run.push(exception);
        Ok(())
    }

    pub(super) fn pop_except(&mut self) -> Done {
        let handled = self.run.pop();
        drop(self.run.thread().swap_handled(Some(handled)));
        Ok(())
    }

    pub(super) fn check_exc_match(&mut self) -> Done {
        let (exception, classes) = (self.run.peek(2), self.run.peek(1));
        self.sites.matches_exception(&self.frame, exception, classes);
        let checked = ops::check_except_type(classes);
        let result = checked.map(|()| {
            let matches = ops::matches_exception(exception, classes);
            self.bool_object(matches)
        });
        Ok(self.run.finish_one(result)?)
    }

    /// Splits the exception: what the clause takes goes on top, what it leaves takes its place.
    pub(super) fn check_eg_match(&mut self) -> Done {
        let (exception, classes) = (self.run.peek(2), self.run.peek(1));
        self.sites.matches_exception(&self.frame, exception, classes);
        self.sites.splits(&self.frame, &[exception.to_owned()]);
        let result = ops::check_except_star_type(classes)
            .and_then(|()| ops::match_group(exception, classes));
        drop(self.run.pop());
        let (taken, left) = result?;
        for part in [&taken, &left].into_iter().filter(|part| !part.is_none()) {
            self.sites.creates(&self.frame, part.as_borrowed());
        }
        if !taken.is_none() {
            let exception = self.run.replace(1, left);
            drop(self.run.thread().swap_handled(Some(taken.clone())));
            drop(exception);
        }
        self.run.push(taken);
        Ok(())
    }

    pub(super) fn prep_reraise_star(&mut self) -> Done {
        let (original, raised) = (self.run.peek(2), self.run.peek(1));
        let mut exceptions = container::list_items(raised);
        exceptions.push(original.to_owned());
        self.sites.splits(&self.frame, &exceptions);
        let result = ops::prepare_reraise_star(original, raised);
        if let Ok(left) = &result
            && !left.is_none()
        {
            self.sites.creates(&self.frame, left.as_borrowed());
        }
        Ok(self.run.finish_two(result)?)
    }

    pub(super) fn load_assertion_error(&mut self) -> Done {
        let class = self.py().get_type::<PyAssertionError>();
        self.run.push(class.into_any());
        Ok(())
    }
}
