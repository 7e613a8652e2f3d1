//! A code object's three byte strings as one thing that can be edited.
//!
//! Jumps, handler regions and locations all speak of instructions by their place in the list, so an
//! insertion moves them together and [`Code::assemble`] writes consistent bytes. The name, constant
//! and variable tables aren't here: they hold Python objects.

use crate::assemble::assemble;
use crate::decode::decode;
use crate::error::Error;
use crate::exception_table;
use crate::instruction::{InstrId, Instruction, instruction_at};
use crate::line_table::{self, Location};
use crate::version::Version;

/// The bytes of a code object that this crate reads.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// `co_code`.
    pub code: &'a [u8],
    /// `co_exceptiontable`.
    pub exception_table: &'a [u8],
    /// `co_linetable`.
    pub line_table: &'a [u8],
    /// `co_firstlineno`.
    pub first_line: i32,
}

/// The bytes that an edited code object needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// `co_code`.
    pub code: Vec<u8>,
    /// `co_exceptiontable`.
    pub exception_table: Vec<u8>,
    /// `co_linetable`.
    pub line_table: Vec<u8>,
    /// The unit at which each instruction begins (with its prefixes), then the code's end.
    pub offsets: Vec<u32>,
}

/// A run of instructions and the handler that covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first instruction covered.
    pub start: InstrId,
    /// The instruction behind the last one covered; may be the list's length.
    pub end: InstrId,
    /// The handler's first instruction.
    pub target: InstrId,
    /// The stack depth to unwind to.
    pub depth: u32,
    /// Whether the faulting instruction's offset is pushed below the exception.
    pub lasti: bool,
}

/// A decoded code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Whose bytecode it is.
    pub version: Version,
    /// `co_firstlineno`: what the location table starts from.
    pub first_line: i32,
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    /// The handlers, sorted by start, not overlapping.
    pub regions: Vec<Region>,
    /// The source of each instruction: as many as there are instructions.
    pub locations: Vec<Option<Location>>,
}

impl Code {
    /// Decodes all parts.
    pub fn decode(version: Version, parts: &Parts<'_>) -> Result<Code, Error> {
        let instructions = decode(version, parts.code)?;
        let regions = decode_regions(&instructions, parts.exception_table)?;
        let locations = decode_locations(&instructions, parts)?;
        Ok(Code { version, first_line: parts.first_line, instructions, regions, locations })
    }

    /// Encodes all parts.
    pub fn assemble(&self) -> Result<Assembled, Error> {
        let assembly = assemble(self.version, &self.instructions)?;
        let offsets = assembly.offsets;
        let exception_table = exception_table::encode(&self.exception_entries(&offsets)?)?;
        let line_table = line_table::encode(&self.line_entries(&offsets)?, self.first_line)?;
        Ok(Assembled { code: assembly.code, exception_table, line_table, offsets })
    }

    /// Inserts instructions before the one at `at` (or at the end).
    ///
    /// What named instruction `at` or a later one names the same instruction afterwards: jumps to it
    /// don't run what was inserted. A region grows only if it covers the instructions on both sides.
    /// Targets of the inserted instructions count in the new numbering. All get the one location.
    ///
    /// # Panics
    ///
    /// If `at` is behind the end.
    pub fn insert(&mut self, at: InstrId, new: &[Instruction], location: Option<Location>) {
        let moved = |id: InstrId| if id >= at { InstrId(id.0 + new.len() as u32) } else { id };
        for instruction in &mut self.instructions {
            instruction.target = instruction.target.map(moved);
        }
        for region in &mut self.regions {
            region.start = moved(region.start);
            region.target = moved(region.target);
            // An empty region stays empty.
            if region.end > at || region.end < region.start {
                region.end = moved(region.end);
            }
        }
        let here = at.index()..at.index();
        self.instructions.splice(here.clone(), new.iter().copied());
        self.locations.splice(here, new.iter().map(|_| location));
    }

    /// The region that covers an instruction.
    pub fn region_of(&self, id: InstrId) -> Option<&Region> {
        self.regions.iter().find(|region| region.start <= id && id < region.end)
    }

    fn exception_entries(&self, offsets: &[u32]) -> Result<Vec<exception_table::Entry>, Error> {
        let unit = |id: InstrId| offset_of(offsets, id);
        let entry = |region: &Region| {
            Ok(exception_table::Entry {
                start: unit(region.start)?,
                end: unit(region.end)?,
                target: unit(region.target)?,
                depth: region.depth,
                lasti: region.lasti,
            })
        };
        self.regions.iter().map(entry).collect()
    }

    /// One entry an instruction; from 3.12 on one for each run of equal locations.
    fn line_entries(&self, offsets: &[u32]) -> Result<Vec<line_table::Entry>, Error> {
        if self.locations.len() != self.instructions.len() {
            let (expected, found) = (self.instructions.len(), self.locations.len());
            return Err(Error::LocationCount { expected, found });
        }
        let mut entries: Vec<line_table::Entry> = Vec::with_capacity(self.locations.len());
        for (range, &location) in offsets.windows(2).zip(&self.locations) {
            let (start, end) = (range[0], range[1]);
            match entries.last_mut() {
                Some(last) if self.version >= Version::V312 && last.location == location => {
                    last.end = end;
                }
                _ => entries.push(line_table::Entry { start, end, location }),
            }
        }
        Ok(entries)
    }
}

fn offset_of(offsets: &[u32], id: InstrId) -> Result<u32, Error> {
    offsets.get(id.index()).copied().ok_or(Error::RangeBoundary { at: id.0 })
}

/// The exception table's entries by instruction.
pub(crate) fn decode_regions(
    instructions: &[Instruction],
    table: &[u8],
) -> Result<Vec<Region>, Error> {
    let end = instructions.last().map_or(0, Instruction::end);
    let id = |unit: u32| {
        if unit == end {
            return Ok(InstrId(instructions.len() as u32));
        }
        instruction_at(instructions, i64::from(unit)).ok_or(Error::RangeBoundary { at: unit })
    };
    let region = |entry: exception_table::Entry| {
        if entry.target == end {
            return Err(Error::RangeBoundary { at: end });
        }
        Ok(Region {
            start: id(entry.start)?,
            end: id(entry.end)?,
            target: id(entry.target)?,
            depth: entry.depth,
            lasti: entry.lasti,
        })
    };
    exception_table::decode(table)?.into_iter().map(region).collect()
}

/// The location of each instruction's first unit.
fn decode_locations(
    instructions: &[Instruction],
    parts: &Parts<'_>,
) -> Result<Vec<Option<Location>>, Error> {
    let entries = line_table::decode(parts.line_table, parts.first_line)?;
    let expected = parts.code.len() / 2;
    let found = entries.last().map_or(0, |entry| entry.end as usize);
    if found != expected {
        return Err(Error::LocationCount { expected, found });
    }
    let mut at = 0;
    let mut locations = Vec::with_capacity(instructions.len());
    for instruction in instructions {
        while entries[at].end <= instruction.offset {
            at += 1;
        }
        locations.push(entries[at].location);
    }
    Ok(locations)
}
