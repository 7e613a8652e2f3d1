//! Which names a block leaves open, for others to bind.

use rustc_hash::FxHashMap;

use super::{BlockKind, BuildingBlock};
use crate::Name;

/// A set of names of one [`FreeNames`]. Equal sets are equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameSet(u32);

impl NameSet {
    /// The set of no names.
    pub const EMPTY: Self = Self(0);
}

/// A node of a set: a binary tree over the bits of the names' numbers, lowest bit first. There is
/// one node for each set, so that sets that differ little share nearly all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Node {
    Empty,
    One(u32),
    /// Numbers with a 0, then those with a 1, in the bit of the depth.
    Both(NameSet, NameSet),
}

/// The open names of blocks. Asking for a block takes time in proportion to what is below it and
/// hasn't been asked for.
pub struct FreeNames {
    numbers: FxHashMap<Name, u32>,
    names: Vec<Name>,
    nodes: Vec<Node>,
    sizes: Vec<u32>,
    known: FxHashMap<Node, NameSet>,
    unions: FxHashMap<(NameSet, NameSet, u32), NameSet>,
    /// With the block, so that its address isn't given to another one.
    of: FxHashMap<usize, (BuildingBlock, NameSet)>,
}

impl Default for FreeNames {
    fn default() -> Self {
        Self {
            numbers: FxHashMap::default(),
            names: Vec::new(),
            nodes: vec![Node::Empty],
            sizes: vec![0],
            known: FxHashMap::default(),
            unions: FxHashMap::default(),
            of: FxHashMap::default(),
        }
    }
}

impl FreeNames {
    /// The names that `block` uses and doesn't bind.
    pub fn of(&mut self, block: &BuildingBlock) -> NameSet {
        let mut left = vec![(block.clone(), false)];
        while let Some((block, ready)) = left.pop() {
            if self.of.contains_key(&block.address()) {
                continue;
            }
            if ready {
                let set = self.of_children(&block);
                self.of.insert(block.address(), (block, set));
            } else {
                let children = block.children().into_iter().rev();
                let children: Vec<_> = children.map(|child| (child.clone(), false)).collect();
                left.push((block, true));
                left.extend(children);
            }
        }
        self.of[&block.address()].1
    }

    /// Of a block whose parts are known.
    fn of_children(&mut self, block: &BuildingBlock) -> NameSet {
        let known = |free: &Self, block: &BuildingBlock| free.of[&block.address()].1;
        match block.kind() {
            BlockKind::Reference(reference) => self.one(&reference.name),
            BlockKind::Lambda(lambda) => {
                let result = known(self, &lambda.result);
                match &lambda.parameter {
                    Some((name, _)) => self.without(result, name),
                    None => result,
                }
            }
            BlockKind::Block(of) => {
                let mut set = known(self, &of.result);
                for (name, value) in of.locals.iter().rev() {
                    set = self.without(set, name);
                    let value = known(self, value);
                    set = self.union(set, value);
                }
                set
            }
            _ => {
                let mut set = NameSet::EMPTY;
                for child in block.children() {
                    let child = known(self, child);
                    set = self.union(set, child);
                }
                set
            }
        }
    }

    /// Whether `name` is in the set.
    pub fn contains(&self, set: NameSet, name: &str) -> bool {
        let Some(&number) = self.numbers.get(name) else { return false };
        let (mut set, mut bit) = (set, 0);
        loop {
            match self.nodes[set.0 as usize] {
                Node::Empty => return false,
                Node::One(other) => return other == number,
                Node::Both(zero, one) => set = if number >> bit & 1 == 0 { zero } else { one },
            }
            bit += 1;
        }
    }

    /// How many names are in the set.
    pub fn len(&self, set: NameSet) -> usize {
        self.sizes[set.0 as usize] as usize
    }

    /// The names in the set, in no order.
    pub fn names(&self, set: NameSet) -> Vec<&Name> {
        let mut names = Vec::with_capacity(self.len(set));
        let mut left = vec![set];
        while let Some(set) = left.pop() {
            match self.nodes[set.0 as usize] {
                Node::Empty => {}
                Node::One(number) => names.push(&self.names[number as usize]),
                Node::Both(zero, one) => left.extend([zero, one]),
            }
        }
        names
    }

    /// The set without `name`.
    pub fn without(&mut self, set: NameSet, name: &str) -> NameSet {
        let Some(&number) = self.numbers.get(name) else { return set };
        let mut path = Vec::new();
        let mut rest = set;
        loop {
            match self.nodes[rest.0 as usize] {
                Node::Empty => return set,
                Node::One(other) if other != number => return set,
                Node::One(_) => break,
                Node::Both(zero, one) => {
                    let is_one = number >> path.len() & 1 == 1;
                    path.push((is_one, if is_one { zero } else { one }));
                    rest = if is_one { one } else { zero };
                }
            }
        }
        let mut made = NameSet::EMPTY;
        for (is_one, other) in path.into_iter().rev() {
            made = if is_one { self.both(other, made) } else { self.both(made, other) };
        }
        made
    }

    /// The names of both sets.
    pub fn union(&mut self, a: NameSet, b: NameSet) -> NameSet {
        self.union_from(a, b, 0)
    }

    /// Of sets whose numbers agree in the bits before `bit`. The depth is at most that of a number.
    fn union_from(&mut self, a: NameSet, b: NameSet, bit: u32) -> NameSet {
        if a == b || b == NameSet::EMPTY {
            return a;
        }
        if a == NameSet::EMPTY {
            return b;
        }
        let key = if a.0 < b.0 { (a, b, bit) } else { (b, a, bit) };
        if let Some(&made) = self.unions.get(&key) {
            return made;
        }
        let (a_zero, a_one) = self.halves(a, bit);
        let (b_zero, b_one) = self.halves(b, bit);
        let zero = self.union_from(a_zero, b_zero, bit + 1);
        let one = self.union_from(a_one, b_one, bit + 1);
        let made = self.both(zero, one);
        self.unions.insert(key, made);
        made
    }

    fn halves(&self, set: NameSet, bit: u32) -> (NameSet, NameSet) {
        match self.nodes[set.0 as usize] {
            Node::Both(zero, one) => (zero, one),
            Node::Empty => (NameSet::EMPTY, NameSet::EMPTY),
            Node::One(number) if number >> bit & 1 == 0 => (set, NameSet::EMPTY),
            Node::One(_) => (NameSet::EMPTY, set),
        }
    }

    fn one(&mut self, name: &Name) -> NameSet {
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                let number = self.names.len() as u32;
                self.names.push(name.clone());
                self.numbers.insert(name.clone(), number);
                number
            }
        };
        self.node(Node::One(number), 1)
    }

    /// A set of two halves, of which a lone name needs no node of its own.
    fn both(&mut self, zero: NameSet, one: NameSet) -> NameSet {
        match (self.nodes[zero.0 as usize], self.nodes[one.0 as usize]) {
            (Node::Empty, Node::Empty | Node::One(_)) => one,
            (Node::One(_), Node::Empty) => zero,
            _ => {
                let size = self.sizes[zero.0 as usize] + self.sizes[one.0 as usize];
                self.node(Node::Both(zero, one), size)
            }
        }
    }

    fn node(&mut self, node: Node, size: u32) -> NameSet {
        *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.sizes.push(size);
            NameSet(self.nodes.len() as u32 - 1)
        })
    }
}
