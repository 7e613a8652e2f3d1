//! Lookup in a code object's exception table, which is sorted by start.
//!
//! An entry is four varints (start, length, handler, depth << 1 | lasti), six bits a byte, high
//! group first; bit 6 continues a number, bit 7 marks the first byte of an entry.

/// Where an exception goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Unit of the handler's first instruction.
    pub target: usize,
    /// Stack depth (above the fast locals) that the handler expects below what is pushed.
    pub depth: usize,
    /// Whether the faulting unit is pushed before the exception.
    pub lasti: bool,
}

/// Below this many bytes a linear scan is faster.
const LINEAR: usize = 40;

pub(super) fn find(table: &[u8], unit: usize) -> Option<Handler> {
    let (mut start, mut end) = (0, table.len());
    if end > LINEAR {
        if number(table, 0).0 > unit {
            return None;
        }
        // Invariant: `start` is an entry not after `unit`; `end` is the table's end or one after it.
        while end - start > LINEAR {
            let middle = entry_start(table, start + (end - start) / 2);
            if number(table, middle).0 > unit {
                end = middle;
            } else {
                start = middle;
            }
        }
    }
    while start < end {
        let (first, next) = number(table, start);
        if first > unit {
            break;
        }
        let (length, next) = number(table, next);
        let (target, next) = number(table, next);
        let (depth, next) = number(table, next);
        if unit < first + length {
            return Some(Handler { target, depth: depth >> 1, lasti: depth & 1 != 0 });
        }
        start = next;
    }
    None
}

fn entry_start(table: &[u8], mut at: usize) -> usize {
    while table[at] & 0x80 == 0 {
        at -= 1;
    }
    at
}

fn number(table: &[u8], mut at: usize) -> (usize, usize) {
    let mut byte = table[at];
    let mut value = usize::from(byte & 63);
    while byte & 64 != 0 {
        at += 1;
        byte = table[at];
        value = value << 6 | usize::from(byte & 63);
    }
    (value, at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(start: u8, length: u8, target: u8, depth_lasti: u8) -> [u8; 4] {
        [0x80 | start, length, target, depth_lasti]
    }

    #[test]
    fn finds_the_covering_entry() {
        let table = [entry(2, 3, 10, 4), entry(8, 2, 20, 3)].concat();
        assert_eq!(find(&table, 1), None);
        assert_eq!(find(&table, 4), Some(Handler { target: 10, depth: 2, lasti: false }));
        assert_eq!(find(&table, 5), None);
        assert_eq!(find(&table, 9), Some(Handler { target: 20, depth: 1, lasti: true }));
        assert_eq!(find(&table, 10), None);
    }

    #[test]
    fn bisects_long_tables() {
        let table: Vec<u8> = (0..30).flat_map(|i| entry(2 * i, 1, i, 2)).collect();
        for i in 0..30 {
            let handler = Handler { target: i, depth: 1, lasti: false };
            assert_eq!(find(&table, 2 * i), Some(handler));
            assert_eq!(find(&table, 2 * i + 1), None);
        }
    }

    #[test]
    fn reads_long_numbers() {
        let table = [0x80 | 0x40 | 1, 2, 1, 0x40 | 3, 4, 0];
        assert_eq!(find(&table, 66), Some(Handler { target: 196, depth: 0, lasti: false }));
    }
}
