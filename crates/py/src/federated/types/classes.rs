//! The classes of types.

use pyo3::PyClass;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PySlice, PyString, PyTuple, PyType};
use stator_federated::types::{FederatedType, Field, Shape, StructType, Type, TypeKind};

use super::containers;
use super::convert::{self, to_type_or_err};
use super::{dtypes, forget, placements, unwrap, wrap};
use crate::federated::describe::{index_error, index_key};
use crate::federated::errors::IntoPython;
use crate::federated::nest;
use crate::federated::structure::StructBase;
use crate::federated::wire;

/// The type of a value: what all types have.
#[pyclass(name = "Type", module = "stator.federated", subclass, frozen, weakref)]
pub struct TypeObject {
    ty: Type,
}

impl TypeObject {
    /// The type itself.
    pub fn ty(&self) -> &Type {
        &self.ty
    }
}

impl Drop for TypeObject {
    fn drop(&mut self) {
        forget(&self.ty);
    }
}

/// The type of arrays of one element type: `int32`, `float32[2,?]`.
#[pyclass(name = "TensorType", module = "stator.federated", extends = TypeObject, frozen)]
pub struct TensorTypeObject;

/// The type of structs: `<a=int32,bool>`.
#[pyclass(name = "StructType", module = "stator.federated", extends = TypeObject, subclass, frozen)]
pub struct StructTypeObject;

/// The type of structs whose values come in a Python class.
#[pyclass(
    name = "StructWithPythonType",
    module = "stator.federated",
    extends = StructTypeObject,
    frozen
)]
pub struct StructWithPythonTypeObject;

/// The type of sequences: `int32*`.
#[pyclass(name = "SequenceType", module = "stator.federated", extends = TypeObject, frozen)]
pub struct SequenceTypeObject;

/// The type of functions: `(int32 -> bool)`, `( -> int32)`.
#[pyclass(name = "FunctionType", module = "stator.federated", extends = TypeObject, frozen)]
pub struct FunctionTypeObject;

/// The type of values at a placement: `{int32}@CLIENTS`, `int32@SERVER`.
#[pyclass(name = "FederatedType", module = "stator.federated", extends = TypeObject, frozen)]
pub struct FederatedTypeObject;

/// The type of placements: `placement`.
#[pyclass(name = "PlacementType", module = "stator.federated", extends = TypeObject, frozen)]
pub struct PlacementTypeObject;

/// A type that stands for any type in a template: `T`.
#[pyclass(name = "AbstractType", module = "stator.federated", extends = TypeObject, frozen)]
pub struct AbstractTypeObject;

/// A new object for a type that has none.
pub(super) fn make<'py>(py: Python<'py>, ty: &Type) -> PyResult<Bound<'py, PyAny>> {
    let base = PyClassInitializer::from(TypeObject { ty: ty.clone() });
    Ok(match ty.kind() {
        TypeKind::Tensor(_) => Bound::new(py, base.add_subclass(TensorTypeObject))?.into_any(),
        TypeKind::Struct(structure) => {
            let base = base.add_subclass(StructTypeObject);
            match structure.container() {
                None => Bound::new(py, base)?.into_any(),
                Some(_) => {
                    Bound::new(py, base.add_subclass(StructWithPythonTypeObject))?.into_any()
                }
            }
        }
        TypeKind::Sequence(_) => Bound::new(py, base.add_subclass(SequenceTypeObject))?.into_any(),
        TypeKind::Function(_) => Bound::new(py, base.add_subclass(FunctionTypeObject))?.into_any(),
        TypeKind::Federated(_) => {
            Bound::new(py, base.add_subclass(FederatedTypeObject))?.into_any()
        }
        TypeKind::Placement => Bound::new(py, base.add_subclass(PlacementTypeObject))?.into_any(),
        TypeKind::Abstract(_) => Bound::new(py, base.add_subclass(AbstractTypeObject))?.into_any(),
    })
}

#[pymethods]
impl TypeObject {
    fn compact_representation(&self) -> String {
        self.ty.to_string()
    }

    fn formatted_representation(&self) -> String {
        self.ty.formatted()
    }

    fn __str__(&self) -> String {
        self.ty.to_string()
    }

    fn __repr__(&self) -> String {
        self.ty.repr()
    }

    fn __hash__(&self) -> isize {
        // The address of a node is a multiple of its alignment.
        (self.ty.address() >> 4) as isize
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        unwrap(other).is_some_and(|other| other == self.ty)
    }

