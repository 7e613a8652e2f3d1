//! Exception tables: which handler covers which instructions (CPython 3.11 to 3.13).
//!
//! An entry is four numbers (start, length, target, depth and lasti) of big-endian six-bit groups:
//! bit 6 of a byte says that another group follows, bit 7 marks the first byte of an entry. The
//! marks make a binary search possible without decoding the table: see [`find_handler`]. Entries are
//! sorted by start and don't overlap.

use crate::error::Error;

const ENTRY: u8 = 0x80;
const MORE: u8 = 0x40;
const GROUP: u8 = 0x3F;
/// Numbers have at most five groups.
const LIMIT: u32 = 1 << 30;

/// One entry; positions are code units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first unit covered.
    pub start: u32,
    /// The unit behind the last one covered.
    pub end: u32,
    /// Where the handler begins.
    pub target: u32,
    /// The stack depth to unwind to.
    pub depth: u32,
    /// Whether the faulting instruction's offset is pushed below the exception.
    pub lasti: bool,
}

/// What to do when an instruction raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// The unit at which the handler begins.
    pub target: u32,
    /// The stack depth to unwind to.
    pub depth: u32,
    /// Whether the faulting instruction's offset is pushed below the exception.
    pub lasti: bool,
}

/// Decodes all entries.
pub fn decode(table: &[u8]) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::with_capacity(table.len() / 4);
    let mut at = 0;
    while at < table.len() {
        let (entry, next) = read_entry(table, at)?;
        entries.push(entry);
        at = next;
    }
    Ok(entries)
}

/// Encodes entries in the order given.
pub fn encode(entries: &[Entry]) -> Result<Vec<u8>, Error> {
    let mut table = Vec::with_capacity(entries.len() * 5);
    for (at, entry) in entries.iter().enumerate() {
        let length =
            entry.end.checked_sub(entry.start).ok_or(Error::RangeBoundary { at: entry.end })?;
        if entry.depth >= LIMIT / 2 {
            return Err(Error::NumberTooLarge { at });
        }
        let depth_lasti = entry.depth << 1 | u32::from(entry.lasti);
        write_number(&mut table, entry.start, ENTRY, at)?;
        for number in [length, entry.target, depth_lasti] {
            write_number(&mut table, number, 0, at)?;
        }
    }
    Ok(table)
}

/// The handler that covers a unit, read from the raw table: no allocation, logarithmic.
///
/// A table that is malformed where the search looks has no handler.
pub fn find_handler(table: &[u8], instruction_unit: usize) -> Option<Handler> {
    let unit = u32::try_from(instruction_unit).ok()?;
    let mut low = 0;
    let mut high = table.len();
    // Entries before `low` start at or before `unit`; entries from `high` on start after it. Each
    // round decides for the entry that holds the middle byte.
    let mut candidate = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let at = entry_start(table, low, middle)?;
        let (start, after_start) = read_number(table, at, at).ok()?;
        if start > unit {
            high = at;
        } else {
            candidate = Some(at);
            low = next_entry(table, after_start);
        }
    }
    let (entry, _) = read_entry(table, candidate?).ok()?;
    (unit < entry.end).then_some(Handler {
        target: entry.target,
        depth: entry.depth,
        lasti: entry.lasti,
    })
}

/// The first byte of the entry that holds byte `at`, not before `low`.
fn entry_start(table: &[u8], low: usize, at: usize) -> Option<usize> {
    let marked = table[low..=at].iter().rposition(|byte| byte & ENTRY != 0)?;
    Some(low + marked)
}

/// The first byte of the first entry at or after byte `at`, or the table's end.
fn next_entry(table: &[u8], at: usize) -> usize {
    let rest = table[at..].iter().position(|byte| byte & ENTRY != 0);
    rest.map_or(table.len(), |skipped| at + skipped)
}

fn read_entry(table: &[u8], entry: usize) -> Result<(Entry, usize), Error> {
    let (start, at) = read_number(table, entry, entry)?;
    let (length, at) = read_number(table, at, entry)?;
    let (target, at) = read_number(table, at, entry)?;
    let (depth_lasti, at) = read_number(table, at, entry)?;
    let end = start + length; // Both are below 2^30.
    let depth = depth_lasti >> 1;
    Ok((Entry { start, end, target, depth, lasti: depth_lasti & 1 == 1 }, at))
}

/// Reads a number at byte `at`; the mark is expected if the entry starts there.
fn read_number(table: &[u8], at: usize, entry: usize) -> Result<(u32, usize), Error> {
    let mut value = 0;
    let mut next = at;
    loop {
        let byte = *table.get(next).ok_or(Error::Truncated { at: next })?;
        if (byte & ENTRY != 0) != (next == entry) {
            return Err(Error::EntryMark { at: next });
        }
        if value >= LIMIT >> 6 {
            return Err(Error::NumberTooLarge { at: entry });
        }
        value = value << 6 | u32::from(byte & GROUP);
        next += 1;
        if byte & MORE == 0 {
            return Ok((value, next));
        }
    }
}

fn write_number(table: &mut Vec<u8>, number: u32, mark: u8, entry: usize) -> Result<(), Error> {
    if number >= LIMIT {
        return Err(Error::NumberTooLarge { at: entry });
    }
    let mut mark = mark;
    for shift in [24, 18, 12, 6] {
        if number >> shift != 0 {
            table.push((number >> shift) as u8 & GROUP | MORE | mark);
            mark = 0;
        }
    }
    table.push(number as u8 & GROUP | mark);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: [Entry; 3] = [
        Entry { start: 4, end: 10, target: 40, depth: 0, lasti: false },
        Entry { start: 10, end: 64, target: 4000, depth: 3, lasti: true },
        Entry { start: 70, end: 300_000, target: 300_000, depth: 100, lasti: false },
    ];

    #[test]
    fn entries_come_back() {
        let table = encode(&ENTRIES).unwrap();
        assert_eq!(table[..4], [0x84, 6, 40, 0]);
        assert_eq!(decode(&table).unwrap(), ENTRIES);
    }

    #[test]
    fn the_search_agrees_with_the_entries() {
        let table = encode(&ENTRIES).unwrap();
        for unit in (0..80).chain(299_990..300_010) {
            let expected = ENTRIES.iter().find(|e| (e.start..e.end).contains(&unit));
            let found = find_handler(&table, unit as usize);
            assert_eq!(found.map(|h| h.target), expected.map(|e| e.target), "unit {unit}");
        }
        assert_eq!(find_handler(&[], 0), None);
    }

    #[test]
    fn malformed_tables_are_refused() {
        assert_eq!(decode(&[0x84, 6, 40]), Err(Error::Truncated { at: 3 }));
        assert_eq!(decode(&[0x04, 6, 40, 0]), Err(Error::EntryMark { at: 0 }));
        assert_eq!(decode(&[0x84, 0x86, 40, 0]), Err(Error::EntryMark { at: 1 }));
        let endless = [0xFF, 0x7F, 0x7F, 0x7F, 0x7F, 0x7F, 0];
        assert_eq!(decode(&endless), Err(Error::NumberTooLarge { at: 0 }));
        let backwards = Entry { start: 5, end: 4, target: 0, depth: 0, lasti: false };
        assert_eq!(encode(&[backwards]), Err(Error::RangeBoundary { at: 4 }));
    }
}
