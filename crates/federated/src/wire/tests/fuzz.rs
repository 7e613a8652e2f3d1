//! Random types and trees, random bytes, and messages with something wrong in them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Name;
use crate::array::Content;
use crate::ast::{Data, Language, WirePayload};
use crate::dtype::Kind;
use crate::placement::Placement;
use crate::types::Field;

fn name() -> impl Strategy<Value = Name> {
    "[a-zé_]{1,3}".prop_map(Name::from)
}

fn dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(DType::ALL)
}

fn tensor() -> impl Strategy<Value = Type> {
    let dim =
        prop_oneof![Just(None), (0..200u64).prop_map(Some), (0..=i64::MAX as u64).prop_map(Some)];
    let shape = prop_oneof![
        Just(Shape::scalar()),
        Just(Shape::unknown_rank()),
        vec(dim, 0..4).prop_map(Shape::new)
    ];
    (dtype(), shape).prop_map(|(dtype, shape)| Type::tensor(dtype, shape))
}

/// Fields of which no two have one name.
fn named<T: Clone>(values: Vec<(Option<Name>, T)>) -> Vec<(Option<Name>, T)> {
    let mut seen = std::collections::HashSet::new();
    let rename =
        |(name, value): (Option<Name>, T)| (name.filter(|name| seen.insert(name.clone())), value);
    values.into_iter().map(rename).collect()
}

fn ty() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![4 => tensor(), 1 => Just(Type::placement())];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            (prop::option::of(inner.clone()), inner.clone())
                .prop_map(|(parameter, result)| Type::function(parameter, result)),
            vec((prop::option::of(name()), inner.clone()), 0..4).prop_map(|fields| {
                let field = |(name, ty)| Field { name, ty };
                Type::structure(named(fields).into_iter().map(field).collect(), None).unwrap()
            }),
            inner.clone().prop_map(|ty| Type::sequence(ty.clone()).unwrap_or(ty)),
            (inner, prop::sample::select(&Placement::ALL[..]), any::<Option<bool>>()).prop_map(
                |(ty, placement, equal)| {
                    Type::federated(ty.clone(), placement, equal).unwrap_or(ty)
                }
            ),
        ]
    })
}

fn array() -> impl Strategy<Value = Array> {
    (dtype(), vec(0..4u64, 0..3)).prop_flat_map(|(dtype, dims)| {
        let count = dims.iter().product::<u64>() as usize;
        let content = match dtype.kind() {
            Kind::String => vec(vec(any::<u8>(), 0..4), count)
                .prop_map(|strings| Content::Strings(strings.into_iter().map(Into::into).collect()))
                .boxed(),
            Kind::Bool => {
                vec(0..2u8, count).prop_map(|bytes| Content::Numbers(bytes.into())).boxed()
            }
            _ => vec(any::<u8>(), count * dtype.size())
                .prop_map(|bytes| Content::Numbers(bytes.into()))
                .boxed(),
        };
        content.prop_map(move |content| Array::new(dtype, dims.clone(), content).unwrap())
    })
}

fn block() -> impl Strategy<Value = BuildingBlock> {
    let payload = (any::<bool>(), vec(any::<u8>(), 0..6), ty()).prop_map(|(xla, bytes, ty)| {
        let language = if xla { Language::Xla } else { Language::TensorFlow };
        let payload = WirePayload { language, bytes: bytes.into() };
        let name = default_name(&payload, &ty).unwrap().into();
        let payload = std::sync::Arc::new(payload);
        BuildingBlock::compiled(crate::ast::Compiled { name, payload }, ty)
    });
    let data = (name(), vec(any::<u8>(), 0..6), ty()).prop_map(|(type_url, value, ty)| {
        BuildingBlock::data(Data { type_url, value: value.into() }, ty)
    });
    let leaf = prop_oneof![
        (name(), ty()).prop_map(|(name, ty)| BuildingBlock::reference(name, ty)),
        (name(), ty()).prop_map(|(name, ty)| BuildingBlock::intrinsic(name, ty)),
        prop::sample::select(&Placement::ALL[..]).prop_map(BuildingBlock::placement),
        array().prop_map(|array| {
            let ty = array.tensor_type();
            BuildingBlock::literal(array, ty).unwrap()
        }),
        data,
        payload,
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            (inner.clone(), any::<prop::sample::Index>()).prop_map(|(source, index)| {
                let len = source.ty().as_struct().map_or(0, |of| of.len());
                if len == 0 {
                    source
                } else {
                    BuildingBlock::select_index(source, index.index(len)).unwrap()
                }
            }),
            vec((prop::option::of(name()), inner.clone()), 0..4)
                .prop_map(|elements| BuildingBlock::structure(named(elements), None).unwrap()),
            (name(), inner.clone(), inner.clone()).prop_map(|(name, argument, result)| {
                let function = BuildingBlock::lambda(Some((name, argument.ty().clone())), result);
                BuildingBlock::call(function, Some(argument)).unwrap()
            }),
            inner.clone().prop_map(|result| BuildingBlock::lambda(None, result)),
            (name(), ty(), inner.clone())
                .prop_map(|(name, ty, result)| BuildingBlock::lambda(Some((name, ty)), result)),
            (vec((name(), inner.clone()), 0..3), inner)
                .prop_map(|(locals, result)| BuildingBlock::block(locals, result)),
        ]
    })
}

