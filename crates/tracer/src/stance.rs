//! `stator.set_stance`: what the process's compiled functions do with calls that no trace fits.

use std::sync::atomic::{AtomicU8, Ordering};

/// A stance, as users name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stance {
    /// A call that no trace fits is recorded.
    Default,
    /// Every call runs natively.
    ForceEager,
    /// Traces serve; other calls run natively.
    EagerOnRecompile,
    /// Traces serve; other calls are errors.
    FailOnRecompile,
}

static STANCE: AtomicU8 = AtomicU8::new(Stance::Default as u8);

impl Stance {
    /// Every stance; its place is its number.
    pub const ALL: [Self; 4] =
        [Self::Default, Self::ForceEager, Self::EagerOnRecompile, Self::FailOnRecompile];

    /// The name users type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::ForceEager => "force_eager",
            Self::EagerOnRecompile => "eager_on_recompile",
            Self::FailOnRecompile => "fail_on_recompile",
        }
    }

    /// The stance of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stance| stance.name() == name)
    }
}

/// The stance of the process.
#[inline]
#[must_use]
pub fn get() -> Stance {
    Stance::ALL[usize::from(STANCE.load(Ordering::Relaxed))]
}

/// Takes a stance; returns the one before.
pub fn set(stance: Stance) -> Stance {
    Stance::ALL[usize::from(STANCE.swap(stance as u8, Ordering::Relaxed))]
}
