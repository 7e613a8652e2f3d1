//! Live locals: which fast locals may still be read before they are written.
//!
//! The textbook backward data-flow analysis (a fixed point over sets of locals), with one addition:
//! an instruction that a handler covers may go there, so what is live at the handler is live before
//! every covered instruction. Cells count as read wherever they are named, written included: the
//! cell itself has to be there.

use crate::code::decode_regions;
use crate::error::Error;
use crate::instruction::{InstrId, Instruction};
use crate::opcode::Opcode;
use crate::table::{Arg, Flow};
use crate::version::Version;

const BITS: usize = u64::BITS as usize;

/// The live locals of a code object, before and behind each instruction.
#[derive(Clone, Debug)]
pub struct Liveness {
    instructions: Vec<Instruction>,
    /// The sets: [`BITS`] locals of all instructions and of "nowhere", then the next ones.
    before: Vec<u64>,
    behind: Vec<u64>,
}

/// What an instruction does with a fast local.
#[derive(Clone, Copy)]
enum Access {
    None,
    Reads(u32),
    Writes(u32),
}

/// What the analysis needs of an instruction.
struct Step {
    /// The instructions that it may go to: the next one, a jump's target, a handler. Or nowhere, which is one
    /// behind the last.
    ways: [u32; 3],
    accesses: [Access; 2],
}

impl Step {
    /// What is live before it: those of `first` and the following ones, as bits.
    fn before(&self, behind: u64, first: usize) -> u64 {
        let bit = |local: u32| {
            let place = (local as usize).checked_sub(first).filter(|place| *place < BITS);
            place.map_or(0, |place| 1 << place)
        };
        self.accesses.iter().fold(behind, |live, access| match access {
            Access::None => live,
            Access::Reads(local) => live | bit(*local),
            Access::Writes(local) => live & !bit(*local),
        })
    }
}

impl Liveness {
    /// Analyses the decoded instructions of a code object with `locals` fast locals.
    ///
    /// # Errors
    /// If the exception table isn't one of this code.
    pub fn of(
        version: Version,
        instructions: Vec<Instruction>,
        exception_table: &[u8],
        locals: usize,
    ) -> Result<Self, Error> {
        let count = instructions.len();
        let nowhere = count as u32;
        let mut handlers = vec![nowhere; count];
        for region in decode_regions(&instructions, exception_table)? {
            let covered = handlers.get_mut(region.start.index()..region.end.index());
            covered.into_iter().flatten().for_each(|slot| *slot = region.target.0);
        }
        let mut steps = Vec::with_capacity(count);
        let mut back = Vec::new();
        for (at, (instruction, handler)) in instructions.iter().zip(handlers).enumerate() {
            let step = step(version, instruction, at, nowhere, handler);
            for to in step.ways {
                if to as usize <= at {
                    back.push((at, to as usize));
                }
            }
            steps.push(step);
        }
        let empty = vec![0; locals.div_ceil(BITS).max(1) * (count + 1)];
        let mut live = Self { instructions, before: empty.clone(), behind: empty };
        let rows = live.before.chunks_mut(count + 1).zip(live.behind.chunks_mut(count + 1));
        for (word, (before, behind)) in rows.enumerate() {
            settle(&steps, &back, word * BITS, before, behind);
        }
        Ok(live)
    }

    /// The instructions, in their order.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Whether a local is live before the instruction that covers `unit`.
    #[must_use]
    pub fn is_live_before(&self, unit: usize, local: usize) -> bool {
        self.is_set(&self.before, unit, local)
    }

    /// Whether a local is live behind the instruction that covers `unit`, wherever it goes.
    #[must_use]
    pub fn is_live_behind(&self, unit: usize, local: usize) -> bool {
        self.is_set(&self.behind, unit, local)
    }

    /// Where nothing is known, everything is live.
    fn is_set(&self, rows: &[u64], unit: usize, local: usize) -> bool {
        let ends = |instruction: &Instruction| instruction.end() as usize <= unit;
        let at = self.instructions.partition_point(ends);
        if at == self.instructions.len() {
            return true;
        }
        let row = rows.get(local / BITS * (self.instructions.len() + 1) + at);
        row.is_none_or(|row| row & (1 << (local % BITS)) != 0)
    }
}

