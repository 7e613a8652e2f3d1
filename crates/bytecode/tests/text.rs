//! Code objects as text: printing, reading back, editing, stack depths, and what is refused.

use stator_bytecode::{
    Code, Error, InstrId, Instruction, Opcode, Parts, Unencodable, Version, depths,
    instruction_covering,
};

/// Compares line by line, indentation aside.
fn check(found: &str, expected: &str) {
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    assert_eq!(lines(found), lines(expected), "found:\n{found}");
}

/// The depth before each instruction (`-` where control never comes), then the largest.
fn check_depths(text: &str, expected: &str) {
    let code: Code = text.parse().unwrap();
    let found = match depths(code.version, &code.instructions, &code.regions) {
        Ok(found) => {
            let before = found.before.iter().map(|d| d.map_or("-".to_owned(), |d| d.to_string()));
            format!("{} max {}", before.collect::<Vec<_>>().join(" "), found.max)
        }
        Err(error) => error.to_string(),
    };
    assert_eq!(found, expected);
}

const TRY: &str = "
    version 3.11 line 1
    i0 RESUME 0 @1
    i1 NOP 0 @2:4-5:12
    i2 LOAD_GLOBAL 1 @3:8-3:9
    i3 PRECALL 0 @3:8-3:11
    i4 CALL 0 @3:8-3:11
    i5 RETURN_VALUE 0 @3:8-3:11
    i6 PUSH_EXC_INFO 0
    i7 POP_TOP 0 @4
    i8 POP_EXCEPT 0 @5:8-5:12
    i9 LOAD_CONST 0 @5:8-5:12
    i10 RETURN_VALUE 0 @5:8-5:12
    i11 COPY 3
    i12 POP_EXCEPT 0
    i13 RERAISE 1
    except i2..i5 -> i6 depth 0
    except i6..i8 -> i11 depth 1 lasti
";

const LOOP: &str = "
    version 3.11 line 1
    i0 RESUME 0 @1
    i1 LOAD_FAST 0 @2:4-2:5
    i2 GET_ITER 0 @2:4-2:5
    i3 FOR_ITER -> i6 @2:4-2:5
    i4 STORE_FAST 1 @2:8-2:9
    i5 JUMP_BACKWARD -> i3 @2:8-2:9
    i6 LOAD_CONST 0 @2
    i7 RETURN_VALUE 0 @2
";

#[test]
fn text_is_read_back() {
    for text in [TRY, LOOP] {
        let code: Code = text.parse().unwrap();
        check(&code.to_string(), text);
        let bytes = code.assemble().unwrap();
        let parts = Parts {
            code: &bytes.code,
            exception_table: &bytes.exception_table,
            line_table: &bytes.line_table,
            first_line: code.first_line,
        };
        check(&Code::decode(code.version, &parts).unwrap().to_string(), text);
    }
}

#[test]
fn depths_of_loops_and_handlers() {
    check_depths(LOOP, "0 0 1 1 2 1 0 1 max 2");
    check_depths(TRY, "0 0 0 2 2 1 1 2 1 0 1 3 4 3 max 4");
}

#[test]
fn code_without_consistent_depths_is_refused() {
    let head = "version 3.11 line 1\n";
    check_depths(&format!("{head} i0 POP_TOP 0"), "i0: leaves a stack depth of -1");
    check_depths(&format!("{head} i0 NOP 0"), "i0: control runs past the end");
    check_depths(head, "i0: control runs past the end");
    let growing = format!("{head} i0 RESUME 0\n i1 LOAD_FAST 0\n i2 JUMP_BACKWARD -> i1");
    check_depths(&growing, "i1: reached with stack depths 0 and 1");
}

