//! The versions of CPython and PyTorch that rows speak of.

use std::sync::OnceLock;

/// Major and minor number.
pub type Version = (u16, u16);

/// Versions, those of CPython in a row of Python's table and those of PyTorch in its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    since: Version,
    before: Version,
}

impl Versions {
    /// Every version.
    pub const ALL: Self = Self { since: (0, 0), before: (u16::MAX, u16::MAX) };

    /// This one and later ones.
    #[must_use]
    pub const fn since(version: Version) -> Self {
        Self { since: version, ..Self::ALL }
    }

    /// Those that are older than this one.
    #[must_use]
    pub const fn before(version: Version) -> Self {
        Self { before: version, ..Self::ALL }
    }

    /// Whether some version is among both.
    #[must_use]
    pub fn meet(self, other: Self) -> bool {
        self.since < other.before && other.since < self.before
    }

    /// Whether a version is among them.
    #[must_use]
    pub fn hold(self, version: Version) -> bool {
        self.since <= version && version < self.before
    }
}

static TORCH: OnceLock<Version> = OnceLock::new();

/// Says which PyTorch there is, by the text of its version: `2.11.0+cpu`.
pub fn found_torch(text: &str) {
    if let Some(version) = parse(text) {
        let _ = TORCH.set(version);
    }
}

/// The PyTorch that there is. As long as nobody has said, that which the rows were written for last.
pub fn torch() -> Version {
    TORCH.get().copied().unwrap_or((u16::MAX, 0))
}

fn parse(text: &str) -> Option<Version> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Versions, parse};

    #[test]
    fn ranges() {
        let (since, before) = (Versions::since((2, 12)), Versions::before((2, 12)));
        for (version, is_new) in
            [((2, 9), false), ((2, 11), false), ((2, 12), true), ((3, 0), true)]
        {
            assert_eq!((since.hold(version), before.hold(version)), (is_new, !is_new));
            assert!(Versions::ALL.hold(version));
        }
    }

    #[test]
    fn texts() {
        for text in ["2.11.0+cu130", "2.11", "2.11.0a0+git1234", "2.11rc1"] {
            assert_eq!(parse(text), Some((2, 11)), "{text}");
        }
        assert_eq!(parse("main"), None);
    }
}
