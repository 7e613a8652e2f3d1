//! The classes of building blocks.

use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PySlice, PyString, PyTuple, PyType};
use stator_federated::Name;
use stator_federated::ast::{self, BlockKind, BuildingBlock, Key};

use super::intrinsics::IntrinsicDefObject;
use super::{data, forget, literals, pickling, unwrap, unwrap_or_err, wrap};
use crate::federated::errors::IntoPython;
use crate::federated::types::{
    self, containers, describe, index_error, index_key, placements, to_type_or_err,
};
use crate::federated::wire;

/// A node of the syntax tree with everything below it: what all kinds of nodes have.
#[pyclass(
    name = "ComputationBuildingBlock",
    module = "stator.federated.framework",
    subclass,
    frozen,
    weakref
)]
pub struct BlockObject {
    block: BuildingBlock,
}

impl BlockObject {
    /// The block itself.
    pub fn block(&self) -> &BuildingBlock {
        &self.block
    }
}

impl Drop for BlockObject {
    fn drop(&mut self) {
        forget(&self.block);
    }
}

macro_rules! classes {
    ($($class:ident $name:literal $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[pyclass(
                name = $name,
                module = "stator.federated.framework",
                extends = BlockObject,
                frozen
            )]
            pub struct $class;
        )*
    };
}

classes! {
    ReferenceObject "Reference" "A name that something around it gives a value: `x`.";
    SelectionObject "Selection" "A field of a struct: `s.a`, `s[1]`.";
    StructObject "Struct" "A struct of values: `<x,y=f>`.";
    CallObject "Call" "A function applied to its argument: `f(x)`.";
    LambdaObject "Lambda" "A function of no or one parameter: `(x -> x)`.";
    LetObject "Block" "Names for values, and a result that uses them: `(let v=x in v)`.";
    IntrinsicObject "Intrinsic" "An operation of the language: `federated_map`.";
    DataObject "Data" "Data that only an executor knows.";
    PlacementObject "Placement" "A placement as a value: `CLIENTS`.";
    LiteralObject "Literal" "An array of numbers or strings: `1`, `[1 2]`.";
    CompiledObject "CompiledComputation" "A computation that is no tree of blocks: `comp#name`.";
}

/// A new object for a block that has none.
pub(super) fn make<'py>(py: Python<'py>, block: &BuildingBlock) -> PyResult<Bound<'py, PyAny>> {
    let base = PyClassInitializer::from(BlockObject { block: block.clone() });
    Ok(match block.kind() {
        BlockKind::Reference(_) => Bound::new(py, base.add_subclass(ReferenceObject))?.into_any(),
        BlockKind::Selection(_) => Bound::new(py, base.add_subclass(SelectionObject))?.into_any(),
        BlockKind::Struct(_) => Bound::new(py, base.add_subclass(StructObject))?.into_any(),
        BlockKind::Call(_) => Bound::new(py, base.add_subclass(CallObject))?.into_any(),
        BlockKind::Lambda(_) => Bound::new(py, base.add_subclass(LambdaObject))?.into_any(),
        BlockKind::Block(_) => Bound::new(py, base.add_subclass(LetObject))?.into_any(),
        BlockKind::Intrinsic(_) => Bound::new(py, base.add_subclass(IntrinsicObject))?.into_any(),
        BlockKind::Data(_) => Bound::new(py, base.add_subclass(DataObject))?.into_any(),
        BlockKind::Placement(_) => Bound::new(py, base.add_subclass(PlacementObject))?.into_any(),
        BlockKind::Literal(_) => Bound::new(py, base.add_subclass(LiteralObject))?.into_any(),
        BlockKind::Compiled(_) => Bound::new(py, base.add_subclass(CompiledObject))?.into_any(),
    })
}

/// The block of an object of one of the classes.
fn of<'a, T>(slf: &'a Bound<'_, T>) -> &'a BuildingBlock
where
    T: pyo3::PyClass<BaseType = BlockObject, Frozen = pyo3::pyclass::boolean_struct::True> + Sync,
{
    slf.as_super().get().block()
}

fn iterate<'a, 'py>(
    py: Python<'py>,
    blocks: impl IntoIterator<Item = &'a BuildingBlock>,
) -> PyResult<Bound<'py, PyIterator>> {
    let blocks = blocks.into_iter().map(|block| wrap(py, block));
    PyList::new(py, blocks.collect::<PyResult<Vec<_>>>()?)?.try_iter()
}

