//! What tracing a tensor program knows of the functions it meets, beyond the function table. Its Python
//! side, which knows PyTorch, says it.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyType};
use rustc_hash::FxHashMap;
use stator_cpython::object::{Borrowed, Object};

use crate::functions::{Determined, Operation};

/// How a call of a function is taken.
#[derive(Debug)]
pub enum Taken {
    /// As one operation.
    Node(Operation),
    /// It is made while tracing, and is no part of the program. It gives nothing, a truth value, a
    /// list of tensors that the trace knows, or a text: why the trace can't go on.
    Silent,
    /// Another function does the same and is traced in its place.
    Substitute(Py<PyAny>),
    /// The same, if its first argument is an array or a scalar of NumPy's, or what programs have for such.
    OfArray(Py<PyAny>),
    /// The same, if its arguments are Python's integers and floats.
    OfNumbers(Py<PyAny>),
    /// The same, if its argument is a list or a tuple of such numbers.
    OfRow(Py<PyAny>),
}

/// The rules of one trace.
#[derive(Debug)]
pub struct Rules {
    /// The type of tensors without data.
    stand_in: Py<PyType>,
    /// For a function the ways that there are; a later one comes first.
    calls: FxHashMap<usize, (Py<PyAny>, Vec<Taken>)>,
    /// The code of functions that weak references call.
    weak_callbacks: Vec<(usize, Py<PyAny>)>,
    /// Texts that say what an operation has written to outside the program.
    writes: Py<PyList>,
    /// Holds something while an operation may compute with the number of a tensor, which has no data here.
    computing: Py<PyList>,
    /// The tensors that the call is given, and how they are printed.
    inputs: Vec<(Py<PyAny>, String)>,
    /// The containers around them.
    containers: Vec<Py<PyAny>>,
    /// Types of containers that C code reads, and nothing changes.
    views: Vec<Py<PyAny>>,
    /// What gives an item of a tensor, and what sets one, where the index holds tensors for numbers.
    items: [Py<PyAny>; 2],
    /// The class of what programs have for NumPy's arrays, and the function that makes one of NumPy's own.
    arrays: (Py<PyType>, Py<PyAny>),
    /// Whether the function is NumPy code.
    is_numpy: bool,
    /// Whether the program is for the sizes of its inputs, and others like them alone.
    is_sized: bool,
}

impl Rules {
    /// Reads the rules from the Python side's object.
    ///
    /// # Errors
    /// If it isn't what it should be.
    pub fn read(tracing: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut calls: FxHashMap<usize, (Py<PyAny>, Vec<Taken>)> = FxHashMap::default();
        let mut add = |callable: &Bound<'_, PyAny>, call| {
            let known = calls.entry(callable.as_ptr() as usize);
            known.or_insert_with(|| (callable.clone().unbind(), Vec::new())).1.push(call);
        };
        for (name, callable) in tracing.getattr("nodes")?.cast_into::<PyDict>()?.iter() {
            let name: String = name.extract()?;
            let operation =
                Operation { name: name.into(), is_method: false, determined: Determined::Always };
            add(&callable, Taken::Node(operation));
        }
        for callable in tracing.getattr("silent")?.cast_into::<PyList>()?.iter() {
            add(&callable, Taken::Silent);
        }
        for pair in tracing.getattr("substitutes")?.cast_into::<PyList>()?.iter() {
            let (original, substitute): (Bound<'_, PyAny>, Py<PyAny>) = pair.extract()?;
            add(&original, Taken::Substitute(substitute));
        }
        for pair in tracing.getattr("of_arrays")?.cast_into::<PyList>()?.iter() {
            let (original, substitute): (Bound<'_, PyAny>, Py<PyAny>) = pair.extract()?;
            add(&original, Taken::OfArray(substitute));
        }
        for pair in tracing.getattr("of_numbers")?.cast_into::<PyList>()?.iter() {
            let (original, substitute): (Bound<'_, PyAny>, Py<PyAny>) = pair.extract()?;
            add(&original, Taken::OfNumbers(substitute));
        }
        for pair in tracing.getattr("of_rows")?.cast_into::<PyList>()?.iter() {
            let (original, substitute): (Bound<'_, PyAny>, Py<PyAny>) = pair.extract()?;
            add(&original, Taken::OfRow(substitute));
        }
        Ok(Self {
            stand_in: tracing.getattr("stand_in")?.cast_into()?.unbind(),
            calls,
            weak_callbacks: tracing
                .getattr("weak_callbacks")?
                .try_iter()?
                .map(|code| code.map(|code| (code.as_ptr() as usize, code.unbind())))
                .collect::<PyResult<_>>()?,
            writes: tracing.getattr("writes")?.cast_into()?.unbind(),
            computing: tracing.getattr("computing")?.cast_into()?.unbind(),
            inputs: {
                let inputs: Vec<Py<PyAny>> = tracing.getattr("inputs")?.extract()?;
                let names: Vec<String> = tracing.getattr("names")?.extract()?;
                inputs.into_iter().zip(names).collect()
            },
            containers: tracing.getattr("containers")?.extract()?,
            views: tracing.getattr("views")?.extract()?,
            items: [tracing.getattr("get_item")?.unbind(), tracing.getattr("set_item")?.unbind()],
            arrays: tracing.getattr("arrays")?.extract()?,
            is_numpy: tracing.getattr("is_numpy")?.extract()?,
            is_sized: tracing.getattr("is_sized")?.extract()?,
        })
    }

    /// How calls of this are taken: the first way that fits; otherwise as any other.
    pub fn calls(&self, callable: Borrowed<'_, '_>) -> impl Iterator<Item = &Taken> {
        let known = self.calls.get(&(callable.as_ptr() as usize));
        known.into_iter().flat_map(|(_, calls)| calls.iter().rev())
    }

    /// The tensors that the call is given, and how they are printed.
    pub fn inputs<'py>(&self, py: Python<'py>) -> Vec<(Object<'py>, &str)> {
        let inputs = self.inputs.iter();
        inputs.map(|(input, name)| (input.bind(py).clone(), name.as_str())).collect()
    }

    /// The containers around them.
    pub fn containers<'py>(&self, py: Python<'py>) -> Vec<Object<'py>> {
        self.containers.iter().map(|container| container.bind(py).clone()).collect()
    }

