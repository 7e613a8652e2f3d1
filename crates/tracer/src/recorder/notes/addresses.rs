//! Tables by address that are asked all the time: of most objects that a trace meets something is known.
//!
//! An entry lies beside its key, so an answer costs one line of the processor's cache, and few
//! instructions: objects are aligned and none lies at 0. Nothing is ever taken out.

/// What such a table is asked for.
pub trait Address: Copy + Eq {
    /// No object's.
    const NONE: Self;

    /// Spread over all bits, the upper ones best.
    fn spread(self) -> u64;
}

/// The golden ratio as a fraction of 2^64 (Knuth, The Art of Computer Programming, volume 3, 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Address for usize {
    const NONE: Self = 0;

    #[inline(always)]
    fn spread(self) -> u64 {
        (self as u64 >> 4).wrapping_mul(GOLDEN)
    }
}

/// A part of an object: its address, and what stands for the part.
impl Address for (usize, usize) {
    const NONE: Self = (0, 0);

    #[inline(always)]
    fn spread(self) -> u64 {
        let part = (self.1 as u64).rotate_right(4).wrapping_mul(GOLDEN);
        (self.0 as u64 >> 4 ^ part ^ part >> 32).wrapping_mul(GOLDEN)
    }
}

/// A table by address.
pub struct Addresses<K, V> {
    /// As many as a power of two, at most two thirds of them in use.
    entries: Box<[(K, V)]>,
    len: usize,
    /// What a new entry holds.
    new: V,
}

/// A set of addresses.
pub type AddressSet<K> = Addresses<K, ()>;

const LEAST: usize = 16;

impl<K: Address, V: Copy> Addresses<K, V> {
    /// An empty table with room for so many.
    pub fn with_room(room: usize, new: V) -> Self {
        let places = (room + room / 2 + 1).next_power_of_two().max(LEAST);
        Self { entries: vec![(K::NONE, new); places].into_boxed_slice(), len: 0, new }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Where an address stands, or would.
    #[inline(always)]
    fn place(&self, key: K) -> usize {
        debug_assert!(key != K::NONE, "no object lies there");
        let mask = self.entries.len() - 1;
        let mut place = (key.spread() >> (64 - self.entries.len().trailing_zeros())) as usize;
        while self.entries[place & mask].0 != key && self.entries[place & mask].0 != K::NONE {
            place += 1;
        }
        place & mask
    }

    /// What stands at an address.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        let (found, value) = &self.entries[self.place(key)];
        (*found == key).then_some(value)
    }

    /// As [`Addresses::get`], to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let (found, value) = &mut self.entries[self.place(key)];
        (*found == key).then_some(value)
    }

    /// What stands at an address, as new if nothing does.
    #[inline]
    pub fn entry(&mut self, key: K) -> &mut V {
        if 3 * self.len >= 2 * self.entries.len() {
            self.grow();
        }
        let place = self.place(key);
        let (found, value) = &mut self.entries[place];
        if *found != key {
            *found = key;
            self.len += 1;
        }
        value
    }

    #[cold]
    fn grow(&mut self) {
        let places = 2 * self.entries.len();
        let larger = vec![(K::NONE, self.new); places].into_boxed_slice();
        for (key, value) in std::mem::replace(&mut self.entries, larger) {
            if key != K::NONE {
                let place = self.place(key);
                self.entries[place] = (key, value);
            }
        }
    }

    /// All there is.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().filter(|(key, _)| *key != K::NONE).map(|(key, value)| (key, value))
    }
}

impl<K: Address> AddressSet<K> {
    /// An empty set with room for so many.
    pub fn of_room(room: usize) -> Self {
        Self::with_room(room, ())
    }

    /// Adds one; false if it is in it.
    #[inline]
    pub fn insert(&mut self, key: K) -> bool {
        let before = self.len;
        self.entry(key);
        self.len > before
    }

    /// Whether it is in it.
    #[inline]
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::{AddressSet, Addresses};

    proptest! {
        #[test]
        fn it_is_a_map(changes in proptest::collection::vec((1..200_usize, 0..9_u32), 0..400)) {
            let (mut table, mut known) = (Addresses::with_room(0, 7), HashMap::new());
            for (key, value) in changes {
                let address = key << 4;
                prop_assert_eq!(table.get(address), known.get(&address));
                *table.entry(address) += value;
                *known.entry(address).or_insert(7) += value;
                prop_assert_eq!(table.get_mut(address).copied(), known.get(&address).copied());
            }
            prop_assert_eq!(table.len(), known.len());
            prop_assert_eq!(table.iter().map(|(key, value)| (*key, *value)).collect::<HashMap<_, _>>(), known);
        }
    }

    #[test]
    fn parts_of_an_object_are_told_apart() {
        let mut set = AddressSet::of_room(0);
        for object in (0x7f00_0000_0000_usize..).step_by(48).take(100) {
            for part in [0, 1, 2, object, object + 48] {
                assert!(!set.contains((object, part)));
                assert!(set.insert((object, part)));
                assert!(!set.insert((object, part)) && set.contains((object, part)));
            }
        }
        assert_eq!((set.len(), set.iter().count()), (500, 500));
    }
}
