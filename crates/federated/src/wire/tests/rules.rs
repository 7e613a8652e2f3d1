//! What protobuf says of messages that are not written as we write them, and what is refused.

use super::*;
use crate::placement::Placement;

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![number << 3 | 2, bytes.len() as u8];
    all.extend(bytes);
    all
}

fn number(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

const INT32: u8 = 3;
const BOOL: u8 = 10;

fn read_type(bytes: &[u8]) -> String {
    decode_type(bytes).unwrap().to_string()
}

fn read_block(bytes: &[u8]) -> String {
    decode_block(bytes).unwrap().to_string()
}

#[test]
fn fields_stand_in_any_order() {
    let tensor = field(4, &join(&[&field(2, &[2, 3]), &number(1, INT32)]));
    assert_eq!(read_type(&tensor), "int32[2,3]");
    let function = field(1, &join(&[&field(2, &tensor), &field(1, &field(6, b""))]));
    assert_eq!(read_type(&function), "(placement -> int32[2,3])");
    let reference = join(&[&field(6, &field(1, b"x")), &field(1, &tensor)]);
    assert_eq!(read_block(&reference), "x");
}

#[test]
fn unknown_fields_are_skipped() {
    let unknown = join(&[&[0xf8, 0x3f, 0x01], &[0xf9, 0x3f], &[0; 8], &[0xfd, 0x3f], &[0; 4]]);
    let tensor = field(4, &join(&[&unknown, &number(1, INT32), &unknown]));
    assert_eq!(read_type(&join(&[&unknown, &tensor, &unknown])), "int32");
}

#[test]
fn the_last_member_wins_and_one_member_twice_is_one_message() {
    let placement = field(6, b"");
    let tensor = field(4, &number(1, INT32));
    assert_eq!(read_type(&join(&[&tensor, &placement])), "placement");
    assert_eq!(read_type(&join(&[&placement, &tensor])), "int32");
    let dims = field(4, &field(2, &[2]));
    assert_eq!(read_type(&join(&[&tensor, &dims, &dims])), "int32[2,2]");
    // With another member between them, the first is gone.
    assert_eq!(read_type(&join(&[&dims, &placement, &tensor])), "int32");
}

#[test]
fn a_message_in_two_parts_is_one() {
    let (result, parameter) = (field(2, &field(4, &number(1, BOOL))), field(1, &field(6, b"")));
    let function = join(&[&field(1, &parameter), &field(1, &result)]);
    assert_eq!(read_type(&function), "(placement -> bool)");
    // The type of a reference in two parts.
    let parts =
        join(&[&field(1, &field(4, &field(2, &[7]))), &field(1, &field(4, &number(1, BOOL)))]);
    let reference = join(&[&parts, &field(6, &field(1, b"x"))]);
    assert_eq!(decode_block(&reference).unwrap().ty().to_string(), "bool[7]");
    // A payload in two parts is their bytes together.
    let payload = join(&[&field(1, &field(6, b"")), &field(12, b"ab"), &field(12, b"cd")]);
    let whole = join(&[&field(1, &field(6, b"")), &field(12, b"abcd")]);
    assert_eq!(encode_block(&decode_block(&payload).unwrap()).unwrap(), whole);
}

#[test]
fn the_last_of_a_number_or_name_wins() {
    let tensor = field(4, &join(&[&number(1, BOOL), &number(1, INT32)]));
    let name = field(6, &join(&[&field(1, b"x"), &field(1, b"y")]));
    assert_eq!(read_block(&join(&[&field(1, &tensor), &name])), "y");
}

#[test]
fn numbers_need_not_be_packed() {
    let dims = join(&[&number(1, INT32), &number(2, 4), &field(2, &[5, 6]), &number(2, 7)]);
    assert_eq!(read_type(&field(4, &dims)), "int32[4,5,6,7]");
    let list = join(&[&number(1, 1), &field(1, &[2, 3])]);
    let shape = field(1, &[3]);
    let array = join(&[&number(1, INT32), &field(2, &shape), &field(6, &list)]);
    assert_eq!(decode_array(&array).unwrap().dims(), [3]);
    // float32_list, one number packed and one not.
    let list = join(&[&field(1, &[0, 0, 128, 63]), &[1 << 3 | 5, 0, 0, 0, 64]]);
    let array = join(&[&number(1, 1), &field(2, &field(1, &[2])), &field(13, &list)]);
    let read = decode_array(&array).unwrap();
    let numbers = [1f32, 2.].map(f32::to_le_bytes).concat().into();
    assert_eq!(read.content(), &crate::array::Content::Numbers(numbers));
}

#[test]
fn negative_sizes_are_unknown_and_an_unknown_rank_has_no_sizes() {
    let minus_five = [0xfb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let dims = field(2, &minus_five);
    assert_eq!(read_type(&field(4, &join(&[&number(1, INT32), &dims]))), "int32[?]");
    let unknown = join(&[&number(1, INT32), &dims, &number(3, 1)]);
    assert_eq!(read_type(&field(4, &unknown)), "'int32'(shape=None)");
}

#[test]
fn a_type_that_follows_from_the_parts_may_be_missing() {
    let x = join(&[&field(1, &field(4, &number(1, INT32))), &field(6, &field(1, b"x"))]);
    let element = join(&[&field(1, b"a"), &field(2, &x)]);
    let structure = field(8, &field(1, &element));
    assert_eq!(read_block(&structure), "<a=x>");
    assert_eq!(read_block(&field(9, &field(1, &structure))), "<a=x>[0]");
    assert_eq!(read_block(&field(5, &field(2, &x))), "(let  in x)");
    assert_eq!(read_block(&field(7, &field(1, &field(4, &field(2, &x))))), "( -> x)()");
    assert_eq!(read_block(&field(11, &field(1, b"server"))), "SERVER");
}

/// The class and the text of an error.
fn check(error: &Error, class: Class, text: &str) {
    let found = error.to_string();
    let found = match class {
        // As it stands in all of these.
        Class::Malformed => found.replacen("\n  expected: bytes that `to_bytes` wrote", "", 1),
        _ => found,
    };
    assert_eq!((error.class(), found.as_str()), (class, text));
}

fn refused_type(bytes: &[u8], class: Class, text: &str) {
    check(&decode_type(bytes).unwrap_err(), class, text);
}

fn refused_block(bytes: &[u8], class: Class, text: &str) {
    check(&decode_block(bytes).unwrap_err(), class, text);
}

#[test]
fn malformed_bytes() {
    let refused = |bytes: &[u8], text: &str| refused_type(bytes, Class::Malformed, text);
    refused(&[0x22, 5, 8, 3], "byte 0 of the message: field 4 is cut short: 5 bytes long, 2 left");
    refused(&[0x22], "byte 1 of the message: a varint is cut short");
    refused(&[0x80; 3], "byte 0 of the message: a varint is cut short");
    refused(&[0xff; 12], "byte 0 of the message: a varint of more than 64 bits");
    refused(&[0x23], "byte 0 of the message: field 4 is a group");
    refused(&[0x27], "byte 0 of the message: field 4 is of wire type 7");
    refused(&[0x02, 0], "byte 0 of the message: there is no field 0");
    refused(&[0x20, 0], "byte 0 of the message: field 4 is a varint, not bytes with a length");
    refused(&[0x21, 0], "byte 0 of the message: field 4 is cut short");
    refused(
        &[0x22, 2, 0x0a, 0],
        "byte 2 of the message: field 1 is bytes with a length, not a varint",
    );
    let function = field(1, &field(2, &[0x22, 1]));
    refused(
        &function,
        "byte 4 of the message: field 4 is cut short: 1 bytes long, 0 left\n  \
         in:       function.result",
    );
    let name = field(2, &field(1, &join(&[&field(1, b"a\xff"), &field(2, &field(6, b""))])));
    refused(&name, "byte 7 of the message: the text is not UTF-8");
}

#[test]
fn types_that_are_none() {
    let none = "the type is of no kind we know";
    let text = |at: usize, rest: &str| format!("byte {at} of the message: {rest}");
    refused_type(b"", Class::NotImplemented, &text(0, none));
    let empty = field(3, b"");
    let inside = text(2, none) + "\n  in:       sequence.element";
    refused_type(&empty, Class::NotImplemented, &inside);
    let missing = text(2, "there is no element type 0");
    refused_type(&field(4, b""), Class::NotImplemented, &missing);
    let spec = text(4, "a federated type says no placement");
    refused_type(&field(7, &field(1, b"")), Class::NotImplemented, &spec);
    let sequence = |of: &[u8]| field(3, &field(1, of));
    let nested = sequence(&sequence(&field(4, &number(1, INT32))));
    let refused = text(
        2,
        "the element of a sequence can't contain a federated, function or sequence type\n  \
         found:    int32*",
    );
    refused_type(&nested, Class::Value, &refused);
    let element = field(1, &join(&[&field(1, b"a"), &field(2, &field(6, b""))]));
    let twice = field(2, &join(&[&element, &element]));
    refused_type(&twice, Class::Value, &text(2, "two fields are named `a`"));
}

#[test]
fn trees_that_are_none() {
    let int32 = field(1, &field(4, &number(1, INT32)));
    let x = join(&[&int32, &field(6, &field(1, b"x"))]);
    refused_block(
        b"",
        Class::NotImplemented,
        "byte 0 of the message: the computation is of no kind we know",
    );
    refused_block(
        &field(7, b""),
        Class::NotImplemented,
        "byte 2 of the message: the computation is of no kind we know\n  in:       call.function",
    );
    refused_block(
        &field(7, &field(1, &x)),
        Class::Type,
        "byte 0 of the message: only a function can be called\n  expected: a function\n  \
         found:    int32",
    );
    refused_block(
        &join(&[&int32, &field(8, b"")]),
        Class::Malformed,
        "byte 0 of the message: the computation has not the type it says\n  expected: int32\n  \
         found:    <>",
    );
    refused_block(
        &join(&[&int32, &field(4, &join(&[&field(1, b"p"), &field(2, &x)]))]),
        Class::Type,
        "byte 0 of the message: the lambda's parameter `p` has no type\n  found:    int32",
    );
    let structure = field(8, &field(1, &field(2, &x)));
    let selection = field(9, &join(&[&field(1, &structure), &number(3, 1)]));
    refused_block(
        &selection,
        Class::Value,
        "byte 0 of the message: there is no field 1: the struct has 1\n  found:    <int32>",
    );
    refused_block(
        &join(&[&int32, &field(10, &field(1, b"uri"))]),
        Class::NotImplemented,
        "byte 10 of the message: data by its uri alone is no longer part of the language",
    );
    refused_block(
        &field(11, &field(1, b"moon")),
        Class::Value,
        "byte 2 of the message: there is no placement `moon`\n  expected: clients or server",
    );
}

#[test]
fn arrays_that_are_none() {
    let refused = |bytes: &[u8], class, text: &str| {
        check(&decode_array(bytes).unwrap_err(), class, text);
    };
    let scalar = |dtype: u8, list: u8, values: &[u8]| {
        join(&[&number(1, dtype), &field(2, b""), &field(list, &field(1, values))])
    };
    refused(b"", Class::NotImplemented, "byte 0 of the message: there is no element type 0");
    refused(
        &scalar(INT32, 6, &[1, 2]),
        Class::Value,
        "byte 0 of the message: shape [] needs 1 elements, not 2",
    );
    refused(
        &scalar(6, 4, &[0x80, 2]),
        Class::Malformed,
        "byte 6 of the message: 256 has no place in int8",
    );
    refused(
        &scalar(1, 13, &[0, 0, 0]),
        Class::Malformed,
        "byte 8 of the message: 3 bytes are no whole number of float32",
    );
    refused(
        &scalar(8, 15, &[0, 0, 0, 0]),
        Class::Value,
        "byte 0 of the message: 4 bytes are no whole number of complex64",
    );
    refused(
        &scalar(INT32, 7, &[1]),
        Class::Malformed,
        "byte 6 of the message: field 7 holds no elements of type int32",
    );
    let unknown = join(&[&number(1, INT32), &field(2, &number(2, 1))]);
    refused(
        &unknown,
        Class::Malformed,
        "byte 4 of the message: an array has a shape without gaps, not `(shape=None)`",
    );
}

#[test]
fn operations_have_types_that_fit_their_templates() {
    let bytes = encode_block(&BuildingBlock::intrinsic("federated_sum", int32())).unwrap();
    assert_eq!(decode_block(&bytes).unwrap_err().class(), Class::MismatchedStructure);
    let clients = Type::federated(int32(), Placement::Clients, None).unwrap();
    let server = Type::federated(int32(), Placement::Server, None).unwrap();
    let sum = BuildingBlock::intrinsic("federated_sum", Type::function(Some(clients), server));
    assert_eq!(decode_block(&encode_block(&sum).unwrap()).unwrap(), sum);
}

/// A length that the bytes don't have costs nothing.
#[test]
fn declared_lengths_are_not_believed() {
    let long = [0x22, 0xff, 0xff, 0xff, 0xff, 7];
    assert_eq!(decode_type(&long).unwrap_err().class(), Class::Malformed);
    let dims = field(2, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
    let array = join(&[&number(1, INT32), &field(2, &field(1, &dims[2..])), &field(6, b"")]);
    assert_eq!(decode_array(&array).unwrap_err().class(), Class::Value);
}