#[pymethods]
impl BlockObject {
    /// The type of the value that it stands for.
    #[getter]
    fn type_signature<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        types::wrap(py, self.block.ty())
    }

    /// The blocks directly below it, in the order in which they are evaluated.
    fn children<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        iterate(py, self.block.children())
    }

    /// The tree as one line.
    fn compact_representation(&self) -> String {
        self.block.to_string()
    }

    /// The message `Computation`, as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        wire::block_to_bytes(py, &self.block)
    }

    /// The tree in a message, given as bytes. It has to be of this class.
    #[classmethod]
    fn from_bytes<'py>(
        cls: &Bound<'py, PyType>,
        message: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wire::block_from_message(cls, message)
    }

    /// As `to_bytes`.
    fn to_proto<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        wire::block_to_bytes(py, &self.block)
    }

    /// As `from_bytes`; a message of the protobuf library will do too.
    #[classmethod]
    fn from_proto<'py>(
        cls: &Bound<'py, PyType>,
        message: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wire::block_from_message(cls, message)
    }

    /// The text over several lines: each field of a struct and each local on its own.
    fn formatted_representation(&self) -> String {
        self.block.formatted()
    }

    /// The tree as a drawing.
    fn structural_representation(&self) -> String {
        self.block.structural()
    }

    fn __str__(&self) -> String {
        self.block.to_string()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut failed = None;
        let text = self.block.repr(&mut |array| {
            literals::repr(py, array).unwrap_or_else(|error| {
                failed.get_or_insert(error);
                String::new()
            })
        });
        failed.map_or(Ok(text), Err)
    }

    fn __hash__(&self) -> u64 {
        self.block.structural_hash()
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyList>,))> {
        let make = py.import("stator._stator")?.getattr("federated")?.getattr("_block_from_calls");
        Ok((make?, (pickling::calls(py, &self.block, false)?,)))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        unwrap(other).is_some_and(|other| other == self.block)
    }
}

#[pymethods]
impl ReferenceObject {
    #[new]
    #[pyo3(signature = (name, type_signature, context=None))]
    fn new<'py>(
        name: &Bound<'py, PyAny>,
        type_signature: &Bound<'py, PyAny>,
        context: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ty = to_type_or_err(type_signature, "type_signature")?;
        let context = context.map(|context| text(context, "context")).transpose()?;
        wrap(name.py(), &BuildingBlock::reference_in(text(name, "name")?, ty, context))
    }

    /// The name.
    #[getter]
    fn name<'a>(slf: &'a Bound<'_, Self>) -> &'a str {
        &of(slf).as_reference().expect("a reference").name
    }

    /// The name of the scope that the name belongs to, or `None`.
    #[getter]
    fn context<'a>(slf: &'a Bound<'_, Self>) -> Option<&'a str> {
        of(slf).as_reference().expect("a reference").context.as_deref()
    }
}

impl SelectionObject {
    fn selection<'a>(slf: &'a Bound<'_, Self>) -> &'a ast::Selection {
        of(slf).as_selection().expect("a selection")
    }
}

#[pymethods]
impl SelectionObject {
    #[new]
    #[pyo3(signature = (source, name=None, index=None))]
    fn new<'py>(
        source: &Bound<'py, PyAny>,
        name: Option<&Bound<'py, PyAny>>,
        index: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let block = unwrap_or_err(source, "source")?;
        let made = match (name, index) {
            (Some(name), None) => {
                let name = text(name, "name")?;
                if name.is_empty() {
                    return Err(PyValueError::new_err("`name` is empty: no field is named so"));
                }
                BuildingBlock::select_name(block, name)
            }
            (None, Some(index)) => {
                let at = index_key(index, "a struct")?;
                let Ok(at) = usize::try_from(at) else {
                    return Err(PyValueError::new_err(format!(
                        "`index` is negative\n  expected: a position, from 0\n  found:    {at}"
                    )));
                };
                BuildingBlock::select_index(block, at)
            }
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err(
                    "a selection is by `name` or by `index`, not by both",
                ));
            }
            (None, None) => {
                return Err(PyValueError::new_err("a selection needs a `name` or an `index`"));
            }
        };
        wrap(source.py(), &made.py()?)
    }

    /// The struct.
    #[getter]
    fn source<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), &Self::selection(slf).source)
    }

    /// The name of the field, if it is selected by name.
    #[getter]
    fn name<'a>(slf: &'a Bound<'_, Self>) -> Option<&'a str> {
        match &Self::selection(slf).key {
            Key::Name(name) => Some(name),
            Key::Index(_) => None,
        }
    }

    /// The position of the field, if it is selected by position.
    #[getter]
    fn index(slf: &Bound<'_, Self>) -> Option<u32> {
        match &Self::selection(slf).key {
            Key::Name(_) => None,
            Key::Index(index) => Some(*index),
        }
    }

    /// The position of the field.
    fn as_index(slf: &Bound<'_, Self>) -> usize {
        Self::selection(slf).position()
    }
}

