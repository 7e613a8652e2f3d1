//! Which tensors share memory, and where in it they begin.
//!
//! A backend other than the replay may keep values of its own for what a graph writes, and put them
//! into the inputs at the end: what it makes of a graph holds only for inputs that share memory as its
//! example inputs did.

use std::sync::Mutex;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stator_cpython::heap::tensor::{self, Memory};
use stator_cpython::object::Borrowed;

use crate::lock;

/// For each input that shares memory with another: which group it is in, where it begins, and its
/// sizes. Strides are guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing(Vec<(u32, u32, i64, Box<[i64]>)>);

/// The memory of the inputs that last shared none: mostly it's the same at the next call, which is
/// quicker to see than that nothing is shared.
#[derive(Debug, Default)]
pub struct Apart(Mutex<Vec<Option<Memory>>>);

impl Apart {
    fn holds(&self, inputs: &[Borrowed<'_, '_>]) -> bool {
        // Not looked at under the lock: to ask a tensor may run Python code.
        let known = std::mem::take(&mut *lock(&self.0));
        let holds = known.len() == inputs.len()
            && known.iter().zip(inputs).all(|(place, input)| *place == tensor::memory(*input));
        if holds {
            *lock(&self.0) = known;
        }
        holds
    }
}

impl Sharing {
    /// Inputs of graphs that write to none: it doesn't matter.
    pub fn ignored() -> Self {
        Self(Vec::new())
    }

    /// How these share memory. `None`: in a way that PyTorch doesn't know of, as different storages
    /// over one memory (`torch.from_numpy` twice); backends take them for apart.
    pub fn of(inputs: &[Borrowed<'_, '_>], apart: &Apart) -> Option<Self> {
        if apart.holds(inputs) {
            return Some(Self::ignored());
        }
        let places: Vec<Option<Memory>> =
            inputs.iter().map(|input| tensor::memory(*input)).collect();
        let mut members = FxHashMap::<usize, u32>::default();
        let mut ranges = SmallVec::<[(usize, usize); 16]>::new();
        for place in places.iter().flatten() {
            let count = members.entry(place.storage).or_default();
            *count += 1;
            if *count == 1 && place.size > 0 && place.start > 0 {
                ranges.push((place.start, place.start + place.size));
            }
        }
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return None;
        }
        if members.values().all(|count| *count == 1) {
            *lock(&apart.0) = places;
            return Some(Self::ignored());
        }
        // Groups are named after their first members: addresses say nothing.
        let mut first = FxHashMap::<usize, u32>::default();
        let mut shared = Vec::new();
        for (position, (input, place)) in inputs.iter().zip(&places).enumerate() {
            let Some(place) = place.filter(|place| members[&place.storage] > 1) else { continue };
            let group = *first.entry(place.storage).or_insert(position as u32);
            let Some(info) = tensor::info(*input) else { continue };
            shared.push((position as u32, group, info.storage_offset, info.sizes.to_vec().into()));
        }
        Some(Self(shared))
    }
}
