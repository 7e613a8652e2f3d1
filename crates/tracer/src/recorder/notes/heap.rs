//! Reading objects without running anybody's code: short names for what the recorder needs of
//! `stator_cpython`.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyFunction, PyInt, PyList, PyModule,
    PySet, PySlice, PyString, PyTuple, PyType, PyWeakrefReference,
};
use rustc_hash::FxHashSet;
use stator_cpython::heap::dict::{self, InstanceDict, Lookup};
use stator_cpython::heap::function::{Field, value};
use stator_cpython::heap::{constant, container, types};
use stator_cpython::modules::{self, Named};
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, generic};
use stator_guards::Text;

use super::kinds::Descriptor;

pub use stator_cpython::generic::bind_method;
pub use stator_cpython::heap::container::{list_holds, list_items};
pub use stator_cpython::heap::dict::is_plain as is_exact_dict;

/// The elements of a tuple.
pub fn tuple_items<'py>(tuple: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    let length = container::tuple_length(tuple).unwrap_or(0);
    let mut items = Vec::with_capacity(length);
    items.extend((0..length).filter_map(|index| container::tuple_item(tuple, index)));
    items
}

/// Where an object stands in a tuple.
pub fn tuple_position(tuple: Borrowed<'_, '_>, object: Borrowed<'_, '_>) -> Option<usize> {
    let length = container::tuple_length(tuple)?;
    (0..length).find(|index| container::tuple_item(tuple, *index).is_some_and(|it| it.is(&*object)))
}

/// Whether an object is a `collections.deque`.
pub fn is_deque(object: Borrowed<'_, '_>) -> bool {
    container::is_deque(object)
}

/// Whether an object is a `weakref.ref`, not an instance of a subclass.
pub fn is_weak_reference(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyWeakrefReference>()
}

/// The elements of a list, set or deque, in iteration order.
pub fn elements<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    container::set_items(object)
        .or_else(|| container::deque_items(object))
        .unwrap_or_else(|| list_items(object))
}

/// The elements of a set, in iteration order.
pub fn set_items<'py>(set: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    container::set_items(set).unwrap_or_default()
}

/// The entries of a dictionary, in iteration order.
pub fn dict_items<'py>(object: Borrowed<'_, 'py>) -> Vec<(Object<'py>, Object<'py>)> {
    dict::items(object).unwrap_or_default()
}

/// The elements of a list, or the values of a dictionary.
pub fn children<'py>(container: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if dict::is_dict(container) {
        dict::values(container).unwrap_or_default()
    } else if container::tuple_length(container).is_some() {
        tuple_items(container)
    } else {
        list_items(container)
    }
}

/// Whether an object is a class that nobody can change.
pub fn is_builtin_type(object: Borrowed<'_, '_>) -> bool {
    object
        .cast::<PyType>()
        .is_ok_and(|ty| stator_cpython::heap::types::is_immutable(ty.as_borrowed()))
}

/// The number of entries of a dictionary.
pub fn dict_length(object: Borrowed<'_, '_>) -> usize {
    dict::length(object).unwrap_or(0)
}

/// The value at a key, if the lookup runs no user code.
pub fn dict_get<'py>(object: Borrowed<'_, 'py>, key: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    match dict::get(object, key) {
        Lookup::Found(value) => Some(value),
        Lookup::Absent | Lookup::Refused => None,
    }
}

/// Whether only a lookup that may run user code, or that compares values, says what a dictionary holds at a key.
pub fn is_lookup_refused(object: Borrowed<'_, '_>, key: Borrowed<'_, '_>) -> bool {
    matches!(dict::get(object, key), Lookup::Refused)
}

/// The elements of a list or tuple.
pub fn sequence_items<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    match container::tuple_length(object) {
        Some(_) => tuple_items(object),
        None => list_items(object),
    }
}

/// The keys of a dictionary in the order of its table: of an `OrderedDict`, not that in which it's iterated over.
pub fn stored_keys<'py>(dict: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    dict::stored_keys(dict)
}

