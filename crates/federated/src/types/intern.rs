//! The table of types: one node for each type that lives.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::{Container, Facts, Field, Node, StructType, Type, TypeKind};

/// Nodes by the hash of their parts. A node takes itself out when it dies.
type Table = FxHashMap<u64, SmallVec<[Weak<Node>; 1]>>;

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Type {
    /// The one type of this kind.
    pub(super) fn intern(kind: TypeKind) -> Self {
        let mut hasher = FxHasher::default();
        kind.hash(&mut hasher);
        let hash = hasher.finish();
        // A node may lose its other owners while we look at it. It must not die under the lock,
        // which it takes itself.
        let mut others: SmallVec<[Arc<Node>; 1]> = SmallVec::new();
        let mut table = table();
        let bucket = table.entry(hash).or_default();
        for weak in bucket.iter() {
            let Some(node) = weak.upgrade() else { continue };
            if node.kind == kind {
                drop(table);
                return Self(node);
            }
            others.push(node);
        }
        let facts = kind.facts();
        let node = Arc::new(Node { kind, facts, hash });
        bucket.push(Arc::downgrade(&node));
        drop(table);
        Self(node)
    }

    /// The same type with tuples for lists, looking into structs only.
    pub(super) fn with_tuples(self) -> Self {
        if !self.facts().any(Facts::CONTAINER) {
            return self;
        }
        enum Step {
            Visit(Type),
            Build(Type),
        }
        let mut done: FxHashMap<Type, Type> = FxHashMap::default();
        let mut steps = vec![Step::Visit(self.clone())];
        while let Some(step) = steps.pop() {
            match step {
                Step::Visit(ty) if done.contains_key(&ty) => {}
                Step::Visit(ty) => match ty.kind() {
                    TypeKind::Struct(_) if ty.facts().any(Facts::CONTAINER) => {
                        steps.push(Step::Build(ty.clone()));
                        steps.extend(ty.children().cloned().map(Step::Visit));
                    }
                    _ => {
                        done.insert(ty.clone(), ty);
                    }
                },
                Step::Build(ty) => {
                    let TypeKind::Struct(structure) = ty.kind() else { unreachable!() };
                    let field = |field: &Field| Field {
                        name: field.name.clone(),
                        ty: done[&field.ty].clone(),
                    };
                    let container = match structure.container() {
                        Some(Container::List) => Some(Container::Tuple),
                        other => other.cloned(),
                    };
                    let fields = structure.fields().iter().map(field).collect();
                    let made = StructType::new(fields, container);
                    let made = Self::intern(TypeKind::Struct(made));
                    done.insert(ty, made);
                }
            }
        }
        done.remove(&self).expect("the root was visited")
    }
}

impl TypeKind {
    fn facts(&self) -> Facts {
        match self {
            Self::Tensor(_) => Facts::TENSOR,
            Self::Struct(structure) => {
                let own = match structure.container() {
                    Some(_) => Facts::STRUCT.or(Facts::CONTAINER),
                    None => Facts::STRUCT,
                };
                let fields = structure.fields().iter();
                fields.fold(own, |facts, field| facts.or(field.ty.facts()))
            }
            Self::Sequence(element) => Facts::SEQUENCE.or(element.facts()),
            Self::Function(function) => {
                let parameter = function.parameter.as_ref().map(Type::facts).unwrap_or_default();
                Facts::FUNCTION.or(parameter).or(function.result.facts())
            }
            Self::Federated(federated) => Facts::FEDERATED.or(federated.member.facts()),
            Self::Placement => Facts::PLACEMENT,
            Self::Abstract(_) => Facts::ABSTRACT,
        }
    }

    /// The types directly in it, taken out.
    fn take_children(&mut self, into: &mut Vec<Type>) {
        match std::mem::replace(self, Self::Placement) {
            Self::Tensor(_) | Self::Placement | Self::Abstract(_) => {}
            Self::Struct(structure) => {
                into.extend(structure.fields.into_vec().into_iter().map(|field| field.ty));
            }
            Self::Sequence(element) => into.push(element),
            Self::Function(function) => {
                into.extend(function.parameter);
                into.push(function.result);
            }
            Self::Federated(federated) => into.push(federated.member),
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Type {}

impl Hash for Type {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

impl PartialEq for StructType {
    fn eq(&self, other: &Self) -> bool {
        self.fields == other.fields && self.container == other.container
    }
}

impl Eq for StructType {}

impl Hash for StructType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fields.hash(state);
        self.container.hash(state);
    }
}

impl Drop for Node {
    /// Leaves the table. What only it held dies in a loop, not by recursion: types nest deeply.
    fn drop(&mut self) {
        {
            let mut table = table();
            if let Some(bucket) = table.get_mut(&self.hash) {
                bucket.retain(|weak| weak.strong_count() > 0);
                if bucket.is_empty() {
                    table.remove(&self.hash);
                }
            }
        }
        let mut dying = Vec::new();
        self.kind.take_children(&mut dying);
        while let Some(ty) = dying.pop() {
            if let Some(mut node) = Arc::into_inner(ty.0) {
                node.kind.take_children(&mut dying);
            }
        }
    }
}
