//! Tables of sets: how one is laid out decides the order of iteration, and what an addition or removal does to
//! it later. It depends on the set's history, so equal sets may differ in it.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFrozenSet, PySet, PyTuple};
use rustc_hash::FxHashMap;

use super::{Any, container, layout, words};

/// Size of an entry: a key and its hash.
pub(super) const ENTRY: usize = 16;
/// Where an entry has its hash.
const HASH: usize = 8;
/// The hash of an entry whose key was removed; no object has it.
const REMOVED: i64 = -1;

/// How a set's table differs from that of a set to which the same elements were added in the order of iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    mask: usize,
    /// The mask of the other set's table.
    plain_mask: usize,
    finger: u64,
    elements: Box<[Element]>,
    /// Entries whose key was removed.
    removed: Box<[usize]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Element {
    /// Its entry in the other set's table.
    from: usize,
    to: usize,
    hash: i64,
}

/// An entry of a table that has a key or had one.
pub(super) struct Entry {
    pub(super) at: usize,
    /// What stands for a removed key where it was removed.
    pub(super) key: *mut ffi::PyObject,
    hash: i64,
}

impl Entry {
    pub(super) fn is_removed(&self) -> bool {
        self.hash == REMOVED
    }
}

/// The entries of a set's table that have a key or had one, in the order of iteration.
///
/// # Safety
/// A set, which no code changes meanwhile.
pub(super) unsafe fn entries(set: Any<'_, '_>) -> impl Iterator<Item = Entry> {
    // SAFETY: a set's table has `mask + 1` entries (key, hash); a key is null where one is unused.
    let (mask, table) = unsafe {
        let mask = words::word(set.as_ptr(), layout::SET_MASK) as usize;
        (mask, words::pointer(set.as_ptr(), layout::SET_TABLE))
    };
    (0..=mask).filter_map(move |at| {
        // SAFETY: as above.
        let (key, hash) = unsafe {
            let hash = words::word(table, at * ENTRY + HASH).cast_signed();
            (words::pointer(table, at * ENTRY), hash)
        };
        (!key.is_null()).then_some(Entry { at, key, hash })
    })
}

/// A table as it is: mask, finger, entries with elements, and the entries whose key was removed.
struct Read {
    mask: usize,
    finger: u64,
    elements: Vec<Entry>,
    removed: Vec<usize>,
}

impl Read {
    fn of(set: Any<'_, '_>) -> Option<Self> {
        if !is_exact(set) {
            return None;
        }
        // SAFETY: a set by its exact type; no code runs meanwhile.
        unsafe {
            let mask = words::word(set.as_ptr(), layout::SET_MASK) as usize;
            let finger = words::word(set.as_ptr(), layout::SET_FINGER);
            let (removed, elements): (Vec<_>, Vec<_>) = entries(set).partition(Entry::is_removed);
            let removed = removed.iter().map(|entry| entry.at).collect();
            Some(Self { mask, finger, elements, removed })
        }
    }
}

impl Table {
    /// The table of a `set` or `frozenset`. `None`: a set that is made of the elements has the same one, or it
    /// isn't known. The elements' hashes are computed, so they must run no code of a user's.
    ///
    /// # Errors
    /// What hashing an element raises, or `MemoryError`.
    pub fn of(set: Any<'_, '_>) -> PyResult<Option<Self>> {
        let py = set.py();
        let (Some(own), Some(items)) = (Read::of(set), container::set_items(set)) else {
            return Ok(None);
        };
        let plain = if set.is_exact_instance_of::<PySet>() {
            let plain = PySet::empty(py)?;
            items.iter().try_for_each(|item| plain.add(item))?;
            plain.into_any()
        } else {
            py.get_type::<PyFrozenSet>().call1((PyTuple::new(py, &items)?,))?
        };
        let Some(plain) = Read::of(plain.as_borrowed()) else { return Ok(None) };
        let from = plain.elements.iter().map(|entry| (entry.key as usize, entry.at));
        let from: FxHashMap<usize, usize> = from.collect();
        let elements = own.elements.iter().map(|&Entry { at: to, key, hash }| {
            Some(Element { from: *from.get(&(key as usize))?, to, hash })
        });
        let Some(elements) = elements.collect::<Option<Box<[_]>>>() else { return Ok(None) };
        let is_plain = own.mask == plain.mask
            && own.finger == plain.finger
            && own.removed.is_empty()
            && elements.iter().all(|element| element.from == element.to);
        Ok((!is_plain).then(|| Self {
            mask: own.mask,
            plain_mask: plain.mask,
            finger: own.finger,
            elements,
            removed: own.removed.into(),
        }))
    }

