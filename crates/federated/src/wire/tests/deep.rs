//! Trees and types of 100,000 levels, and shared parts.

use super::*;
use crate::types::Field;

const DEPTH: usize = 100_000;

fn check(block: &BuildingBlock) -> Vec<u8> {
    let bytes = encode_block(block).unwrap();
    let read = decode_block(&bytes).unwrap();
    assert_eq!(read.ty(), block.ty());
    assert!(encode_block(&read).unwrap() == bytes);
    bytes
}

#[test]
fn calls() {
    let identity =
        BuildingBlock::lambda(Some(("x".into(), int32())), BuildingBlock::reference("x", int32()));
    let mut arguments = BuildingBlock::reference("y", int32());
    for _ in 0..DEPTH {
        arguments = BuildingBlock::call(identity.clone(), Some(arguments)).unwrap();
    }
    check(&arguments);
    let mut functions = BuildingBlock::reference("y", int32());
    for _ in 0..DEPTH {
        functions = BuildingBlock::call(BuildingBlock::lambda(None, functions), None).unwrap();
    }
    check(&functions);
}

#[test]
fn blocks() {
    let mut values = BuildingBlock::reference("y", int32());
    let mut results = values.clone();
    let v = BuildingBlock::reference("v", int32());
    for _ in 0..DEPTH {
        values = BuildingBlock::block(vec![("v".into(), values)], v.clone());
        results = BuildingBlock::block(vec![("v".into(), v.clone())], results);
    }
    check(&values);
    check(&results);
}

#[test]
fn types() {
    let mut functions = int32();
    let mut structs = int32();
    for _ in 0..DEPTH {
        functions = Type::function(Some(functions), int32());
        structs = Type::structure(vec![Field { name: None, ty: structs }], None).unwrap();
    }
    for ty in [functions, structs] {
        let bytes = encode_type(&ty).unwrap();
        assert_eq!(decode_type(&bytes).unwrap(), ty);
        // As the type of a tree.
        check(&BuildingBlock::reference("x", ty));
    }
}

/// Each call carries the whole type of its function: this message is quadratic.
#[test]
fn curried_functions() {
    let mut ty = int32();
    for _ in 0..1000 {
        ty = Type::function(Some(int32()), ty);
    }
    let mut call = BuildingBlock::reference("f", ty);
    for _ in 0..1000 {
        call = BuildingBlock::call(call, Some(BuildingBlock::reference("x", int32()))).unwrap();
    }
    check(&call);
}

#[test]
fn what_is_shared_is_written_at_each_place() {
    let mut block = BuildingBlock::reference("x", int32());
    let element = |block: &BuildingBlock| (None, block.clone());
    let mut seen = Vec::new();
    for _ in 0..10 {
        block = BuildingBlock::structure(vec![element(&block), element(&block)], None).unwrap();
        seen.push(check(&block).len());
    }
    assert!(seen.windows(2).all(|pair| pair[1] > 2 * pair[0]), "{seen:?}");
}

#[test]
fn a_message_that_would_be_too_long_is_an_error_before_it_is_written() {
    let mut block = BuildingBlock::reference("x", int32());
    for _ in 0..100 {
        block = BuildingBlock::block(vec![("v".into(), block.clone())], block);
    }
    let error = encode_block(&block).unwrap_err();
    assert_eq!(error.class(), Class::Value);
    assert!(error.to_string().contains("at most 2147483647 bytes"), "{error}");
}

/// The place of an error in a deep tree names its first and last steps.
#[test]
fn errors_in_deep_trees_have_short_places() {
    let mut block = BuildingBlock::intrinsic("u", int32());
    for _ in 0..DEPTH {
        block = BuildingBlock::block(vec![], block);
    }
    let mut bytes = encode_block(&block).unwrap();
    // The last field, `uri`, becomes one of an unknown wire type.
    let at = bytes.len() - 3;
    assert_eq!(bytes[at..], *b"\x0a\x01u");
    bytes[at] = 0x0f;
    let error = decode_block(&bytes).unwrap_err();
    assert_eq!(error.class(), Class::Malformed);
    let text = error.to_string();
    assert!(text.contains(&format!("byte {at} of the message")), "{text}");
    assert!(
        text.contains(
            "in:       block.result.block.result.block.result.(99989 more).block.result."
        ),
        "{text}"
    );
}

/// Longer messages are measured before they are written.
#[test]
fn long_messages() {
    let strings = crate::array::Content::Strings([vec![7; 5 << 20].into()].into());
    let array = Array::new(DType::Str, [], strings).unwrap();
    let literal = BuildingBlock::literal(array, Type::scalar(DType::Str)).unwrap();
    let elements = (0..4).map(|_| (None, literal.clone())).collect();
    let structure = BuildingBlock::structure(elements, None).unwrap();
    assert!(check(&structure).len() > 20 << 20);
}
