//! The stand-in for a value in a function that is being traced.

use pyo3::basic::CompareOp;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyIterator, PyList, PySlice, PyString, PyTuple, PyType};
use stator_federated::ast::BuildingBlock;
use stator_federated::tracing::{Open, fields};
use stator_federated::types::Type;
use stator_federated::{Class, Error};

use super::{Here, calls, raise_here};
use crate::federated::types::describe;
use crate::federated::{blocks, types};

/// A value in the body of a federated computation, known by its type only.
///
/// Fields are selected with `value.name`, `value['name']`, `value[0]`, slices and iteration;
/// functions are called. Everything else is for the operations of the language, and for local
/// computations.
#[pyclass(module = "stator.federated", frozen, weakref)]
pub struct Value {
    block: BuildingBlock,
    /// The innermost function being traced that the value belongs to; none for a constant.
    scope: Option<Open>,
}

impl Value {
    /// A value that belongs to `scope`.
    pub fn create(block: BuildingBlock, scope: Option<Open>) -> Self {
        Self { block, scope }
    }

    /// What it stands for.
    pub fn block(&self) -> &BuildingBlock {
        &self.block
    }

    /// The innermost function being traced that it belongs to.
    pub fn scope(&self) -> Option<&Open> {
        self.scope.as_ref()
    }

    /// A part of this value.
    fn part(
        &self,
        py: Python<'_>,
        block: stator_federated::Result<BuildingBlock>,
    ) -> PyResult<Self> {
        Ok(Self::create(block.here(py)?, self.scope.clone()))
    }

    /// The fields of a struct, one after another.
    fn parts(&self, py: Python<'_>) -> PyResult<Vec<Self>> {
        let count = fields::checked_struct(&self.block).here(py)?.len();
        (0..count).map(|at| self.part(py, fields::by_index(&self.block, at as i64))).collect()
    }

    fn refuse(&self, py: Python<'_>, what: &str, hint: &str) -> PyErr {
        let error = Error::new(Class::Type, what.to_owned()).found(self.block.ty()).hint(hint);
        raise_here(py, error)
    }

    fn arithmetic(&self, py: Python<'_>, operator: &str) -> PyErr {
        self.refuse(
            py,
            &format!("`{operator}` isn't an operation of federated values"),
            match self.block.ty().as_federated() {
                Some(_) => {
                    "write a `local_computation` that computes it, and apply that with \
                     `federated_map`"
                }
                None => "write a `local_computation` that computes it, and call that",
            },
        )
    }
}

/// Python's operators as NumPy and PyTorch name them.
const OPERATORS: &[(&str, &str)] = &[
    ("add", "+"),
    ("subtract", "-"),
    ("sub", "-"),
    ("multiply", "*"),
    ("mul", "*"),
    ("divide", "/"),
    ("true_divide", "/"),
    ("truediv", "/"),
    ("floor_divide", "//"),
    ("floordiv", "//"),
    ("remainder", "%"),
    ("mod", "%"),
    ("matmul", "@"),
    ("power", "**"),
    ("pow", "**"),
];

/// The first value in an argument of a function: also in lists, tuples and dictionaries.
fn find_value<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Value>>> {
    let mut left = vec![object.clone()];
    while let Some(object) = left.pop() {
        if let Ok(value) = object.cast::<Value>() {
            return Ok(Some(value.clone()));
        }
        if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>() {
            let items: Vec<_> = object.try_iter()?.collect::<PyResult<_>>()?;
            left.extend(items.into_iter().rev());
        } else if let Ok(dict) = object.cast::<PyDict>() {
            left.extend(dict.values().iter());
        }
    }
    Ok(None)
}

const NO_CHOICE: &str = "while a function is traced its values aren't known, so it can't depend \
                         on them: write a `local_computation` that decides";

