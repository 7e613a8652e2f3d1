//! How the objects are made again that a trace leaves behind: recipes of results, of what effects
//! write, and of everything that is alive at a graph break.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{
    PyFrozenSet, PyRange, PySlice, PyString, PyTuple, PyWeakrefMethods, PyWeakrefReference,
};
use stator_cpython::heap::dict::{self, Peek};
use stator_cpython::heap::iterator::stepped::{self, Stepped};
use stator_cpython::heap::set_table::Table;
use stator_cpython::heap::types::compares_by_identity;
use stator_cpython::modules::{self, Named};
use stator_cpython::object::{Borrowed, Object, references};
use stator_cpython::{generic, ops, reduced};
use stator_guards::ObjectId;

use super::outcome::{Finish, Made};
use super::{exceptions, matches};
use crate::breaks::Reason;
use crate::recipe::{Function, Instance, Items, Recipe, RecipeId, Storage, View};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::objects::Mark;
use crate::recorder::notes::state::Origin;
use crate::recorder::reads::getters::Getter;
use crate::recorder::reads::identity::is_nan;

/// Lists of fewer items are made anew for each exit.
const SHORT: usize = 8;

impl Finish<'_> {
    /// An object that recipes need: the entry keeps it.
    pub(in crate::recorder) fn keep(&mut self, object: Borrowed<'_, '_>) -> ObjectId {
        let id = self.state.object(object);
        self.kept.insert(id);
        id
    }

    /// As [`Finish::keep`] of a constant, which may be a number of the trace's own that is fixed by now, or hold one: there is
    /// one object for a small int.
    pub(in crate::recorder) fn keep_constant(&mut self, object: Borrowed<'_, '_>) -> ObjectId {
        let holds = object.is_instance_of::<PyTuple>()
            || object.is_instance_of::<PyFrozenSet>()
            || object.is_instance_of::<PySlice>()
            || object.is_instance_of::<PyRange>();
        if holds && self.state.has_symbols() {
            self.visited.push(object.to_owned().unbind());
        }
        let plain = self.state.plain(&object.to_owned());
        self.keep(plain.as_ref().map_or(object, |plain| plain.as_borrowed()))
    }

    pub(in crate::recorder) fn recipe(&mut self, object: Borrowed<'_, '_>) -> Made<RecipeId> {
        let address = object.as_ptr() as usize;
        if let Some(&id) = self.made.get(&address) {
            return Ok(id);
        }
        if let Some(id) = self.node_recipe(object) {
            self.insert(address, id);
            return Ok(id);
        }
        self.state.fix_spelt(object);
        let mut kind = self.state.kind_alone(object);
        if kind == Kind::Constant && self.state.holds_number(object) {
            kind = Kind::Slice;
            self.state.set_fresh(object);
        }
        if kind == Kind::Constant {
            return self.constant_recipe(object);
        }
        match self.state.origin(object) {
            Some(Origin::Source(source)) => {
                let id = self.source(source);
                self.insert(address, id);
                Ok(id)
            }
            Some(Origin::Node(node) | Origin::Handle(node)) => {
                self.state.settle_given_back(object.py(), |_, given| given == node);
                let recipe = self.outputs.recipe(node);
                let id = self.recipes.push(recipe);
                self.insert(address, id);
                self.attributed(address, id, object)
            }
            Some(Origin::Fresh) => {
                if self.is_exit
                    && let Some(id) = self.list_of_others(object)?
                {
                    self.insert(address, id);
                    return Ok(id);
                }
                if self.state.has_symbols() {
                    self.visited.push(object.to_owned().unbind());
                }
                let id = self.recipes.reserve();
                self.insert(address, id);
                let recipe = match self.token(object)? {
                    Some(token) => {
                        self.tokens_made.push(id);
                        token
                    }
                    None => self.fresh(object, kind)?,
                };
                if !self.instance_dicts.contains(&id) {
                    self.recipes.set(id, recipe);
                }
                Ok(id)
            }
            // A tuple or a code object out of a code object's constants; the `list.append` of a call whose
            // arguments are yet to be evaluated.
            None if kind == Kind::Tuple && self.state.holds_new_nan(object) => {
                self.state.set_fresh(object);
                self.recipe(object)
            }
            None if heap::is_constant(object)
                || kind == Kind::Code
                || kind == Kind::Singleton && heap::is_truth_of_numpy(object)
                || generic::is_fixed_method(object) =>
            {
                let id = self.keep(object);
                Ok(self.recipes.push(Recipe::Constant(id)))
            }
            None if self.state.is_made_over(object) => {
                let id = self.recipes.reserve();
                self.insert(address, id);
                let recipe = self.iterator(object)?;
                self.recipes.set(id, recipe);
                Ok(id)
            }
            None if self.state.aliases.contains_key(&address) => self.alias_again(object),
            None => match self.state.roots.carried(object) {
                Some(source) => {
                    let id = self.source(source);
                    self.insert(address, id);
                    Ok(id)
                }
                None if exceptions::is_raised_by_c_code(object)
                    && self.state.guard_named(object)? =>
                {
                    self.state.set_fresh(object);
                    self.recipe(object)
                }
                None => {
                    let detail = format!("a {} in the result", heap::type_name(object));
                    Err((Reason::UnknownOrigin, detail))
                }
            },
        }
    }

    /// An alias that `typing` makes of the same once more.
    fn alias_again(&mut self, object: Borrowed<'_, '_>) -> Made<RecipeId> {
        let (py, address) = (object.py(), object.as_ptr() as usize);
        let alias = &self.state.aliases[&address];
        let function = alias.function.bind(py).clone();
        let args: Vec<_> = alias.args.iter().map(|arg| arg.bind(py).clone()).collect();
        let id = self.recipes.reserve();
        self.insert(address, id);
        let callable = self.keep(function.as_borrowed());
        let args = self.all(&args)?;
        self.recipes.set(id, Recipe::Call { callable, args });
        Ok(id)
    }

    /// A number, a text or a function that a node gives; or a number that is found where it was.
    fn node_recipe(&mut self, object: Borrowed<'_, '_>) -> Option<RecipeId> {
        let node = if let Some(number) = self.state.number(object) {
            match self.state.outside_number(number) {
                Some(source) => return Some(self.source(source)),
                None => self.state.number_node(number),
            }
        } else {
            self.state.text_node(object).or_else(|| self.state.given.node(object))?
        };
        let recipe = self.outputs.recipe(node);
        Some(self.recipes.push(recipe))
    }

    /// A constant: the object that it is, or that is found where it was.
    fn constant_recipe(&mut self, object: Borrowed<'_, '_>) -> Made<RecipeId> {
        let source = self.state.outside_of(object);
        if let Some(source) = source.or_else(|| self.state.roots.constant(object)) {
            let id = self.source(source);
            self.insert(object.as_ptr() as usize, id);
            return Ok(id);
        }
        if is_nan(object) {
            if self.state.is_new_nan(object) {
                return self.new_nan(object);
            }
            // It's this one that is found again later.
            self.state.guard_one_constant(object);
        }
        let id = self.keep_constant(object);
        Ok(self.recipes.push(Recipe::Constant(id)))
    }

    /// The recipe of a list of objects from outside, which is the same at each exit until the list changes: those
    /// of an optimizer hold all parameters.
    fn list_of_others(&mut self, list: Borrowed<'_, '_>) -> Made<Option<RecipeId>> {
        if !heap::is_exact_list(list) {
            return Ok(None);
        }
        if let Some(known) = self.state.exits.list(list) {
            return Ok(Some(known));
        }
        let items = heap::list_items(list);
        if items.len() < SHORT {
            return Ok(None);
        }
        if !items.iter().all(|item| self.state.source(item.as_borrowed()).is_some()) {
            return Ok(None);
        }
        let parts = self.all(&items)?;
        let id = self.recipes.push(Recipe::List(parts));
        let addresses = items.iter().map(|item| item.as_ptr() as usize);
        self.state.exits.add_list(list.as_ptr() as usize, id, addresses.collect());
        Ok(Some(id))
    }

    /// The recipe of a NaN that the trace made: each replay makes another, with the same bits.
    fn new_nan(&mut self, nan: Borrowed<'_, '_>) -> Made<RecipeId> {
        let address = nan.as_ptr() as usize;
        let class = nan.get_type();
        // What is subtracted from keeps its sign and its payload.
        let subtract = class.getattr("__sub__").map_err(refused)?;
        let zero = class.call0().map_err(refused)?;
        let callable = self.keep(subtract.as_borrowed());
        let args = [nan, zero.as_borrowed()].map(|part| {
            let part = self.keep(part);
            self.recipes.push(Recipe::Constant(part))
        });
        let id = self.recipes.push(Recipe::Call { callable, args: args.into() });
        self.insert(address, id);
        Ok(id)
    }

    /// The recipe of an object that another recipe makes, with what a program added to it.
    fn attributed(
        &mut self,
        address: usize,
        object: RecipeId,
        owner: Borrowed<'_, '_>,
    ) -> Made<RecipeId> {
        let Peek::Dict(dict) = dict::peek_instance_dict(owner) else { return Ok(object) };
        let items = heap::dict_items(dict.as_borrowed());
        if items.is_empty() {
            return Ok(object);
        }
        let id = self.recipes.reserve();
        self.made.insert(address, id);
        let mut attributes = Vec::with_capacity(items.len());
        for (name, value) in items {
            let name = self.keep(name.as_borrowed());
            attributes.push((name, self.recipe(value.as_borrowed())?));
        }
        self.recipes.set(id, Recipe::Attributed { object, attributes });
        Ok(id)
    }

    fn insert(&mut self, address: usize, id: RecipeId) {
        self.made.insert(address, id);
        self.order.push(address);
    }

    /// As [`Finish::recipe`]; where it fails, nothing of the attempt stays.
    pub(in crate::recorder) fn try_recipe(&mut self, object: Borrowed<'_, '_>) -> Made<RecipeId> {
        let before = self.order.len();
        let made = self.recipe(object);
        if made.is_err() {
            for address in self.order.drain(before..) {
                self.made.remove(&address);
            }
        }
        made
    }

    pub(in crate::recorder) fn all(&mut self, items: &[Object<'_>]) -> Made<Box<[RecipeId]>> {
        items.iter().map(|item| self.recipe(item.as_borrowed())).collect()
    }

    fn entries(&mut self, object: Borrowed<'_, '_>) -> Made<Vec<(RecipeId, RecipeId)>> {
        heap::dict_items(object)
            .iter()
            .map(|(key, value)| {
                if !self.is_hashed_by_value(key.as_borrowed()) {
                    return Err((Reason::Result, "a dictionary with objects as keys".into()));
                }
                Ok((self.recipe(key.as_borrowed())?, self.recipe(value.as_borrowed())?))
            })
            .collect()
    }

    /// The elements of a set, whose order doesn't depend on addresses that a replay can't repeat.
    fn elements(&mut self, set: Borrowed<'_, '_>) -> Made<Box<[RecipeId]>> {
        let items = heap::set_items(set);
        if items.iter().all(|item| self.is_hashed_by_value(item.as_borrowed())) {
            return self.all(&items);
        }
        Err((Reason::Result, "a set of objects".into()))
    }

    /// The recipe of a set with the table that it has. Hashing its elements runs no code of a user's.
    fn laid_out(&mut self, set: Borrowed<'_, '_>, recipe: Recipe) -> Made<Recipe> {
        Ok(match Table::of(set).map_err(refused)? {
            Some(table) => Recipe::Table(self.recipes.push(recipe), table.into()),
            None => recipe,
        })
    }

    /// Whether hashing an object runs no code of the user's and has the same result in a replay.
    fn is_hashed_by_value(&mut self, object: Borrowed<'_, '_>) -> bool {
        match self.state.kind(object) {
            // A tensor's hash is its address, which PyTorch's own function says.
            Kind::Constant | Kind::Type | Kind::Singleton | Kind::Function | Kind::Tensor => true,
            Kind::Module | Kind::TorchCallable => true,
            Kind::Builtin => !self.state.is_own_method(object),
            Kind::Tuple => heap::is_constant(object),
            Kind::Object => self.is_known_by_identity(object),
            _ => false,
        }
    }

    /// Whether an object is hashed by its address, and is this very one in each call: from here on one from outside is
    /// guarded to be.
    fn is_known_by_identity(&mut self, object: Borrowed<'_, '_>) -> bool {
        let state = &mut *self.state;
        if !compares_by_identity(object) || state.source(object).is_none() {
            return false;
        }
        if !state.is_identity_guarded(object) {
            if state.know_for_good(object).is_err() {
                return false;
            }
            state.objects.mark(object, Mark::ByIdentity);
        }
        true
    }

    fn fresh(&mut self, object: Borrowed<'_, '_>, kind: Kind) -> Made<Recipe> {
        let py = object.py();
        let class = object.get_type();
        match kind {
            Kind::List if heap::is_exact_list(object) => {
                Ok(Recipe::List(self.all(&heap::list_items(object))?))
            }
            Kind::Tuple => {
                let items = self.all(&heap::tuple_items(object))?;
                if class.is(py.get_type::<pyo3::types::PyTuple>()) {
                    return Ok(Recipe::Tuple(items));
                }
                let id = self.keep(class.as_any().as_borrowed());
                if is_struct_sequence(&class) || class.name().is_ok_and(|name| name == "Size") {
                    let inner = self.recipes.push(Recipe::Tuple(items));
                    return Ok(Recipe::Call { callable: id, args: Box::new([inner]) });
                }
                let tuple = Recipe::TupleOf { class: id, items };
                let attributes = self.attributes(object)?;
                if attributes.is_empty() {
                    return Ok(tuple);
                }
                Ok(Recipe::Attributed { object: self.recipes.push(tuple), attributes })
            }
            Kind::Dict if self.state.memo.is(object) => {
                Err((Reason::Identity, "the memo of copy.deepcopy".into()))
            }
            Kind::Dict if class.is(py.get_type::<pyo3::types::PyDict>()) => {
                Ok(Recipe::Dict(self.entries(object)?.into()))
            }
            Kind::Slice => {
                let callable = self.keep(class.as_any().as_borrowed());
                Ok(Recipe::Call { callable, args: self.all(&heap::plain_parts(object))? })
            }
            Kind::Set => {
                let set = Recipe::Set(self.elements(object)?);
                self.laid_out(object, set)
            }
            Kind::FrozenSet => {
                let set = Recipe::FrozenSet(self.elements(object)?);
                self.laid_out(object, set)
            }
            Kind::Method => {
                let (function, receiver) = heap::method_parts(object);
                let args = self.all(&[function, receiver])?;
                let callable = self.keep(class.as_any().as_borrowed());
                Ok(Recipe::Call { callable, args })
            }
            Kind::Object if is_namespace(&class) => {
                let callable = self.keep(class.as_any().as_borrowed());
                let inner = self.recipes.push(Recipe::Call { callable, args: Box::default() });
                Ok(Recipe::Attributed { object: inner, attributes: self.attributes(object)? })
            }
            Kind::Object if heap::is_builtin_alias(object) => {
                // `list[int]`: its class makes it of the two.
                let parts = ["__origin__", "__args__"].map(|name| object.getattr(name));
                let [origin, args] = parts.map(|part| part.map_err(refused));
                let args = [self.recipe(origin?.as_borrowed())?, self.part(args?.as_borrowed())?];
                let callable = self.keep(class.as_any().as_borrowed());
                Ok(Recipe::Call { callable, args: args.into() })
            }
            Kind::Object if object.is_instance_of::<PyBaseException>() => self.exception(object),
            Kind::Object if heap::is_weak_reference(object) => self.weak_reference(object),
            Kind::Object if matches::is_match(object) => self.match_again(object),
            Kind::List | Kind::Dict | Kind::Object => self.instance(object),
            Kind::Partial if class.is(&partial(py)?) => self.partial(object),
            Kind::Cell => {
                let contents = ops::load_cell(object);
                let contents = contents.map(|contents| self.recipe(contents.as_borrowed()));
                Ok(Recipe::Cell(contents.transpose()?))
            }
            Kind::Function => self.function(object),
            Kind::Iterator => self.iterator(object),
            Kind::Super => {
                let (after, receiver, _) = heap::super_parts(object)
                    .ok_or_else(|| (Reason::Result, heap::type_name(object)))?;
                let args = self.all(&[after.into_any(), receiver])?;
                let callable = self.keep(class.as_any().as_borrowed());
                Ok(Recipe::Call { callable, args })
            }
            Kind::Builtin => {
                if let Some((bound_to, descriptor)) = heap::bound_class_method(object) {
                    let bind = descriptor.getattr("__get__").map_err(refused)?;
                    let callable = self.keep(bind.as_borrowed());
                    let none = py.None().into_bound(py);
                    return Ok(Recipe::Call { callable, args: self.all(&[none, bound_to])? });
                }
                // A method of C code, or a slot's.
                let (receiver, descriptor) = heap::bound_builtin(object)
                    .or_else(|| generic::wrapper_parts(object))
                    .ok_or_else(|| (Reason::Result, heap::name_of(object)))?;
                let bind = descriptor.getattr("__get__").map_err(refused)?;
                let callable = self.keep(bind.as_borrowed());
                let mut args = vec![self.recipe(receiver.as_borrowed())?];
                if generic::knows_its_class(object) {
                    // CPython looks at the class that is given without asking whether one is.
                    let class = self.keep(receiver.get_type().as_any().as_borrowed());
                    args.push(self.recipes.push(Recipe::Constant(class)));
                }
                Ok(Recipe::Call { callable, args: args.into() })
            }
            _ => Err((Reason::Result, heap::type_name(object))),
        }
    }

    /// C code keeps one reference without a callback for each object.
    fn weak_reference(&mut self, reference: Borrowed<'_, '_>) -> Made<Recipe> {
        let known = reference.cast::<PyWeakrefReference>().ok();
        let referent = known.and_then(|reference| reference.upgrade());
        let calls_back = reference.getattr("__callback__").map_err(refused)?;
        match referent {
            Some(referent) if calls_back.is_none() => {
                let callable = self.keep(reference.get_type().as_any().as_borrowed());
                Ok(Recipe::Call { callable, args: self.all(&[referent])? })
            }
            // What it referred to has died: what is made for it here dies as well.
            None if calls_back.is_none() && heap::is_weak_reference(reference) => {
                let callable = self.keep(reference.get_type().as_any().as_borrowed());
                let mortal = self.recipes.push(Recipe::Set(Box::default()));
                Ok(Recipe::Call { callable, args: Box::new([mortal]) })
            }
            _ => Err((Reason::Result, heap::type_name(reference))),
        }
    }

    fn function<'py>(&mut self, function: Borrowed<'_, 'py>) -> Made<Recipe> {
        let py = function.py();
        let none = py.None().into_bound(py);
        let part = |object: Option<Object<'py>>| object.unwrap_or_else(|| none.clone());
        let refuse = || (Reason::Result, heap::name_of(function));
        let code = heap::function_code(function).ok_or_else(refuse)?;
        let globals = heap::function_globals(function).ok_or_else(refuse)?;
        if self.state.source(globals.as_borrowed()).is_none() {
            return Err(refuse());
        }
        let [name, closure] =
            ["__name__", "__closure__"].map(|name| function.getattr(name).map_err(refused));
        let defaults = part(heap::function_defaults(function));
        let code = self.keep(code.as_borrowed());
        let parts = [globals, name?, defaults, closure?];
        let args = parts.iter().map(|part| self.part(part.as_borrowed()));
        let args = args.collect::<Made<_>>()?;
        let mut attributes = Vec::new();
        let keywords = part(heap::function_kwdefaults(function));
        for name in ["__qualname__", "__doc__", "__module__", "__annotations__"] {
            let value = function.getattr(name).map_err(refused)?;
            attributes.push((name, value));
        }
        attributes.push(("__kwdefaults__", keywords));
        attributes.push(("__dict__", function.getattr("__dict__").map_err(refused)?));
        let attributes = attributes.iter().map(|(name, value)| {
            let name = PyString::intern(py, name);
            Ok((self.keep(name.as_any().as_borrowed()), self.part(value.as_borrowed())?))
        });
        let attributes = attributes.collect::<Made<_>>()?;
        Ok(Recipe::Function(Box::new(Function { code, args, attributes })))
    }

    /// The recipe of a part that only its owner holds: a dictionary or tuple nobody took note of.
    pub(in crate::recorder) fn part(&mut self, part: Borrowed<'_, '_>) -> Made<RecipeId> {
        if self.state.origin(part).is_none()
            && matches!(self.state.kind(part), Kind::Dict | Kind::Tuple)
        {
            self.state.set_fresh(part);
        }
        self.recipe(part)
    }

    /// Iterators of builtin types over objects that have recipes, as far as they have come.
    fn iterator(&mut self, iterator: Borrowed<'_, '_>) -> Made<Recipe> {
        let refuse = || (Reason::Result, heap::type_name(iterator));
        if let Some((view, container, passed)) = View::of(iterator) {
            let container = self.recipe(container.as_borrowed())?;
            return Ok(Recipe::View { view, container, passed });
        }
        if ops::is_generator(iterator) {
            return self.generator(iterator);
        }
        if let Some(which) = stepped::stepped(iterator) {
            return self.stepped(iterator, which);
        }
        if !is_reducible(iterator) {
            return Err(refuse());
        }
        let parts = reduced::of_iterator(iterator).map_err(refused)?;
        // Their addresses stand for them until all recipes are made.
        self.temporaries.push(parts.clone().unbind());
        let parts = heap::tuple_items(parts.as_borrowed());
        let [callable, args, state @ ..] = parts.as_slice() else { return Err(refuse()) };
        let args = heap::tuple_items(args.as_borrowed());
        // What C code makes of nothing is new, and stays empty.
        for arg in &args {
            let own = match self.state.kind(arg.as_borrowed()) {
                Kind::Tuple | Kind::List if heap::children(arg.as_borrowed()).is_empty() => true,
                // `chain` keeps its arguments in a tuple that nobody else has.
                Kind::Tuple => self.state.knows_items(arg.as_borrowed()),
                // What `zip` and such iterate over.
                Kind::Iterator => !self.state.is_made_over(arg.as_borrowed()),
                _ => false,
            };
            if self.state.origin(arg.as_borrowed()).is_none() && own {
                self.state.set_fresh(arg.as_borrowed());
            }
        }
        let args = self.all(&args)?;
        let callable = self.keep(callable.as_borrowed());
        let state = state.first().filter(|state| !state.is_none());
        if let Some(state) = state
            && heap::type_name(iterator) == "chain"
        {
            self.own_iterators(state.as_borrowed());
        }
        let state = state.map(|state| self.recipe(state.as_borrowed())).transpose()?;
        Ok(Recipe::Reduced { callable, args, state })
    }

    /// `accumulate`, `pairwise` and `zip_longest`: made of what they go over, and given what they keep.
    fn stepped(&mut self, iterator: Borrowed<'_, '_>, which: Stepped) -> Made<Recipe> {
        let refuse = || (Reason::Result, heap::type_name(iterator));
        let none = iterator.py().None().into_bound(iterator.py());
        let empty = PyTuple::empty(iterator.py()).into_any();
        let parts = stepped::parts(iterator);
        for part in parts.iter().map(Bound::as_borrowed) {
            let is_own = self.state.kind(part) == Kind::Iterator && !self.state.is_made_over(part);
            if is_own && self.state.origin(part).is_none() {
                self.state.set_fresh(part);
            }
        }
        let inner = parts.first().unwrap_or(&empty).as_borrowed();
        let (args, state): (Vec<_>, _) = match which {
            Stepped::Accumulate => {
                let kept = stepped::accumulation(iterator).ok_or_else(refuse)?;
                // As far as it tells itself, none was given so far.
                if kept.total.as_ref().is_some_and(|total| total.is_none()) {
                    return Err(refuse());
                }
                let inner = self.behind(kept.initial, inner)?;
                let function = kept.function.unwrap_or(none);
                (vec![inner, self.recipe(function.as_borrowed())?], kept.total)
            }
            Stepped::Pairwise => (vec![self.behind(stepped::before(iterator), inner)?], None),
            Stepped::ZipLongest => {
                let slots = (0..).map_while(|place| stepped::slot(iterator, place));
                let slots = slots.map(|slot| slot.unwrap_or_else(|| empty.clone()));
                let slots = slots.map(|slot| self.recipe(slot.as_borrowed()));
                let fill = stepped::fill(iterator).filter(|fill| !fill.is_none());
                (slots.collect::<Made<_>>()?, fill)
            }
        };
        let state = state.map(|state| self.recipe(state.as_borrowed())).transpose()?;
        let class = iterator.get_type();
        let callable = self.keep(class.as_any().as_borrowed());
        Ok(Recipe::Reduced { callable, args: args.into(), state })
    }

    /// An iterator that gives an object, if there is one, and then what another gives.
    fn behind(&mut self, first: Option<Object<'_>>, rest: Borrowed<'_, '_>) -> Made<RecipeId> {
        let rest = self.recipe(rest)?;
        let Some(first) = first else { return Ok(rest) };
        static CHAIN: Named = Named::new("itertools", "chain");
        let chain = CHAIN.get(first.py()).map_err(refused)?;
        let callable = self.keep(chain.as_borrowed());
        let first = self.recipe(first.as_borrowed())?;
        let first = self.recipes.push(Recipe::Tuple([first].into()));
        let args = [first, rest].into();
        Ok(self.recipes.push(Recipe::Reduced { callable, args, state: None }))
    }

    /// The iterators that a `chain` goes over, which C code has made, and the tuple in which it says so.
    fn own_iterators(&mut self, state: Borrowed<'_, '_>) {
        let parts = heap::tuple_items(state);
        for part in parts.iter().map(Bound::as_borrowed).chain([state]) {
            let is_made = matches!(self.state.kind(part), Kind::Iterator | Kind::Tuple);
            if is_made && self.state.origin(part).is_none() {
                self.state.set_fresh(part);
            }
        }
    }

    fn attributes(&mut self, object: Borrowed<'_, '_>) -> Made<Vec<(ObjectId, RecipeId)>> {
        let mut attributes = Vec::new();
        if let Some(dict) = heap::instance_dict(object) {
            self.share_dict(object, &dict);
            for (name, value) in heap::dict_items(dict.as_borrowed()) {
                let name = self.keep(name.as_borrowed());
                attributes.push((name, self.recipe(value.as_borrowed())?));
            }
        }
        Ok(attributes)
    }

    /// `functools.partial`, as its own `__reduce__` says.
    fn partial(&mut self, object: Borrowed<'_, '_>) -> Made<Recipe> {
        let (function, args, keywords) = heap::partial_parts(object);
        let [function, args, keywords] =
            [function, args, keywords].map(|part| self.part(part.as_borrowed()));
        let (function, args, keywords) = (function?, args?, keywords?);
        let dict = match dict::peek_instance_dict(object) {
            Peek::Dict(dict) => self.part(dict.as_borrowed())?,
            _ => self.recipe(object.py().None().bind(object.py()).as_borrowed())?,
        };
        let callable = self.keep(object.get_type().as_any().as_borrowed());
        let state = self.recipes.push(Recipe::Tuple([function, args, keywords, dict].into()));
        Ok(Recipe::Reduced { callable, args: [function].into(), state: Some(state) })
    }

    /// The program may hold an instance's dictionary: what is made of it is the instance's.
    fn share_dict(&mut self, object: Borrowed<'_, '_>, dict: &Object<'_>) {
        // The instance and `dict` hold it.
        if references(dict.as_borrowed()) <= 2 {
            return;
        }
        let Some(&owner) = self.made.get(&(object.as_ptr() as usize)) else { return };
        let address = dict.as_ptr() as usize;
        let id = match self.made.get(&address) {
            Some(&id) => id,
            None => {
                let id = self.recipes.reserve();
                self.insert(address, id);
                id
            }
        };
        self.instance_dicts.insert(id);
        self.recipes.set(id, Recipe::InstanceDict(owner));
    }

    fn instance(&mut self, object: Borrowed<'_, '_>) -> Made<Recipe> {
        let class = object.get_type();
        let refuse = || (Reason::Result, heap::type_name(object));
        if let Some(getter) = Getter::of(object) {
            let mut held = getter.held();
            if !held.all(|held| heap::is_constant(held) && !self.state.has_own_object(held)) {
                return Err(refuse());
            }
            let callable = self.keep(getter.maker.as_borrowed());
            return Ok(Recipe::Call { callable, args: self.all(&getter.last)? });
        }
        let storage = Storage::of(&class).ok().flatten().ok_or_else(refuse)?;
        let items = match storage {
            Storage::Dict | Storage::OrderedDict | Storage::DefaultDict => {
                Items::Entries(self.entries(object)?)
            }
            Storage::Plain => Items::None,
            Storage::Deque => {
                let elements = self.all(&heap::elements(object))?.into_vec();
                let limit = object.getattr("maxlen").map_err(refused)?;
                Items::Bounded(elements, self.recipe(limit.as_borrowed())?)
            }
            Storage::List => Items::Elements(self.all(&heap::list_items(object))?.into_vec()),
            Storage::Set | Storage::Exception => return Err(refuse()),
        };
        let attributes = self.attributes(object)?;
        let mut slots = Vec::new();
        if storage == Storage::DefaultDict {
            let base = modules::import(object.py(), "collections")
                .and_then(|module| module.getattr("defaultdict")?.getattr("default_factory"));
            let descriptor = self.keep(base.map_err(refused)?.as_borrowed());
            let factory = object.getattr("default_factory").map_err(refused)?;
            slots.push((descriptor, self.recipe(factory.as_borrowed())?));
        }
        for (descriptor, value) in heap::slot_values(object) {
            let descriptor = self.keep(descriptor.as_borrowed());
            slots.push((descriptor, self.recipe(value.as_borrowed())?));
        }
        let class = self.keep(class.as_any().as_borrowed());
        Ok(Recipe::Object(Box::new(Instance { class, storage, items, attributes, slots })))
    }
}