impl StructObject {
    fn elements<'a>(slf: &'a Bound<'_, Self>) -> &'a [(Option<Name>, BuildingBlock)] {
        &of(slf).as_struct().expect("a struct").elements
    }
}

#[pymethods]
impl StructObject {
    #[new]
    #[pyo3(signature = (elements, container_type=None))]
    fn new<'py>(
        elements: &Bound<'py, PyAny>,
        container_type: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut made = Vec::new();
        for element in elements.try_iter()? {
            let element = element?;
            made.push(match unwrap(&element) {
                Some(block) => (None, block),
                None => named(&element)?,
            });
        }
        let container = match container_type {
            None => None,
            Some(class) => match class.cast::<PyType>() {
                Ok(class) => Some(containers::from_class(class)?),
                Err(_) => return Err(expected("container_type", "a class", class)),
            },
        };
        wrap(elements.py(), &BuildingBlock::structure(made, container).py()?)
    }

    /// Pairs of each field's name, or `None`, and value.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        let py = slf.py();
        let elements = Self::elements(slf).iter();
        let pairs = elements.map(|(name, value)| Ok((name.as_deref(), wrap(py, value)?)));
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)?.try_iter()
    }

    fn __len__(slf: &Bound<'_, Self>) -> usize {
        Self::elements(slf).len()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        iterate(slf.py(), Self::elements(slf).iter().map(|(_, value)| value))
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let elements = Self::elements(slf);
        if let Ok(name) = key.cast::<PyString>() {
            return Self::__getattr__(slf, name.to_str()?);
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            let range = slice.indices(elements.len() as isize)?;
            let at = (0..range.slicelength as isize).map(|step| range.start + step * range.step);
            let blocks = at.map(|at| wrap(py, &elements[at as usize].1));
            return Ok(PyTuple::new(py, blocks.collect::<PyResult<Vec<_>>>()?)?.into_any());
        }
        let at = index_key(key, "a struct")?;
        match usize::try_from(at).ok().and_then(|at| elements.get(at)) {
            Some((_, value)) => wrap(py, value),
            None => Err(index_error("the struct", at, elements.len())),
        }
    }

    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let ty = of(slf).ty();
        match ty.as_struct().expect("a struct").position(name) {
            Some(at) => wrap(slf.py(), &Self::elements(slf)[at].1),
            None => Err(PyAttributeError::new_err(format!(
                "the struct has no field `{name}`\n  found:    {ty}"
            ))),
        }
    }

    fn __dir__(slf: &Bound<'_, Self>) -> Vec<String> {
        let elements = Self::elements(slf).iter();
        let mut names: Vec<String> =
            elements.filter_map(|(name, _)| Some(name.as_deref()?.to_owned())).collect();
        names.sort_unstable();
        names
    }
}

impl CallObject {
    fn call<'a>(slf: &'a Bound<'_, Self>) -> &'a ast::Call {
        of(slf).as_call().expect("a call")
    }
}

#[pymethods]
impl CallObject {
    #[new]
    #[pyo3(signature = (r#fn, arg=None))]
    fn new<'py>(
        r#fn: &Bound<'py, PyAny>,
        arg: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = unwrap_or_err(r#fn, "fn")?;
        let argument = arg.map(|arg| unwrap_or_err(arg, "arg")).transpose()?;
        wrap(r#fn.py(), &BuildingBlock::call(function, argument).py()?)
    }

    /// What is called.
    #[getter]
    fn function<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), &Self::call(slf).function)
    }

    /// What it is given, or `None`.
    #[getter]
    fn argument<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::call(slf).argument.as_ref().map(|argument| wrap(slf.py(), argument)).transpose()
    }
}

