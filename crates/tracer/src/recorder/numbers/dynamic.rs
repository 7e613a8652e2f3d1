//! Which sizes and numbers from outside become symbols, when they are found.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PySet, PyString};
use smallvec::SmallVec;
use stator_cpython::heap::dict::{Peek, peek_instance_dict};
use stator_cpython::object::Borrowed;
use stator_guards::{SourceId, TensorGuard};
use stator_shapes::SIZE_LIMIT;

use super::symbols::SIZES;
use crate::recorder::notes::heap;
use crate::recorder::notes::kinds::Kind;
use crate::recorder::notes::state::{Slot, State};
use crate::recorder::notes::symbols::{Sizes, TensorKey};
use crate::symbolic::Part;

/// What a user said of a tensor's sizes: `stator.mark_dynamic` and such, or PyTorch's functions of these
/// names, which leave the same attributes.
#[derive(Default)]
struct Marks {
    dynamic: Vec<usize>,
    maybe: Vec<usize>,
    fixed: Vec<usize>,
    /// Size, least, most.
    ranges: Vec<(usize, Option<i64>, Option<i64>)>,
}

impl Marks {
    /// The marks on a tensor, if there are any.
    fn of(tensor: Borrowed<'_, '_>) -> Option<Self> {
        let Peek::Dict(dict) = peek_instance_dict(tensor) else { return None };
        let dict = dict.as_borrowed();
        if heap::dict_length(dict) == 0 {
            return None;
        }
        let py = tensor.py();
        let find =
            |name: &str| heap::dict_get(dict, PyString::intern(py, name).as_any().as_borrowed());
        let indices = |name: &str| -> Vec<usize> {
            let found = find(name);
            let set = found.as_ref().and_then(|found| found.cast::<PySet>().ok());
            set.map_or_else(Vec::new, |set| {
                heap::set_items(set.as_any().as_borrowed())
                    .iter()
                    .filter_map(|item| item.extract().ok())
                    .collect()
            })
        };
        let marks = Self {
            dynamic: indices("_dynamo_dynamic_indices"),
            maybe: indices("_dynamo_weak_dynamic_indices"),
            fixed: indices("_dynamo_static_indices"),
            ranges: find("_dynamo_dynamic_range").map_or_else(Vec::new, |found| {
                heap::set_items(found.as_borrowed())
                    .iter()
                    .filter_map(|range| {
                        let field = |name: &str| range.getattr(name).ok();
                        let index = field("dim")?.extract().ok()?;
                        let bound = |name: &str| field(name)?.extract::<Option<i64>>().ok()?;
                        Some((index, bound("min"), bound("max")))
                    })
                    .collect()
            }),
        };
        let any = !(marks.dynamic.is_empty() && marks.maybe.is_empty() && marks.fixed.is_empty());
        any.then_some(marks)
    }

    fn range(&self, index: usize, sizes: (i64, i64)) -> (i64, i64) {
        let (mut least, mut most) = sizes;
        for (_, min, max) in self.ranges.iter().filter(|range| range.0 == index) {
            least = least.max(min.unwrap_or(least));
            most = most.min(max.unwrap_or(most));
        }
        (least, most.min(SIZE_LIMIT))
    }
}

impl State {
    /// Takes those sizes of an outside tensor as symbols that are to be ones: the guard on the tensor
    /// then accepts any there, and facts say which.
    pub fn loosen(&mut self, source: SourceId, tensor: Borrowed<'_, '_>, guard: &mut TensorGuard) {
        let py = tensor.py();
        let marks = Marks::of(tensor);
        if marks.is_none() && self.policy.is_static() {
            return;
        }
        let marks = marks.unwrap_or_default();
        let numbers = |all: &[Option<i64>]| -> SmallVec<[i64; 6]> {
            all.iter().map(|number| number.expect("a new guard names all sizes")).collect()
        };
        let (sizes, strides) = (numbers(&guard.sizes), numbers(&guard.strides));
        let is_parameter = heap::type_name(tensor) == "Parameter";
        let taken = if is_parameter {
            None
        } else {
            let print = || self.sources.print(source);
            self.policy.takes_sizes(tensor, &sizes, &strides, print)
        };
        let rank = sizes.len();
        // A program has no other trace for 0 and 1: where it matters, the operations say so.
        let bounds = if self.program.is_some() { (0, SIZES.1) } else { SIZES };
        let (mut wanted, loose) = taken.unwrap_or_else(|| {
            (SmallVec::from_elem(false, rank), SmallVec::from_elem(false, rank))
        });
        for index in 0..rank {
            let is_marked = marks.dynamic.contains(&index);
            wanted[index] |= is_marked || marks.maybe.contains(&index);
            wanted[index] &= !marks.fixed.contains(&index);
            let (least, most) = marks.range(index, bounds);
            if wanted[index] && !(least..=most).contains(&sizes[index]) {
                wanted[index] = false;
                if is_marked {
                    let size = sizes[index];
                    let why = if size < 2 {
                        format!("it is {size}, and traces for sizes of 0 and 1 serve no others")
                    } else {
                        format!("it is {size}, beyond its bounds {least} to {most}")
                    };
                    self.refuse_mark(py, source, index, &why);
                }
            }
        }
        if !wanted.contains(&true) && !loose.contains(&true) {
            return;
        }
        let ducks = self.policy.ducks();
        let mut exprs = Sizes::new();
        for index in 0..rank {
            if !wanted[index] {
                exprs.push(self.begin_symbols(py).context.constant(sizes[index]));
                continue;
            }
            let range = marks.range(index, bounds);
            let part = Part::Size(index);
            let (symbol, expr) = self.adopt_dimension(py, source, part, sizes[index], range, ducks);
            if marks.dynamic.contains(&index) {
                self.mark_symbol(symbol, expr);
            }
            exprs.push(expr);
            guard.sizes[index] = None;
        }
        if self.program.is_some() {
            // Its inputs are made contiguous.
            self.set_sizes(TensorKey::Source(source.index() as u32), exprs);
            return;
        }
        let strides = self.loosen_strides(source, tensor, guard, &sizes, &strides, &exprs, &loose);
        let key = TensorKey::Source(source.index() as u32);
        self.set_sizes(key, exprs);
        self.set_strides(key, strides);
    }