/// Whether a method of `dict` passes by the order that an `OrderedDict` keeps beside the table.
pub fn passes_order(method: Borrowed<'_, '_>, receiver: Borrowed<'_, '_>) -> bool {
    is_ordered_dict(receiver) && !is_of_ordered_dict(method, &callable_name(method))
}

/// Whether an instruction that sets or deletes an item of a dictionary does what `OrderedDict` does, if it is one.
pub fn stores_in_order(dict: Borrowed<'_, '_>, deletes: bool) -> bool {
    let name = if deletes { "__delitem__" } else { "__setitem__" };
    let found = || types::lookup_named(&dict.get_type(), name);
    !is_ordered_dict(dict)
        || found().is_some_and(|found| is_of_ordered_dict(found.as_borrowed(), name))
}

/// Whether a method is the one that `OrderedDict` has of this name.
fn is_of_ordered_dict(method: Borrowed<'_, '_>, name: &str) -> bool {
    static CLASS: Named = Named::new("collections", "OrderedDict");
    let own = CLASS.get(method.py()).and_then(|class| class.getattr(name));
    own.is_ok_and(|own| own.is(&*method))
}

/// Whether an object is an `OrderedDict`, or an instance of a subclass.
pub fn is_ordered_dict(object: Borrowed<'_, '_>) -> bool {
    dict::is_ordered_dict(object)
}

/// Whether a dictionary takes two keys for the same, a member of an enumeration of texts or numbers for its value, too.
pub fn same_key(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    if equal_keys(left, right) {
        return true;
    }
    let (left_value, right_value) = (types::plain_value(left), types::plain_value(right));
    let is_valued = left_value.is_some() || right_value.is_some();
    let left = left_value.as_ref().map_or(left, |value| value.as_borrowed());
    let right = right_value.as_ref().map_or(right, |value| value.as_borrowed());
    is_valued && equal_keys(left, right)
}

/// Whether two keys are one object, or equal constants. (Other objects are told apart by identity.)
pub fn equal_keys(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    left.is(right)
        || (constant::is_constant(left)
            && constant::is_constant(right)
            && left.eq(right).unwrap_or(false))
}

/// The instance dictionary, made if there was none yet.
pub fn instance_dict<'py>(object: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    match dict::instance_dict(object) {
        InstanceDict::Dict(dict) => Some(dict),
        InstanceDict::None | InstanceDict::Failed => None,
    }
}

/// Whether pickling an object tells whether it has an instance dictionary: a partial or an exception.
pub fn tells_of_dict(object: Borrowed<'_, '_>) -> bool {
    object.is_instance_of::<PyBaseException>() || value(object, Field::PartialFunc).is_some()
}

/// The parts of a slice.
pub fn slice_parts<'py>(slice: pyo3::Borrowed<'_, 'py, PySlice>) -> [Object<'py>; 3] {
    container::slice_parts(slice)
}

/// A string's text.
pub fn text(name: Borrowed<'_, '_>) -> String {
    name.cast::<PyString>().map_or_else(|_| "?".into(), |name| name.to_string_lossy().into_owned())
}

/// A string interned; anything else as it is.
pub fn interned<'py>(object: Borrowed<'_, 'py>) -> Object<'py> {
    match object.cast_exact::<PyString>() {
        Ok(text) => generic::interned(&text.to_owned()).into_any(),
        Err(_) => object.to_owned(),
    }
}

/// Whether this is the one string with its text that CPython's table of strings holds.
pub fn is_interned(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyString>() && interned(object).is(object)
}

/// Whether two objects are sequences of one builtin type.
pub fn are_joined(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    let is_sequence = left.is_exact_instance_of::<PyList>()
        || left.is_exact_instance_of::<PyTuple>()
        || left.is_exact_instance_of::<PyString>()
        || left.is_exact_instance_of::<PyBytes>();
    is_sequence && left.get_type().is(right.get_type())
}

