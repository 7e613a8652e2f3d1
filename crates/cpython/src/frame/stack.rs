//! The value stack and the fast locals of a running frame.
//!
//! Depth isn't checked in release builds: the code object states the depth it needs
//! (`co_stacksize`), CPython's compiler computed it, and each opcode's effect is CPython's own.

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use smallvec::SmallVec;

use super::Running;
use super::slot::Slot;
use crate::ffi as shim;
use crate::generic;
use crate::object::{Borrowed, Object, cloned, owned};
use crate::opcode::NULL_IS_ABOVE;
use crate::ops;
use crate::raised::{Raised, Result};

impl<'py> Running<'py> {
    /// Writes the stack's height into the frame, for whoever looks at it from outside.
    #[inline(always)]
    pub fn publish(&mut self) {
        // SAFETY: both point into the frame; the frame is alive.
        unsafe {
            let height = self.sp.offset_from(self.frame.slots());
            (*self.frame.as_ptr()).stacktop = height as i32;
        }
    }

    /// Number of values on the stack.
    #[inline(always)]
    pub fn depth(&self) -> usize {
        // SAFETY: both point into the frame's slots.
        (unsafe { self.sp.offset_from(self.base) }) as usize
    }

    #[inline(always)]
    fn slot(&self, n: usize) -> *mut Slot {
        debug_assert!(n <= self.depth(), "peek of {n} at depth {}", self.depth());
        // SAFETY: the opcode's effect says that `n` values are on the stack.
        unsafe { self.sp.sub(n) }
    }

    #[inline(always)]
    fn push_slot(&mut self, value: Slot) {
        debug_assert!(self.depth() < self.code().stacksize());
        // SAFETY: the compiler reserved the depth this code needs.
        unsafe {
            *self.sp = value;
            self.sp = self.sp.add(1);
        }
    }

    /// Pushes a value.
    #[inline(always)]
    pub fn push(&mut self, value: Object<'py>) {
        self.push_slot(Slot::of(value));
    }

    /// Pushes another reference to a value.
    #[inline(always)]
    pub fn push_clone_of_const(&mut self, index: usize) {
        let constant = self.code().const_at(index).as_ptr();
        // SAFETY: a constant of the code object.
        self.push_slot(unsafe { Slot::refer(constant) });
    }

    /// Pushes `True` or `False`.
    #[inline(always)]
    pub fn push_bool(&mut self, value: bool) {
        // SAFETY: static objects.
        let slot = unsafe { Slot::refer(if value { ffi::Py_True() } else { ffi::Py_False() }) };
        self.push_slot(slot);
    }

    /// Pushes the `NULL` that tells `CALL` that there is no receiver.
    #[inline(always)]
    pub fn push_null(&mut self) {
        self.push_slot(Slot::NULL);
    }

    /// Pushes what is called next, with the `NULL` that says that it has no receiver.
    #[inline(always)]
    pub fn push_callable(&mut self, value: Object<'py>) {
        if NULL_IS_ABOVE {
            self.push(value);
            self.push_null();
        } else {
            self.push_null();
            self.push(value);
        }
    }

    /// As [`Running::push_callable`], of an attribute that takes its owner's place.
    #[inline(always)]
    pub fn replace_by_callable(&mut self, attribute: Object<'py>) {
        let owner = self.take(1);
        if NULL_IS_ABOVE {
            self.fill(1, attribute);
            self.push_null();
        } else {
            self.push(attribute);
        }
        drop(owner);
    }

    /// Of a call whose arguments are the `n` topmost values: how deep its callable lies, and how many arguments
    /// it has with its receiver.
    #[inline(always)]
    pub fn callee(&self, n: usize) -> (usize, usize) {
        if NULL_IS_ABOVE {
            (n + 2, n + usize::from(!self.is_null(n + 1)))
        } else {
            let with_receiver = n + usize::from(!self.is_null(n + 2));
            (with_receiver + 1, with_receiver)
        }
    }

    /// How deep the callable lies of a call with so many operands that stand for arguments and have no receiver.
    #[inline(always)]
    pub fn callable_below(n: usize) -> usize {
        n + 1 + usize::from(NULL_IS_ABOVE)
    }

    /// Pushes a fast local; false if it is unbound.
    #[inline(always)]
    pub fn push_local(&mut self, index: usize) -> bool {
        debug_assert!(index < self.code().nlocalsplus());
        // SAFETY: the slot exists, and the frame owns what it holds.
        let value = unsafe { *self.frame.slots().add(index) };
        if value.is_null() {
            return false;
        }
        // SAFETY: the frame keeps it alive.
        self.push_slot(unsafe { value.copied() });
        true
    }

