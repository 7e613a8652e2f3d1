//! What a replay does beside its writes: warnings and log records, locks, tokens of context variables.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use stator_cpython::code::Code;
use stator_cpython::heap::context;
use stator_cpython::object::Borrowed;

use super::outcome::{Finish, Made};
use crate::breaks::Reason;
use crate::emission::{Emission, Told};
use crate::recipe::{Function, Recipe, RecipeId};
use crate::recorder::notes::effects::{CONTEXT, Emitted};
use crate::recorder::notes::heap;
use crate::recorder::notes::state::{Origin, State};

impl Finish<'_> {
    /// What a replay gives.
    pub(in crate::recorder) fn emissions(&mut self, py: Python<'_>) -> Made<Vec<Emission>> {
        let emissions = self.state.written.take_emissions();
        let made = emissions.iter().map(|emitted| self.emission(py, emitted));
        let made = made.collect::<Made<_>>().map_err(|(_, detail)| (Reason::Told, detail));
        if self.is_exit {
            self.state.written.keep_emissions(emissions);
        }
        made
    }

    fn emission(&mut self, py: Python<'_>, emitted: &Emitted) -> Made<Emission> {
        let frames = emitted
            .frames
            .iter()
            .map(|(function, unit)| Ok((self.stand_in(function.bind_borrowed(py))?, *unit)));
        let frames = frames.collect::<Made<_>>()?;
        let args = emitted.args.iter().map(|arg| self.recipe(arg.bind_borrowed(py)));
        let args = args.collect::<Made<Box<[RecipeId]>>>()?;
        let callable = self.keep(emitted.callable.bind_borrowed(py));
        let names = emitted.names.as_ref().map(|names| self.keep(names.bind_borrowed(py)));
        let told = match emitted.told {
            Told::Record { logger } => Told::Record { logger: args[logger] },
            Told::Warning { text, category } => {
                Told::Warning { text: args[text], category: category.map(|at| args[at]) }
            }
        };
        Ok(Emission {
            frames,
            callable: self.recipes.push(Recipe::Constant(callable)),
            args,
            names,
            told,
            after: emitted.after,
            text: emitted.text.clone(),
            place: emitted.place,
        })
    }

    /// The positions, among the sources that are resolved, of the lists that the trace works with.
    pub(in crate::recorder) fn known_lists(&mut self, py: Python<'_>) -> Box<[u32]> {
        let is_list = |object: Borrowed<'_, '_>| object.is_exact_instance_of::<PyList>();
        let lists = self.state.objects.outside(py, is_list);
        lists.into_iter().map(|list| self.state.exits.resolved(list)).collect()
    }

    /// The recipe of a function whose frame is only looked at: of one that the trace made, its code.
    fn stand_in(&mut self, function: Borrowed<'_, '_>) -> Made<RecipeId> {
        let py = function.py();
        if self.state.origin(function) != Some(Origin::Fresh) {
            return self.recipe(function);
        }
        let refuse = || (Reason::Told, heap::name_of(function));
        let code = heap::function_code(function).ok_or_else(refuse)?;
        let globals = heap::function_globals(function).ok_or_else(refuse)?;
        let free = Code::of(code.as_borrowed()).ok_or_else(refuse)?.nfreevars();
        let cells = (0..free).map(|_| self.recipes.push(Recipe::Cell(None))).collect();
        let closure = self.recipes.push(Recipe::Tuple(cells));
        let none = py.None().into_bound(py);
        let nothing = self.recipe(none.as_borrowed())?;
        let name = PyString::new(py, &heap::name_of(function)).into_any();
        let args = [
            self.part(globals.as_borrowed())?,
            self.recipe(name.as_borrowed())?,
            nothing,
            if free > 0 { closure } else { nothing },
        ];
        let code = self.keep(code.as_borrowed());
        let function = Function { code, args: Box::new(args), attributes: Vec::new() };
        Ok(self.recipes.push(Recipe::Function(Box::new(function))))
    }

    /// The locks that a replay holds, by the positions of their sources.
    pub(in crate::recorder) fn locks(&mut self) -> Box<[u32]> {
        let State { claims, exits, .. } = &mut *self.state;
        claims.locks.iter().map(|taken| exits.resolved(taken.source)).collect()
    }

    /// The recipe of a token whose variable held, when the trace began, what the first of its tokens goes back to: a
    /// replay gets it where it sets the variable to what that held until the next token was got, or holds now. `None`:
    /// the object is no such token.
    pub(in crate::recorder) fn token(&mut self, object: Borrowed<'_, '_>) -> Made<Option<Recipe>> {
        let py = object.py();
        let context = &self.state.context;
        let Some(known) = context.tokens.iter().find(|known| known.token.is(&*object)) else {
            return Ok(None);
        };
        let of_variable = context.tokens.iter().filter(|it| it.variable == known.variable);
        let unused: Vec<_> = of_variable
            .filter(|it| !it.used)
            .map(|it| (it.token.bind(py).clone(), it.untouched))
            .collect();
        let is_written = self.state.written.has(&(known.variable, CONTEXT));
        let is_reset = context.resets.contains(&known.variable);
        let is_chain = (0..).zip(&unused).all(|(at, (_, untouched))| *untouched == (at == 0));
        let at = unused.iter().position(|(token, _)| token.is(&*object));
        let Some(at) = at.filter(|_| is_written && !is_reset && is_chain) else { return Ok(None) };
        let refused = |_| (Reason::Result, heap::type_name(object));
        let variable = object.getattr(pyo3::intern!(py, "var")).map_err(refused)?;
        let value = match unused.get(at + 1) {
            Some((next, _)) => next.getattr(pyo3::intern!(py, "old_value")).map(Some),
            None => Ok(context::own_value(variable.as_borrowed())),
        };
        let Some(value) = value.map_err(refused)? else { return Ok(None) };
        let before = at.checked_sub(1).map(|before| self.recipe(unused[before].0.as_borrowed()));
        Ok(Some(Recipe::Token {
            before: before.transpose()?,
            variable: self.recipe(variable.as_borrowed())?,
            value: self.recipe(value.as_borrowed())?,
        }))
    }
}