/// Whether a string prints between quotes as it is. Most keys do: no need to ask Python.
fn is_plain_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// As [`short_repr`] of a key, in one allocation.
pub fn key_text(object: Borrowed<'_, '_>) -> Text {
    let mut quoted = [b'\''; 64];
    if let Ok(name) = object.cast_exact::<PyString>()
        && let Ok(name) = name.to_str()
        && is_plain_text(name)
        && let Some(inner) = quoted.get_mut(1..=name.len())
        && name.len() + 2 <= 64
    {
        inner.copy_from_slice(name.as_bytes());
        if let Ok(text) = std::str::from_utf8(&quoted[..name.len() + 2]) {
            return text.into();
        }
    }
    short_repr(object).into()
}

/// The text of a constant, shortened.
pub fn short_repr(object: Borrowed<'_, '_>) -> String {
    if let Ok(name) = object.cast_exact::<PyString>()
        && let Ok(name) = name.to_str()
        && is_plain_text(name)
    {
        return ["'", name, "'"].concat();
    }
    if !constant::is_constant(object) {
        return name_of(object);
    }
    let text =
        object.repr().map_or_else(|_| "?".into(), |text| text.to_string_lossy().into_owned());
    if text.chars().count() > 200 {
        format!("{}...", text.chars().take(197).collect::<String>())
    } else {
        text
    }
}

/// Whether an object's class says in Python which one is less.
pub fn is_ordered_in_python(object: Borrowed<'_, '_>) -> bool {
    is_method_of_python(object, "__lt__")
}

/// Whether an object's class says in Python what equals it.
pub fn is_equated_in_python(object: Borrowed<'_, '_>) -> bool {
    is_method_of_python(object, "__eq__")
}

fn is_method_of_python(object: Borrowed<'_, '_>, name: &str) -> bool {
    types::lookup_named(&object.get_type(), name)
        .is_some_and(|method| method.is_instance_of::<PyFunction>())
}

/// Whether an object is one that `operator.itemgetter`, `attrgetter` or `methodcaller` makes.
pub fn is_getter(object: Borrowed<'_, '_>) -> bool {
    const NAMES: [&str; 3] = ["itemgetter", "attrgetter", "methodcaller"];
    is_builtin_type(object.get_type().as_any().as_borrowed())
        && NAMES.contains(&type_name(object).as_str())
}

/// Whether an object is a `tuple` or a `torch.Size`: its elements are all there is to it.
pub fn is_plain_tuple(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyTuple>()
        || (object.is_instance_of::<PyTuple>() && types::is_of_static(object, c"torch.Size"))
}

/// Whether an object is a tuple, a list or a dictionary, and of no class on top of these.
pub fn is_exact_container(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyTuple>() || is_exact_list(object) || is_exact_dict(object)
}

/// Whether an object is an exact `list`.
pub fn is_exact_list(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PyList>()
}

/// Whether an object is an exact `set`.
pub fn is_exact_set(object: Borrowed<'_, '_>) -> bool {
    object.is_exact_instance_of::<PySet>()
}

/// What a container of a builtin type holds, and a slice; empty for other objects.
pub fn plain_parts<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if let Ok(slice) = object.cast_exact::<PySlice>() {
        return slice_parts(slice).to_vec();
    }
    if object.is_instance_of::<PyTuple>() {
        return tuple_items(object);
    }
    if object.is_instance_of::<PyList>() {
        return list_items(object);
    }
    if object.is_instance_of::<PySet>() || object.is_instance_of::<PyFrozenSet>() {
        return set_items(object);
    }
    if object.is_instance_of::<PyDict>() {
        let items = dict_items(object);
        return items.into_iter().flat_map(|(key, value)| [key, value]).collect();
    }
    Vec::new()
}