    /// Strides follow from the sizes of the dimensions within, as in a contiguous tensor or a permuted
    /// one; those that don't are fixed, or symbols of their own where they were found to change.
    #[allow(clippy::too_many_arguments)]
    fn loosen_strides(
        &mut self,
        source: SourceId,
        tensor: Borrowed<'_, '_>,
        guard: &mut TensorGuard,
        sizes: &[i64],
        strides: &[i64],
        exprs: &[stator_shapes::ExprId],
        loose: &[bool],
    ) -> Sizes {
        let py = tensor.py();
        let mut order: SmallVec<[usize; 6]> = (0..sizes.len()).rev().collect();
        order.sort_by_key(|index| strides[*index]);
        let mut found: SmallVec<[Option<stator_shapes::ExprId>; 6]> =
            SmallVec::from_elem(None, sizes.len());
        for (at, &index) in order.iter().enumerate() {
            let stride = strides[index];
            let context = &mut self.begin_symbols(py).context;
            let within = order[..at].iter().rev().find_map(|&inner| {
                if sizes[inner].checked_mul(strides[inner]) != Some(stride) {
                    return None;
                }
                context.mul(exprs[inner], found[inner]?).ok()
            });
            let fixed = context.constant(stride);
            let expr = match within {
                Some(expr) if stride > 1 && context.as_constant(expr).is_none() => Some(expr),
                _ => None,
            };
            if expr.is_none() && !loose[index] {
                found[index] = Some(fixed);
                continue;
            }
            guard.strides[index] = None;
            let part = Part::Stride(index);
            let range = (0, SIZE_LIMIT);
            let (_, own) = self.adopt_dimension(py, source, part, stride, range, false);
            if let Some(expr) = expr {
                let equal = self.begin_symbols(py).context.eq(own, expr);
                self.decide(py, equal);
            }
            found[index] = Some(expr.unwrap_or(own));
        }
        found.into_iter().map(|stride| stride.expect("each was looked at")).collect()
    }

    /// Whether an outside object is a number that is to be a symbol.
    pub fn takes_number(&self, source: SourceId, value: Borrowed<'_, '_>, is_root: bool) -> bool {
        if self.policy.is_static() {
            return false;
        }
        // What `*args` and `**kwargs` hold are arguments.
        let parent = self.sources.get(source).parent();
        let is_root = is_root || parent.is_some_and(|parent| self.roots.is_variadic(parent));
        let number = if value.is_exact_instance_of::<PyInt>() {
            // Larger ones stay constants.
            value.extract::<i64>().ok().map(|value| value as f64)
        } else {
            value.cast_exact::<PyFloat>().ok().map(|value| value.value())
        };
        let Some(number) = number else { return false };
        number.is_finite()
            && self.policy.takes_number(value, number, is_root, || self.sources.print(source))
    }

    /// Whether numbers in a dictionary may be symbols for who reads its slots one by one: it's from
    /// outside.
    pub fn takes_stand_ins(&mut self, dict: Borrowed<'_, '_>) -> bool {
        !self.policy.is_static() && self.source(dict).is_some() && self.kind(dict) == Kind::Dict
    }

    /// Fixes the number that a slot held at the start.
    pub(in crate::recorder) fn fix_slot(&mut self, py: Python<'_>, slot: Slot) {
        let source = self.symbols.as_ref().and_then(|all| all.slot_source(slot));
        if let Some(source) = source
            && let Some(own) = self.stand_in(py, source)
        {
            self.fix(own.as_borrowed(), "read by C code");
        }
    }

    /// From the first symbol on a `torch.Size` is looked into like a tuple.
    pub(in crate::recorder) fn take_sizes_apart(&mut self, py: Python<'_>) {
        let size = heap::loaded_module(py, "torch").and_then(|torch| torch.getattr("Size").ok());
        if let Some(size) = size {
            self.set_kind(&size, Kind::Tuple);
        }
    }
}
