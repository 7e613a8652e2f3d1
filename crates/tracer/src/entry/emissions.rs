//! The warnings and log records of a trace, as its replays give them.

use pyo3::prelude::*;
use stator_cpython::object::{Borrowed, Object};

use crate::emission::{Emission, Told};
use crate::frames::stage::{Staged, Stand};
use crate::recipe::{Recipe, RecipeId};
use crate::trace::Traced;

/// Whether a replay may give everything that a trace gave: who would be told is known code, now.
pub fn may_be_given(py: Python<'_>, traced: &Traced, sources: &[Borrowed<'_, '_>]) -> bool {
    traced.emissions.iter().all(|emission| {
        let object = |recipe: RecipeId| match traced.recipes.get(recipe) {
            Recipe::Source(position) => Some(sources[*position as usize]),
            Recipe::Constant(object) => Some(traced.objects[object.index()].bind_borrowed(py)),
            _ => None,
        };
        let told = match emission.told {
            Told::Record { logger } => object(logger).map(|logger| Told::Record { logger }),
            Told::Warning { text, category } => object(text).and_then(|text| {
                let category = match category {
                    None => None,
                    Some(category) => Some(object(category)?),
                };
                Some(Told::Warning { text, category })
            }),
        };
        let kept = told.and_then(|told| told.kept(py));
        let is_known = |list: &usize| {
            let known = |at: &u32| sources[*at as usize].as_ptr() as usize == *list;
            traced.known_lists.iter().any(known)
        };
        kept.is_some_and(|kept| !kept.iter().any(is_known))
    })
}

/// The calls, of the objects that [`Emission::roots`] mean.
pub fn stage<'py>(
    py: Python<'py>,
    traced: &Traced,
    emissions: &[Emission],
    made: &[Object<'py>],
    staged: &mut Vec<Staged>,
) {
    let mut made = made.iter();
    let mut next = || made.next().expect("one object for each root").clone().unbind();
    for emission in emissions {
        let frames = emission.frames.iter();
        staged.push(Staged {
            frames: frames
                .map(|(_, unit)| Stand { function: next(), unit: *unit as usize })
                .collect(),
            callable: next(),
            args: emission.args.iter().map(|_| next()).collect(),
            names: emission.names.map(|names| traced.objects[names.index()].clone_ref(py)),
        });
    }
}
