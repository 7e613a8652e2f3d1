//! Bytes that `federated_language` 0.5.4 writes.

use std::sync::Arc;

use super::*;
use crate::Name;
use crate::array::Content;
use crate::ast::{BlockKind, Compiled, Data, Language};
use crate::placement::Placement;
use crate::types::{Container, Field};

fn check_type(ty: &Type, bytes: &str) {
    assert_eq!(hex(&encode_type(ty).unwrap()), bytes, "{ty}");
    let read = decode_template(&unhex(bytes)).unwrap();
    assert_eq!(read.to_string(), ty.to_string());
}

/// The bytes, and the printed form of what is read from them.
fn check_block(block: &BuildingBlock, bytes: &str, printed: &str) {
    assert_eq!(hex(&encode_block(block).unwrap()), bytes, "{block}");
    let read = decode_block(&unhex(bytes)).unwrap();
    assert_eq!(read.to_string(), printed);
    assert_eq!(read.ty(), block.ty());
    assert_eq!(hex(&encode_block(&read).unwrap()), bytes, "{block}");
}

fn pair(container: Option<Container>) -> Type {
    let field =
        |name: Option<&str>, dtype| Field { name: name.map(Name::from), ty: Type::scalar(dtype) };
    let fields = vec![field(Some("a"), DType::Int32), field(None, DType::Bool)];
    Type::structure(fields, container).unwrap()
}

#[test]
fn types() {
    check_type(&int32(), "22020803");
    let dims = vec![Some(2), None];
    let matrix = Type::tensor(DType::Int32, Shape::new(dims));
    check_type(&matrix, "220f0803120b02ffffffffffffffffff01");
    check_type(&Type::tensor(DType::Int32, Shape::unknown_rank()), "220408031801");
    check_type(&Type::tensor(DType::Int32, Shape::new(vec![Some(0)])), "22050803120100");
    check_type(&Type::structure(vec![], None).unwrap(), "1200");
    let bytes = "12130a090a01611204220208030a0612042202080a";
    check_type(&pair(None), bytes);
    assert_eq!(hex(&encode_type(&pair(Some(Container::List))).unwrap()), bytes);
    check_type(&Type::abstract_type("T"), "2a030a0154");
    check_type(&Type::placement(), "3200");
    check_type(&Type::function(None, int32()), "0a06120422020803");
    check_type(&Type::function(Some(int32()), int32()), "0a0c0a0422020803120422020803");
    let server = Type::federated(int32(), Placement::Server, None).unwrap();
    check_type(&server, "3a140a0a12080a0673657276657210011a0422020803");
    let clients = Type::federated(int32(), Placement::Clients, None).unwrap();
    check_type(&clients, "3a130a0b12090a07636c69656e74731a0422020803");
    check_type(&Type::sequence(int32()).unwrap(), "1a060a0422020803");
}

#[test]
fn an_abstract_type_is_only_read_as_a_template() {
    let error = decode_type(&unhex("0a0612042a020a0054")).unwrap_err();
    assert_eq!(error.class(), Class::Malformed);
    let error = decode_type(&unhex("0a0712052a030a0154")).unwrap_err();
    assert_eq!(error.class(), Class::NotImplemented);
    let template = decode_template(&unhex("0a0712052a030a0154")).unwrap();
    assert_eq!(template.to_string(), "( -> T)");
}

