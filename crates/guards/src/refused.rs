//! What has no stored form: `#[serde(with = "refused")]` says so of a field. (A variant that serde skips would move
//! the numbers of those behind it.)

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserializer, Serializer};

const WHY: &str = "it relies on what each process has of its own";

/// Fails.
///
/// # Errors
/// Always.
pub fn serialize<T, S: Serializer>(_: &T, _: S) -> Result<S::Ok, S::Error> {
    Err(S::Error::custom(WHY))
}

/// Fails.
///
/// # Errors
/// Always.
pub fn deserialize<'de, T, D: Deserializer<'de>>(_: D) -> Result<T, D::Error> {
    Err(D::Error::custom(WHY))
}
