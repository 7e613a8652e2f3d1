//! What a recipe refers to.

use smallvec::SmallVec;
use stator_guards::ObjectId;

use super::{Instance, Items, Recipe, RecipeId, Recipes};

/// Other recipes, and objects of the tracer's table.
#[derive(Debug, Default)]
pub struct Parts {
    /// The recipes.
    pub recipes: SmallVec<[RecipeId; 8]>,
    /// The objects.
    pub objects: SmallVec<[ObjectId; 4]>,
}

impl Recipes {
    /// Drops all but the first ones, which don't speak of the others.
    pub fn truncate(&mut self, length: usize) {
        self.recipes.truncate(length);
    }
}

impl Recipe {
    /// All that the recipe names, in order.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let mut parts = Parts::default();
        match self {
            Self::Output(_) | Self::Source(_) | Self::Cell(None) => {}
            Self::Constant(object) => parts.objects.push(*object),
            Self::List(items) | Self::Tuple(items) | Self::Set(items) | Self::FrozenSet(items) => {
                parts.recipes.extend_from_slice(items);
            }
            Self::TupleOf { class, items } => {
                parts.objects.push(*class);
                parts.recipes.extend_from_slice(items);
            }
            Self::Dict(entries) => parts.entries(entries),
            Self::Call { callable, args } => {
                parts.objects.push(*callable);
                parts.recipes.extend_from_slice(args);
            }
            Self::Token { variable, value, before } => {
                parts.recipes.extend([*variable, *value]);
                parts.recipes.extend(*before);
            }
            Self::Object(instance) => parts.instance(instance),
            Self::InstanceDict(object) | Self::Cell(Some(object)) | Self::Table(object, _) => {
                parts.recipes.push(*object)
            }
            Self::Function(function) => {
                parts.objects.push(function.code);
                parts.recipes.extend_from_slice(&function.args);
                parts.attributes(&function.attributes);
            }
            Self::Attributed { object, attributes } => {
                parts.recipes.push(*object);
                parts.attributes(attributes);
            }
            Self::Reduced { callable, args, state } => {
                parts.objects.push(*callable);
                parts.recipes.extend_from_slice(args);
                parts.recipes.extend(*state);
            }
            Self::Generator(generator) => {
                parts.recipes.push(generator.function);
                parts.recipes.extend(generator.slots.iter().copied().flatten());
            }
            Self::View { container, .. } => parts.recipes.push(*container),
        }
        parts
    }
}

impl Parts {
    fn entries(&mut self, entries: &[(RecipeId, RecipeId)]) {
        self.recipes.extend(entries.iter().flat_map(|(key, value)| [*key, *value]));
    }

    fn attributes(&mut self, attributes: &[(ObjectId, RecipeId)]) {
        self.objects.extend(attributes.iter().map(|(name, _)| *name));
        self.recipes.extend(attributes.iter().map(|(_, value)| *value));
    }

    fn instance(&mut self, instance: &Instance) {
        self.objects.push(instance.class);
        match &instance.items {
            Items::None => {}
            Items::Elements(items) => self.recipes.extend_from_slice(items),
            Items::Entries(entries) => self.entries(entries),
            Items::Bounded(items, bound) => {
                self.recipes.extend_from_slice(items);
                self.recipes.push(*bound);
            }
        }
        self.attributes(&instance.attributes);
        self.attributes(&instance.slots);
    }
}