/// Whether something is so of an object, or of what containers of builtin types and deques hold below it, so deep. The nearest comes
/// first; a container that holds itself, or that others hold often, is gone into once.
pub fn any_within(
    object: Borrowed<'_, '_>,
    depth: usize,
    is_so: &mut dyn FnMut(Borrowed<'_, '_>) -> bool,
) -> bool {
    if is_so(object) {
        return true;
    }
    let mut parts = held_parts(object);
    let mut seen = FxHashSet::default();
    for _ in 1..depth {
        if parts.iter().any(|part| is_so(part.as_borrowed())) {
            return true;
        }
        let mut below = Vec::new();
        for part in &parts {
            let found = held_parts(part.as_borrowed());
            if !found.is_empty() && seen.insert(part.as_ptr() as usize) {
                below.extend(found);
            }
        }
        parts = below;
    }
    parts.iter().any(|part| is_so(part.as_borrowed()))
}

/// What C code may come to read of an object that it's given: as [`held_parts`], and what a C method is bound to or a
/// `functools.partial` holds, which it may call (`max(places, key=values.__getitem__)`).
pub fn read_parts<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if generic::is_c_function(object) || generic::wrapper_parts(object).is_some() {
        return bound_parts(object).map_or_else(Vec::new, |(receiver, _)| vec![receiver]);
    }
    if value(object, Field::PartialFunc).is_some() {
        let (function, args, keywords) = partial_parts(object);
        return vec![function, args, keywords];
    }
    held_parts(object)
}

/// As [`plain_parts`], and what a deque holds, and an exception was made with.
fn held_parts<'py>(object: Borrowed<'_, 'py>) -> Vec<Object<'py>> {
    if let Some(args) = exception_args(object) {
        return vec![args];
    }
    container::deque_items(object).unwrap_or_else(|| plain_parts(object))
}

/// The arguments that an exception has, as C code reads them; `None`: it's none.
pub fn exception_args<'py>(object: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    if !object.is_instance_of::<PyBaseException>() {
        return None;
    }
    let descriptor = object.py().get_type::<PyBaseException>().getattr("args").ok()?;
    descriptor.call_method1("__get__", (object,)).ok()
}

/// What a view of a dictionary shows; `None` if the object is none.
pub fn view_items<'py>(object: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
    use pyo3::types::{PyDictItems, PyDictKeys, PyDictValues};
    let is_view = object.is_instance_of::<PyDictValues>()
        || object.is_instance_of::<PyDictItems>()
        || object.is_instance_of::<PyDictKeys>();
    is_view
        .then(|| object.try_iter().map_or_else(|_| Vec::new(), |items| items.flatten().collect()))
}

/// Whether an object is a `map` of a Python function: all that it gives is what that returns.
pub fn maps_by_python(object: Borrowed<'_, '_>) -> bool {
    let is_function = || {
        let parts = object.call_method0("__reduce__").ok()?.get_item(1).ok()?;
        Some(parts.get_item(0).ok()?.is_exact_instance_of::<PyFunction>())
    };
    type_name(object) == "map"
        && is_builtin_type(object.get_type().as_any().as_borrowed())
        && is_function() == Some(true)
}

/// Whether an object is an instance of a class that `collections.namedtuple` or `typing.NamedTuple` made:
/// nothing but a tuple, and made without running anybody's code.
pub fn is_named_tuple(object: Borrowed<'_, '_>) -> bool {
    let ty = object.get_type();
    object.is_instance_of::<PyTuple>()
        && ty.bases().len() == 1
        && ty.bases().get_item(0).is_ok_and(|base| base.is(object.py().get_type::<PyTuple>()))
        && types::lookup(ty.as_borrowed(), pyo3::intern!(ty.py(), "_fields").as_any().as_borrowed())
            .is_some()
        && types::dict_offset(ty.as_borrowed()) == types::DictPlace::None
}

/// A tuple of the same type with other elements.
pub fn tuple_like<'py>(tuple: Borrowed<'_, 'py>, items: Vec<Object<'py>>) -> Option<Object<'py>> {
    let items = PyTuple::new(tuple.py(), items).ok()?;
    if tuple.is_exact_instance_of::<PyTuple>() {
        return Some(items.into_any());
    }
    if is_plain_tuple(tuple) {
        return tuple.get_type().call1((items,)).ok();
    }
    let new = tuple.py().get_type::<PyTuple>().getattr("__new__").ok()?;
    new.call1((tuple.get_type(), items)).ok()
}

