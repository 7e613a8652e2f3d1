//! Location tables: the source range of each instruction (PEP 626 and 657, CPython 3.11 to 3.13).
//!
//! An entry's first byte is marked by bit 7 and holds its kind and its length (1 to 8 units); what
//! follows depends on the kind. Lines are relative to the entry before. The encoder chooses the kind
//! that CPython's compiler chooses, so tables made by it come back byte by byte.

use crate::error::Error;

const ENTRY: u8 = 0x80;
const MORE: u8 = 0x40;
const GROUP: u8 = 0x3F;

/// Kinds below this hold columns in one byte, on the line of the entry before.
const ONE_LINE: u8 = 10;
const NO_COLUMNS: u8 = 13;
const LONG: u8 = 14;
const NONE: u8 = 15;

/// A range of source text. Columns are UTF-8 bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Location {
    /// The first line.
    pub line: i32,
    /// The last line.
    pub end_line: i32,
    /// The column of the first byte, if known.
    pub column: Option<u32>,
    /// The column behind the last byte, if known.
    pub end_column: Option<u32>,
}

/// One entry: a run of code units and where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first unit.
    pub start: u32,
    /// The unit behind the last one.
    pub end: u32,
    /// Where they come from; `None` for code without a source.
    pub location: Option<Location>,
}

/// Decodes all entries. `first_line` is the code object's `co_firstlineno`.
pub fn decode(table: &[u8], first_line: i32) -> Result<Vec<Entry>, Error> {
    Reader::new(table, first_line).collect()
}

/// Encodes entries, which follow each other without gaps from unit 0. Long ones are split.
pub fn encode(entries: &[Entry], first_line: i32) -> Result<Vec<u8>, Error> {
    let mut table = Vec::with_capacity(entries.len() * 3);
    let mut line = first_line;
    let mut unit = 0;
    for (at, entry) in entries.iter().enumerate() {
        if entry.start != unit || entry.end <= entry.start {
            return Err(Error::RangeBoundary { at: entry.start });
        }
        while unit < entry.end {
            let units = (entry.end - unit).min(8);
            write_entry(&mut table, units as u8, entry.location, &mut line)
                .ok_or(Error::NumberTooLarge { at })?;
            unit += units;
        }
    }
    Ok(table)
}

/// The location of a unit: `None` if it has none, or if the table is malformed up to there.
pub fn location_of(table: &[u8], first_line: i32, unit: u32) -> Option<Location> {
    for entry in Reader::new(table, first_line) {
        let entry = entry.ok()?;
        if unit < entry.end {
            return entry.location;
        }
    }
    None
}

/// The first line of a unit's location: what tracebacks show.
pub fn line_of(table: &[u8], first_line: i32, unit: u32) -> Option<i32> {
    Some(location_of(table, first_line, unit)?.line)
}

/// Reads entries one by one without allocating; ends after the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    table: &'a [u8],
    at: usize,
    unit: u32,
    line: i32,
}

