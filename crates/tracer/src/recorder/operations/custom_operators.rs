//! Custom operators (`torch.library`): one node each, if their results' metadata follows from their inputs'.
//!
//! Nobody has a row for them, and they may do anything. What can be asked is their schema, their tags
//! and their fake kernel, which is code of the user's: `stator._fx.custom_operators` does. Their
//! own code runs natively, and what it reads is its own affair, as it is for PyTorch's tracers.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Raised, Result, modules};

use crate::breaks::Reason;
use crate::functions::{Determined, Operation, aten_operation};
use crate::recorder::Recorder;
use crate::recorder::notes::above::Ends;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;

/// An overload, and the metadata that its results will have.
struct Foretold<'py> {
    module: Bound<'py, PyModule>,
    overload: Object<'py>,
    name: String,
    results: Object<'py>,
    /// Whether data decides sizes of the results.
    is_open: bool,
}

impl Recorder {
    /// Calls an operator of `torch.ops`, or an object that `torch.library.custom_op` made.
    pub(in crate::recorder) fn call_operator<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Result<Object<'py>> {
        let Call { frame, callable, .. } = call;
        let operation = {
            let _native = Suspended::new(frame.py());
            aten_operation(callable)
        };
        if let Some(operation) = operation {
            return self.tensor_call(&operation, call);
        }
        if self.session.program.is_some() || !is_operator(callable) {
            self.stop(frame, Reason::OpaqueCall, heap::type_name(callable));
            return call.natively();
        }
        let foretold = {
            let _native = Suspended::new(frame.py());
            foretell(call)
        };
        let foretold = match foretold {
            Ok(Ok(foretold)) => foretold,
            Ok(Err(why)) => {
                self.stop(frame, Reason::DynamicOutput, why);
                return call.natively();
            }
            Err(error) if error.is_instance_of::<PyException>(frame.py()) => {
                self.stop(frame, Reason::OpaqueCall, heap::type_name(callable));
                return call.natively();
            }
            // An interrupt, which is the user's.
            Err(error) => return Err(Raised::set(frame.py(), error)),
        };
        let determined = if foretold.is_open { Determined::Sized } else { Determined::Always };
        let operation = Operation { name: foretold.name.into(), is_method: false, determined };
        let overload = foretold.overload.as_borrowed();
        let result = self.tensor_call(&operation, call.of(overload))?;
        let agrees = {
            let _native = Suspended::new(frame.py());
            let given = (&foretold.overload, &foretold.results, &result);
            let answer = foretold.module.getattr("agrees").and_then(|agrees| agrees.call1(given));
            answer.and_then(|answer| answer.extract::<bool>()).unwrap_or(false)
        };
        if !agrees {
            let detail = format!("{}, other than its fake kernel says", operation.name);
            self.stop(frame, Reason::DynamicOutput, detail);
        }
        Ok(result)
    }
}

fn is_operator(callable: Borrowed<'_, '_>) -> bool {
    matches!(&*heap::type_name(callable), "OpOverload" | "OpOverloadPacket" | "CustomOpDef")
}

/// What the operator's fake kernel says; why it says nothing, if so.
fn foretell<'py>(call: Call<'_, 'py>) -> PyResult<std::result::Result<Foretold<'py>, String>> {
    let Call { callable, args, names, .. } = call;
    let py = callable.py();
    let module = modules::import(py, "stator._fx.custom_operators")?;
    let keywords = PyDict::new(py);
    let mut positional = args;
    if let Some(names) = names {
        let names = names.cast_exact::<PyTuple>()?;
        let (before, named) = args.split_at(args.len() - names.len());
        positional = before;
        for (name, value) in names.iter_borrowed().zip(named) {
            keywords.set_item(name, *value)?;
        }
    }
    let positional = PyTuple::new(py, positional)?;
    let planned = module.getattr("plan")?.call1((&*callable, positional, keywords))?;
    let (overload, results) = planned.extract::<(Object<'py>, Object<'py>)>()?;
    if overload.is_none() {
        return Ok(Err(results.str()?.to_string()));
    }
    let name = format!("torch.ops.{}", overload.str()?);
    let is_open = module.getattr("is_open")?.call1((&results,))?.extract()?;
    Ok(Ok(Foretold { module, overload, name, results, is_open }))
}