/// Whether an object is a Python number.
pub fn is_number(object: Borrowed<'_, '_>) -> bool {
    use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt};
    object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyComplex>()
}

/// The unqualified name of a type.
pub fn type_name(object: Borrowed<'_, '_>) -> String {
    let name = object.get_type().name();
    let name = name.map_or_else(|_| "?".into(), |name| name.to_string_lossy().into_owned());
    match stator_cpython::heap::tensor::unusual(object) {
        Some(kind) => format!("{name} ({kind})"),
        None => name,
    }
}

fn string_attr(object: Borrowed<'_, '_>, name: &str) -> Option<String> {
    // Only objects whose names are computed by C code.
    let ty = object.get_type();
    let found = if stator_cpython::heap::types::is_immutable(ty.as_borrowed()) {
        object.getattr(name).ok()?
    } else if object.is_instance_of::<PyType>() {
        // A metaclass in Python may answer by code of its own.
        let fields = object.py().get_type::<PyType>().getattr("__dict__").ok()?;
        fields.get_item(name).ok()?.call_method1("__get__", (object,)).ok()?
    } else {
        return None;
    };
    found.cast::<PyString>().ok().map(|text| text.to_string_lossy().into_owned())
}

/// The name of a C function, or of anything else if it must be.
pub fn callable_name<'a>(callable: Borrowed<'a, '_>) -> std::borrow::Cow<'a, str> {
    generic::method_name(callable).map_or_else(|| name_of(callable).into(), Into::into)
}

/// A function's, class's or module's name; else that of its type.
pub fn name_of(object: Borrowed<'_, '_>) -> String {
    string_attr(object, "__name__").unwrap_or_else(|| type_name(object))
}

/// Whether [`name_of`] a C function or a class is one of these. Most are asked at each call, so nothing is
/// made for the question.
pub fn is_named(callable: Borrowed<'_, '_>, names: &[&str]) -> bool {
    match generic::method_name(callable).or_else(|| types::static_name(callable)) {
        Some(name) => names.contains(&name),
        None => names.contains(&name_of(callable).as_str()),
    }
}

/// A callable's name with its module in front.
pub fn qualified_name_of(object: Borrowed<'_, '_>) -> String {
    let name = name_of(object);
    match string_attr(object, "__module__") {
        Some(module) => format!("{module}.{name}"),
        None => format!("torch._C.{name}"),
    }
}

/// `__func__` and `__self__` of a bound method.
pub fn method_parts<'py>(method: Borrowed<'_, 'py>) -> (Object<'py>, Object<'py>) {
    let part = |field| value(method, field).expect("a bound method has function and receiver");
    (part(Field::MethodFunc), part(Field::MethodSelf))
}

/// `func`, `args` and `keywords` of a partial.
pub fn partial_parts<'py>(partial: Borrowed<'_, 'py>) -> (Object<'py>, Object<'py>, Object<'py>) {
    let part = |field| value(partial, field).expect("a partial has its parts");
    (part(Field::PartialFunc), part(Field::PartialArgs), part(Field::PartialKeywords))
}

/// `__code__` of a function.
pub fn function_code<'py>(function: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    value(function, Field::Code)
}

/// `__globals__` of a function.
pub fn function_globals<'py>(function: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    value(function, Field::Globals)
}

/// `__defaults__` of a function.
pub fn function_defaults<'py>(function: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    value(function, Field::Defaults)
}

/// `__kwdefaults__` of a function.
pub fn function_kwdefaults<'py>(function: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    value(function, Field::KwDefaults)
}

/// Whether a function has a closure.
pub fn has_closure(function: Borrowed<'_, '_>) -> bool {
    value(function, Field::Closure).is_some()
}

/// `fget` of a property.
pub fn property_getter<'py>(property: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    value(property, Field::PropertyGet).filter(|getter| !getter.is_none())
}

/// `fset` of a property.
pub fn property_setter<'py>(property: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    value(property, Field::PropertySet).filter(|setter| !setter.is_none())
}

