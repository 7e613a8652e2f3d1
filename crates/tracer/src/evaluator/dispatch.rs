//! The opcodes of CPython 3.11 and their handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use stator_cpython::hook::Evaluated;
use stator_cpython::opcode as op;
use stator_cpython::ops::UnaryOp;

use super::{Evaluation, Flow, Sites, Step, Stop};

impl<'py, S: Sites<'py>> Evaluation<'_, 'py, S> {
    /// Evaluates from the next instruction until the frame leaves.
    pub(super) fn evaluate_instructions(&mut self) -> Evaluated<'py> {
        match catch_unwind(AssertUnwindSafe(|| self.evaluate_while::<false>(0))) {
            Ok(Flow::Left(evaluated)) => evaluated,
            Ok(Flow::Next) => unreachable!("only a bounded evaluation ends before the frame does"),
            Err(payload) => self.contain(&*payload),
        }
    }

    /// Evaluates up to and including the instruction that begins at `last`.
    pub(super) fn evaluate_through(&mut self, last: usize) -> Flow<'py> {
        self.evaluate_while::<true>(last)
    }

    #[inline(always)]
    fn evaluate_while<const BOUNDED: bool>(&mut self, last: usize) -> Flow<'py> {
        loop {
            if self.run.is_traced() {
                let unit = self.run.next_unit();
                return Flow::Left(self.hand_over(unit));
            }
            let (opcode, arg) = self.run.fetch();
            if S::STEPS {
                match self.sites.step(&self.frame, opcode, arg) {
                    Step::Evaluate => {}
                    Step::Substitute => self.substitute(),
                    Step::HandOver => {
                        let unit = self.run.start_unit();
                        return Flow::Left(self.hand_over(unit));
                    }
                    Step::Raise => match self.unwind(Stop::Raised) {
                        Ok(()) => continue,
                        Err(raised) => return Flow::Left(Err(raised)),
                    },
                }
            }
            let index = arg as usize;
            let done = match opcode {
                op::NOP | op::PRECALL => Ok(()),
                op::RESUME => self.resume(arg),

                // stack
                op::POP_TOP => self.pop_top(),
                op::PUSH_NULL => self.push_null(),
                op::COPY => self.copy(index),
                op::SWAP => self.swap(index),

                // names
                op::LOAD_CONST => self.load_const(index),
                op::LOAD_FAST | op::LOAD_CLOSURE => self.load_fast(index),
                op::STORE_FAST => self.store_fast(index),
                op::DELETE_FAST => self.delete_fast(index),
                op::LOAD_GLOBAL => self.load_global(arg),
                op::STORE_GLOBAL => self.store_global(index),
                op::DELETE_GLOBAL => self.delete_global(index),
                op::LOAD_NAME => self.load_name(index),
                op::STORE_NAME => self.store_name(index),
                op::DELETE_NAME => self.delete_name(index),
                op::MAKE_CELL => self.make_cell(index),
                op::COPY_FREE_VARS => self.copy_free_vars(index),
                op::LOAD_DEREF => self.load_deref(index),
                op::LOAD_CLASSDEREF => self.load_classderef(index),
                op::STORE_DEREF => self.store_deref(index),
                op::DELETE_DEREF => self.delete_deref(index),

                // attributes and items
                op::LOAD_ATTR => self.load_attr(index),
                op::LOAD_METHOD => self.load_method(index),
                op::STORE_ATTR => self.store_attr(index),
                op::DELETE_ATTR => self.delete_attr(index),
                op::BINARY_SUBSCR => self.binary_subscr(),
                op::STORE_SUBSCR => self.store_subscr(),
                op::DELETE_SUBSCR => self.delete_subscr(),

                // operators
                op::BINARY_OP => self.binary_op(arg),
                op::COMPARE_OP => self.compare_op(arg),
                op::CONTAINS_OP => self.contains_op(arg),
                op::IS_OP => self.is_op(arg),
                op::UNARY_POSITIVE => self.unary(UnaryOp::Positive),
                op::UNARY_NEGATIVE => self.unary(UnaryOp::Negative),
                op::UNARY_INVERT => self.unary(UnaryOp::Invert),
                op::UNARY_NOT => self.unary_not(),
                op::FORMAT_VALUE => self.format_value(arg),

                // calls
                op::KW_NAMES => self.kw_names(index),
                op::CALL => self.call(index),
                op::CALL_FUNCTION_EX => self.call_function_ex(arg),
                op::BEFORE_WITH => self.before_with(),
                op::WITH_EXCEPT_START => self.with_except_start(),

                // control flow
                op::JUMP_FORWARD => self.jump_forward(arg),
                op::JUMP_BACKWARD => self.jump_backward(arg),
                op::JUMP_BACKWARD_NO_INTERRUPT => self.jump_backward_no_interrupt(arg),
                op::POP_JUMP_FORWARD_IF_FALSE => self.pop_jump_if::<false, true>(arg),
                op::POP_JUMP_FORWARD_IF_TRUE => self.pop_jump_if::<true, true>(arg),
                op::POP_JUMP_BACKWARD_IF_FALSE => self.pop_jump_if::<false, false>(arg),
                op::POP_JUMP_BACKWARD_IF_TRUE => self.pop_jump_if::<true, false>(arg),
                op::POP_JUMP_FORWARD_IF_NONE => self.pop_jump_if_none::<true, true>(arg),
                op::POP_JUMP_FORWARD_IF_NOT_NONE => self.pop_jump_if_none::<false, true>(arg),
                op::POP_JUMP_BACKWARD_IF_NONE => self.pop_jump_if_none::<true, false>(arg),
                op::POP_JUMP_BACKWARD_IF_NOT_NONE => self.pop_jump_if_none::<false, false>(arg),
                op::JUMP_IF_FALSE_OR_POP => self.jump_if_or_pop::<false>(arg),
                op::JUMP_IF_TRUE_OR_POP => self.jump_if_or_pop::<true>(arg),

                // iteration and containers
                op::GET_ITER => self.get_iter(),
                op::FOR_ITER => self.for_iter(arg),
                op::UNPACK_SEQUENCE => self.unpack_sequence(index),
                op::UNPACK_EX => self.unpack_ex(index),
                op::BUILD_TUPLE => self.build_tuple(index),
                op::BUILD_LIST => self.build_list(index),
                op::BUILD_SET => self.build_set(index),
                op::BUILD_MAP => self.build_map(index),
                op::BUILD_CONST_KEY_MAP => self.build_const_key_map(index),
                op::BUILD_STRING => self.build_string(index),
                op::BUILD_SLICE => self.build_slice(index),
                op::LIST_TO_TUPLE => self.list_to_tuple(),
                op::LIST_APPEND => self.list_append(index),
                op::LIST_EXTEND => self.list_extend(index),
                op::SET_ADD => self.set_add(index),
                op::SET_UPDATE => self.set_update(index),
                op::MAP_ADD => self.map_add(index),
                op::DICT_UPDATE => self.dict_update(index),
                op::DICT_MERGE => self.dict_merge(index),

                // exceptions
                op::RAISE_VARARGS => self.raise_varargs(arg),
                op::RERAISE => self.reraise(index),
                op::PUSH_EXC_INFO => self.push_exc_info(),
                op::POP_EXCEPT => self.pop_except(),
                op::CHECK_EXC_MATCH => self.check_exc_match(),
                op::CHECK_EG_MATCH => self.check_eg_match(),
                op::PREP_RERAISE_STAR => self.prep_reraise_star(),
                op::LOAD_ASSERTION_ERROR => self.load_assertion_error(),

                // generators and coroutines
                op::SEND => self.send(arg),
                op::GET_YIELD_FROM_ITER => self.get_yield_from_iter(),
                op::GET_AWAITABLE => self.get_awaitable(arg),
                op::GET_AITER => self.get_aiter(),
                op::GET_ANEXT => self.get_anext(),
                op::END_ASYNC_FOR => self.end_async_for(),
                op::BEFORE_ASYNC_WITH => self.before_async_with(),

                // pattern matching
                op::GET_LEN => self.get_len(),
                op::MATCH_MAPPING => self.match_mapping(),
                op::MATCH_SEQUENCE => self.match_sequence(),
                op::MATCH_KEYS => self.match_keys(),
                op::MATCH_CLASS => self.match_class(index),

                // functions, classes, modules
                op::MAKE_FUNCTION => self.make_function(arg),
                op::LOAD_BUILD_CLASS => self.load_build_class(),
                op::SETUP_ANNOTATIONS => self.setup_annotations(),
                op::IMPORT_NAME => self.import_name(index),
                op::IMPORT_FROM => self.import_from(index),
                op::IMPORT_STAR => self.import_star(),
                op::PRINT_EXPR => self.print_expr(),

                // ways out
                op::RETURN_VALUE => return Flow::Left(self.return_value()),
                op::YIELD_VALUE => return Flow::Left(self.yield_value()),
                op::RETURN_GENERATOR => return Flow::Left(self.return_generator()),
                // The wrapper's constructor is private to CPython, and a YIELD_VALUE follows: the
                // frame leaves for now, and comes back with the next `asend`.
                op::ASYNC_GEN_WRAP => {
                    let unit = self.run.start_unit();
                    return Flow::Left(self.hand_over(unit));
                }
                _ => {
                    let unit = self.run.start_unit();
                    return Flow::Left(self.hand_over(unit));
                }
            };
            let is_last = BOUNDED && self.run.start_unit() == last;
            if let Err(stop) = done
                && let Err(raised) = self.unwind(stop)
            {
                return Flow::Left(Err(raised));
            }
            if is_last {
                return Flow::Next;
            }
        }
    }
}
