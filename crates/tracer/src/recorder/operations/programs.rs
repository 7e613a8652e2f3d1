//! Operations in the trace of a tensor program: they may write to nothing from outside.

use stator_cpython::Result;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};
use stator_graph::{Target, TextId};

use crate::breaks::Reason;
use crate::program_rules::Rules;
use crate::recorder::Recorder;
use crate::recorder::notes::above::{Calls, Ends};
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Noted, State};

impl Recorder {
    /// What an operation, before it is executed, would do that a program can't.
    pub(in crate::recorder) fn refuses_operation(
        &self,
        frame: &Frame<'_>,
        target: Target,
        args: &[Borrowed<'_, '_>],
        names: &[TextId],
    ) {
        let Some(rules) = &self.session.program else { return };
        self.note(frame, |state| {
            let written = if names.iter().any(|name| state.graph.text(*name) == "out") {
                args.last()
            } else if state.writes_first(target) {
                args.first()
            } else {
                None
            };
            let Some(written) = written else { return Ok(()) };
            state.refuse_outside(rules, *written)
        });
    }

    /// The operands of an operator, of which one is an array of the program's and the other one of NumPy's own: both as
    /// arrays of the program's.
    pub(in crate::recorder) fn operands_in_program<'py>(
        &self,
        frame: &Frame<'py>,
        [left, right]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<[Object<'py>; 2]>> {
        let rules = self.session.program.as_ref()?;
        let (is_left, is_right) = (rules.is_array(left), rules.is_array(right));
        if rules.is_numpy() && !is_left && !is_right {
            return self.own_operands(frame, [left, right]);
        }
        let other = if is_left { right } else { left };
        if is_left == is_right || !heap::is_array(other) {
            return None;
        }
        let convert = rules.array_function(frame.py());
        self.vouch(frame, convert.as_borrowed());
        let converted = self.call_object(Call::new(frame, convert.as_borrowed(), &[other]));
        Some(converted.map(|converted| {
            if is_left { [left.to_owned(), converted] } else { [converted, right.to_owned()] }
        }))
    }

    /// The operands of an operator of NumPy code, of which at least one is an array from outside.
    fn own_operands<'py>(
        &self,
        frame: &Frame<'py>,
        [left, right]: [Borrowed<'_, 'py>; 2],
    ) -> Option<Result<[Object<'py>; 2]>> {
        let (own_left, own_right) = (self.own_array(frame, left), self.own_array(frame, right));
        if own_left.is_none() && own_right.is_none() {
            return None;
        }
        let left = own_left.unwrap_or_else(|| Ok(left.to_owned()));
        Some(left.and_then(|left| Ok([left, own_right.unwrap_or_else(|| Ok(right.to_owned()))?])))
    }

    /// Whether an operator is one of arrays of the program's, whose methods take numbers that vary.
    pub(in crate::recorder) fn is_of_arrays(&self, operands: &[Borrowed<'_, '_>]) -> bool {
        let rules = self.session.program.as_ref();
        rules.is_some_and(|rules| operands.iter().any(|operand| rules.is_array(*operand)))
    }

    /// What an operation has written to outside the program.
    pub(in crate::recorder) fn refuse_written(&self, frame: &Frame<'_>) {
        let Some(rules) = &self.session.program else { return };
        if let Some(what) = rules.take_write(frame.py()) {
            self.stop(frame, Reason::Impure, what);
        }
    }
}

impl State {
    /// Fails for a tensor that isn't the trace's own.
    fn refuse_outside(&mut self, rules: &Rules, object: Borrowed<'_, '_>) -> Noted<()> {
        match self.kind(object) {
            Kind::Tensor if !rules.is_stand_in(object) => {
                Err((Reason::Impure, "a tensor from outside".to_string()))
            }
            Kind::List | Kind::Tuple => heap::children(object)
                .iter()
                .try_for_each(|item| self.refuse_outside(rules, item.as_borrowed())),
            _ => Ok(()),
        }
    }

    /// Whether an operation writes to its first argument, by PyTorch's convention for names.
    pub(in crate::recorder) fn writes_first(&self, target: Target) -> bool {
        let name = match target {
            Target::Operator(operator) => return operator.is_in_place(),
            Target::GetAttr { .. } | Target::Decide | Target::Catch => return false,
            Target::Function { name, .. } | Target::Method { name, .. } => self.graph.text(name),
        };
        name.split('.').any(|part| part.ends_with('_') && !part.ends_with("__"))
            || name.starts_with("__i") && name != "__invert__" && name != "__index__"
            || matches!(name, "__setitem__" | "__delitem__")
            || name.contains(".__set__")
            || name.contains(".__delete__")
    }
}
