//! `grad` of tensors: a slot of leaves from outside, guarded where it is read and fetched at a replay.
//!
//! What this trace has put there itself is no outside read, and neither is what it has computed (see `backward`).

use pyo3::prelude::*;
use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::heap::tensor;
use stator_cpython::hook::Suspended;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Arg, Target};
use stator_guards::{GuardKind, Source};

use crate::breaks::Reason;
use crate::held::Held;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Arguments, Decides, Ends, Operations};
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::gradients::Outer;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Origin, State, Stop};

impl Recorder {
    /// Reads the gradient of a leaf from outside; `None` where it isn't one.
    pub(in crate::recorder) fn outside_gradient<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
    ) -> Option<Object<'py>> {
        if self.session.program.is_some() || self.state.borrow().source(owner).is_none() {
            return None;
        }
        let gradient = {
            let _native = Suspended::new(frame.py());
            tensor::gradient(owner)?
        };
        self.note(frame, |state| state.read_gradient(owner, gradient.as_borrowed()))?;
        Some(gradient)
    }
}

impl State {
    /// Takes note of the gradient that a leaf has, or of there being none.
    pub(in crate::recorder) fn read_gradient(
        &mut self,
        owner: Borrowed<'_, '_>,
        gradient: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let Some(source) = self.source(owner) else { return Ok(()) };
        if self.gradients.is_unknown {
            let detail = "a gradient behind a function that is one node of the graph";
            return Err((Reason::UnknownOrigin, detail.into()));
        }
        self.gradients.own(owner);
        if !self.gradients.set.contains(&(owner.as_ptr() as usize)) {
            let source = self.sources.intern(Source::Gradient(source));
            return self.adopt(source, gradient);
        }
        if gradient.is_none() || self.origin(gradient).is_some() {
            return Ok(());
        }
        Err((Reason::UnknownOrigin, format!("the gradient of a {}", heap::type_name(owner))))
    }

    /// A tensor from outside has no gradient, as far as the trace knows.
    pub(in crate::recorder) fn read_no_gradient(
        &mut self,
        owner: Borrowed<'_, '_>,
    ) -> std::result::Result<(), Stop> {
        let none = owner.py().None();
        self.read_gradient(owner, none.bind_borrowed(owner.py()))
    }

    /// This trace has set or deleted the gradient of a tensor.
    pub(in crate::recorder) fn wrote_gradient(&mut self, owner: Borrowed<'_, '_>) {
        if self.kind(owner) == Kind::Tensor {
            self.gradients.write(owner);
        }
    }

    /// Guards that tensors whose gradients were set, and others whose gradients were read, are different ones.
    pub(in crate::recorder) fn guard_owners_distinct(&mut self) {
        if self.gradients.set.is_empty() {
            return;
        }
        let owners = std::mem::take(&mut self.gradients.owners);
        let of = |owner: &Py<PyAny>| self.source_at(owner.as_ptr() as usize);
        let sources: Vec<_> = owners.iter().filter_map(of).collect();
        if let Some((first, rest)) = sources.split_first()
            && !rest.is_empty()
        {
            self.guard(*first, GuardKind::Distinct(rest.into()));
        }
        self.gradients.owners = owners;
    }
}

impl Recorder {
    /// Reads a gradient that the trace has computed; `None`: it hasn't.
    pub(in crate::recorder) fn computed_gradient<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
        read: impl Fn() -> Result<Object<'py>>,
    ) -> Option<Result<Object<'py>>> {
        let known = {
            let state = self.state.try_borrow().ok()?;
            let is_own = || {
                state.gradients.has_gone_back()
                    && matches!(state.origin(owner), Some(Origin::Node(_)))
                    && tensor::retained_gradient(owner).is_some_and(|gradient| !gradient.is_none())
            };
            state.gradients.computed(owner).or_else(|| is_own().then_some(0))?
        };
        let value = match read() {
            Ok(value) if !value.is_none() && value.as_ptr() as usize != known => value,
            result => return Some(result),
        };
        let target = |state: &mut State| Target::GetAttr { name: state.graph.intern("grad") };
        let result = self.operation(frame, target, &[owner], None, || Ok(value));
        if let Ok(value) = &result {
            self.note(frame, |state| {
                if state.source(owner).is_some() {
                    state.gradients.found(owner, value.as_borrowed());
                }
                Ok(())
            });
        }
        Some(result)
    }
}

impl Recorder {
    /// Makes a replay leave where going back leads elsewhere, as far as these leaves say; false: it can't.
    pub(in crate::recorder) fn is_past<'py>(
        &self,
        frame: &Frame<'py>,
        outer: &Outer,
        reached: &[&Object<'py>],
        others: &[&Object<'py>],
    ) -> bool {
        let asked = |state: &mut State| {
            let mut tuple = |tensors: &[&Object<'py>]| {
                let args = tensors.iter().map(|tensor| state.graph_arg(tensor.as_borrowed()));
                let args = args.collect::<std::result::Result<Vec<_>, Stop>>()?;
                Ok(state.graph.tuple(&args))
            };
            let (reached, others) = (tuple(reached)?, tuple(others)?);
            let args = [Arg::Node(outer.node), reached, others];
            state.asks_held(frame, Held::IsPast, &args).map(Arg::Node)
        };
        matches!(self.decided(frame, Asks::Operation, asked, || Ok(true)), Some(Ok(true)))
    }

    /// The gradient of a tensor is about to be read that nobody knew when the trace went back through a history that
    /// began outside: a replay asks whether that led to it.
    pub(in crate::recorder) fn settle_gradient<'py>(
        &self,
        frame: &Frame<'py>,
        owner: Borrowed<'_, 'py>,
    ) {
        let py = frame.py();
        let address = owner.as_ptr() as usize;
        let may_be_reached =
            self.state.try_borrow().is_ok_and(|state| !state.gradients.outer.is_empty());
        if !may_be_reached || self.state.borrow().source(owner).is_none() {
            return;
        }
        if self.state.borrow().enclosed.is_on() {
            let detail = "a gradient that was computed through what began outside";
            return self.stop(frame, Reason::UnknownOrigin, detail);
        }
        let tensor = owner.to_owned();
        let mut all = std::mem::take(&mut self.state.borrow_mut().gradients.outer);
        let is_known = self.state.borrow().gradients.known.contains(&address);
        let mut before = None;
        for outer in &mut all {
            if !is_known && outer.known.insert(address) {
                let found = outer.unknown.iter().find(|(leaf, _)| leaf.is(&tensor));
                let lists: [&[&Object<'py>]; 2] =
                    if found.is_some() { [&[&tensor], &[]] } else { [&[], &[&tensor]] };
                if !self.is_past(frame, outer, lists[0], lists[1]) {
                    let detail = "a gradient that was computed through what began outside";
                    self.stop(frame, Reason::UnknownOrigin, detail);
                }
                if let (Some((_, gradient)), None) = (found, &before) {
                    before = Some(gradient.as_ref().map(|gradient| gradient.bind(py).clone()));
                }
            }
        }
        self.state.borrow_mut().gradients.outer = all;
        let Some(before) = before else { return };
        self.note(frame, |state| {
            let Some(gradient) = &before else {
                state.read_no_gradient(owner)?;
                state.gradients.compute(owner);
                return Ok(());
            };
            state.read_gradient(owner, gradient.as_borrowed())?;
            state.graph_arg(gradient.as_borrowed())?;
            // It's added to in place, unless it gets a history of its own.
            let is_same = tensor::gradient(owner).is_some_and(|now| now.is(gradient));
            if !is_same {
                state.gradients.compute(owner);
            }
            Ok(())
        });
    }
}
