//! Errors of the federated language as Python's exceptions.

use pyo3::exceptions::{
    PyAttributeError, PyIndexError, PyKeyError, PyNotImplementedError, PyRuntimeError,
    PySyntaxError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use stator_federated::{Class, Error};

macro_rules! exceptions {
    ($($name:ident $base:ident $doc:literal;)*) => {
        $(pyo3::create_exception!(stator.federated, $name, $base, $doc);)*

        /// Adds the exception classes of the language.
        pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add(stringify!($name), module.py().get_type::<$name>())?;)*
            Ok(())
        }
    };
}

exceptions! {
    ContextError PyRuntimeError "Something was used outside the context that it needs.";
    TypeNotAssignableError PyTypeError "A value of one type can't stand where another is asked for.";
    TypesNotEquivalentError PyTypeError "Two types should be equivalent.";
    UnexpectedTypeError PyTypeError "A type of another kind was expected.";
    UnexpectedBlockError PyTypeError "A building block of another kind was expected.";
    NonuniqueNameError PyValueError "A name is bound more than once.";
    SumIncompatibleError PyTypeError "Values of the type can't be summed.";
    NotConcreteTypeError PyTypeError "An abstract type stands where a concrete one is needed.";
    MismatchedStructureError PyTypeError "A type isn't built like its template.";
    MismatchedConcreteTypesError PyTypeError "One label of a template stands for different types.";
    UnassignableConcreteTypesError PyTypeError "A type doesn't fit what a label stands for.";
    MissingDefiningUsageError PyTypeError "Nothing defines what a label stands for.";
    InvalidNonAllEqualValueError PyTypeError "A value that differs between clients must be a list.";
    ComputationReturnedNoneError PyValueError "The function of a computation returned None.";
}

/// The exception for an error.
pub fn raise(error: &Error) -> PyErr {
    let text = error.to_string();
    match error.class() {
        Class::Type => PyTypeError::new_err(text),
        Class::Value | Class::Malformed => PyValueError::new_err(text),
        Class::Index => PyIndexError::new_err(text),
        Class::Key => PyKeyError::new_err(text),
        Class::Attribute => PyAttributeError::new_err(text),
        Class::NotImplemented => PyNotImplementedError::new_err(text),
        Class::Syntax => PySyntaxError::new_err(text),
        Class::Runtime => PyRuntimeError::new_err(text),
        Class::Context => ContextError::new_err(text),
        Class::NotAssignable => TypeNotAssignableError::new_err(text),
        Class::NotEquivalent => TypesNotEquivalentError::new_err(text),
        Class::UnexpectedType => UnexpectedTypeError::new_err(text),
        Class::UnexpectedBlock => UnexpectedBlockError::new_err(text),
        Class::NonuniqueName => NonuniqueNameError::new_err(text),
        Class::SumIncompatible => SumIncompatibleError::new_err(text),
        Class::NotConcrete => NotConcreteTypeError::new_err(text),
        Class::MismatchedStructure => MismatchedStructureError::new_err(text),
        Class::MismatchedConcreteTypes => MismatchedConcreteTypesError::new_err(text),
        Class::UnassignableConcreteTypes => UnassignableConcreteTypesError::new_err(text),
        Class::MissingDefiningUsage => MissingDefiningUsageError::new_err(text),
        Class::InvalidNonAllEqual => InvalidNonAllEqualValueError::new_err(text),
        Class::ReturnedNone => ComputationReturnedNoneError::new_err(text),
    }
}

/// Turns the errors of the language into exceptions: `result.py()?`.
pub trait IntoPython<T> {
    /// The value, or the exception for the error.
    fn py(self) -> PyResult<T>;
}

impl<T> IntoPython<T> for stator_federated::Result<T> {
    fn py(self) -> PyResult<T> {
        self.map_err(|error| raise(&error))
    }
}
