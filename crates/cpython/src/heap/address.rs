//! Maps keyed by addresses.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by addresses of objects.
pub type AddressMap<V> = HashMap<usize, V, BuildHasherDefault<AddressHasher>>;
/// A set of addresses of objects.
pub type AddressSet = HashSet<usize, BuildHasherDefault<AddressHasher>>;

/// Hashes one word by multiplication; objects lie 16 bytes apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, value: usize) {
        let product = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