    /// The types that it is made of, in order.
    fn children<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        iterate(py, self.ty.children())
    }

    /// Whether every value of `source_type` may stand where this type is asked for.
    fn is_assignable_from(&self, source_type: &Bound<'_, PyAny>) -> PyResult<bool> {
        match unwrap(source_type) {
            Some(source) => self.ty.is_assignable_from(&source).py(),
            None => Ok(false),
        }
    }

    /// Whether each type may stand where the other is asked for.
    fn is_equivalent_to(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match unwrap(other) {
            Some(other) => self.ty.is_equivalent_to(&other).py(),
            None => Ok(false),
        }
    }

    /// Whether both are one type.
    fn is_identical_to(&self, other: &Bound<'_, PyAny>) -> bool {
        self.__eq__(other)
    }

    /// Raises `TypeNotAssignableError` if `is_assignable_from` is false.
    fn check_assignable_from(&self, source_type: &Bound<'_, PyAny>) -> PyResult<()> {
        self.ty.check_assignable_from(&convert::expect_type(source_type, "source_type")?).py()
    }

    /// Raises `TypesNotEquivalentError` if `is_equivalent_to` is false.
    fn check_equivalent_to(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.ty.check_equivalent_to(&convert::expect_type(other, "other")?).py()
    }

    /// The message `Type`, as bytes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        wire::type_to_bytes(py, &self.ty)
    }

    /// The type in a message, given as bytes. It has to be of this class.
    #[classmethod]
    #[pyo3(signature = (message, *, container_type=None))]
    fn from_bytes<'py>(
        cls: &Bound<'py, PyType>,
        message: &Bound<'py, PyAny>,
        container_type: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wire::type_from_message(cls, message, container_type)
    }

    /// As `to_bytes`.
    fn to_proto<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        wire::type_to_bytes(py, &self.ty)
    }

    /// As `from_bytes`; a message of the protobuf library will do too.
    #[classmethod]
    #[pyo3(signature = (message, *, container_type=None))]
    fn from_proto<'py>(
        cls: &Bound<'py, PyType>,
        message: &Bound<'py, PyAny>,
        container_type: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wire::type_from_message(cls, message, container_type)
    }

    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        let _ = memo;
        slf
    }

    /// The call of the class that makes this type again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let class = wrap(py, &self.ty)?.get_type().into_any();
        let tuple = |items: Vec<Bound<'py, PyAny>>| PyTuple::new(py, items).map(Bound::into_any);
        let arguments = match self.ty.kind() {
            TypeKind::Tensor(tensor) => {
                let dtype = dtypes::to_numpy(py, tensor.dtype)?.getattr("type")?;
                tuple(vec![dtype, shape_object(py, &tensor.shape)?])?
            }
            TypeKind::Struct(structure) => {
                let mut arguments = vec![items(py, structure.fields())?.into_any()];
                if let Some(container) = structure.container() {
                    arguments.push(containers::class_of(py, container)?.into_any());
                }
                tuple(arguments)?
            }
            TypeKind::Sequence(element) => tuple(vec![wrap(py, element)?])?,
            TypeKind::Function(function) => {
                let parameter = option(py, function.parameter.as_ref())?;
                tuple(vec![parameter, wrap(py, &function.result)?])?
            }
            TypeKind::Federated(federated) => {
                let placement = placements::wrap(py, federated.placement)?;
                (wrap(py, &federated.member)?, placement, federated.all_equal)
                    .into_pyobject(py)?
                    .into_any()
            }
            TypeKind::Placement => tuple(Vec::new())?,
            TypeKind::Abstract(label) => tuple(vec![PyString::new(py, label).into_any()])?,
        };
        Ok((class, arguments))
    }
}

fn iterate<'py, 'a>(
    py: Python<'py>,
    types: impl Iterator<Item = &'a Type>,
) -> PyResult<Bound<'py, PyIterator>> {
    let types = types.map(|ty| wrap(py, ty)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, types)?.try_iter()
}

fn option<'py>(py: Python<'py>, ty: Option<&Type>) -> PyResult<Bound<'py, PyAny>> {
    ty.map_or_else(|| Ok(py.None().into_bound(py)), |ty| wrap(py, ty))
}

/// Pairs of each field's name, or `None`, and type.
fn items<'py>(py: Python<'py>, fields: &[Field]) -> PyResult<Bound<'py, PyList>> {
    let mut pairs = Vec::with_capacity(fields.len());
    for field in fields {
        pairs.push((field.name.as_deref(), wrap(py, &field.ty)?));
    }
    PyList::new(py, pairs)
}

/// The shape as a tuple of sizes, or `None` if the rank isn't known.
pub fn shape_object<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyAny>> {
    match shape.dims() {
        Some(dims) => Ok(PyTuple::new(py, dims)?.into_any()),
        None => Ok(py.None().into_bound(py)),
    }
}

/// The type of an object, which has one of the classes above.
fn of<'a, T>(slf: &'a Bound<'_, T>) -> &'a Type
where
    T: PyClass<BaseType = TypeObject>,
{
    &slf.as_super().get().ty
}