    /// Types of containers that C code reads, and nothing changes.
    pub fn views<'py>(&self, py: Python<'py>) -> Vec<Object<'py>> {
        self.views.iter().map(|ty| ty.bind(py).clone()).collect()
    }

    /// What gives an item of a tensor, or sets one, where the index holds tensors for numbers.
    pub fn item_function<'py>(&self, py: Python<'py>, is_store: bool) -> Object<'py> {
        self.items[usize::from(is_store)].bind(py).clone()
    }

    /// Whether an object is what programs have for NumPy's arrays.
    pub fn is_array(&self, object: Borrowed<'_, '_>) -> bool {
        object.get_type().is(&self.arrays.0)
    }

    /// Whether the function is NumPy code.
    pub fn is_numpy(&self) -> bool {
        self.is_numpy
    }

    /// Whether the program is for the sizes of its inputs, and others like them alone.
    pub fn is_sized(&self) -> bool {
        self.is_sized
    }

    /// The function that makes one of an array of NumPy's own.
    pub fn array_function<'py>(&self, py: Python<'py>) -> Object<'py> {
        self.arrays.1.bind(py).clone()
    }

    /// The type of tensors without data.
    pub fn stand_in<'py>(&self, py: Python<'py>) -> Object<'py> {
        self.stand_in.bind(py).clone().into_any()
    }

    /// Whether an object is a tensor without data: it belongs to the trace.
    pub fn is_stand_in(&self, object: Borrowed<'_, '_>) -> bool {
        object.get_type().is(&self.stand_in)
    }

    /// Whether weak references call a function with the code at this address.
    pub fn is_weak_callback(&self, code: usize) -> bool {
        self.weak_callbacks.iter().any(|(known, _)| *known == code)
    }

    /// Lets operations compute with numbers of tensors, as long as what this gives is there.
    pub fn computing<'py>(&self, py: Python<'py>) -> Computing<'py> {
        let list = self.computing.bind(py).clone();
        // Without memory for that PyTorch says that there is no data.
        let _ = list.append(true);
        Computing { list }
    }

    /// What was written to outside the program since this was asked last.
    pub fn take_write(&self, py: Python<'_>) -> Option<String> {
        let writes = self.writes.bind(py);
        if writes.is_empty() {
            return None;
        }
        let first = writes.get_item(0).ok()?.extract().ok();
        let _ = writes.set_slice(0, writes.len(), &PyList::empty(py));
        first
    }
}

/// Operations may compute with numbers of tensors.
pub struct Computing<'py> {
    list: Bound<'py, PyList>,
}

impl Drop for Computing<'_> {
    fn drop(&mut self) {
        let count = self.list.len();
        let _ = self.list.del_slice(count.saturating_sub(1), count);
    }
}
