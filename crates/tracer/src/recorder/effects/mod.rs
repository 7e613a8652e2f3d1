//! Writes to what lies outside the call, and what else a replay has to do again.
//!
//! A write is executed at once. `writes` notes the last value of each part that was written, `stores`, `items`,
//! `containers` and `dictionaries` are its ways in; `emissions` are warnings and log records, `context` the
//! `with` blocks, `locks` those that are held, `missing_keys` what a `defaultdict` makes, `iterators` and `upcoming` those
//! from outside that are advanced, `generators` generators from outside, `finalizers` objects whose death would be noticed, `programs` what tensor programs write.
//!
//! What a replay couldn't repeat ends the trace before it.

pub(super) mod containers;
pub(super) mod context;
pub(super) mod dictionaries;
pub(super) mod emissions;
pub(super) mod finalizers;
pub(super) mod generators;
pub(super) mod items;
pub(super) mod iterators;
pub(super) mod locks;
pub(super) mod missing_keys;
pub(super) mod programs;
pub(super) mod stores;
pub(super) mod upcoming;
pub(super) mod writes;
