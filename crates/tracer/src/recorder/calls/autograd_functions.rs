//! `apply` of a `torch.autograd.Function` of the program's: one node, whose code a replay runs. Where no gradient is
//! computed its `forward` is all that it does, and is recorded like any function.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PySuper, PyTuple, PyType};
use stator_cpython::frame::Frame;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::{Result, modules, ops};

use crate::breaks::Reason;
use crate::compiling;
use crate::raises::THROUGH_PYTHON;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Ends, Operations};
use crate::recorder::notes::call::{Call, with_receiver};
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};
use crate::recorder::operations::places::is_grad_enabled;

/// What is needed of PyTorch.
struct Known {
    /// `torch.autograd.Function`.
    class: Py<PyType>,
    /// Its `apply`: a function, from PyTorch 2.15 on a descriptor of C code's.
    apply: Py<PyAny>,
    /// The `setup_context` of functions that have none.
    no_setup: Py<PyAny>,
    /// What gives a function that has a `setup_context` its defaults, from PyTorch 2.15 on: C code calls it.
    binds_defaults: Option<Py<PyAny>>,
    are_transforms_active: Py<PyAny>,
}

fn known(py: Python<'_>) -> Option<&Known> {
    static KNOWN: PyOnceLock<Option<Known>> = PyOnceLock::new();
    let find = || -> PyResult<Known> {
        let class = modules::import(py, "torch.autograd")?.getattr("Function")?;
        let apply = match class.getattr("apply")?.getattr_opt("__func__")? {
            Some(function) => function,
            None => class.getattr("__dict__")?.get_item("apply")?,
        };
        let no_setup = class.getattr("setup_context")?;
        let binds =
            modules::import(py, "torch.autograd.function")?.getattr_opt("_bind_default_args")?;
        let active =
            modules::import(py, "torch._C")?.getattr("_are_functorch_transforms_active")?;
        Ok(Known {
            class: class.cast_into()?.unbind(),
            apply: apply.unbind(),
            no_setup: no_setup.unbind(),
            binds_defaults: binds.map(Bound::unbind),
            are_transforms_active: active.unbind(),
        })
    };
    KNOWN.get_or_init(py, || find().ok()).as_ref()
}