/// Where the instruction at this place goes, and what it does with locals.
fn step(
    version: Version,
    instruction: &Instruction,
    at: usize,
    nowhere: u32,
    handler: u32,
) -> Step {
    let info = version.info(instruction.opcode);
    let flow = info.map_or(Flow::Stop, |info| info.flow);
    let next = if matches!(flow, Flow::Next | Flow::Branch) { at as u32 + 1 } else { nowhere };
    let jump = instruction.target.map_or(nowhere, |InstrId(target)| target);
    let accesses = accesses(instruction, info.map(|info| info.arg), handler != nowhere);
    Step { ways: [next, jump, handler], accesses }
}

/// Finds what is live of [`BITS`] locals, `first` and those behind it.
///
/// A walk from the last instruction to the first carries everything upwards. Only what `back` leads to
/// (from the first place of a pair to the second) may have had more to say afterwards.
fn settle(
    steps: &[Step],
    back: &[(usize, usize)],
    first: usize,
    before: &mut [u64],
    behind: &mut [u64],
) {
    let mut end = steps.len();
    while end > 0 {
        for (at, step) in steps[..end].iter().enumerate().rev() {
            behind[at] = step.ways.iter().fold(0, |all, to| all | before[*to as usize]);
            before[at] = step.before(behind[at], first);
        }
        let grew = |(at, to): &&(usize, usize)| before[*to] & !behind[*at] != 0;
        end = back.iter().filter(grew).map(|(at, _)| at + 1).max().unwrap_or(0);
    }
}

