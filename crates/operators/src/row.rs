//! What a row says.

use crate::class::{Class, Writes};
use crate::numeric::Numeric;
use crate::versions::{Version, Versions};

/// What else a row says: a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits(u32);

impl Traits {
    /// Nothing else.
    pub const NONE: Self = Self(0);
    /// Writes to arguments without counting the write in their versions.
    pub const WRITES_SILENTLY: Self = Self(1);
    /// Gives an argument itself where a number among the arguments is zero.
    pub const RETURNS_ARGUMENT: Self = Self(1 << 1);

    /// Moves what it is given, or asks for its type alone: a number that is a symbol stays one.
    pub const MOVES: Self = Self(1 << 2);
    /// Takes apart what it is given.
    pub const ITERATES: Self = Self(1 << 3);
    /// Gives the items of its arguments without looking at them.
    pub const HANDS_ON: Self = Self(1 << 4);
    /// Gives the same whatever order the elements of a set are in.
    pub const UNORDERED: Self = Self(1 << 5);
    /// Looks for an object, or puts equal ones together.
    pub const SEARCHES: Self = Self(1 << 6);
    /// Puts objects in order.
    pub const ORDERS: Self = Self(1 << 7);
    /// Compares two objects; other C functions may call it.
    pub const COMPARES: Self = Self(1 << 8);
    /// Gives metadata that doesn't depend on sizes.
    pub const SIZELESS: Self = Self(1 << 9);
    /// Changes a container by moving references: it calls no operation.
    pub const QUIET: Self = Self(1 << 10);
    /// Changes a container without looking at what it holds.
    pub const ONLY_ADDS: Self = Self(1 << 11);
    /// Puts an argument into a container as it is.
    pub const STORES: Self = Self(1 << 12);
    /// Takes its first argument as a number.
    pub const COUNTS: Self = Self(1 << 13);
    /// Takes its second argument as a truth value.
    pub const FLAGGED: Self = Self(1 << 14);
    /// Does nothing where it gives an argument back; which metadata and numbers decide.
    pub const IDLE: Self = Self(1 << 15);

    const NAMES: &[(Self, &str)] = &[
        (Self::WRITES_SILENTLY, "writes silently"),
        (Self::RETURNS_ARGUMENT, "returns an argument"),
        (Self::MOVES, "moves"),
        (Self::ITERATES, "iterates"),
        (Self::HANDS_ON, "hands on"),
        (Self::UNORDERED, "unordered"),
        (Self::SEARCHES, "searches"),
        (Self::ORDERS, "orders"),
        (Self::COMPARES, "compares"),
        (Self::SIZELESS, "sizeless"),
        (Self::QUIET, "quiet"),
        (Self::ONLY_ADDS, "only adds"),
        (Self::STORES, "stores"),
        (Self::COUNTS, "counts"),
        (Self::FLAGGED, "flagged"),
        (Self::IDLE, "idle"),
    ];

    /// The traits in words.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(one, _)| self.has(*one)).map(|(_, name)| *name)
    }

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What is known of some callables.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Whose: a module, or what Python finds from one. Empty: wherever PyTorch has the name, as a function,
    /// a method, or an operator of `torch.ops.aten`.
    pub owner: &'static str,
    /// Their names, with spaces between them.
    pub names: &'static str,
    /// What they do.
    pub class: Class,
    /// What else.
    pub traits: Traits,
    /// What they make of symbolic numbers; `None`: of constants alone.
    pub numeric: Option<Numeric>,
    /// Of methods that change a set or a deque; `None`: a trace can't follow them.
    pub writes: Option<Writes>,
    /// For which versions.
    pub versions: Versions,
}

impl Row {
    /// The same, for some versions alone. Rows of one name and owner must have no version in common.
    #[must_use]
    pub const fn only(self, versions: Versions) -> Self {
        Self { versions, ..self }
    }

    /// The same, of functions that a trace follows through symbolic numbers.
    #[must_use]
    pub const fn of_numbers(self, numeric: Numeric) -> Self {
        Self { numeric: Some(numeric), ..self }
    }

    /// The same, of methods that change a set, a deque or a dictionary.
    #[must_use]
    pub const fn writes(self, writes: Writes) -> Self {
        Self { writes: Some(writes), ..self }
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split_whitespace()
    }
}

/// A row for all versions.
pub const fn row(owner: &'static str, names: &'static str, class: Class, traits: Traits) -> Row {
    Row { owner, names, class, traits, numeric: None, writes: None, versions: Versions::ALL }
}

/// Those rows that speak of a version.
pub fn rows_for(rows: &'static [Row], version: Version) -> impl Iterator<Item = &'static Row> {
    rows.iter().filter(move |row| row.versions.hold(version))
}

#[cfg(test)]
mod tests {
    use super::{Row, Traits, rows_for};
    use crate::class::Class;
    use crate::versions::Versions;
    use crate::{PYTHON, STATE, torch};

    const NEW: Row = Row {
        owner: "math",
        names: "sumprod",
        class: Class::Pure,
        traits: Traits::NONE,
        numeric: None,
        writes: None,
        versions: Versions::since((3, 12)),
    };
    static ROWS: &[Row] = &[NEW.only(Versions::before((3, 12))), NEW, NEW.only(Versions::ALL)];

    #[test]
    fn rows_are_for_versions() {
        let places = |version| {
            let found = rows_for(ROWS, version);
            found.map(|row| ROWS.iter().position(|one| std::ptr::eq(one, row)).unwrap()).collect()
        };
        let (old, new): (Vec<_>, Vec<_>) = (places((3, 11)), places((3, 12)));
        assert_eq!((old, new), (vec![0, 2], vec![1, 2]));
    }

    /// The pairs of rows that speak of one name of one owner and have a version in common.
    fn meeting(rows: &'static [Row]) -> usize {
        let mut pairs = 0;
        for (place, row) in rows.iter().enumerate() {
            for other in rows[..place].iter().filter(|other| other.owner == row.owner) {
                let same = row.names().any(|name| other.names().any(|found| found == name));
                pairs += usize::from(same && row.versions.meet(other.versions));
            }
        }
        pairs
    }

    #[test]
    fn no_version_has_two_rows_of_a_name() {
        assert_eq!(meeting(ROWS), 2);
        for rows in [torch::OPERATIONS, STATE, PYTHON] {
            assert_eq!(meeting(rows), 0);
        }
    }
}
