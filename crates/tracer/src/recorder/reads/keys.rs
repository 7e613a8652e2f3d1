//! Keys of dictionaries that are looked up: what a dictionary asks of a key, and what it finds.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use stator_cpython::generic;
use stator_cpython::heap::{dict, tensor, types};
use stator_cpython::modules::Named;
use stator_cpython::object::{Borrowed, Object};
use stator_guards::GuardKind;

use crate::breaks::Reason;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::objects::Mark;
use crate::recorder::notes::reads::Use;
use crate::recorder::notes::state::{State, Stop};

impl State {
    /// As [`State::read_dict_slot`] for any key: keys other than constants are vouched for first.
    pub fn read_key(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        value: Option<Object<'_>>,
    ) -> Result<(), Stop> {
        self.read_any_key(Use::default(), dict, key, value, false)
    }

    /// As [`State::read_key`], for who only asks whether the key is there.
    pub fn asks_key(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        value: Option<Object<'_>>,
    ) -> Result<(), Stop> {
        let stands_in = self.takes_stand_ins(dict);
        self.read_any_key(Use::default(), dict, key, value, stands_in)
    }

    /// As [`State::asks_key`], where nobody gets the value: it stays a number that may be a symbol.
    pub fn asks_membership(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        value: Option<Object<'_>>,
    ) -> Result<(), Stop> {
        let stands_in = self.takes_stand_ins(dict);
        self.read_any_key(self.moving(), dict, key, value, stands_in)
    }

    fn read_any_key(
        &mut self,
        used: Use,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
        value: Option<Object<'_>>,
        stands_in: bool,
    ) -> Result<(), Stop> {
        self.note_hashed(key);
        self.refuse_own_answers(key, &["__hash__", "__eq__"])?;
        self.know_equality(dict, key)?;
        if self.source(dict).is_some() {
            self.know_tensor_key(key, value.is_some())?;
            if !self.is_plain_key(key) {
                self.adopt_dict(dict)?;
            }
        }
        self.read_slot(used, dict, key, value.as_ref().map(|value| value.as_borrowed()), stands_in)
    }

    /// A tensor that is a key is guarded to be this very one: dictionaries know tensors by identity. The entry
    /// doesn't keep it alive. One that isn't found would be another one at each call, but for parameters and others
    /// that learn: an optimizer's state has them from its first step on.
    pub fn know_tensor_key(&mut self, key: Borrowed<'_, '_>, is_found: bool) -> Result<(), Stop> {
        if self.kind(key) != Kind::Tensor || self.is_identity_guarded(key) {
            return Ok(());
        }
        let unknown = || (Reason::Identity, "a tensor as dictionary key".to_owned());
        let stays = is_found || heap::type_name(key) == "Parameter" || learns(key);
        let source = self.source(key).filter(|_| stays).ok_or_else(unknown)?;
        let id = self.object(key);
        self.guard(source, GuardKind::Is(id));
        self.objects.mark(key, Mark::ByIdentity);
        Ok(())
    }

    /// As [`State::know_tensor_key`], for a module: what a program keeps of its layers has them as keys. False: it's none, or
    /// has an equality of its own.
    pub fn know_module_key(&mut self, key: Borrowed<'_, '_>) -> Result<bool, Stop> {
        if self.kind(key) != Kind::Object || !types::compares_by_identity(key) || !is_module(key) {
            return Ok(false);
        }
        let Some(source) = self.source(key) else { return Ok(false) };
        if !self.is_identity_guarded(key) {
            self.know_key_class(key)?;
            let id = self.object(key);
            self.guard(source, GuardKind::Is(id));
            self.objects.mark(key, Mark::ByIdentity);
        }
        Ok(true)
    }

    /// As [`State::know_module_key`], for a member of an enumeration that is known by identity. A dictionary knows it by that,
    /// where it is equal to itself alone and hashed by its name, or by the text or number that it is.
    pub fn know_member_key(&mut self, key: Borrowed<'_, '_>) -> Result<bool, Stop> {
        let is_known = self.kind(key) == Kind::Singleton
            && self.source(key).is_some()
            && self.is_identity_guarded(key)
            && is_found_without_code(key)
            && is_enumerated(key);
        if is_known {
            self.know_key_class(key)?;
        }
        Ok(is_known)
    }

    /// Whether a cache finds a part of a key as the object that it is, which is guarded.
    pub(in crate::recorder) fn is_key_by_identity(
        &mut self,
        part: Borrowed<'_, '_>,
    ) -> Result<bool, Stop> {
        if self.know_member_key(part)? {
            return Ok(true);
        }
        let is_found_so = match self.kind(part) {
            Kind::Object | Kind::Function | Kind::Module => true,
            Kind::Builtin if self.is_own_method(part) => false,
            Kind::Type | Kind::Builtin | Kind::TorchCallable => {
                if self.origin(part).is_none() {
                    self.anchor(part);
                }
                true
            }
            _ => false,
        };
        // C functions are equal where they are one.
        if !is_found_so || !(generic::is_c_function(part) || types::compares_by_identity(part)) {
            return Ok(false);
        }
        let Some(source) = self.source(part) else { return Ok(false) };
        if !self.is_identity_guarded(part) {
            self.know_key_class(part)?;
            let id = self.object(part);
            self.guard(source, GuardKind::Is(id));
            self.objects.mark(part, Mark::ByIdentity);
        }
        Ok(true)
    }