impl LambdaObject {
    fn lambda<'a>(slf: &'a Bound<'_, Self>) -> &'a ast::Lambda {
        of(slf).as_lambda().expect("a lambda")
    }
}

#[pymethods]
impl LambdaObject {
    #[new]
    fn new<'py>(
        parameter_name: Option<&Bound<'py, PyAny>>,
        parameter_type: Option<&Bound<'py, PyAny>>,
        result: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = parameter_name.map(|name| text(name, "parameter_name")).transpose()?;
        let name = name.filter(|name| !name.is_empty());
        let ty = parameter_type.map(|ty| to_type_or_err(ty, "parameter_type")).transpose()?;
        let parameter = match (name, ty) {
            (Some(name), Some(ty)) => Some((name, ty)),
            (None, None) => None,
            (Some(name), None) => {
                return Err(PyTypeError::new_err(format!(
                    "the parameter `{name}` has no type\n  expected: a name and a type, or neither"
                )));
            }
            (None, Some(ty)) => {
                return Err(PyTypeError::new_err(format!(
                    "the parameter of type {ty} has no name\n  expected: a name and a type, or \
                     neither"
                )));
            }
        };
        let body = unwrap_or_err(result, "result")?;
        wrap(result.py(), &BuildingBlock::lambda(parameter, body))
    }

    /// The parameter's name, or `None`.
    #[getter]
    fn parameter_name<'a>(slf: &'a Bound<'_, Self>) -> Option<&'a str> {
        Self::lambda(slf).parameter.as_ref().map(|(name, _)| &**name)
    }

    /// The parameter's type, or `None`.
    #[getter]
    fn parameter_type<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let parameter = Self::lambda(slf).parameter.as_ref();
        parameter.map(|(_, ty)| types::wrap(slf.py(), ty)).transpose()
    }

    /// What it gives back.
    #[getter]
    fn result<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), &Self::lambda(slf).result)
    }
}

impl LetObject {
    fn block<'a>(slf: &'a Bound<'_, Self>) -> &'a ast::Block {
        of(slf).as_block().expect("a block")
    }
}

#[pymethods]
impl LetObject {
    #[new]
    fn new<'py>(
        local_symbols: &Bound<'py, PyAny>,
        result: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut locals = Vec::new();
        for local in local_symbols.try_iter()? {
            let local = local?;
            let (Some(name), block) = named(&local)? else {
                return Err(expected("local_symbols", "pairs of a name and a block", &local));
            };
            locals.push((name, block));
        }
        let body = unwrap_or_err(result, "result")?;
        wrap(result.py(), &BuildingBlock::block(locals, body))
    }

    /// Pairs of each name and its value.
    #[getter]
    fn locals<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let locals = Self::block(slf).locals.iter();
        let pairs = locals.map(|(name, value)| Ok((&**name, wrap(py, value)?)));
        PyList::new(py, pairs.collect::<PyResult<Vec<_>>>()?)
    }

    /// The value of the whole.
    #[getter]
    fn result<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), &Self::block(slf).result)
    }
}

impl IntrinsicObject {
    /// Which operation.
    pub(super) fn uri_of<'a>(slf: &'a Bound<'_, Self>) -> &'a str {
        of(slf).as_intrinsic().expect("an intrinsic")
    }
}

#[pymethods]
impl IntrinsicObject {
    #[new]
    fn new<'py>(
        uri: &Bound<'py, PyAny>,
        type_signature: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ty = to_type_or_err(type_signature, "type_signature")?;
        wrap(uri.py(), &super::intrinsics::intrinsic(text(uri, "uri")?, ty).py()?)
    }

    /// Which operation.
    #[getter]
    fn uri<'a>(slf: &'a Bound<'_, Self>) -> &'a str {
        Self::uri_of(slf)
    }

    /// The definition of the operation.
    fn intrinsic_def<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, IntrinsicDefObject>> {
        super::intrinsics::definition_or_err(slf.py(), Self::uri_of(slf))
    }
}

#[pymethods]
impl DataObject {
    #[new]
    fn new<'py>(
        content: &Bound<'py, PyAny>,
        type_signature: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ty = to_type_or_err(type_signature, "type_signature")?;
        wrap(content.py(), &BuildingBlock::data(data::from_object(content)?, ty))
    }

    /// What it holds: a message of some type.
    #[getter]
    fn content<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, data::AnyMessage>> {
        let BlockKind::Data(of) = of(slf).kind() else { unreachable!("data") };
        data::wrap(slf.py(), of)
    }
}

