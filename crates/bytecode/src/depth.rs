//! Stack depths: how many values lie on the stack before each instruction.
//!
//! A walk over all ways control can take from the first instruction (and, for each instruction
//! reached, into the handler that covers it) adds up stack effects. CPython's compiler keeps depths
//! equal wherever ways meet; code for which they differ is refused.

use crate::code::{Region, decode_regions};
use crate::decode::decode;
use crate::error::Error;
use crate::instruction::{InstrId, Instruction};
use crate::opcode::Opcode;
use crate::table::{Flow, OpInfo};
use crate::version::Version;

/// The depths of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depths {
    /// Before each instruction; `None` where control never comes.
    pub before: Vec<Option<u32>>,
    /// The largest depth anywhere: at most the `co_stacksize` that CPython computes.
    pub max: u32,
}

/// Computes the depths of decoded instructions under their handlers.
pub fn depths(
    version: Version,
    instructions: &[Instruction],
    regions: &[Region],
) -> Result<Depths, Error> {
    let mut walk = Walk {
        found: Depths { before: vec![None; instructions.len()], max: 0 },
        pending: Vec::new(),
    };
    let handlers = handlers(instructions.len(), regions);
    walk.reach(InstrId(0), InstrId(0), 0)?;
    while let Some((at, depth)) = walk.pending.pop() {
        if let Some(region) = handlers[at.index()] {
            let pushed = 1 + i64::from(region.lasti);
            walk.reach(at, region.target, i64::from(region.depth) + pushed)?;
        }
        walk.step(version, at, &instructions[at.index()], i64::from(depth))?;
    }
    Ok(walk.found)
}

/// The largest stack depth of a code object, from its bytes.
pub fn max_depth(version: Version, code: &[u8], exception_table: &[u8]) -> Result<u32, Error> {
    let instructions = decode(version, code)?;
    let regions = decode_regions(&instructions, exception_table)?;
    Ok(depths(version, &instructions, &regions)?.max)
}

/// The region that covers each instruction.
fn handlers(count: usize, regions: &[Region]) -> Vec<Option<&Region>> {
    let mut handlers = vec![None; count];
    for region in regions {
        let covered = handlers.get_mut(region.start.index()..region.end.index());
        covered.into_iter().flatten().for_each(|slot| *slot = Some(region));
    }
    handlers
}

struct Walk {
    found: Depths,
    /// Reached, with the depth before, but not yet walked through.
    pending: Vec<(InstrId, u32)>,
}

impl Walk {
    fn step(
        &mut self,
        version: Version,
        at: InstrId,
        instruction: &Instruction,
        depth: i64,
    ) -> Result<(), Error> {
        let info = version.info(instruction.opcode).ok_or(Error::StackDepth { at, depth })?;
        let after = |jump| {
            let effect = effect(info, instruction.arg, jump);
            effect.map(|effect| depth + effect).ok_or(Error::StackDepth { at, depth: i64::MAX })
        };
        if info.flow == Flow::Stop {
            return self.note(at, after(false)?).map(drop);
        }
        if let Some(target) = instruction.target {
            self.reach(at, target, after(true)?)?;
        }
        if info.flow != Flow::Jump {
            self.reach(at, InstrId(at.0 + 1), after(false)?)?;
        }
        Ok(())
    }

    /// Control comes from `from` to `to` with this depth.
    fn reach(&mut self, from: InstrId, to: InstrId, depth: i64) -> Result<(), Error> {
        let depth = self.note(from, depth)?;
        let slot = self.found.before.get_mut(to.index()).ok_or(Error::FallsOff { at: from })?;
        match *slot {
            None => {
                *slot = Some(depth);
                self.pending.push((to, depth));
                Ok(())
            }
            Some(first) if first == depth => Ok(()),
            Some(first) => Err(Error::DepthMismatch { at: to, first, second: depth }),
        }
    }

    fn note(&mut self, at: InstrId, depth: i64) -> Result<u32, Error> {
        let depth = u32::try_from(depth).map_err(|_| Error::StackDepth { at, depth })?;
        self.found.max = self.found.max.max(depth);
        Ok(depth)
    }
}

/// The stack effect as a running frame sees it.
fn effect(info: &OpInfo, arg: u32, jump: bool) -> Option<i64> {
    // A generator starts behind it with the first value sent on its stack. Until 3.12 CPython's
    // compiler counts that value as there from the start.
    if info.opcode == Opcode::RETURN_GENERATOR {
        return Some(1);
    }
    info.effect.of(arg, Some(jump)).map(i64::from)
}