#[pymethods]
impl TensorTypeObject {
    #[new]
    #[pyo3(signature = (dtype, shape=ShapeArgument::scalar()), text_signature = "(dtype, shape=())")]
    fn new<'py>(dtype: &Bound<'py, PyAny>, shape: ShapeArgument) -> PyResult<Bound<'py, PyAny>> {
        wrap(dtype.py(), &Type::tensor(dtypes::from_object(dtype)?, shape.0))
    }

    /// The element type: a `numpy.dtype`.
    #[getter]
    fn dtype<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let tensor = of(slf).as_tensor().expect("the object of a tensor type");
        dtypes::to_numpy(slf.py(), tensor.dtype)
    }

    /// The size of each dimension, `None` where it isn't known; `None` if the rank isn't known.
    #[getter]
    fn shape<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let tensor = of(slf).as_tensor().expect("the object of a tensor type");
        shape_object(slf.py(), &tensor.shape)
    }
}

impl StructTypeObject {
    fn structure<'a>(slf: &'a Bound<'_, Self>) -> &'a StructType {
        of(slf).as_struct().expect("the object of a struct type")
    }
}

#[pymethods]
impl StructTypeObject {
    #[new]
    #[pyo3(signature = (elements, *, convert=true))]
    fn new<'py>(elements: &Bound<'py, PyAny>, convert: bool) -> PyResult<Bound<'py, PyAny>> {
        let fields = convert::to_fields(elements, convert)?;
        wrap(elements.py(), &Type::structure(fields, None).py()?)
    }

    /// Pairs of each field's name, or `None`, and type.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        items(slf.py(), Self::structure(slf).fields())?.try_iter()
    }

    /// The names of the fields that have one, in order.
    fn fields<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let fields = Self::structure(slf).fields();
        PyList::new(
            slf.py(),
            fields.iter().filter_map(|field| field.name.as_deref()).collect::<Vec<_>>(),
        )
    }

    /// A struct type of named elements.
    #[classmethod]
    #[pyo3(signature = (**kwargs))]
    fn named<'py>(
        cls: &Bound<'py, PyType>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let elements = kwargs.map_or_else(|| PyList::empty(cls.py()), PyDictMethods::items);
        cls.call1((elements,))
    }

    /// A struct type of elements without names.
    #[classmethod]
    #[pyo3(signature = (*args))]
    fn unnamed<'py>(
        cls: &Bound<'py, PyType>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        let elements = args.iter().map(|element| (py.None(), element));
        cls.call1((PyList::new(py, elements.collect::<Vec<_>>())?,))
    }

    /// The types of the elements as an `OrderedDict`; with `recursive`, of structs in it too.
    #[pyo3(signature = (recursive=false))]
    fn _asdict<'py>(slf: &Bound<'py, Self>, recursive: bool) -> PyResult<Bound<'py, PyAny>> {
        nest::to_odict(slf.as_any(), recursive)
    }

    /// The class that values of the type come in, or `None`.
    #[getter]
    fn python_container<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyType>>> {
        let container = Self::structure(slf).container();
        container.map(|container| containers::class_of(slf.py(), container)).transpose()
    }

    fn __len__(slf: &Bound<'_, Self>) -> usize {
        Self::structure(slf).len()
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        iterate(slf.py(), Self::structure(slf).fields().iter().map(|field| &field.ty))
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyIterator>> {
        iterate(slf.py(), Self::structure(slf).fields().iter().rev().map(|field| &field.ty))
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let structure = Self::structure(slf);
        if let Ok(name) = key.cast::<PyString>() {
            return field(py, slf, name.to_str()?);
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            let fields = structure.fields();
            let range = slice.indices(fields.len() as isize)?;
            let at = (0..range.slicelength as isize).map(|step| range.start + step * range.step);
            let types = at.map(|at| wrap(py, &fields[at as usize].ty));
            return Ok(PyTuple::new(py, types.collect::<PyResult<Vec<_>>>()?)?.into_any());
        }
        let at = index_key(key, "a struct type")?;
        match usize::try_from(at).ok().and_then(|at| structure.fields().get(at)) {
            Some(field) => wrap(py, &field.ty),
            None => Err(index_error("the struct type", at, structure.len())),
        }
    }

    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        field(slf.py(), slf, name)
    }

    fn __dir__(slf: &Bound<'_, Self>) -> Vec<String> {
        let fields = Self::structure(slf).fields().iter();
        let mut names: Vec<String> =
            fields.filter_map(|field| Some(field.name.as_deref()?.to_owned())).collect();
        names.sort_unstable();
        names
    }
}

