//! Operations that an argument takes over by its `__torch_function__`, though it is no tensor: a matrix that is known by its
//! factors, a dictionary of tensors.
//!
//! Which function PyTorch hands to that method (`torch.Tensor.matmul` for `x @ y`), and what else, is decided by its
//! parsers. So these are asked: they are given stand-ins at the objects' places, whose own method takes note. Then the
//! object's method is called with the same, and traced like any other. A graph break within it ends the trace before the
//! operation.

use std::cell::RefCell;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple, PyType};
use smallvec::SmallVec;
use stator_cpython::generic::{self, DescriptorType};
use stator_cpython::heap::types;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::raised::Raised;
use stator_cpython::{Result, ops};

use crate::breaks::Reason;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::{Args, Call};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::State;

/// By this method an object takes operations over.
pub(super) const METHOD: &str = "__torch_function__";

/// What PyTorch has asked a stand-in: the function, the arguments, and those by name.
struct Asked {
    function: Py<PyAny>,
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
}

thread_local! {
    static ASKED: RefCell<Option<Asked>> = const { RefCell::new(None) };
}

/// Stands for an object in a call that is only asked about.
#[pyclass(frozen, name = "StandIn")]
struct StandIn;

#[pymethods]
impl StandIn {
    #[classmethod]
    #[pyo3(signature = (function, types, args = None, kwargs = None))]
    fn __torch_function__<'py>(
        cls: &Bound<'py, PyType>,
        function: Py<PyAny>,
        types: &Bound<'py, PyAny>,
        args: Option<Bound<'py, PyTuple>>,
        kwargs: Option<Py<PyDict>>,
    ) -> Object<'py> {
        let py = cls.py();
        let _ = types;
        let args = args.unwrap_or_else(|| PyTuple::empty(py)).unbind();
        let before = ASKED.replace(Some(Asked { function, args, kwargs }));
        drop(before);
        py.NotImplemented().into_bound(py)
    }
}

/// The stand-ins of a call: each with what it stands for, lists and tuples that hold some among them.
type StandIns<'py> = SmallVec<[(Object<'py>, Object<'py>); 4]>;