#[pymethods]
impl Value {
    #[new]
    fn new(comp: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self::create(blocks::unwrap_or_err(comp, "comp")?, None))
    }

    /// What NumPy's functions for elements do with a value. `array + value` is one of them.
    #[pyo3(signature = (ufunc, *_args, **_kwargs))]
    fn __array_ufunc__(
        &self,
        py: Python<'_>,
        ufunc: &Bound<'_, PyAny>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let name: String = ufunc.getattr("__name__")?.extract()?;
        match OPERATORS.iter().find(|(of, _)| *of == name) {
            Some((_, operator)) => Err(self.arithmetic(py, operator)),
            None => Err(self.arithmetic(py, &format!("np.{name}"))),
        }
    }

    /// What NumPy's other functions do with one.
    #[pyo3(signature = (function, *_args, **_kwargs))]
    fn __array_function__(
        &self,
        py: Python<'_>,
        function: &Bound<'_, PyAny>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let name: String = function.getattr("__name__")?.extract()?;
        Err(self.arithmetic(py, &format!("np.{name}")))
    }

    /// What PyTorch's functions do with one, wherever it stands in the arguments.
    #[classmethod]
    #[pyo3(signature = (function, _types, args=None, kwargs=None))]
    fn __torch_function__(
        _cls: &Bound<'_, PyType>,
        function: &Bound<'_, PyAny>,
        _types: &Bound<'_, PyAny>,
        args: Option<&Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = function.py();
        let name: String = match function.getattr_opt("__name__")? {
            Some(name) => name.extract()?,
            None => function.str()?.to_string(),
        };
        let plain = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
        let plain = plain.unwrap_or(&name);
        let operator =
            OPERATORS.iter().find(|(of, _)| *of == plain || plain.strip_prefix('r') == Some(of));
        let name = match operator {
            Some((_, operator)) if plain != name => (*operator).to_owned(),
            _ => format!("torch.{plain}"),
        };
        let arguments = [args, kwargs].into_iter().flatten();
        match arguments.map(find_value).find_map(Result::transpose).transpose()? {
            Some(value) => Err(value.get().arithmetic(py, &name)),
            None => {
                let what = format!("`{name}` isn't an operation of federated values");
                Err(raise_here(py, Error::new(Class::Type, what)))
            }
        }
    }

    /// The type of the value.
    #[getter]
    fn type_signature<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        types::wrap(py, self.block.ty())
    }

    /// The building block that it stands for.
    #[getter]
    fn comp<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        blocks::wrap(py, &self.block)
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        blocks::wrap(py, &self.block)?.repr()
    }

    fn __str__(&self) -> String {
        self.block.to_string()
    }

    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        (slf.as_ptr() as usize >> 4) as isize
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let what = "a value of a computation can't be pickled: it is known only where it is traced";
        let error = Error::new(Class::Type, what).found(self.block.ty());
        Err(raise_here(py, error.hint("pickle the computation that uses it")))
    }

    fn __copy__<'py>(slf: Bound<'py, Self>) -> Bound<'py, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __dir__(&self) -> Vec<String> {
        let own = ["type_signature", "comp"].map(str::to_owned);
        let of = fields::struct_type(self.block.ty());
        let names = of.iter().flat_map(|of| of.fields()).filter_map(|field| field.name.as_deref());
        own.into_iter().chain(names.map(str::to_owned)).collect()
    }

    fn __getattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<Self> {
        let name = name.to_str()?;
        // Python and its libraries ask for these, and go on without them.
        if name.starts_with("__") && name.ends_with("__") {
            let known =
                fields::struct_type(self.block.ty()).is_some_and(|of| of.field(name).is_some());
            if !known {
                return Err(PyAttributeError::new_err(format!("a Value has no `{name}`")));
            }
        }
        self.part(py, fields::by_name(&self.block, name))
    }

    fn __setattr__(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = value;
        let message = format!("the field `{name}` can't be set: values don't change");
        let error = Error::new(Class::Attribute, message).found(self.block.ty());
        Err(raise_here(py, error.hint("make a new struct, such as a dict, with the other value")))
    }

    fn __delattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<()> {
        let message = format!("the field `{name}` can't be deleted: values don't change");
        Err(raise_here(py, Error::new(Class::Attribute, message).found(self.block.ty())))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = key.cast::<PyString>() {
            return self.part(py, fields::by_name(&self.block, name.to_str()?));
        }
        if let Ok(slice) = key.cast::<PySlice>() {
            return self.slice(py, slice);
        }
        if key.cast::<Self>().is_err()
            && let Ok(index) = key.cast::<PyInt>().map(|key| key.clone().into_any()).or_else(|_| {
                // NumPy's integers are positions too.
                key.call_method0("__index__")
            })
        {
            let index = index.extract::<i64>().unwrap_or(i64::MAX);
            return self.part(py, fields::by_index(&self.block, index));
        }
        fields::checked_struct(&self.block).here(py)?;
        let error = Error::new(Class::Type, "this is no key of a field")
            .expected("a position, a name or a slice")
            .found(describe(key));
        Err(raise_here(py, error))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        match fields::struct_type(self.block.ty()) {
            Some(of) => Ok(of.len()),
            None => Err(self.no_struct(py, "`len()`")),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        if fields::struct_type(self.block.ty()).is_none() {
            return Err(self.no_struct(py, "iteration"));
        }
        PyList::new(py, self.parts(py)?)?.try_iter()
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        calls::call_value(slf, args, kwargs)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Err(self.refuse(py, "a value of a computation is neither true nor false", NO_CHOICE))
    }

    fn __richcmp__(
        &self,
        py: Python<'_>,
        other: &Bound<'_, PyAny>,
        op: CompareOp,
    ) -> PyResult<bool> {
        let _ = other;
        let operator = match op {
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Eq => "==",
            CompareOp::Ne => "!=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        };
        let what = format!("`{operator}` can't compare a value of a computation");
        Err(match op {
            CompareOp::Eq | CompareOp::Ne => self.refuse(
                py,
                &what,
                "`is` asks whether two names are one value; a `local_computation` compares what \
                 they will be",
            ),
            _ => self.refuse(py, &what, NO_CHOICE),
        })
    }

    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        let _ = item;
        Err(self.refuse(py, "`in` can't compare with values of a computation", NO_CHOICE))
    }

    fn __add__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "+"))
    }

    fn __radd__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "+"))
    }

    fn __sub__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "-"))
    }

    fn __rsub__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "-"))
    }

    fn __mul__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "*"))
    }

    fn __rmul__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "*"))
    }

    fn __truediv__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "/"))
    }

    fn __rtruediv__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "/"))
    }

    fn __floordiv__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "//"))
    }

    fn __rfloordiv__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "//"))
    }

    fn __mod__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "%"))
    }

    fn __rmod__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "%"))
    }

    fn __matmul__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "@"))
    }

    fn __rmatmul__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "@"))
    }

    fn __pow__(
        &self,
        py: Python<'_>,
        _other: &Bound<'_, PyAny>,
        _modulo: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Err(self.arithmetic(py, "**"))
    }

    fn __rpow__(
        &self,
        py: Python<'_>,
        _other: &Bound<'_, PyAny>,
        _modulo: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Err(self.arithmetic(py, "**"))
    }

    fn __and__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "&"))
    }

    fn __or__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "|"))
    }

    fn __xor__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "^"))
    }

    fn __lshift__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, "<<"))
    }

    fn __rshift__(&self, py: Python<'_>, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(self.arithmetic(py, ">>"))
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.arithmetic(py, "-"))
    }

    fn __pos__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.arithmetic(py, "+"))
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.arithmetic(py, "abs()"))
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.arithmetic(py, "~"))
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.unknown(py, "an int"))
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.unknown(py, "a float"))
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<()> {
        Err(self.unknown(py, "a position"))
    }

    #[pyo3(signature = (*_args, **_kwargs))]
    fn __array__(
        &self,
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        Err(self.unknown(py, "an array"))
    }
}

