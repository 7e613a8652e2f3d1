//! A map by address that hardly any object is in, though all are looked up.

use rustc_hash::FxHashMap;

/// Such a map. A few bits say of nearly every other address that it isn't in it.
pub struct Sparse<V> {
    map: FxHashMap<usize, V>,
    /// A bit for each address that was added since the map was empty, shared with others.
    bits: u64,
}

impl<V> Default for Sparse<V> {
    fn default() -> Self {
        Self { map: FxHashMap::default(), bits: 0 }
    }
}

/// One of a few bits, by an address.
#[inline(always)]
pub const fn bit(address: usize) -> u64 {
    // Objects are aligned, and large ones lie far apart.
    1 << ((address >> 4 ^ address >> 10) & 63)
}

impl<V> Sparse<V> {
    /// False: nothing stands at the address.
    #[inline]
    pub fn may_hold(&self, address: usize) -> bool {
        self.bits & bit(address) != 0
    }

    /// As [`Sparse::may_hold`], of this map or another.
    #[inline]
    pub fn or_may_hold<W>(&self, other: &Sparse<W>, address: usize) -> bool {
        (self.bits | other.bits) & bit(address) != 0
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Whether something stands at the address.
    pub fn contains_key(&self, address: &usize) -> bool {
        self.get(address).is_some()
    }

    /// What stands at the address.
    pub fn get(&self, address: &usize) -> Option<&V> {
        if self.may_hold(*address) { self.map.get(address) } else { None }
    }

    /// As [`Sparse::get`], to be changed.
    pub fn get_mut(&mut self, address: &usize) -> Option<&mut V> {
        if self.may_hold(*address) { self.map.get_mut(address) } else { None }
    }

    /// All there is.
    pub fn iter(&self) -> impl Iterator<Item = (&usize, &V)> {
        self.map.iter()
    }

    /// All there is, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.map.values_mut()
    }

    /// Adds a value.
    pub fn insert(&mut self, address: usize, value: V) {
        self.bits |= bit(address);
        self.map.insert(address, value);
    }

    /// Takes one out.
    pub fn remove(&mut self, address: &usize) -> Option<V> {
        let found = self.map.remove(address);
        if self.map.is_empty() {
            self.bits = 0;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Sparse;

    #[test]
    fn what_is_in_it_may_be_in_it() {
        let mut sparse = Sparse::default();
        for address in (0x7f00_0000_0000_usize..).step_by(48).take(500) {
            assert!(sparse.get(&address).is_none());
            sparse.insert(address, address);
            assert!(sparse.may_hold(address));
        }
        assert!((0x7f00_0000_0000..).step_by(48).take(500).all(|address| sparse.may_hold(address)));
    }

    #[test]
    fn an_empty_one_holds_nothing() {
        let mut sparse = Sparse::default();
        sparse.insert(16, 'a');
        sparse.insert(16 << 6, 'b');
        assert_eq!(sparse.remove(&16), Some('a'));
        assert!(sparse.may_hold(16 << 6));
        assert_eq!(sparse.remove(&(16 << 6)), Some('b'));
        assert!(!sparse.may_hold(16) && !sparse.may_hold(16 << 6));
    }
}