/// `fdel` of a property, which can't be changed.
pub fn property_deleter<'py>(property: Borrowed<'_, 'py>) -> Option<Object<'py>> {
    let is_builtin = is_builtin_type(property.get_type().as_any().as_borrowed());
    let property = is_builtin.then_some(property)?;
    property.getattr("fdel").ok().filter(|deleter| !deleter.is_none())
}

/// What a static or class method wraps; anything else as it is.
pub fn wrapped_function<'py>(wrapper: Borrowed<'_, 'py>) -> Object<'py> {
    value(wrapper, Field::StaticFunc)
        .or_else(|| value(wrapper, Field::ClassFunc))
        .unwrap_or_else(|| wrapper.to_owned())
}

/// The receiver of a bound C method and the method descriptor it was bound from. Functions of
/// modules, class methods and pybind11's functions have none.
pub fn bound_builtin<'py>(callable: Borrowed<'_, 'py>) -> Option<(Object<'py>, Object<'py>)> {
    let receiver = generic::bound_receiver(callable)?;
    if receiver.is_exact_instance_of::<PyModule>() && generic::is_module_function(callable) {
        return None;
    }
    let definition = generic::method_def(callable)?;
    let name = PyString::intern(callable.py(), generic::method_name(callable)?);
    let ty = receiver.get_type();
    let is_it = |found: &Object<'_>| {
        generic::method_def(found.as_borrowed()) == Some(definition) && !found.is(callable)
    };
    let found = stator_cpython::heap::types::lookup(ty.as_borrowed(), name.as_any().as_borrowed());
    if let Some(descriptor) = found.filter(is_it) {
        return Some((receiver, descriptor));
    }
    // Overridden in a subclass: `super().get` of a `dict`.
    let mro = stator_cpython::heap::types::mro(ty.as_borrowed())?;
    let bases = tuple_items(mro.as_borrowed());
    let descriptor = bases.iter().find_map(|base| {
        let dict =
            stator_cpython::heap::types::class_dict(base.cast::<PyType>().ok()?.as_borrowed())?;
        dict_get(dict.as_borrowed(), name.as_any().as_borrowed()).filter(is_it)
    })?;
    Some((receiver, descriptor))
}

/// What any bound method was bound from, a C one's too: the receiver and the function or descriptor.
pub fn bound_parts<'py>(callable: Borrowed<'_, 'py>) -> Option<(Object<'py>, Object<'py>)> {
    if let Some(function) = value(callable, Field::MethodFunc) {
        return Some((value(callable, Field::MethodSelf)?, function));
    }
    bound_builtin(callable).or_else(|| generic::wrapper_parts(callable))
}

/// The class that a C class method (`dict.fromkeys`) is bound to, and its descriptor.
pub fn bound_class_method<'py>(callable: Borrowed<'_, 'py>) -> Option<(Object<'py>, Object<'py>)> {
    let class = generic::bound_receiver(callable)?;
    let definition = generic::method_def(callable)?;
    let name = PyString::intern(callable.py(), generic::method_name(callable)?);
    let ty = class.cast::<PyType>().ok()?.as_borrowed();
    let found = stator_cpython::heap::types::lookup(ty, name.as_any().as_borrowed())?;
    let is_it = generic::method_def(found.as_borrowed()) == Some(definition) && !found.is(callable);
    is_it.then_some((class, found))
}

/// Whether a member descriptor reads an item of a tuple: a field of what PyTorch's functions return (`torch.return_types.topk`)
/// or of the standard library's structures, but for those that aren't counted as items.
pub fn is_field_of_items(member: Borrowed<'_, '_>) -> bool {
    let is_field = || -> PyResult<bool> {
        let class = member.getattr("__objclass__")?.cast_into::<PyType>()?;
        let tuple = member.py().get_type::<PyTuple>();
        let is_sequence = is_builtin_type(class.as_any().as_borrowed())
            && stator_cpython::generic::is_subtype(&class, &tuple);
        Ok(is_sequence && class.getattr("__match_args__")?.contains(member.getattr("__name__")?)?)
    };
    is_field().unwrap_or(false)
}