/// Whatever the bytes are, reading them ends, and what was read can be written and read again.
fn read_anything(bytes: &[u8]) {
    if let Ok(ty) = decode_template(bytes) {
        assert_eq!(decode_template(&encode_type(&ty).unwrap()).unwrap(), ty);
    }
    if let Ok(block) = decode_block(bytes) {
        let written = encode_block(&block).unwrap();
        assert_eq!(encode_block(&decode_block(&written).unwrap()).unwrap(), written);
    }
    if let Ok(array) = decode_array(bytes) {
        assert_eq!(decode_array(&encode_array(&array).unwrap()).unwrap(), array);
    }
    if let Ok(shape) = decode_shape(bytes) {
        assert_eq!(decode_shape(&encode_shape(&shape).unwrap()).unwrap(), shape);
    }
}

/// One thing done to a message.
#[derive(Clone, Debug)]
enum Harm {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Drop(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<prop::sample::Index>;
    // Bytes that mean something more often than others.
    let byte = || prop_oneof![any::<u8>(), 0..32u8, Just(0xff), Just(0x80)];
    prop_oneof![
        4 => (at(), byte()).prop_map(|(at, byte)| Harm::Set(at, byte)),
        1 => at().prop_map(Harm::Cut),
        1 => at().prop_map(Harm::Drop),
        2 => (at(), vec(byte(), 1..4)).prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
        1 => (at(), at()).prop_map(|(from, to)| Harm::Repeat(from, to)),
    ]
}

impl Harm {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let at = |index: &prop::sample::Index, bytes: &[u8]| index.index(bytes.len());
        match self {
            Self::Set(index, byte) => {
                let at = at(index, bytes);
                bytes[at] = *byte;
            }
            Self::Cut(index) => bytes.truncate(at(index, bytes)),
            Self::Drop(index) => {
                bytes.remove(at(index, bytes));
            }
            Self::Insert(index, more) => {
                let at = at(index, bytes);
                bytes.splice(at..at, more.iter().copied());
            }
            Self::Repeat(from, to) => {
                let (from, to) = (at(from, bytes), at(to, bytes));
                let part = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.extend(part);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn types_are_read_as_they_were_written(ty in ty()) {
        prop_assert_eq!(decode_type(&encode_type(&ty).unwrap()).unwrap(), ty);
    }

    #[test]
    fn trees_are_read_as_they_were_written(block in block()) {
        let bytes = encode_block(&block).unwrap();
        let read = decode_block(&bytes).unwrap();
        prop_assert_eq!(read.ty(), block.ty());
        prop_assert_eq!(encode_block(&read).unwrap(), bytes);
    }

    #[test]
    fn arrays_are_read_as_they_were_written(array in array()) {
        prop_assert_eq!(&decode_array(&encode_array(&array).unwrap()).unwrap(), &array);
        if let Ok(bytes) = encode_array_content(&array) {
            prop_assert_eq!(&decode_array(&bytes).unwrap(), &array);
        }
    }

    /// Each case tries many harms: making a tree costs far more than reading it.
    #[test]
    fn harmed_messages(block in block(), harms in vec(vec(harm(), 1..4), 50)) {
        let bytes = encode_block(&block).unwrap();
        for harms in harms {
            let mut harmed = bytes.clone();
            harms.iter().for_each(|harm| harm.apply(&mut harmed));
            read_anything(&harmed);
        }
    }

    #[test]
    fn random_bytes(all in vec(vec(prop_oneof![any::<u8>(), 0..64u8], 0..40), 50)) {
        all.iter().for_each(|bytes| read_anything(bytes));
    }
}