#[pymethods]
impl PlacementObject {
    #[new]
    fn new<'py>(literal: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let placement = placements::expect(literal, "literal")?;
        wrap(literal.py(), &BuildingBlock::placement(placement))
    }

    /// Which placement.
    #[getter]
    fn uri(slf: &Bound<'_, Self>) -> &'static str {
        let BlockKind::Placement(placement) = of(slf).kind() else { unreachable!("a placement") };
        placement.uri()
    }
}

#[pymethods]
impl LiteralObject {
    #[new]
    fn new<'py>(
        value: &Bound<'py, PyAny>,
        type_signature: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ty = types::expect_type(type_signature, "type_signature")?;
        wrap(value.py(), &literals::literal(value, &ty)?)
    }

    /// The value: a scalar or an array.
    #[getter]
    fn value<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let BlockKind::Literal(array) = of(slf).kind() else { unreachable!("a literal") };
        literals::from_array(slf.py(), array)
    }
}

#[pymethods]
impl CompiledObject {
    /// The compiled computation in a message, or that of a block, under another name and with a
    /// type that says the Python classes of structs. A name that isn't given is a checksum.
    #[new]
    #[pyo3(signature = (proto, name=None, type_signature=None))]
    fn new<'py>(
        proto: &Bound<'py, PyAny>,
        name: Option<&Bound<'py, PyAny>>,
        type_signature: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let block = match unwrap(proto) {
            Some(block) => block,
            None => wire::decode(proto.py(), &wire::bytes_of(proto, "proto")?)?,
        };
        let BlockKind::Compiled(compiled) = block.kind() else {
            return Err(expected("proto", "the message of a compiled computation", proto));
        };
        let mut compiled = compiled.clone();
        if let Some(name) = name {
            compiled.name = text(name, "name")?;
        }
        let ty = match type_signature {
            None => block.ty().clone(),
            Some(object) => {
                let ty = types::expect_type(object, "type_signature")?;
                block.ty().check_equivalent_to(&ty).py()?;
                ty
            }
        };
        wrap(proto.py(), &BuildingBlock::compiled(compiled, ty))
    }

    /// A name to print.
    #[getter]
    fn name<'a>(slf: &'a Bound<'_, Self>) -> &'a str {
        let BlockKind::Compiled(compiled) = of(slf).kind() else { unreachable!("compiled") };
        &compiled.name
    }
}

/// A pair of a name, or `None`, and a block.
fn named(object: &Bound<'_, PyAny>) -> PyResult<(Option<Name>, BuildingBlock)> {
    let wrong = || expected("elements", "a block or a tuple of a name and a block", object);
    let pair = object.cast::<PyTuple>().map_err(|_| wrong())?;
    if pair.len() != 2 {
        return Err(wrong());
    }
    let name = pair.get_item(0)?;
    let name = match name.cast::<PyString>() {
        Ok(name) => Some(name.to_str()?.into()),
        Err(_) if name.is_none() => None,
        Err(_) => return Err(wrong()),
    };
    Ok((name, unwrap(&pair.get_item(1)?).ok_or_else(wrong)?))
}

/// The string that the argument `name` is.
pub(super) fn text(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Name> {
    match object.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.into()),
        Err(_) => Err(expected(name, "a string", object)),
    }
}

pub(super) fn expected(name: &str, what: &str, found: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!(
        "`{name}` is of the wrong kind\n  expected: {what}\n  found:    {}",
        describe(found)
    ))
}

/// Adds the classes.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BlockObject>()?;
    module.add_class::<ReferenceObject>()?;
    module.add_class::<SelectionObject>()?;
    module.add_class::<CallObject>()?;
    module.add_class::<LambdaObject>()?;
    module.add_class::<LetObject>()?;
    module.add_class::<IntrinsicObject>()?;
    module.add_class::<DataObject>()?;
    module.add_class::<PlacementObject>()?;
    module.add_class::<LiteralObject>()?;
    module.add_class::<CompiledObject>()?;
    // `Struct` is also the name of the container.
    module.add("StructBlock", module.py().get_type::<StructObject>())
}