impl<'a> Reader<'a> {
    /// A reader at the start of a table.
    pub const fn new(table: &'a [u8], first_line: i32) -> Reader<'a> {
        Reader { table, at: 0, unit: 0, line: first_line }
    }

    fn read_entry(&mut self) -> Result<Entry, Error> {
        let entry = self.at;
        let head = self.table[entry];
        if head & ENTRY == 0 {
            return Err(Error::EntryMark { at: entry });
        }
        self.at += 1;
        let location = match head >> 3 & 15 {
            NONE => None,
            kind => Some(self.read_location(kind, entry)?),
        };
        let start = self.unit;
        let units = u32::from(head & 7) + 1;
        self.unit = start.checked_add(units).ok_or(Error::NumberTooLarge { at: entry })?;
        Ok(Entry { start, end: self.unit, location })
    }

    fn read_location(&mut self, kind: u8, entry: usize) -> Result<Location, Error> {
        let too_large = Error::NumberTooLarge { at: entry };
        let line_delta = match kind {
            0..ONE_LINE => 0,
            ONE_LINE..NO_COLUMNS => i32::from(kind - ONE_LINE),
            _ => self.read_signed(entry)?,
        };
        let line = self.line.checked_add(line_delta).ok_or(too_large.clone())?;
        let mut end_line = line;
        let (column, end_column) = match kind {
            0..ONE_LINE => {
                let low = self.read_byte()?;
                let column = u32::from(kind) << 3 | u32::from(low >> 4);
                (Some(column), Some(column + u32::from(low & 15)))
            }
            ONE_LINE..NO_COLUMNS => {
                let column = self.read_byte()?;
                (Some(u32::from(column)), Some(u32::from(self.read_byte()?)))
            }
            NO_COLUMNS => (None, None),
            _ => {
                let lines = self.read_number(entry)?;
                end_line = line.checked_add_unsigned(lines).ok_or(too_large)?;
                let column = self.read_number(entry)?;
                (column.checked_sub(1), self.read_number(entry)?.checked_sub(1))
            }
        };
        self.line = line;
        Ok(Location { line, end_line, column, end_column })
    }

    fn read_byte(&mut self) -> Result<u8, Error> {
        let at = self.at;
        let byte = *self.table.get(at).ok_or(Error::Truncated { at })?;
        if byte & ENTRY != 0 {
            return Err(Error::EntryMark { at });
        }
        self.at += 1;
        Ok(byte)
    }

    /// A number of little-endian six-bit groups.
    fn read_number(&mut self, entry: usize) -> Result<u32, Error> {
        let mut value = 0_u64;
        for shift in (0..36).step_by(6) {
            let byte = self.read_byte()?;
            value |= u64::from(byte & GROUP) << shift;
            if byte & MORE == 0 {
                return u32::try_from(value).map_err(|_| Error::NumberTooLarge { at: entry });
            }
        }
        Err(Error::NumberTooLarge { at: entry })
    }

    /// A number whose lowest bit is its sign.
    fn read_signed(&mut self, entry: usize) -> Result<i32, Error> {
        let coded = self.read_number(entry)?;
        let size = (coded >> 1) as i32;
        Ok(if coded & 1 == 1 { -size } else { size })
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.table.len() {
            return None;
        }
        let entry = self.read_entry();
        if entry.is_err() {
            self.at = self.table.len();
        }
        Some(entry)
    }
}

/// Writes one entry and moves `line` on. `None` if a number doesn't fit.
fn write_entry(
    table: &mut Vec<u8>,
    units: u8,
    location: Option<Location>,
    line: &mut i32,
) -> Option<()> {
    let head = |kind: u8| ENTRY | kind << 3 | (units - 1);
    let Some(location) = location else {
        table.push(head(NONE));
        return Some(());
    };
    let delta = location.line.checked_sub(*line)?;
    let signed = delta.unsigned_abs().checked_mul(2)? | u32::from(delta < 0);
    let one_line = location.line == location.end_line;
    match (location.column, location.end_column) {
        (Some(column), Some(end)) if one_line && delta == 0 && is_short(column, end) => {
            let low = (column & 7) << 4 | (end - column);
            table.extend([head((column >> 3) as u8), low as u8]);
        }
        (Some(column), Some(end))
            if one_line && (0..3).contains(&delta) && column.max(end) < 128 =>
        {
            table.extend([head(ONE_LINE + delta as u8), column as u8, end as u8]);
        }
        (None, _) | (_, None) if one_line => {
            table.push(head(NO_COLUMNS));
            write_number(table, signed);
        }
        (column, end_column) => {
            let lines = location.end_line.checked_sub(location.line)?;
            table.push(head(LONG));
            write_number(table, signed);
            write_number(table, u32::try_from(lines).ok()?);
            for column in [column, end_column] {
                write_number(table, column.map_or(Some(0), |c| c.checked_add(1))?);
            }
        }
    }
    *line = location.line;
    Some(())
}

/// Whether columns fit the shortest kinds: a start below 80, at most 15 bytes.
const fn is_short(column: u32, end: u32) -> bool {
    column < 80 && end >= column && end - column < 16
}

fn write_number(table: &mut Vec<u8>, mut number: u32) {
    while number > u32::from(GROUP) {
        table.push(number as u8 & GROUP | MORE);
        number >>= 6;
    }
    table.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: i32, column: u32, end_line: i32, end_column: u32) -> Option<Location> {
        Some(Location { line, end_line, column: Some(column), end_column: Some(end_column) })
    }

    /// Encodes a run of one-unit locations from line 10 and decodes it again.
    fn check(locations: &[Option<Location>], expected: &[u8]) {
        let entry = |(unit, &location): (usize, &Option<Location>)| Entry {
            start: unit as u32,
            end: unit as u32 + 1,
            location,
        };
        let entries: Vec<Entry> = locations.iter().enumerate().map(entry).collect();
        let table = encode(&entries, 10).unwrap();
        assert_eq!(table, expected);
        assert_eq!(decode(&table, 10).unwrap(), entries);
        for (unit, location) in locations.iter().enumerate() {
            assert_eq!(line_of(&table, 10, unit as u32), location.map(|l| l.line));
        }
    }

    #[test]
    fn every_kind_is_chosen_where_it_fits() {
        check(&[at(10, 12, 10, 15)], &[0x88, 0x43]);
        check(&[at(12, 12, 12, 15)], &[0xE0, 12, 15]);
        check(&[at(10, 100, 10, 15)], &[0xD0, 100, 15]);
        check(&[at(9, 0, 9, 4)], &[0xF0, 3, 0, 1, 5]);
        check(&[at(10, 0, 50, 200)], &[0xF0, 0, 40, 1, 0x40 | 9, 3]);
        check(&[None, at(10, 0, 10, 0)], &[0xF8, 0x80, 0]);
        let bare = Some(Location { line: 40, end_line: 40, column: None, end_column: None });
        check(&[bare], &[0xE8, 60]);
    }

    #[test]
    fn long_entries_are_split() {
        let entry = Entry { start: 0, end: 20, location: at(11, 0, 11, 4) };
        let table = encode(&[entry], 10).unwrap();
        assert_eq!(table, [0xDF, 0, 4, 0x87, 4, 0x83, 4]);
        assert_eq!(line_of(&table, 10, 19), Some(11));
        assert_eq!(line_of(&table, 10, 20), None);
    }

    #[test]
    fn malformed_tables_are_refused() {
        assert_eq!(decode(&[0x08, 0], 1), Err(Error::EntryMark { at: 0 }));
        assert_eq!(decode(&[0x88], 1), Err(Error::Truncated { at: 1 }));
        assert_eq!(decode(&[0x88, 0x88], 1), Err(Error::EntryMark { at: 1 }));
        let endless = [0xE8, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0];
        assert_eq!(decode(&endless, 1), Err(Error::NumberTooLarge { at: 0 }));
        assert_eq!(decode(&[0xE8, 2], i32::MAX), Err(Error::NumberTooLarge { at: 0 }));
        let gap = Entry { start: 1, end: 2, location: None };
        assert_eq!(encode(&[gap], 1), Err(Error::RangeBoundary { at: 1 }));
    }
}
