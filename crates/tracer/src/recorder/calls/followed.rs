//! C functions that put things in order, of which some hold symbolic numbers: what they compare is decided first, so they find
//! the same in each replay. Then they are called as they are.
//!
//! Each pair that a function compares is decided or follows from what is: `sorted` from its result's neighbours, a heap from
//! the steps that CPython's own code takes.

use pyo3::prelude::*;
use smallvec::SmallVec;
use stator_cpython::frame::Frame;
use stator_cpython::object::{Borrowed, Object};

use crate::functions::{Numeric, Traits};
use crate::recorder::Recorder;
use crate::recorder::notes::call::Call;
use crate::recorder::notes::heap;
use crate::recorder::numbers::orders::known_flag;
use crate::recorder::numbers::read_tensors::LONGEST;

/// What a function puts in order, as it goes on.
struct Row<'r, 'py> {
    recorder: &'r Recorder,
    frame: &'r Frame<'py>,
    items: Vec<Object<'py>>,
    /// The greatest one comes first.
    is_max: bool,
}

impl Recorder {
    /// Whether a call puts things in order whose order is decided now.
    pub(super) fn is_order_decided(&self, call: Call<'_, '_>) -> bool {
        let Call { frame, callable, args, names } = call;
        let is_ordering = self.functions.traits(callable).has(Traits::ORDERS);
        if !is_ordering || !self.session.takes_steps() || self.is_stopped() {
            return false;
        }
        let named = names.map_or_else(Vec::new, heap::tuple_items);
        let Some((first, rest)) = args.split_first() else { return false };
        let Some(items) = self.elements(*first) else { return false };
        let holds_numbers = {
            let held = items.iter().map(Bound::as_borrowed).chain(rest.iter().copied());
            let held: SmallVec<[Borrowed<'_, '_>; 8]> = held.collect();
            self.hold_numbers(&held)
        };
        if items.len() > LONGEST as usize || !holds_numbers {
            return false;
        }
        let mut row = Row { recorder: self, frame, items, is_max: false };
        let is_name =
            |name: &str| matches!(&named[..], [only] if *heap::text(only.as_borrowed()) == *name);
        match self.functions.numeric(callable) {
            Some(numeric @ (Numeric::Least | Numeric::Greatest)) => {
                let takes_row = rest.is_empty() || rest.len() == 1 && is_name("default");
                return takes_row && row.finds_extreme(numeric == Numeric::Greatest).is_some();
            }
            Some(Numeric::Sorted) => {}
            Some(_) => return false,
            None => {
                if let Some(is_followed) = row.follows_heap(callable, rest) {
                    return named.is_empty() && is_followed;
                }
                if !heap::is_named(callable, &["sort"]) {
                    return false;
                }
            }
        }
        match rest {
            [] => row.sorts(false).is_some(),
            [reverse] if is_name("reverse") => {
                known_flag(*reverse).is_some_and(|reverse| row.sorts(reverse).is_some())
            }
            _ => false,
        }
    }
}

impl<'py> Row<'_, 'py> {
    /// Whether an item is less than another one: a decision. `None`: it can't be one.
    fn is_less(&self, left: &Object<'py>, right: &Object<'py>) -> Option<bool> {
        let (left, right) = (left.as_borrowed(), right.as_borrowed());
        let is_less = self.recorder.is_less_now(left, right)?;
        self.recorder.decides_order(self.frame, left, right).then_some(is_less)
    }

    fn comes_before(&self, left: usize, right: usize) -> Option<bool> {
        self.comes_first(&self.items[left], &self.items[right])
    }

    fn comes_first(&self, left: &Object<'py>, right: &Object<'py>) -> Option<bool> {
        if self.is_max { self.is_less(right, left) } else { self.is_less(left, right) }
    }

    fn sorts(&mut self, is_reverse: bool) -> Option<()> {
        if is_reverse {
            self.items.reverse();
        }
        for at in 1..self.items.len() {
            let item = self.items[at].clone();
            let (mut first, mut behind) = (0, at);
            while first < behind {
                let middle = usize::midpoint(first, behind);
                if self
                    .recorder
                    .is_less_now(item.as_borrowed(), self.items[middle].as_borrowed())?
                {
                    behind = middle;
                } else {
                    first = middle + 1;
                }
            }
            self.items[first..=at].rotate_right(1);
        }
        // Neighbours decide the order of all; equal ones keep theirs.
        self.items.windows(2).try_for_each(|pair| self.is_less(&pair[0], &pair[1]).map(|_| ()))
    }

    fn finds_extreme(&self, is_max: bool) -> Option<()> {
        let mut best = self.items.first()?;
        for item in &self.items[1..] {
            let is_better =
                if is_max { self.is_less(best, item)? } else { self.is_less(item, best)? };
            if is_better {
                best = item;
            }
        }
        Some(())
    }

    /// Whether all comparisons of a function of `heapq` are decided. `None`: it's none of these.
    fn follows_heap(
        &mut self,
        callable: Borrowed<'_, '_>,
        rest: &[Borrowed<'_, 'py>],
    ) -> Option<bool> {
        const HEAPS: [&str; 8] = [
            "heappush",
            "heappop",
            "heappushpop",
            "heapreplace",
            "heapify",
            "_heappop_max",
            "_heapreplace_max",
            "_heapify_max",
        ];
        let name = HEAPS.into_iter().find(|name| heap::is_named(callable, &[name]))?;
        self.is_max = name.ends_with("_max");
        let item = rest.first().map(|item| (*item).to_owned());
        let followed = match (name, item, rest.len()) {
            ("heappush", Some(item), 1) => {
                self.items.push(item);
                self.sift_down(0, self.items.len() - 1)
            }
            ("heappop" | "_heappop_max", None, 0) => self.pop(),
            ("heapreplace" | "_heapreplace_max", Some(item), 1) => self.replace(item),
            ("heappushpop", Some(item), 1) => self.push_pop(item),
            ("heapify" | "_heapify_max", None, 0) => {
                (0..self.items.len() / 2).rev().try_for_each(|at| self.sift_up(at))
            }
            _ => None,
        };
        Some(followed.is_some())
    }

    fn pop(&mut self) -> Option<()> {
        let last = self.items.pop()?;
        if self.items.is_empty() { Some(()) } else { self.replace(last) }
    }

    fn replace(&mut self, item: Object<'py>) -> Option<()> {
        *self.items.first_mut()? = item;
        self.sift_up(0)
    }

    fn push_pop(&mut self, item: Object<'py>) -> Option<()> {
        let Some(first) = self.items.first() else { return Some(()) };
        if self.comes_first(first, &item)? { self.replace(item) } else { Some(()) }
    }

    /// Moves an item towards the root, up to `start`.
    fn sift_down(&mut self, start: usize, mut at: usize) -> Option<()> {
        while at > start {
            let parent = (at - 1) >> 1;
            if !self.comes_before(at, parent)? {
                break;
            }
            self.items.swap(at, parent);
            at = parent;
        }
        Some(())
    }

    /// Moves an item to a leaf along its smaller children, and from there to its place.
    fn sift_up(&mut self, start: usize) -> Option<()> {
        let mut at = start;
        while at < self.items.len() >> 1 {
            let mut child = 2 * at + 1;
            if child + 1 < self.items.len() && !self.comes_before(child, child + 1)? {
                child += 1;
            }
            self.items.swap(at, child);
            at = child;
        }
        self.sift_down(start, at)
    }
}
