//! Matches of regular expressions: a replay searches the same text again. It finds the same, since neither changes.

use pyo3::prelude::*;
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};

use super::outcome::{Finish, Made};
use crate::breaks::Reason;
use crate::recipe::Recipe;
use crate::recorder::notes::heap;

/// Whether an object is what `re.match` and such give.
pub(super) fn is_match(object: Borrowed<'_, '_>) -> bool {
    static MATCH: Named = Named::new("re", "Match");
    MATCH.is(object.get_type().as_any().as_borrowed())
}

impl Finish<'_> {
    /// The call that makes an equal match. One that `finditer` has given behind the first can't be made so.
    pub(super) fn match_again(&mut self, found: Borrowed<'_, '_>) -> Made<Recipe> {
        let part = |name: &str| found.getattr(name).ok();
        let refused = || (Reason::Result, heap::type_name(found));
        let again = || -> Option<(Object<'_>, [Object<'_>; 4])> {
            let given = [part("re")?, part("string")?, part("pos")?, part("endpos")?];
            let [pattern, text, from, to] = &given;
            let regions = part("regs")?;
            ["match", "search", "fullmatch"].into_iter().find_map(|name| {
                let made = pattern.call_method1(name, (text, from, to)).ok()?;
                let is_same = made.getattr("regs").ok()?.eq(&regions).ok()?;
                let method = pattern.get_type().getattr(name).ok()?;
                is_same.then(|| (method, given.clone()))
            })
        };
        let (method, args) = again().ok_or_else(refused)?;
        let callable = self.keep(method.as_borrowed());
        self.temporaries.extend(args.iter().map(|arg| arg.clone().unbind()));
        Ok(Recipe::Call { callable, args: self.all(&args)? })
    }
}