    /// Takes the top value.
    #[inline(always)]
    pub fn pop(&mut self) -> Object<'py> {
        let slot = self.slot(1);
        self.sp = slot;
        self.publish();
        // SAFETY: the slot holds something, whose reference is now this function's to give.
        unsafe {
            debug_assert!(!(*slot).is_null());
            (*slot).take(self.frame.py()).unwrap_unchecked()
        }
    }

    /// Takes the top value, which may be a `NULL`.
    #[inline(always)]
    pub fn pop_or_null(&mut self) -> Option<Object<'py>> {
        let slot = self.slot(1);
        self.sp = slot;
        self.publish();
        // SAFETY: the slot's reference is now this function's to give.
        unsafe { (*slot).take(self.frame.py()) }
    }

    /// The `n`th value from the top, counted from 1.
    #[inline(always)]
    pub fn peek(&self, n: usize) -> Borrowed<'_, 'py> {
        let slot = self.slot(n);
        // SAFETY: the stack owns the value, which is there, and can't change while it is borrowed.
        unsafe {
            debug_assert!(!(*slot).is_null());
            (*slot).borrow(self.frame.py()).unwrap_unchecked()
        }
    }

    /// Whether the `n`th value from the top is a `NULL`.
    #[inline(always)]
    pub fn is_null(&self, n: usize) -> bool {
        // SAFETY: a slot of the stack.
        unsafe { (*self.slot(n)).is_null() }
    }

    /// The `n` topmost values, deepest first.
    #[inline(always)]
    pub fn peek_many(&self, n: usize) -> &[Borrowed<'_, 'py>] {
        let slot = self.slot(n);
        // SAFETY: `n` slots, none of them null: `Borrowed` is a pointer, `Option` says nothing more of it.
        unsafe {
            let found = Slot::objects(slot, n);
            std::slice::from_raw_parts(found.as_ptr().cast(), n)
        }
    }

    /// Replaces the `n`th value from the top; returns what was there.
    #[inline(always)]
    #[must_use]
    pub fn replace(&mut self, n: usize, value: Object<'py>) -> Object<'py> {
        // SAFETY: the slot is non-null, and its reference is exchanged.
        unsafe {
            let old = ptr::replace(self.slot(n), Slot::of(value));
            old.take(self.frame.py()).unwrap_unchecked()
        }
    }

    /// Sets the `n`th value from the top, which is a `NULL`.
    #[inline(always)]
    pub fn fill(&mut self, n: usize, value: Object<'py>) {
        debug_assert!(self.is_null(n));
        // SAFETY: the slot holds no reference.
        unsafe { *self.slot(n) = Slot::of(value) };
    }

    /// Turns the `n`th value from the top into a `NULL`; returns what was there.
    #[inline(always)]
    #[must_use]
    pub fn take(&mut self, n: usize) -> Object<'py> {
        // SAFETY: the slot is non-null, and its reference is given away.
        unsafe {
            let old = ptr::replace(self.slot(n), Slot::NULL);
            old.take(self.frame.py()).unwrap_unchecked()
        }
    }

    /// Exchanges the top with the `n`th value (`NULL`s included).
    #[inline(always)]
    pub fn swap(&mut self, n: usize) {
        // SAFETY: two slots of the stack.
        unsafe { ptr::swap(self.slot(1), self.slot(n)) };
    }

    /// Pushes another reference to the `n`th value (`NULL`s included).
    #[inline(always)]
    pub fn copy(&mut self, n: usize) {
        // SAFETY: a slot of the stack.
        unsafe {
            let value = (*self.slot(n)).copied();
            self.push_slot(value);
        }
    }

    /// Drops the two topmost values, the deeper one first, and pushes `result` if there is one.
    #[inline(always)]
    pub fn finish_two(&mut self, result: Result<Object<'py>>) -> Result<()> {
        let (deeper, top) = (self.slot(2), self.slot(1));
        // SAFETY: both references leave the counted part of the stack before they are released.
        unsafe {
            let (first, second) = (*deeper, *top);
            let outcome = match result {
                Ok(value) => {
                    *deeper = Slot::of(value);
                    self.sp = top;
                    Ok(())
                }
                Err(raised) => {
                    self.sp = deeper;
                    Err(raised)
                }
            };
            self.publish();
            first.release();
            second.release();
            outcome
        }
    }

    /// Replaces the top value by `result`, or drops it.
    #[inline(always)]
    pub fn finish_one(&mut self, result: Result<Object<'py>>) -> Result<()> {
        match result {
            Ok(value) => {
                drop(self.replace(1, value));
                Ok(())
            }
            Err(raised) => {
                drop(self.pop());
                Err(raised)
            }
        }
    }

    /// Drops the `n` topmost values, the deepest first.
    #[inline(always)]
    pub fn drop_many(&mut self, n: usize) {
        let first = self.slot(n);
        self.sp = first;
        self.publish();
        for index in 0..n {
            // SAFETY: the references left the counted part of the stack. Releasing them may run code
            // in other frames, never in this one, so the slots keep their values.
            unsafe { (*first.add(index)).release() };
        }
    }

    /// Ends a call of `n` operands: drops them, the callable and what tells of a receiver included, the
    /// deepest first; pushes the result if there is one.
    #[inline(always)]
    pub fn finish_call(&mut self, n: usize, result: Result<Object<'py>>) -> Result<()> {
        let bottom = self.slot(n);
        // SAFETY: the slots leave the counted part of the stack before they are released.
        unsafe {
            // The result takes the lowest slot.
            let lowest = *bottom;
            let outcome = match result {
                Ok(value) => {
                    *bottom = Slot::of(value);
                    self.sp = bottom.add(1);
                    Ok(())
                }
                Err(raised) => {
                    self.sp = bottom;
                    Err(raised)
                }
            };
            self.publish();
            lowest.release();
            for index in 1..n {
                (*bottom.add(index)).release();
            }
            outcome
        }
    }

    /// Drops the value below the top.
    #[inline(always)]
    pub fn drop_below(&mut self) {
        self.swap(2);
        drop(self.pop());
    }

    // -- containers made of stack values ---------------------------------------------------------

    /// Moves the `n` topmost values into a new tuple.
    #[inline]
    pub fn pop_tuple(&mut self, n: usize) -> Result<Object<'py>> {
        // SAFETY: a new tuple's items are filled before anybody sees it; references are moved.
        unsafe {
            let tuple = owned(self.frame.py(), ffi::PyTuple_New(n as isize))?;
            let first = self.slot(n);
            for index in 0..n {
                let item = (*first.add(index)).into_ptr();
                ffi::PyTuple_SET_ITEM(tuple.as_ptr(), index as isize, item);
            }
            self.sp = first;
            self.publish();
            Ok(tuple)
        }
    }

    /// Moves the `n` topmost values into a new list.
    #[inline]
    pub fn pop_list(&mut self, n: usize) -> Result<Object<'py>> {
        // SAFETY: as for `pop_tuple`.
        unsafe {
            let list = owned(self.frame.py(), ffi::PyList_New(n as isize))?;
            let first = self.slot(n);
            for index in 0..n {
                let item = (*first.add(index)).into_ptr();
                ffi::PyList_SET_ITEM(list.as_ptr(), index as isize, item);
            }
            self.sp = first;
            self.publish();
            Ok(list)
        }
    }

    /// Unpacks the top value into `before` values (the first on top) and, with `after`, a list of the
    /// rest and `after` more values.
    pub fn unpack(&mut self, before: usize, after: Option<usize>) -> Result<()> {
        if after.is_none() && self.unpack_exact(before) {
            return Ok(());
        }
        ops::begin()?;
        let count = before + after.map_or(0, |after| after + 1);
        let after = after.map_or(-1, |after| after as i32);
        let sequence = self.peek(1);
        // Not onto the stack: code that the sequence calls may ask what this frame holds.
        let mut items: SmallVec<[*mut ffi::PyObject; 8]> =
            SmallVec::from_elem(ptr::null_mut(), count);
        // SAFETY: room for `count` references, of which all are filled, from the end on, or none.
        let filled = unsafe {
            let top = items.as_mut_ptr().add(count);
            shim::stator_unpack(sequence.as_ptr(), before as i32, after, top)
        };
        let py = sequence.py();
        drop(self.pop());
        if filled == 0 {
            return Err(Raised);
        }
        for item in items {
            // SAFETY: a new reference.
            self.push(unsafe { Bound::from_owned_ptr(py, item) });
        }
        self.publish();
        Ok(())
    }

    /// The quick way for tuples and lists of the right length.
    #[inline(always)]
    fn unpack_exact(&mut self, count: usize) -> bool {
        let pointer = self.peek(1).as_ptr();
        // SAFETY: items of an exact tuple or list, within its length; no code runs in between.
        unsafe {
            if ffi::PyTuple_CheckExact(pointer) != 0
                && ffi::PyTuple_GET_SIZE(pointer) as usize == count
            {
                let _sequence = self.pop();
                for index in (0..count).rev() {
                    let item = ffi::PyTuple_GET_ITEM(pointer, index as isize);
                    self.push_slot(Slot::refer(item));
                }
            } else if ffi::PyList_CheckExact(pointer) != 0
                && ffi::PyList_GET_SIZE(pointer) as usize == count
            {
                let _sequence = self.pop();
                for index in (0..count).rev() {
                    let item = ffi::PyList_GET_ITEM(pointer, index as isize);
                    self.push_slot(Slot::refer(item));
                }
            } else {
                return false;
            }
        }
        self.publish();
        true
    }

    // -- fast locals -----------------------------------------------------------------------------

    /// Moves the top value into a fast local; returns the old value, to be dropped afterwards.
    #[inline(always)]
    pub fn pop_to_local(&mut self, index: usize) -> Option<Object<'py>> {
        let value = self.pop();
        self.set_local(index, Some(value))
    }

    /// As [`Running::pop_to_local`]; a `NULL` unbinds the local.
    #[inline(always)]
    pub fn pop_to_local_or_unbind(&mut self, index: usize) -> Option<Object<'py>> {
        let value = self.pop_or_null();
        self.set_local(index, value)
    }

    /// Moves what a fast local holds to the stack: a `NULL` if it is unbound.
    #[inline(always)]
    pub fn take_local(&mut self, index: usize) {
        debug_assert!(index < self.code().nlocalsplus());
        // SAFETY: the slot exists; its reference moves to the stack.
        let value = unsafe { ptr::replace(self.frame.slots().add(index), Slot::NULL) };
        self.push_slot(value);
    }

    /// Sets a fast local; returns the old value, to be dropped when the frame is consistent.
    #[inline(always)]
    pub fn set_local(&mut self, index: usize, value: Option<Object<'py>>) -> Option<Object<'py>> {
        debug_assert!(index < self.code().nlocalsplus());
        // SAFETY: the slot exists; the references are exchanged.
        unsafe {
            let old = ptr::replace(self.frame.slots().add(index), Slot::of_option(value));
            old.take(self.frame.py())
        }
    }

    /// Puts the objects that CPython has for small ints where the frame holds others of their values: whoever compares
    /// them by `is` finds one object.
    pub(super) fn share_small_ints(&mut self) {
        self.exchange_held(generic::shared_int);
    }

    /// Puts what `plain` gives for a local, or a value on the stack, in its place.
    pub fn exchange_held(&mut self, plain: impl Fn(Borrowed<'_, 'py>) -> Option<Object<'py>>) {
        // How high the stack is, the frame itself says.
        self.publish();
        for index in 0..self.code().nlocalsplus() {
            if let Some(plain) = self.frame.local(index).and_then(&plain) {
                drop(self.set_local(index, Some(plain)));
            }
        }
        for index in 0..self.depth() {
            if let Some(plain) = self.frame.stack()[index].and_then(&plain) {
                drop(self.exchange_stacked(index, plain));
            }
        }
    }

    /// Puts another object in the place of a value on the stack, counted from its bottom; returns the
    /// old one.
    pub fn exchange_stacked(&mut self, index: usize, value: Object<'py>) -> Object<'py> {
        assert!(
            index < self.depth() && self.frame.stack()[index].is_some(),
            "a value of the stack"
        );
        let slot = self.code().nlocalsplus() + index;
        // SAFETY: the slot exists and owns an object; the references are exchanged.
        unsafe {
            let old = ptr::replace(self.frame.slots().add(slot), Slot::of(value));
            old.take(self.frame.py()).unwrap_unchecked()
        }
    }

    /// Fills the free variables' slots with the function's closure (`COPY_FREE_VARS`).
    pub fn copy_free_vars(&mut self, count: usize) {
        let first = self.code().first_free();
        let Some(closure) = self.frame.closure().map(|closure| closure.to_owned()) else {
            return;
        };
        for index in 0..count {
            // SAFETY: the closure has as many cells as the code has free variables.
            let cell = unsafe {
                cloned(self.frame.py(), ffi::PyTuple_GET_ITEM(closure.as_ptr(), index as isize))
            };
            drop(self.set_local(first + index, cell));
        }
    }
}