    /// How a key is hashed and compared that isn't what it is by its type alone, and so for the one that the dictionary holds
    /// in its place: classes change.
    pub(super) fn know_equality(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        if self.kind(key) == Kind::Singleton && !types::compares_by_identity(key) {
            if !is_found_without_code(key) {
                return Err((
                    Reason::Unsupported,
                    format!("__hash__ of a {}", heap::type_name(key)),
                ));
            }
            self.know_key_class(key)?;
        }
        self.know_stored_key(dict, key)
    }

    /// As [`State::know_equality`], for the key that the dictionary holds.
    pub(super) fn know_stored_key(
        &mut self,
        dict: Borrowed<'_, '_>,
        key: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        match dict::valued_key(dict, key) {
            Some(stored) => self.know_key_class(stored.as_borrowed()),
            None => Ok(()),
        }
    }

    /// How objects of a key's class are hashed and compared.
    pub(in crate::recorder) fn know_key_class(
        &mut self,
        key: Borrowed<'_, '_>,
    ) -> Result<(), Stop> {
        let ty = key.get_type();
        for name in ["__hash__", "__eq__"] {
            let found = types::lookup_named(&ty, name);
            let name = PyString::intern(key.py(), name);
            let found = found.as_ref().map(|found| found.as_borrowed());
            self.guard_lookup(&ty, name.as_any().as_borrowed(), found, Use::default())?;
        }
        Ok(())
    }

    /// Whether a dictionary finds a key by its value, or as the object that it is, without code of a
    /// user's.
    pub fn is_plain_key(&mut self, key: Borrowed<'_, '_>) -> bool {
        match self.kind(key) {
            Kind::Builtin => !self.is_own_method(key),
            Kind::Constant | Kind::Function | Kind::Type | Kind::Module | Kind::TorchCallable => {
                true
            }
            Kind::Singleton => is_found_without_code(key),
            Kind::Tuple => heap::is_constant(key),
            Kind::Tensor => self.is_identity_guarded(key),
            _ => false,
        }
    }
}

static MEMBER: Named = Named::new("enum", "Enum");

/// Whether an object is a member of an enumeration.
fn is_enumerated(object: Borrowed<'_, '_>) -> bool {
    let class = MEMBER.get(object.py()).ok().and_then(|class| class.cast::<PyType>().ok());
    class.is_some_and(|class| generic::is_subtype(&object.get_type(), class))
}

/// Whether a dictionary finds an object that is known by identity without code of the program's: a member of an enumeration is
/// the text or number that it is, or equal to itself alone and hashed by its name.
fn is_found_without_code(object: Borrowed<'_, '_>) -> bool {
    types::compares_by_identity(object)
        || types::is_valued(object)
        || !is_enumerated(object)
        || is_plain_member(object)
}

/// Whether an object is a member of an enumeration whose class leaves equality to `object` and hashing to `enum.Enum`.
fn is_plain_member(object: Borrowed<'_, '_>) -> bool {
    let Ok(member) = MEMBER.get(object.py()) else { return false };
    let (ty, plain) = (object.get_type(), object.py().get_type::<PyAny>());
    let is_from = |class: &Object<'_>, name: &str| {
        let own = types::lookup_named(&ty, name);
        own.is_some_and(|own| class.getattr(name).is_ok_and(|theirs| theirs.is(&own)))
    };
    is_from(member, "__hash__") && is_from(plain.as_any(), "__eq__")
}

/// Whether an object is a module of PyTorch's.
pub(super) fn is_module(object: Borrowed<'_, '_>) -> bool {
    static MODULE: Named = Named::new("torch.nn", "Module");
    MODULE.get(object.py()).is_ok_and(|class| generic::is_of_class(object, class))
}

/// Whether a tensor requires a gradient.
fn learns(tensor: Borrowed<'_, '_>) -> bool {
    tensor::info(tensor).is_some_and(|info| info.requires_grad)
}

/// Whether a class of tuples leaves hashing and comparing to `tuple`, as named tuples do.
pub(in crate::recorder) fn leaves_equality_to_tuples(ty: &Bound<'_, PyType>) -> bool {
    let plain = ty.py().get_type::<PyTuple>();
    ["__hash__", "__eq__"].into_iter().all(|name| {
        let (own, theirs) = (types::lookup_named(ty, name), types::lookup_named(&plain, name));
        own.zip(theirs).is_some_and(|(own, theirs)| own.is(&theirs))
    })
}