impl Recorder {
    /// See [`Protocols::overridden`](crate::recorder::notes::above::Protocols).
    pub(super) fn taken_over<'py>(&self, call: Call<'_, 'py>) -> Option<Result<Object<'py>>> {
        if self.is_stopped() || self.session.program.is_some() {
            return None;
        }
        let object = {
            let mut state = self.state.try_borrow_mut().ok()?;
            overriding(&mut state, call.args)?
        };
        let Call { frame, .. } = call;
        let py = frame.py();
        let name = PyString::intern(py, METHOD);
        let ty = object.get_type();
        let found = self.lookup(frame, &ty, name.as_any().as_borrowed())?;
        if generic::descriptor_type(found.as_borrowed()) != Some(DescriptorType::ClassMethod) {
            return None;
        }
        let (asked, refusal) = {
            let _native = Suspended::new(py);
            ask(call, &ty).ok().flatten()?
        };
        let method = match self.get_attr(frame, object.as_borrowed(), name.as_any().as_borrowed()) {
            Ok(method) => method,
            Err(raised) => return Some(Err(raised)),
        };
        let types = PyTuple::new(py, [&ty]).ok()?;
        let function = asked.function.bind(py);
        let given = [Some(function.clone()), Some(types.into_any())].into_iter();
        let kwargs = asked.kwargs.map(|kwargs| kwargs.into_bound(py).into_any());
        let given = given.chain([Some(asked.args.into_bound(py).into_any()), kwargs]);
        let given: SmallVec<[Object<'py>; 4]> = given.flatten().collect();
        self.note(frame, |state| {
            state.know_for_good(function.as_borrowed())?;
            given.iter().skip(1).try_for_each(|object| state.register(object.as_borrowed()))
        })?;
        let args: Args<'_, 'py> = given.iter().map(Bound::as_borrowed).collect();
        let result = self.call_object(Call::new(frame, method.as_borrowed(), &args));
        Some(result.and_then(|result| {
            let refusal = match refusal {
                Some(refusal) if ops::is_not_implemented(&result) => refusal,
                _ => return Ok(result),
            };
            self.stop(frame, Reason::OperationRaised, heap::name_of(call.callable));
            Err(Raised::set(py, refusal))
        }))
    }
}

/// The first argument that may take an operation over, if all of those are of one class, and none is a tensor.
fn overriding<'py>(state: &mut State, args: &[Borrowed<'_, 'py>]) -> Option<Object<'py>> {
    let mut first: Option<Object<'py>> = None;
    let mut see = |state: &mut State, object: Borrowed<'_, 'py>| match state.kind_alone(object) {
        Kind::Object => {
            let ty = object.get_type();
            let overrides = types::lookup_named(&ty, METHOD).is_some();
            let is_like = first.as_ref().is_none_or(|first| first.get_type().is(&ty));
            if overrides && is_like && first.is_none() {
                first = Some(object.to_owned());
            }
            !overrides || is_like
        }
        Kind::Opaque => false,
        _ => true,
    };
    for arg in args {
        let all = match state.kind_alone(*arg) {
            Kind::List if heap::is_exact_list(*arg) => {
                heap::list_items(*arg).iter().all(|item| see(state, item.as_borrowed()))
            }
            Kind::Tuple if heap::is_plain_tuple(*arg) => {
                heap::tuple_items(*arg).iter().all(|item| see(state, item.as_borrowed()))
            }
            _ => see(state, *arg),
        };
        if !all {
            return None;
        }
    }
    first
}

/// What PyTorch asks an object of this class in such a call, and what it raises if that doesn't answer: the methods of
/// operators raise nothing. `None`: it asks nothing.
fn ask<'py>(
    call: Call<'_, 'py>,
    ty: &Bound<'py, PyType>,
) -> PyResult<Option<(Asked, Option<PyErr>)>> {
    let py = ty.py();
    let mut made = StandIns::new();
    let given: Vec<Object<'py>> =
        call.args.iter().map(|arg| stand_in(*arg, ty, &mut made)).collect::<PyResult<_>>()?;
    let args: Args<'_, 'py> = given.iter().map(Bound::as_borrowed).collect();
    drop(ASKED.take());
    let answer = ops::call(call.callable, &args, call.names);
    let asked = ASKED.take();
    let Some(Asked { function, args, kwargs }) = asked else {
        drop(answer.map_err(|raised| raised.clear(py)));
        return Ok(None);
    };
    let refusal = answer.err().map(|raised| {
        let error = raised.take(py);
        let [text, own, shown] = [
            error.value(py).str()?.to_string(),
            py.get_type::<StandIn>().repr()?.to_string(),
            ty.repr()?.to_string(),
        ];
        PyResult::Ok(PyTypeError::new_err(text.replace(&own, &shown)))
    });
    let known = |object: Object<'py>| {
        let stands = made.iter().find(|(made, _)| made.is(&object));
        stands.map_or(object.clone(), |(_, stands)| stands.clone())
    };
    let args = PyTuple::new(py, args.bind(py).iter().map(known))?.unbind();
    let kwargs = kwargs.map(|kwargs| {
        let named = PyDict::new(py);
        for (name, value) in kwargs.bind(py) {
            named.set_item(name, known(value))?;
        }
        PyResult::Ok(named.unbind())
    });
    let kwargs = kwargs.transpose()?;
    Ok(Some((Asked { function, args, kwargs }, refusal.transpose()?)))
}

/// An argument, or what stands for it.
fn stand_in<'py>(
    arg: Borrowed<'_, 'py>,
    ty: &Bound<'py, PyType>,
    made: &mut StandIns<'py>,
) -> PyResult<Object<'py>> {
    if let Some((stand_in, _)) = made.iter().find(|(_, stands)| stands.is(&*arg)) {
        return Ok(stand_in.clone());
    }
    let py = arg.py();
    let is_own = |item: &Object<'py>| item.get_type().is(ty);
    let items = match () {
        () if heap::is_exact_list(arg) => heap::list_items(arg),
        () if heap::is_plain_tuple(arg) => heap::tuple_items(arg),
        () if arg.get_type().is(ty) => {
            let stand_in = Bound::new(py, StandIn)?.into_any();
            made.push((stand_in.clone(), arg.to_owned()));
            return Ok(stand_in);
        }
        () => return Ok(arg.to_owned()),
    };
    if !items.iter().any(is_own) {
        return Ok(arg.to_owned());
    }
    let items = items.iter().map(|item| stand_in(item.as_borrowed(), ty, made));
    let items = items.collect::<PyResult<Vec<_>>>()?;
    let container = match heap::is_exact_list(arg) {
        true => PyList::new(py, items)?.into_any(),
        false => PyTuple::new(py, items)?.into_any(),
    };
    made.push((container.clone(), arg.to_owned()));
    Ok(container)
}