/// `types.SimpleNamespace`.
fn is_namespace(class: &Bound<'_, pyo3::types::PyType>) -> bool {
    static NAMESPACE: Named = Named::new("types", "SimpleNamespace");
    NAMESPACE.is(class.as_any().as_borrowed())
}

fn partial(py: Python<'_>) -> Made<Object<'_>> {
    static PARTIAL: Named = Named::new("functools", "partial");
    PARTIAL.get(py).cloned().map_err(refused)
}

/// `torch.return_types.max` and such: C classes over tuples that are made from one sequence.
fn is_struct_sequence(class: &Bound<'_, pyo3::types::PyType>) -> bool {
    class.getattr("n_sequence_fields").is_ok()
}

/// Whether an iterator's `__reduce__` says what it is, no more and no less.
fn is_reducible(iterator: Borrowed<'_, '_>) -> bool {
    const NAMES: [&str; 18] = [
        "list_iterator",
        "list_reverseiterator",
        "tuple_iterator",
        "range_iterator",
        "longrange_iterator",
        "str_iterator",
        "str_ascii_iterator",
        "bytes_iterator",
        "enumerate",
        "zip",
        "map",
        "filter",
        "reversed",
        "chain",
        "islice",
        "starmap",
        "count",
        "repeat",
    ];
    NAMES.contains(&heap::type_name(iterator).as_str())
}

pub(in crate::recorder) fn refused(error: PyErr) -> (Reason, String) {
    (Reason::Result, error.to_string())
}