impl Recorder {
    /// Calls `apply` of a custom function; `None`: it's something else, or can't be one node.
    pub(in crate::recorder) fn call_autograd_function<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, names } = call;
        let py = frame.py();
        let known = known(py).filter(|known| known.apply.is(&*callable))?;
        let (&class, given) = args.split_first()?;
        let may_stay = !is_grad_enabled(py) && given.iter().all(|arg| self.is_plain_argument(*arg));
        // An export has no steps of the program's own. And they would be answered otherwise than now whether a compiler
        // traces them.
        let must_stay = self.session.is_whole || compiling::answer();
        if names.is_some()
            || self.is_stopped()
            || self.session.program.is_some()
            || must_stay && !may_stay
            || self.state.borrow().source(class).is_none()
        {
            return None;
        }
        let bound = {
            let _native = Suspended::new(py);
            let is_transformed = known.are_transforms_active.call0(py).ok()?.is_truthy(py).ok()?;
            let above = PySuper::new(known.class.bind(py), &class).ok()?;
            (!is_transformed).then(|| above.getattr("apply").ok())??
        };
        self.know_code(call, class.cast::<PyType>().ok()?.as_any().as_borrowed(), given.len())?;
        let lent = self.note(frame, |state| {
            if !must_stay {
                state.write_early(frame)?;
            }
            state.know_for_good(class)?;
            let mut lent = Vec::new();
            given.iter().try_for_each(|arg| state.give_argument(*arg, frame, &mut lent))?;
            Ok(lent)
        });
        let name = format!("{}.apply", heap::name_of(class));
        let target =
            |state: &mut State| state.seen_target(callable, format!("{THROUGH_PYTHON}{name}"));
        let mut stays = false;
        let result = self.operation(frame, target, args, None, || {
            let call = || ops::call(bound.as_borrowed(), given, None);
            let result = self.enclose_or_keep(frame, &name, given, may_stay, call)?;
            stays = self.kept.get();
            if !stays && must_stay {
                self.stop(frame, Reason::Machinery, &*name);
            } else if !stays {
                self.refuse_known_tensors(frame, &name, args, result.as_borrowed());
            }
            Ok(result)
        });
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.given.take_back(&lent.unwrap_or_default());
        }
        if stays {
            return Some(result);
        }
        self.note(frame, |state| {
            state.enclosed.add_function();
            state.take_out(frame)
        });
        Some(result)
    }

    /// As [`Recorder::call_autograd_function`], of an `apply` that is bound by C code.
    pub(in crate::recorder) fn call_bound_autograd_function<'py>(
        &self,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let Call { frame, callable, args, .. } = call;
        let (class, descriptor) = heap::bound_class_method(callable)?;
        self.note(frame, |state| {
            // What is bound to it is this very object, and stays bound to it.
            if state.is_identity_guarded(callable) {
                state.anchor(class.as_borrowed());
            }
            Ok(())
        });
        let all = with_receiver(class.as_borrowed(), args);
        self.call_autograd_function(call.with(descriptor.as_borrowed(), &all))
    }

    /// Guards which functions a custom function consists of; `None`: they aren't Python functions, or are given
    /// defaults by Python code of PyTorch's.
    fn know_code<'py>(
        &self,
        call: Call<'_, 'py>,
        class: Borrowed<'_, 'py>,
        given: usize,
    ) -> Option<()> {
        let Call { frame, .. } = call;
        let py = frame.py();
        let class = class.cast::<PyType>().ok()?;
        let code = |name: &Bound<'py, pyo3::types::PyString>| {
            let found = self.lookup(frame, &class, name.as_any().as_borrowed())?;
            let is_of_class = heap::type_name(found.as_borrowed()) == "classmethod";
            let is_wrapped = is_of_class || heap::type_name(found.as_borrowed()) == "staticmethod";
            let function =
                if is_wrapped { heap::wrapped_function(found.as_borrowed()) } else { found };
            let is_python = self.kind(function.as_borrowed()) == Kind::Function;
            is_python.then_some((function, usize::from(is_of_class)))
        };
        let (forward, given_class) = code(pyo3::intern!(py, "forward"))?;
        let (setup, _) = code(pyo3::intern!(py, "setup_context"))?;
        self.vouch(frame, forward.as_borrowed());
        let known = known(py)?;
        if !setup.is(known.no_setup.bind(py)) {
            let code = forward.getattr(pyo3::intern!(py, "__code__")).ok()?;
            let takes: usize =
                code.getattr(pyo3::intern!(py, "co_argcount")).ok()?.extract().ok()?;
            let flags: u32 = code.getattr(pyo3::intern!(py, "co_flags")).ok()?.extract().ok()?;
            if takes != given + given_class && flags & VARIADIC == 0 {
                return None;
            }
            self.vouch(frame, setup.as_borrowed());
            if let Some(binds) = &known.binds_defaults {
                self.vouch(frame, binds.bind_borrowed(py));
            }
        }
        Some(())
    }
}

/// `CO_VARARGS`.
const VARIADIC: u32 = 4;

impl State {
    /// Gives a node what a custom function is called with, as it is: what the trace has made is made by nodes.
    /// `lent`: the objects from outside that are handed over themselves.
    fn give_argument(
        &mut self,
        object: Borrowed<'_, '_>,
        frame: &Frame<'_>,
        lent: &mut Vec<usize>,
    ) -> Noted<()> {
        let kind = self.kind(object);
        match kind {
            Kind::Tensor | Kind::Constant | Kind::Type | Kind::Singleton | Kind::Module => Ok(()),
            Kind::Tuple if object.is_exact_instance_of::<PyTuple>() => heap::tuple_items(object)
                .iter()
                .try_for_each(|item| self.give_argument(item.as_borrowed(), frame, lent)),
            Kind::Object if self.source(object).is_some() => self.object_input(object),
            Kind::List | Kind::Dict if let Some(source) = self.source(object) => {
                let node = self.object_node(source);
                lent.extend(self.given.lend(object, node));
                Ok(())
            }
            _ => self.give(object, frame).map(drop),
        }
    }
}