/// The fast locals that an instruction names.
fn accesses(instruction: &Instruction, arg: Option<Arg>, is_handled: bool) -> [Access; 2] {
    let number = instruction.arg;
    match arg {
        // A handler may still see the old value.
        Some(Arg::Local) if instruction.opcode == Opcode::STORE_FAST && is_handled => {
            [Access::None; 2]
        }
        Some(Arg::Local) if instruction.opcode == Opcode::STORE_FAST => {
            [Access::Writes(number), Access::None]
        }
        Some(Arg::Local | Arg::Free) => [Access::Reads(number), Access::None],
        // Pairs of 3.13: reading is the safe assumption.
        Some(Arg::LocalPair) => [Access::Reads(number >> 4), Access::Reads(number & 15)],
        _ => [Access::None; 2],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::decode;

    const RESUME: u8 = 151;
    const LOAD_FAST: u8 = 124;
    const STORE_FAST: u8 = 125;
    const LOAD_CONST: u8 = 100;
    const RETURN_VALUE: u8 = 83;
    const JUMP_BACKWARD: u8 = 140;
    const POP_JUMP_FORWARD_IF_FALSE: u8 = 114;

    fn live(code: &[(u8, u8)], table: &[u8], locals: usize) -> Liveness {
        let bytes: Vec<u8> = code.iter().flat_map(|(opcode, arg)| [*opcode, *arg]).collect();
        let instructions = decode(Version::V311, &bytes).expect("the code is valid");
        Liveness::of(Version::V311, instructions, table, locals).expect("the table is valid")
    }

    #[test]
    fn a_local_is_live_until_its_last_read() {
        let code =
            [(RESUME, 0), (LOAD_FAST, 0), (STORE_FAST, 1), (LOAD_FAST, 1), (RETURN_VALUE, 0)];
        let live = live(&code, &[], 2);
        assert!(live.is_live_before(1, 0) && !live.is_live_behind(1, 0));
        assert!(!live.is_live_before(2, 1) && live.is_live_behind(2, 1));
        assert!(!live.is_live_before(4, 1));
    }

    #[test]
    fn both_sides_of_a_branch_count() {
        let code = [
            (RESUME, 0),
            (LOAD_FAST, 0),
            (POP_JUMP_FORWARD_IF_FALSE, 2),
            (LOAD_FAST, 1),
            (RETURN_VALUE, 0),
            (LOAD_FAST, 70),
            (RETURN_VALUE, 0),
        ];
        let live = live(&code, &[], 71);
        assert!(live.is_live_behind(2, 1) && live.is_live_behind(2, 70));
        assert!(live.is_live_before(3, 1) && !live.is_live_before(3, 70));
    }

    #[test]
    fn what_a_loop_reads_is_live_to_its_end() {
        let code = [
            (RESUME, 0),
            (LOAD_FAST, 0),
            (POP_JUMP_FORWARD_IF_FALSE, 2),
            (STORE_FAST, 1),
            (JUMP_BACKWARD, 4),
            (RETURN_VALUE, 0),
        ];
        let live = live(&code, &[], 2);
        assert!(live.is_live_before(4, 0) && live.is_live_behind(3, 0));
        assert!(!live.is_live_before(4, 1) && !live.is_live_before(5, 0));
    }

    #[test]
    fn what_a_handler_reads_is_live_in_what_it_covers() {
        // Units 1-3 are covered by a handler at unit 5, which reads local 0.
        let code = [
            (RESUME, 0),
            (LOAD_CONST, 0),
            (STORE_FAST, 0),
            (LOAD_CONST, 0),
            (RETURN_VALUE, 0),
            (LOAD_FAST, 0),
            (RETURN_VALUE, 0),
        ];
        let entry =
            crate::exception_table::Entry { start: 1, end: 4, target: 5, depth: 0, lasti: false };
        let table = crate::exception_table::encode(&[entry]).expect("the entry is small");
        let live = live(&code, &table, 1);
        assert!(live.is_live_before(1, 0) && live.is_live_before(2, 0));
        assert!(!live.is_live_before(4, 0));
    }

    /// A piece of code: one of these, with a local or a distance.
    fn pieces() -> impl Strategy<Value = Vec<(u8, u8)>> {
        let local = || (0..4_u8).prop_map(|local| local * 40);
        let piece = prop_oneof![
            local().prop_map(|local| (LOAD_FAST, local)),
            local().prop_map(|local| (STORE_FAST, local)),
            (0..12_u8).prop_map(|distance| (JUMP_BACKWARD, distance)),
            (0..12_u8).prop_map(|distance| (POP_JUMP_FORWARD_IF_FALSE, distance)),
        ];
        proptest::collection::vec(piece, 1..40)
    }

    /// Jumps that stay within the code.
    fn within(mut code: Vec<(u8, u8)>) -> Vec<(u8, u8)> {
        let last = code.len() as u8;
        for (at, (opcode, arg)) in (0..).zip(&mut code) {
            match *opcode {
                JUMP_BACKWARD => *arg = (*arg).min(at + 1),
                POP_JUMP_FORWARD_IF_FALSE => *arg = (*arg).min(last - at - 1),
                _ => {}
            }
        }
        code.push((RETURN_VALUE, 0));
        code
    }

    /// Whether some way from `at` reads the local before it is written.
    fn may_read(code: &[(u8, u8)], at: usize, local: u8) -> bool {
        let (mut open, mut seen) = (vec![at], vec![false; code.len()]);
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            match code[at] {
                (LOAD_FAST, read) if read == local => return true,
                (STORE_FAST, written) if written == local => {}
                (RETURN_VALUE, _) => {}
                (JUMP_BACKWARD, distance) => open.push(at + 1 - usize::from(distance)),
                (POP_JUMP_FORWARD_IF_FALSE, distance) => {
                    open.extend([at + 1, at + 1 + usize::from(distance)]);
                }
                _ => open.push(at + 1),
            }
        }
        false
    }

    proptest! {
        #[test]
        fn what_is_live_is_what_some_way_reads(code in pieces().prop_map(within)) {
            let live = live(&code, &[], 160);
            for at in 0..code.len() {
                for local in [0, 40, 80, 120] {
                    let is_live = live.is_live_before(at, local.into());
                    prop_assert_eq!(is_live, may_read(&code, at, local), "{} before {}", local, at);
                }
            }
        }
    }
}