#[test]
fn blocks() {
    let x = || BuildingBlock::reference("x", int32());
    check_block(&x(), "0a042202080332030a0178", "x");
    let elements = vec![(Some("a".into()), x()), (None, x())];
    let structure = BuildingBlock::structure(elements, Some(Container::Dict)).unwrap();
    let bytes = "0a1512130a090a01611204220208030a0612042202080342210a100a0161120b0a0422020803\
                 32030a01780a0d120b0a042202080332030a0178";
    let plain = decode_block(&unhex(bytes)).unwrap();
    check_block(&plain, bytes, "<a=x,x>");
    assert_eq!(hex(&encode_block(&structure).unwrap()), bytes);
    let empty = BuildingBlock::structure(vec![], None).unwrap();
    check_block(&empty, "0a0212004200", "<>");

    let s = || BuildingBlock::reference("s", plain.ty().clone());
    let first = BuildingBlock::select_name(s(), "a").unwrap();
    let bytes = "0a04220208034a1e0a1c0a1512130a090a01611204220208030a0612042202080332030a0173";
    check_block(&first, bytes, "s[0]");
    let second = BuildingBlock::select_index(s(), 1).unwrap();
    let bytes = "0a04220208034a200a1c0a1512130a090a01611204220208030a0612042202080332030a01731801";
    check_block(&second, bytes, "s[1]");

    let identity = BuildingBlock::lambda(Some(("x".into(), int32())), x());
    let bytes = "0a0e0a0c0a042202080312042202080322100a0178120b0a042202080332030a0178";
    check_block(&identity, bytes, "(x -> x)");
    let constant = BuildingBlock::lambda(None, x());
    check_block(&constant, "0a080a06120422020803220d120b0a042202080332030a0178", "( -> x)");
    let call = BuildingBlock::call(identity, Some(x())).unwrap();
    let bytes = "0a04220208033a310a220a0e0a0c0a042202080312042202080322100a0178120b0a04220208\
                 0332030a0178120b0a042202080332030a0178";
    check_block(&call, bytes, "(x -> x)(x)");
    let call = BuildingBlock::call(constant, None).unwrap();
    let bytes = "0a04220208033a1b0a190a080a06120422020803220d120b0a042202080332030a0178";
    check_block(&call, bytes, "( -> x)()");

    let block = BuildingBlock::block(vec![("v".into(), x())], x());
    let bytes = "0a04220208032a1f0a100a0176120b0a042202080332030a0178120b0a042202080332030a0178";
    check_block(&block, bytes, "(let v=x in x)");
    let bytes = "0a04220208032a0d120b0a042202080332030a0178";
    check_block(&BuildingBlock::block(vec![], x()), bytes, "(let  in x)");

    check_block(&BuildingBlock::intrinsic("u", int32()), "0a04220208031a030a0175", "u");
    let clients = BuildingBlock::placement(Placement::Clients);
    check_block(&clients, "0a0232005a090a07636c69656e7473", "CLIENTS");
}

#[test]
fn leaves_with_content() {
    let seven = Content::Numbers(7i32.to_le_bytes().into());
    let array = Array::new(DType::Int32, [], seven).unwrap();
    let literal = BuildingBlock::literal(array, int32()).unwrap();
    let bytes = "0a0422020803720b0a090803120032030a0107";
    assert_eq!(hex(&encode_block(&literal).unwrap()), bytes);
    assert_eq!(decode_block(&unhex(bytes)).unwrap(), literal);

    let data = Data { type_url: "t/u".into(), value: Arc::from(*b"xx") };
    let data = BuildingBlock::data(data, int32());
    let bytes = "0a0422020803520b1a090a03742f7512027878";
    assert_eq!(hex(&encode_block(&data).unwrap()), bytes);
    assert_eq!(decode_block(&unhex(bytes)).unwrap(), data);

    let bytes = "0a080a0612042202080312050a030a0178";
    let read = decode_block(&unhex(bytes)).unwrap();
    assert_eq!(hex(&encode_block(&read).unwrap()), bytes);
    assert_eq!(read.to_string(), "comp#69b010f");
    let BlockKind::Compiled(Compiled { payload, .. }) = read.kind() else { panic!("{read}") };
    let payload = payload.to_wire().unwrap();
    assert_eq!(
        (payload.language, hex(&payload.bytes).as_str()),
        (Language::TensorFlow, "0a030a0178")
    );
}

fn check_array(dtype: DType, dims: &[u64], numbers: &[u8], list: &str, content: &str) {
    let array = Array::new(dtype, dims, Content::Numbers(numbers.into())).unwrap();
    assert_eq!(hex(&encode_array(&array).unwrap()), list, "{dtype}");
    assert_eq!(hex(&encode_array_content(&array).unwrap()), content, "{dtype}");
    assert_eq!(decode_array(&unhex(list)).unwrap(), array);
    assert_eq!(decode_array(&unhex(content)).unwrap(), array);
}