/// Whether an object is a named tuple's field.
pub fn is_tuple_getter(object: Borrowed<'_, '_>) -> bool {
    static TYPE: Named = Named::new("_collections", "_tuplegetter");
    TYPE.is(object.get_type().as_any().as_borrowed())
}

/// Whether an object is a method descriptor or slot wrapper of a C type.
pub fn is_method_descriptor(object: Borrowed<'_, '_>) -> bool {
    use generic::DescriptorType::{ClassMethodOfC, Method};
    matches!(generic::descriptor_type(object), Some(Method | ClassMethodOfC))
}

/// Whether an object is a class method descriptor of a C type.
pub fn is_class_method_descriptor(object: Borrowed<'_, '_>) -> bool {
    generic::descriptor_type(object) == Some(generic::DescriptorType::ClassMethodOfC)
}

/// How a descriptor of a C type binds.
pub fn descriptor_kind(object: Borrowed<'_, '_>) -> Descriptor {
    use generic::DescriptorType as T;
    match generic::descriptor_type(object) {
        Some(T::Property) => Descriptor::Property,
        Some(T::Member) => Descriptor::Member,
        Some(T::GetSet) => Descriptor::GetSet,
        Some(T::StaticMethod) => Descriptor::StaticMethod,
        Some(T::ClassMethod) => Descriptor::ClassMethod,
        Some(T::Method | T::ClassMethodOfC) | None => Descriptor::Value,
    }
}

/// Binds any descriptor to a receiver.
pub fn bind<'py>(found: Borrowed<'_, 'py>, receiver: Borrowed<'_, 'py>) -> Result<Object<'py>> {
    let class = receiver.get_type();
    generic::descriptor_get(found, Some(receiver), class.as_any().as_borrowed())
}

/// The parts of a bound `super` object.
pub fn super_parts<'py>(
    object: Borrowed<'_, 'py>,
) -> Option<(Bound<'py, PyType>, Object<'py>, Bound<'py, PyType>)> {
    generic::super_parts(object)
}

/// Whether a value is deeply immutable and of builtin types.
pub fn is_constant(object: Borrowed<'_, '_>) -> bool {
    constant::is_constant(object)
}

/// Whether an object is a number, a text or bytes of a class of its own, which may have attributes beside that value.
pub fn is_of_value_class(object: Borrowed<'_, '_>) -> bool {
    types::is_heap(object.get_type().as_borrowed())
        && (object.is_instance_of::<PyInt>()
            || object.is_instance_of::<PyFloat>()
            || object.is_instance_of::<PyString>()
            || object.is_instance_of::<PyBytes>()
            || object.is_instance_of::<PyComplex>())
}

/// Whether `is` between two different constants of one type is settled by their values: they are
/// unequal, so they can't be one object.
pub fn is_identity_stable(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    !(constant::is_constant(left) && constant::is_constant(right) && constant::equal(left, right))
}

/// Whether CPython has one object for both, a small int.
pub fn are_one_small_int(left: Borrowed<'_, '_>, right: Borrowed<'_, '_>) -> bool {
    generic::small_int(left).is_some_and(|value| generic::small_int(right) == Some(value))
}

/// Whether CPython keeps one object for this value: `None`, `True`, small integers, types of PyTorch
/// and such, as opposed to numbers and texts that are made anew.
pub fn is_shared_constant(object: Borrowed<'_, '_>) -> bool {
    if object.is_exact_instance_of::<PyInt>() {
        return generic::small_int(object).is_some();
    }
    !(object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyTuple>()
        || object.is_exact_instance_of::<PyBytes>()
        || object.is_exact_instance_of::<PyComplex>())
}

/// A module of `sys.modules`.
pub fn loaded_module<'py>(py: Python<'py>, name: &str) -> Option<Object<'py>> {
    modules::loaded(py)?.get_item(name).ok()?
}