impl Value {
    fn unknown(&self, py: Python<'_>, what: &str) -> PyErr {
        self.refuse(
            py,
            &format!("a value of a computation can't be made {what}"),
            "while a function is traced its values aren't known: write a `local_computation` that \
             works with them",
        )
    }

    fn no_struct(&self, py: Python<'_>, what: &str) -> PyErr {
        let error = Error::new(Class::Type, format!("{what} is for structs only"))
            .expected("a struct, or a struct at a placement")
            .found(self.block.ty());
        raise_here(py, error)
    }

    /// Some of the fields, as a struct without names, or at a placement with them.
    fn slice(&self, py: Python<'_>, slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let count = fields::checked_struct(&self.block).here(py)?.len();
        let range = slice.indices(count as isize)?;
        let (mut at, mut chosen) = (range.start, Vec::with_capacity(range.slicelength));
        for _ in 0..range.slicelength {
            chosen.push(at as usize);
            at += range.step;
        }
        if self.block.ty().as_federated().is_some() {
            let block = stator_federated::factory::federated_fields(self.block.clone(), &chosen);
            return self.part(py, block);
        }
        if chosen.is_empty() {
            let error = Error::new(Class::Index, "the slice has no fields")
                .expected(fields::positions(count))
                .found(self.block.ty());
            return Err(raise_here(py, error));
        }
        let field = |&at: &usize| Ok((None, fields::by_index(&self.block, at as i64)?));
        let elements: stator_federated::Result<Vec<_>> = chosen.iter().map(field).collect();
        let list = Some(stator_federated::types::Container::List);
        self.part(py, elements.and_then(|elements| BuildingBlock::structure(elements, list)))
    }

    /// Its type.
    pub fn ty(&self) -> &Type {
        self.block.ty()
    }
}

/// Adds the class.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Value>()
}