    /// Lays a set out in this way. It was made of elements with the same hashes, in the same order, and nobody else
    /// has it yet. False: it wasn't, and stays as it is.
    #[must_use]
    pub fn lay_out(&self, set: Any<'_, '_>) -> bool {
        let (Some(now), Some(dummy)) = (Read::of(set), removed_key(set.py())) else {
            return false;
        };
        let mut keys: FxHashMap<usize, _> =
            now.elements.iter().map(|&Entry { at, key, hash }| (at, (key, hash))).collect();
        if now.mask != self.plain_mask
            || !now.removed.is_empty()
            || now.elements.len() != self.elements.len()
        {
            return false;
        }
        let mut entries = Vec::with_capacity(self.elements.len() + self.removed.len());
        for element in &self.elements {
            match keys.remove(&element.from) {
                Some((key, hash)) if hash == element.hash => entries.push((element.to, key, hash)),
                _ => return false,
            }
        }
        entries.extend(self.removed.iter().map(|&at| (at, dummy, REMOVED)));
        // SAFETY: a set by its exact type, which nobody else has. Its keys are those of `entries`, each once, so its
        // references move along. CPython allocates a table that doesn't fit into the set as this does.
        unsafe {
            let base = set.as_ptr().cast::<u8>();
            let within = base.add(layout::SET_SMALL_TABLE);
            let old = words::pointer(set.as_ptr(), layout::SET_TABLE).cast::<u8>();
            let new = if self.mask + 1 == layout::SET_SMALL_ENTRIES {
                within
            } else {
                ffi::PyMem_Calloc(self.mask + 1, ENTRY).cast::<u8>()
            };
            if new.is_null() {
                return false;
            }
            if new == within {
                new.write_bytes(0, layout::SET_SMALL_ENTRIES * ENTRY);
            }
            for &(at, key, hash) in &entries {
                new.add(at * ENTRY).cast::<*mut ffi::PyObject>().write(key);
                new.add(at * ENTRY + HASH).cast::<i64>().write(hash);
            }
            base.add(layout::SET_FILL).cast::<usize>().write(entries.len());
            base.add(layout::SET_MASK).cast::<usize>().write(self.mask);
            base.add(layout::SET_TABLE).cast::<*mut u8>().write(new);
            base.add(layout::SET_FINGER).cast::<u64>().write(self.finger);
            if old != within {
                ffi::PyMem_Free(old.cast());
            }
        }
        true
    }
}

fn is_exact(set: Any<'_, '_>) -> bool {
    set.is_exact_instance_of::<PySet>() || set.is_exact_instance_of::<PyFrozenSet>()
}

/// What stands for a removed key in every table, which no reference is counted of.
fn removed_key(py: Python<'_>) -> Option<*mut ffi::PyObject> {
    static KEY: PyOnceLock<Option<usize>> = PyOnceLock::new();
    let found = KEY.get_or_init(py, || {
        let set = PySet::new(py, [0]).ok()?;
        set.discard(0).ok()?;
        let set = set.as_any().as_borrowed();
        let at = *Read::of(set)?.removed.first()?;
        // SAFETY: an entry of a set's table.
        Some(unsafe {
            words::pointer(words::pointer(set.as_ptr(), layout::SET_TABLE), at * ENTRY) as usize
        })
    });
    found.map(|key| key as *mut ffi::PyObject)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a set of the elements of another, in their order, and lays it out as that one is.
    fn again<'py>(set: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        let py = set.py();
        let items = container::set_items(set.as_borrowed()).expect("a set");
        let class = set.get_type();
        let made = class.call1((PyTuple::new(py, &items).expect("memory"),)).expect("hashable");
        if let Some(table) = Table::of(set.as_borrowed()).expect("hashable") {
            assert!(table.lay_out(made.as_borrowed()), "{set}");
        }
        made
    }

    #[test]
    fn sets_with_a_history() {
        Python::initialize();
        Python::attach(|py| {
            let scope = pyo3::types::PyDict::new(py);
            let code = c"
def history(seed):
    import random
    r, s = random.Random(seed), set()
    for _ in range(r.randrange(60)):
        n = r.choice([r.randrange(40), r.randrange(9) * 32, str(r.randrange(30)), (r.randrange(5), 'a')])
        r.choice([s.add, s.add, s.discard])(n)
        if r.random() < 0.05 and s:
            s.pop()
    return s if r.random() < 0.7 else frozenset(s - {1})
def later(s):
    s = s ^ {3, 'q'} if isinstance(s, frozenset) else s
    for n in range(200, 206):
        s = s | {n} if isinstance(s, frozenset) else (s.add(n), s)[1]
    kept = list(s)
    return kept, [set(s).pop() for _ in 'ab']
";
            py.run(code, Some(&scope), None).expect("valid");
            let get = |name| scope.get_item(name).expect("a dict").expect("defined");
            let (history, later) = (get("history"), get("later"));
            for seed in 0..400 {
                let set = history.call1((seed,)).expect("runs");
                let made = again(&set);
                let list = |set: &Bound<'_, PyAny>| {
                    let items = container::set_items(set.as_borrowed()).expect("a set");
                    items.iter().map(ToString::to_string).collect::<Vec<_>>()
                };
                assert!(made.eq(&set).expect("comparable"));
                assert_eq!(list(&made), list(&set));
                let [a, b] = [&set, &made].map(|set| later.call1((set,)).expect("runs"));
                assert!(a.eq(&b).expect("comparable"), "{a} {b}");
            }
        });
    }

    #[test]
    fn other_elements_are_left_alone() {
        Python::initialize();
        Python::attach(|py| {
            let set = PySet::new(py, [8, 0, 16]).expect("hashable");
            set.discard(8).expect("hashable");
            let table =
                Table::of(set.as_any().as_borrowed()).expect("hashable").expect("a history");
            for other in [vec![0, 17], vec![16], vec![0, 16, 24]] {
                let other = PySet::new(py, &other).expect("hashable");
                let before = other.to_string();
                assert!(!table.lay_out(other.as_any().as_borrowed()));
                assert_eq!(other.to_string(), before);
            }
        });
    }
}