/// What `int | None` is made of.
pub fn union_members<'py>(object: Borrowed<'_, 'py>) -> Option<Vec<Object<'py>>> {
    if types::static_name(object.get_type().as_any().as_borrowed()) != Some("UnionType") {
        return None;
    }
    let members = object.getattr("__args__").ok()?;
    Some(tuple_items(members.as_borrowed()))
}

/// The `__slots__` members of an instance that are set, with their descriptors.
pub fn slot_values<'py>(object: Borrowed<'_, 'py>) -> Vec<(Object<'py>, Object<'py>)> {
    let class = object.get_type();
    let Some(mro) = stator_cpython::heap::types::mro(class.as_borrowed()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for base in tuple_items(mro.as_borrowed()) {
        let Ok(base) = base.cast_into::<PyType>() else { continue };
        if stator_cpython::heap::types::is_immutable(base.as_borrowed()) {
            continue;
        }
        let Some(dict) = stator_cpython::heap::types::class_dict(base.as_borrowed()) else {
            continue;
        };
        for (_, descriptor) in dict_items(dict.as_borrowed()) {
            let member = stator_cpython::heap::member::offset_of(descriptor.as_borrowed());
            if member.is_none() {
                continue;
            }
            match generic::descriptor_get(
                descriptor.as_borrowed(),
                Some(object),
                class.as_any().as_borrowed(),
            ) {
                Ok(value) => found.push((descriptor, value)),
                Err(raised) => raised.clear(object.py()),
            }
        }
    }
    found
}

/// Whether an object is an alias such as `list[int]` of a class whose attributes can't be set.
pub fn is_builtin_alias(object: Borrowed<'_, '_>) -> bool {
    type_name(object) == "GenericAlias"
        && stator_cpython::heap::types::is_immutable(object.get_type().as_borrowed())
        && object.getattr("__origin__").is_ok_and(|origin| {
            origin
                .cast::<pyo3::types::PyType>()
                .is_ok_and(|ty| stator_cpython::heap::types::is_immutable(ty.as_borrowed()))
        })
}

/// Whether an object is an array of NumPy's, or a scalar, of numbers or truth values.
pub fn is_array(object: Borrowed<'_, '_>) -> bool {
    array_kind(object).is_some_and(|kind| "biuf".contains(kind))
}

/// The letter for what an array or a scalar of NumPy's holds; `None` if the object is neither.
pub fn array_kind(object: Borrowed<'_, '_>) -> Option<char> {
    // Most objects that are asked are these, and to read a type's name is dear.
    if stator_cpython::heap::tensor::is_tensor(object)
        || object.is_none()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyBool>()
    {
        return None;
    }
    let ty = object.get_type();
    let is_numpy = types::is_static_of(ty.as_borrowed(), "numpy").unwrap_or_else(|| {
        is_builtin_type(ty.as_any().as_borrowed())
            && ty.module().is_ok_and(|module| module.to_string_lossy() == "numpy")
    });
    if !is_numpy {
        return None;
    }
    let dtype = object.getattr("dtype").ok()?;
    dtype.getattr("kind").ok()?.extract().ok()
}

/// Whether an object is of a class of C++ code's that `pybind11` has made, as members of PyTorch's enumerations are.
pub fn is_of_pybind(object: Borrowed<'_, '_>) -> bool {
    object.get_type().get_type().name().is_ok_and(|name| name == "pybind11_type")
}

/// Whether an object is `numpy.True_` or `numpy.False_`.
pub fn is_truth_of_numpy(object: Borrowed<'_, '_>) -> bool {
    let name = types::static_name(object.get_type().as_any().as_borrowed());
    matches!(name, Some("bool" | "bool_")) && array_kind(object) == Some('b')
}

/// Whether an object is one of NumPy's random generators.
pub fn is_generator(object: Borrowed<'_, '_>) -> bool {
    let ty = object.get_type();
    is_builtin_type(ty.as_any().as_borrowed())
        && ty.module().is_ok_and(|module| module.to_string_lossy().starts_with("numpy.random"))
}
