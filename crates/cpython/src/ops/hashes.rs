//! Hashes, and what dictionaries find by them.

use pyo3::ffi;
use pyo3::prelude::*;

use crate::ffi as shim;
use crate::object::{Borrowed, Object};
use crate::raised::{Raised, Result};

/// `hash(object)`, as dictionaries ask for it.
pub fn hash(object: Borrowed<'_, '_>) -> Result<isize> {
    super::begin()?;
    // SAFETY: a valid object.
    let hash = unsafe { ffi::PyObject_Hash(object.as_ptr()) };
    if hash == -1 { Err(Raised) } else { Ok(hash) }
}

/// The value at a key of a dictionary, whose hash isn't asked for again.
pub fn get_hashed<'py>(
    dict: Borrowed<'_, 'py>,
    key: Borrowed<'_, 'py>,
    hash: isize,
) -> Result<Option<Object<'py>>> {
    super::begin()?;
    let py = dict.py();
    // SAFETY: a dictionary (else it is a `SystemError`), a valid key; the value is counted at once.
    unsafe {
        let value = shim::_PyDict_GetItem_KnownHash(dict.as_ptr(), key.as_ptr(), hash);
        match Bound::from_borrowed_ptr_or_opt(py, value) {
            None if !ffi::PyErr_Occurred().is_null() => Err(Raised),
            value => Ok(value),
        }
    }
}

/// The hash of a tuple whose elements have these.
#[must_use]
pub fn hash_of_tuple(parts: &[isize]) -> isize {
    // `Objects/tupleobject.c`: xxHash, with a lane for each element.
    const PRIMES: [u64; 3] =
        [11_400_714_785_074_694_791, 14_029_467_366_897_019_727, 2_870_177_450_012_600_261];
    let [first, second, third] = PRIMES;
    let mix = |sum: u64, part: &isize| {
        let sum = sum.wrapping_add((*part as u64).wrapping_mul(second));
        sum.rotate_left(31).wrapping_mul(first)
    };
    let sum = parts.iter().fold(third, mix);
    match sum.wrapping_add(parts.len() as u64 ^ (third ^ 3_527_539)) {
        u64::MAX => 1_546_275_796,
        sum => sum as isize,
    }
}

#[cfg(test)]
mod tests {
    use pyo3::types::PyTuple;

    use super::*;

    #[test]
    fn a_tuple_hashes_as_its_parts_say() {
        Python::attach(|py| {
            for parts in [vec![], vec![0], vec![1, -2], vec![i64::MAX >> 3, 5, 1 << 40]] {
                let tuple = PyTuple::new(py, &parts).unwrap();
                let of = |part: Bound<'_, PyAny>| hash(part.as_borrowed()).unwrap();
                let hashes: Vec<_> = tuple.iter().map(of).collect();
                assert_eq!(hash_of_tuple(&hashes), of(tuple.into_any()));
            }
        });
    }
}