#[test]
fn arrays() {
    check_array(DType::Bool, &[], &[1], "080a12001a030a0101", "080a120092010101");
    let (list, content) = ("08061200220c0a0affffffffffffffffff01", "08061200920101ff");
    check_array(DType::Int8, &[], &(-1i8).to_le_bytes(), list, content);
    let (list, content) = ("080512002a0c0a0afeffffffffffffffff01", "08051200920102feff");
    check_array(DType::Int16, &[], &(-2i16).to_le_bytes(), list, content);
    let (list, content) = ("0803120032030a0101", "0803120092010401000000");
    check_array(DType::Int32, &[], &1i32.to_le_bytes(), list, content);
    let (list, content) = ("080912003a080a06808080808020", "080912009201080000000000010000");
    check_array(DType::Int64, &[], &(1i64 << 40).to_le_bytes(), list, content);
    let (list, content) = ("0804120042040a02c801", "08041200920101c8");
    check_array(DType::UInt8, &[], &[200], list, content);
    let (list, content) = ("081112004a050a03e0d403", "0811120092010260ea");
    check_array(DType::UInt16, &[], &60000u16.to_le_bytes(), list, content);
    let (list, content) = ("0816120052070a05ffffffff0f", "08161200920104ffffffff");
    check_array(DType::UInt32, &[], &[0xff; 4], list, content);
    let list = "081712005a0c0a0affffffffffffffffff01";
    check_array(DType::UInt64, &[], &[0xff; 8], list, "08171200920108ffffffffffffffff");
    let (list, content) = ("0813120062040a02807c", "08131200920102003e");
    check_array(DType::Float16, &[], &[0x00, 0x3e], list, content);
    let (list, content) = ("080e12009a01040a02c07f", "080e1200920102c03f");
    check_array(DType::BFloat16, &[], &[0xc0, 0x3f], list, content);
    let (list, content) = ("080112006a060a0400000080", "0801120092010400000080");
    check_array(DType::Float32, &[], &(-0f32).to_le_bytes(), list, content);
    let list = "08021200720a0a080000000000000440";
    check_array(DType::Float64, &[], &2.5f64.to_le_bytes(), list, "080212009201080000000000000440");
    let list = "080812007a0a0a080000803f00000040";
    let numbers = [1f32, 2.].map(f32::to_le_bytes).concat();
    check_array(DType::Complex64, &[], &numbers, list, "080812009201080000803f00000040");
    let list = "081212008201120a10000000000000f03f0000000000000040";
    let numbers = [1f64, 2.].map(f64::to_le_bytes).concat();
    let content = "08121200920110000000000000f03f0000000000000040";
    check_array(DType::Complex128, &[], &numbers, list, content);
    check_array(DType::Int32, &[0], &[], "080312030a01003200", "080312030a0100920100");
    let list = "080112040a0200036a00";
    check_array(DType::Float32, &[0, 3], &[], list, "080112040a020003920100");
}

#[test]
fn strings() {
    let strings = Content::Strings([b"ab".as_slice(), b"c"].map(Box::from).into());
    let array = Array::new(DType::Str, [2], strings).unwrap();
    let bytes = "080712030a01028a01070a0261620a0163";
    assert_eq!(hex(&encode_array(&array).unwrap()), bytes);
    assert_eq!(decode_array(&unhex(bytes)).unwrap(), array);
    assert_eq!(encode_array_content(&array).unwrap_err().class(), Class::NotImplemented);
}

#[test]
fn shapes() {
    let check = |shape: Shape, bytes: &str| {
        assert_eq!(hex(&encode_shape(&shape).unwrap()), bytes);
        assert_eq!(decode_shape(&unhex(bytes)).unwrap(), shape);
    };
    check(Shape::scalar(), "");
    check(Shape::unknown_rank(), "1001");
    check(Shape::new([Some(2), None]), "0a0b02ffffffffffffffffff01");
    check(Shape::new([Some(i64::MAX as u64)]), "0a09ffffffffffffffff7f");
    let error = encode_shape(&Shape::new([Some(1 << 63)])).unwrap_err();
    assert_eq!(error.class(), Class::Value);
}