#[test]
fn an_insertion_moves_jumps_handlers_and_locations() {
    let mut code: Code = TRY.parse().unwrap();
    let load = Instruction::new(Version::V311, Opcode::LOAD_FAST, 0).unwrap();
    let over = Instruction::jump(Version::V311, Opcode::JUMP_FORWARD, InstrId(5)).unwrap();
    code.insert(InstrId(2), &[load, over], None);
    check(
        &code.to_string(),
        "
        version 3.11 line 1
        i0 RESUME 0 @1
        i1 NOP 0 @2:4-5:12
        i2 LOAD_FAST 0
        i3 JUMP_FORWARD -> i5
        i4 LOAD_GLOBAL 1 @3:8-3:9
        i5 PRECALL 0 @3:8-3:11
        i6 CALL 0 @3:8-3:11
        i7 RETURN_VALUE 0 @3:8-3:11
        i8 PUSH_EXC_INFO 0
        i9 POP_TOP 0 @4
        i10 POP_EXCEPT 0 @5:8-5:12
        i11 LOAD_CONST 0 @5:8-5:12
        i12 RETURN_VALUE 0 @5:8-5:12
        i13 COPY 3
        i14 POP_EXCEPT 0
        i15 RERAISE 1
        except i4..i7 -> i8 depth 0
        except i8..i10 -> i13 depth 1 lasti
        ",
    );
    assert_eq!(code.region_of(InstrId(6)), Some(&code.regions[0]));
    assert_eq!(code.region_of(InstrId(3)), None);
}

#[test]
fn a_jump_that_grows_gets_prefixes() {
    let mut code: Code = LOOP.parse().unwrap();
    let nop = Instruction::new(Version::V311, Opcode::NOP, 0).unwrap();
    code.insert(InstrId(5), &[nop; 300], None);
    let found = code.assemble().unwrap();
    let again = stator_bytecode::decode(Version::V311, &found.code).unwrap();
    assert_eq!(again[3].to_string(), "FOR_ITER -> i306 prefixes 1");
    assert_eq!(again[305].to_string(), "JUMP_BACKWARD -> i3 prefixes 1");
}

#[test]
fn units_lead_to_instructions() {
    // LOAD_GLOBAL 300 at unit 1 (prefix), 2 (opcode), 3 to 7 (caches); POP_TOP at 8.
    let mut bytes = vec![9, 0, 144, 1, 116, 44];
    bytes.extend([0; 10]);
    bytes.extend([1, 0]);
    let list = stator_bytecode::decode(Version::V311, &bytes).unwrap();
    assert_eq!((list[1].offset, list[1].opcode_unit(), list[1].end()), (1, 2, 8));
    let covering = |unit| instruction_covering(&list, unit).map(|id| id.to_string());
    let found: Vec<_> = (0..10).map(covering).map(|id| id.unwrap_or("-".into())).collect();
    assert_eq!(found.join(" "), "i0 i1 i1 i1 i1 i1 i1 i1 i2 -");
}

#[test]
fn what_cannot_be_assembled_says_why() {
    let refused = |body: &str| {
        let code: Code = format!("version 3.11 line 1\n{body}").parse().unwrap();
        code.assemble().unwrap_err().to_string()
    };
    assert_eq!(refused("i0 CACHE 0"), "i0: CACHE is made by the assembler");
    assert_eq!(refused("i0 JUMP_FORWARD -> i7"), "i0: there is no i7 to jump to");
    assert_eq!(
        refused("i0 NOP 0\n i1 JUMP_FORWARD -> i0"),
        "i1: i0 isn't in the direction of the jump"
    );
    assert_eq!(refused("i0 NOP 0 prefixes 4"), "i0: 4 prefixes, at most 3 fit");
    assert_eq!(
        refused("i0 NOP 0\nexcept i0..i3 -> i0 depth 0"),
        "3 is no boundary between instructions"
    );
    let foreign = Instruction::new(Version::V312, Opcode::RETURN_CONST, 0).unwrap();
    let why = Unencodable::Absent(Opcode::RETURN_CONST, Version::V311);
    let found = stator_bytecode::assemble(Version::V311, &[foreign]);
    assert_eq!(found, Err(Error::Unencodable { at: InstrId(0), why }));
}

#[test]
fn text_that_cannot_be_read_says_where() {
    let refused = |text: &str| text.parse::<Code>().unwrap_err().to_string();
    assert_eq!(refused(""), "line 1: no text");
    assert_eq!(refused("version 2.7 line 1"), "line 1: unknown version 2.7");
    let head = "version 3.11 line 1\n";
    assert_eq!(refused(&format!("{head}i1 NOP 0")), "line 2: i1 where i0 is next");
    assert_eq!(refused(&format!("{head}i0 NOPE 0")), "line 2: unknown opcode NOPE");
    assert_eq!(
        refused(&format!("{head}# a comment\ni0 JUMP_FORWARD 3")),
        "line 3: JUMP_FORWARD doesn't go with 3 in 3.11"
    );
}
