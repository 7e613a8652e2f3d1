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
    /// Words of a row.
    width: usize,
    before: Vec<u64>,
    behind: Vec<u64>,
}

/// What an instruction does with a fast local.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Reads,
    Writes,
}

/// What the analysis needs of an instruction.
struct Step {
    /// The instructions that it may go to: the next one, a jump's target, a handler.
    ways: [u32; 3],
    accesses: [Option<(usize, Use)>; 2],
}

const NOWHERE: u32 = u32::MAX;

impl Step {
    fn ways(&self) -> impl Iterator<Item = usize> {
        self.ways.iter().filter(|to| **to != NOWHERE).map(|to| *to as usize)
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
        let regions = decode_regions(&instructions, exception_table)?;
        let mut handlers: Vec<Option<InstrId>> = vec![None; instructions.len()];
        for region in &regions {
            let covered = handlers.get_mut(region.start.index()..region.end.index());
            covered.into_iter().flatten().for_each(|slot| *slot = Some(region.target));
        }
        let width = locals.div_ceil(BITS).max(1);
        let empty = vec![0; width * instructions.len()];
        let mut live = Self { instructions, width, before: empty.clone(), behind: empty };
        let steps: Vec<Step> =
            (0..live.instructions.len()).map(|at| live.step(version, at, handlers[at])).collect();
        // What a walk learns goes upwards; only ways that lead back have to be walked again.
        let leads_back = |(at, step): (usize, &Step)| step.ways().any(|to| to <= at);
        let has_loops = steps.iter().enumerate().any(leads_back);
        while live.pass(&steps) && has_loops {}
        Ok(live)
    }

    /// The instructions, in their order.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Where an instruction goes and what it does with locals.
    fn step(&self, version: Version, at: usize, handler: Option<InstrId>) -> Step {
        let instruction = &self.instructions[at];
        let info = version.info(instruction.opcode);
        let flow = info.map_or(Flow::Stop, |info| info.flow);
        let place = |to: Option<usize>| {
            to.filter(|to| *to < self.instructions.len()).map_or(NOWHERE, |to| to as u32)
        };
        let falls = matches!(flow, Flow::Next | Flow::Branch).then_some(at + 1);
        let jumps = instruction.target.map(InstrId::index);
        let ways = [place(falls), place(jumps), place(handler.map(InstrId::index))];
        Step { ways, accesses: accesses(instruction, info.map(|info| info.arg), handler.is_some()) }
    }

    /// One walk from the last instruction to the first; whether anything changed.
    fn pass(&mut self, steps: &[Step]) -> bool {
        let mut changed = false;
        for (at, step) in steps.iter().enumerate().rev() {
            for word in 0..self.width {
                let live = |to: usize| self.before[to * self.width + word];
                let behind = step.ways().fold(0, |all, to| all | live(to));
                let slot = at * self.width + word;
                self.behind[slot] = behind;
                let mut before = behind;
                for (local, access) in step.accesses.iter().flatten() {
                    let bit = if local / BITS == word { 1 << (local % BITS) } else { 0 };
                    match access {
                        Use::Reads => before |= bit,
                        Use::Writes => before &= !bit,
                    }
                }
                changed |= self.before[slot] != before;
                self.before[slot] = before;
            }
        }
        changed
    }

    fn row(&self, rows: &[u64], unit: usize) -> Option<usize> {
        let unit = u32::try_from(unit).ok()?;
        let at = self.instructions.partition_point(|instruction| instruction.end() <= unit);
        (at < self.instructions.len() && rows.len() > at * self.width).then_some(at)
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
        let Some(at) = self.row(rows, unit) else { return true };
        let word = local / BITS;
        word >= self.width || rows[at * self.width + word] & (1 << (local % BITS)) != 0
    }
}

/// The fast locals that an instruction names.
fn accesses(
    instruction: &Instruction,
    arg: Option<Arg>,
    is_handled: bool,
) -> [Option<(usize, Use)>; 2] {
    let number = instruction.arg as usize;
    match arg {
        Some(Arg::Local) if instruction.opcode == Opcode::STORE_FAST => {
            // A handler may still see the old value.
            [(!is_handled).then_some((number, Use::Writes)), None]
        }
        Some(Arg::Local | Arg::Free) => [Some((number, Use::Reads)), None],
        // Pairs of 3.13: reading is the safe assumption.
        Some(Arg::LocalPair) => [Some((number >> 4, Use::Reads)), Some((number & 15, Use::Reads))],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::decode;

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
}