fn field<'py>(
    py: Python<'py>,
    slf: &Bound<'py, StructTypeObject>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    match StructTypeObject::structure(slf).field(name) {
        Some(ty) => wrap(py, ty),
        None => Err(PyAttributeError::new_err(format!(
            "the struct type has no field '{name}'\n  found:    {}",
            of(slf).brief()
        ))),
    }
}

#[pymethods]
impl StructWithPythonTypeObject {
    #[new]
    fn new<'py>(
        elements: &Bound<'py, PyAny>,
        container_type: &Bound<'py, PyType>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fields = convert::to_fields(elements, true)?;
        let container = containers::from_class(container_type)?;
        wrap(elements.py(), &Type::structure(fields, Some(container)).py()?)
    }
}

#[pymethods]
impl SequenceTypeObject {
    #[new]
    fn new<'py>(element: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let element_type = to_type_or_err(element, "element")?;
        wrap(element.py(), &Type::sequence(element_type).py()?)
    }

    /// The type of the elements.
    #[getter]
    fn element<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), of(slf).as_sequence().expect("the object of a sequence type"))
    }
}

#[pymethods]
impl FunctionTypeObject {
    #[new]
    fn new<'py>(
        parameter: &Bound<'py, PyAny>,
        result: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let parameter = match parameter.is_none() {
            true => None,
            false => Some(to_type_or_err(parameter, "parameter")?),
        };
        wrap(result.py(), &Type::function(parameter, to_type_or_err(result, "result")?))
    }

    /// The type of the parameter, or `None`.
    #[getter]
    fn parameter<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let function = of(slf).as_function().expect("the object of a function type");
        option(slf.py(), function.parameter.as_ref())
    }

    /// The type of the result.
    #[getter]
    fn result<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), &of(slf).as_function().expect("the object of a function type").result)
    }
}

impl FederatedTypeObject {
    fn federated<'a>(slf: &'a Bound<'_, Self>) -> &'a FederatedType {
        of(slf).as_federated().expect("the object of a federated type")
    }
}

#[pymethods]
impl FederatedTypeObject {
    #[new]
    #[pyo3(signature = (member, placement, all_equal=None))]
    fn new<'py>(
        member: &Bound<'py, PyAny>,
        placement: &Bound<'py, PyAny>,
        all_equal: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let member = to_type_or_err(member, "member")?;
        let at = placements::expect(placement, "placement")?;
        let all_equal = all_equal.map(PyAnyMethods::is_truthy).transpose()?;
        wrap(placement.py(), &Type::federated(member, at, all_equal).py()?)
    }

    /// The type of what each place holds.
    #[getter]
    fn member<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), &Self::federated(slf).member)
    }

    /// Where: `CLIENTS` or `SERVER`.
    #[getter]
    fn placement<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<Bound<'py, placements::PlacementLiteral>> {
        placements::wrap(slf.py(), Self::federated(slf).placement)
    }

    /// Whether every place holds the same.
    #[getter]
    fn all_equal(slf: &Bound<'_, Self>) -> bool {
        Self::federated(slf).all_equal
    }
}

#[pymethods]
impl PlacementTypeObject {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        wrap(py, &Type::placement())
    }
}

#[pymethods]
impl AbstractTypeObject {
    #[new]
    fn new<'py>(label: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        wrap(label.py(), &Type::abstract_type(label.to_str()?))
    }

    /// What it is called.
    #[getter]
    fn label(slf: &Bound<'_, Self>) -> String {
        match of(slf).kind() {
            TypeKind::Abstract(label) => label.to_string(),
            _ => unreachable!("the object of an abstract type"),
        }
    }
}

/// A shape as an argument: a sequence of sizes, `None` where one isn't known; or `None`.
struct ShapeArgument(Shape);

impl ShapeArgument {
    fn scalar() -> Self {
        Self(Shape::scalar())
    }
}

impl<'py> FromPyObject<'_, 'py> for ShapeArgument {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        convert::to_shape(&object).map(Self)
    }
}

/// Adds the classes of types.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // A struct type is a container of types. `StructBase` has no fields of its own, which makes
    // it fit in beside the base that PyO3 knows.
    let bases = (py.get_type::<TypeObject>(), py.get_type::<StructBase>());
    py.get_type::<StructTypeObject>().setattr("__bases__", bases)?;
    module.add_class::<TypeObject>()?;
    module.add_class::<TensorTypeObject>()?;
    module.add_class::<StructTypeObject>()?;
    module.add_class::<StructWithPythonTypeObject>()?;
    module.add_class::<SequenceTypeObject>()?;
    module.add_class::<FunctionTypeObject>()?;
    module.add_class::<FederatedTypeObject>()?;
    module.add_class::<PlacementTypeObject>()?;
    module.add_class::<AbstractTypeObject>()
}
