//! Functions of `math` that a node calls again: nothing is known of what they give but that it's a float.

use pyo3::prelude::*;
use pyo3::types::PyFloat;
use smallvec::SmallVec;
use stator_cpython::Result;
use stator_cpython::object::{Borrowed, Object};
use stator_cpython::ops::CompareOp;
use stator_graph::{Arg, TextId};
use stator_shapes::LARGEST_EXPONENT;

use super::arithmetic::Term;
use super::number_functions::boolean;
use super::read_numbers::are_read;
use crate::functions::{Numeric, Range};
use crate::recorder::Recorder;
use crate::recorder::notes::above::Decides;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::exits::Asks;
use crate::recorder::notes::heap;
use crate::recorder::notes::state::State;
use crate::recorder::notes::symbols::{Number, Operand};

/// Sequences of more numbers are asked for their values.
const MOST: usize = 64;

/// What a function is given for one parameter.
enum Given<'py> {
    Number(Object<'py>, Term),
    Sequence(Vec<(Object<'py>, Term)>),
}

impl<'py> Given<'py> {
    fn numbers(&self) -> impl Iterator<Item = (Borrowed<'_, 'py>, &Term)> {
        let (single, row) = match self {
            Self::Number(object, term) => (Some((object, term)), [].as_slice()),
            Self::Sequence(row) => (None, row.as_slice()),
        };
        let row = row.iter().map(|(object, term)| (object, term));
        single.into_iter().chain(row).map(|(object, term)| (object.as_borrowed(), term))
    }

    fn arg(&self, state: &mut State) -> Arg {
        match self {
            Self::Number(_, term) => state.term_args(&[*term])[0],
            Self::Sequence(row) => {
                let terms: Vec<Term> = row.iter().map(|(_, term)| *term).collect();
                let args = state.term_args(&terms);
                state.graph.list(&args)
            }
        }
    }
}

fn bounds(range: Range) -> &'static [(CompareOp, f64)] {
    use CompareOp::{Ge, Gt, Le, Lt};
    match range {
        Range::Any => &[],
        Range::Finite => &[(Gt, f64::NEG_INFINITY), (Lt, f64::INFINITY)],
        Range::Exponents => &[(Lt, LARGEST_EXPONENT)],
        Range::BothExponents => &[(Gt, -LARGEST_EXPONENT), (Lt, LARGEST_EXPONENT)],
        Range::Unit => &[(Ge, -1.0), (Le, 1.0)],
        Range::WithinUnit => &[(Gt, -1.0), (Lt, 1.0)],
        Range::FromOne => &[(Ge, 1.0)],
        Range::AboveMinusOne => &[(Gt, -1.0)],
        Range::Summable => &[(Gt, -1e300), (Lt, 1e300)],
    }
}

impl Recorder {
    /// A call of such a function where one of the numbers was read. `None`: the numbers are asked for their values.
    pub(in crate::recorder) fn float_function<'py>(
        &self,
        numeric: Numeric,
        call: Call<'_, 'py>,
    ) -> Option<Result<Object<'py>>> {
        let range = match numeric {
            Numeric::Floats(range) => range,
            Numeric::Close => Range::Any,
            _ => return None,
        };
        let Call { frame, callable, args, names } = call;
        if !self.has_symbols() {
            return None;
        }
        let given = args.iter().map(|arg| self.given_number(*arg));
        let given = given.collect::<Option<SmallVec<[Given<'py>; 2]>>>()?;
        let terms: Vec<Term> = given.iter().flat_map(Given::numbers).map(|it| *it.1).collect();
        if !are_read(&terms) || terms.len() > MOST {
            return None;
        }
        // A tolerance that is negative raises.
        let varies = |term: &Term| !matches!(term.operand, Operand::Other(_));
        let tolerances =
            if numeric == Numeric::Close { given.get(2..).unwrap_or_default() } else { &[] };
        let mut tolerances = tolerances.iter().flat_map(Given::numbers);
        if tolerances.any(|it| varies(it.1)) {
            return None;
        }
        let mut numbers = given.iter().flat_map(Given::numbers);
        let is_within = |(number, term): (Borrowed<'_, 'py>, &Term)| match term.number {
            Number::Read(_) => self.is_within(frame, number, term, bounds(range)),
            // Those of a symbol are guarded.
            _ if varies(term) => bounds(range).iter().all(|(op, bound)| {
                let bound = PyFloat::new(frame.py(), *bound).into_any();
                let holds = self.comparison_holds(frame, *op, number, bound.as_borrowed());
                holds.unwrap_or(false)
            }),
            _ => true,
        };
        if !numbers.all(is_within) {
            return None;
        }
        let names = names.map_or_else(Vec::new, heap::tuple_items);
        let node = |state: &mut State| {
            let name = format!("math.{}", heap::callable_name(callable));
            let target = state.function_target(callable, name);
            let args: SmallVec<[Arg; 4]> = given.iter().map(|it| it.arg(state)).collect();
            let names = names.iter().map(|name| heap::text(name.as_borrowed()));
            let names: SmallVec<[TextId; 2]> =
                names.map(|name| state.graph.intern(&name)).collect();
            let stack = state.place(frame);
            state.graph.call_with_keywords(target, &args, &names, stack)
        };
        if numeric == Numeric::Close {
            let native = || call.natively().map(|it| it.is_truthy().unwrap_or(false));
            let asked = |state: &mut State| Ok(Arg::Node(node(state)));
            let answer = self.decided(frame, Asks::Program, asked, native)?;
            return Some(answer.map(|answer| boolean(frame.py(), answer)));
        }
        let value = match call.natively() {
            Ok(value) => value,
            Err(raised) => {
                self.concrete(frame, args, "an error");
                return Some(Err(raised));
            }
        };
        self.carried_by_node(frame, &value, None, node).map(Ok)
    }

    /// A number, or a list or tuple of such.
    fn given_number<'py>(&self, arg: Borrowed<'_, 'py>) -> Option<Given<'py>> {
        let number = self.state.borrow_mut().term(arg);
        if let Some(term) = number {
            return Some(Given::Number(arg.to_owned(), term));
        }
        let items = self.elements(arg)?;
        let mut state = self.state.borrow_mut();
        let row = items.into_iter().map(|item| {
            let term = state.term(item.as_borrowed())?;
            Some((item, term))
        });
        row.collect::<Option<_>>().map(Given::Sequence)
    }
}
