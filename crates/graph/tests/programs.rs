//! The text and byte forms of tensor programs: both are read back as they were written, and nothing that
//! isn't one is taken for one.

use proptest::prelude::*;
use stator_graph::program::{Program, pack, unpack};

const TEXT: &str = "\
stator.program 1
default_dtype float32
%0 = input float32[?, 4]
%1 = input int64[?]
%2 = input float64[]
%3 = constant float32[4, 3] requires_grad
%4 = constant bool[0]
require %0.size(0) == %1.size(0)
require %0.size(0) % 2 == 0 and not %0.size(0) == 6
%5 = torch.matmul(%0, %3)
%6 = .relu(%5)
%7 = torch.nn.functional.cross_entropy(%6, %1, weight=None, reduction='mean')
%8 = torch.autograd.grad(%7, [%3], allow_unused=True)
%9 = item(%8, 0)
%10 = operator.add(%9, 1.5)
%11 = attribute(%10, 'T')
%12 = operator.getitem(%11, (slice(None, 2, None), ..., -1))
%13 = .to(%12, torch.float16, device=torch.device('cpu'), memory_format=torch.preserve_format)
%14 = .size(%0, 0)
%15 = torch.full((2, 3), 123456789012345678901234567890, dtype=torch.complex64)
%16 = torch.foo.bar({'a': [], 'b': (1,)}, b'\\x00\\xff', \"it's\", complex(-0.0, 1e-07), nan, -inf, True)
takes arguments(%, {'w': *, 'p': named('Pair', 'x': *)})
gives ([*, *], ordered{'n': *, 'k': *}, ())
return %13: float16[2], %14: int64[], %0: float32[?, 4], 3: int64[]
";

fn text() -> String {
    TEXT.replace("arguments(%,", "arguments(*,")
}

#[test]
fn text_is_read_back() {
    let program = Program::parse(&text()).unwrap();
    assert_eq!(program.print(), text());
    assert_eq!((program.inputs.len(), program.constants.len()), (3, 2));
    assert_eq!(program.outputs[2].to_string(), "float32[?, 4]");
    let size = |input: usize, dim: usize| [[8, 4], [8, 0]][input][dim];
    assert!(program.requirements.iter().all(|each| each.holds(&size)));
}

#[test]
fn bytes_are_read_back() {
    let program = Program::parse(&text()).unwrap();
    let elements: Vec<u8> = (0..48).collect();
    let bytes = pack(&program, &[&elements, &[]]).unwrap();
    let (again, constants) = unpack(&bytes).unwrap();
    assert_eq!(again.print(), text());
    assert_eq!(constants, [&elements[..], &[]]);
    for end in 0..bytes.len() {
        assert!(unpack(&bytes[..end]).is_err(), "{end} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(unpack(&longer).is_err());
    assert!(pack(&program, &[&elements]).is_err());
    assert!(pack(&program, &[&elements, &[1]]).is_err());
}

/// A program with one line exchanged.
fn with_line(line: usize, new: &str) -> String {
    let text = text();
    let lines: Vec<&str> =
        text.lines().enumerate().map(|(at, old)| if at + 1 == line { new } else { old }).collect();
    lines.join("\n")
}

#[test]
fn malformed_texts_name_the_line() {
    let cases = [
        (1, "stator.program 2", "version of the text is unknown"),
        (1, "import os", "no tensor program begins like this"),
        (2, "default_dtype string", "no element type string"),
        (3, "%0 = input float32[-1]", "expected a size"),
        (3, "%0 = input float32[9223372036854775808]", "no size of a tensor"),
        (3, "%1 = input float32[]", "expected %0, found %1"),
        (6, "%3 = constant float32[?]", "sizes of a constant are known"),
        (8, "require %7.size(0) == 1", "a size that no input has"),
        (8, "require %0.size(2) == 1", "a size that no input has"),
        (8, "require __import__('os')", "expected a number or a size"),
        (10, "%5 = eval('1')", "there is no operation eval"),
        (10, "%5 = torch.matmul(%5)", "reads %5, which isn't before it"),
        (10, "%5 = torch.matmul(%0", "expected"),
        (10, "%5 = torch.matmul(%0) %1", "expected the end of the line"),
        (10, "%5 = torch.matmul(a=%0, %1)", "an argument without a name"),
        (10, "%5 = operator.call(%0)", "there is no operator"),
        (10, "%5 = torch.matmul('a", "a string without an end"),
        (10, "%5 = torch.matmul('\\q')", "unknown escape"),
        (10, "%5 = torch.matmul((1))", "has a comma behind it"),
        (10, "%5 = input float32[]", "inputs come first"),
        (15, "%10 = attribute(%9, '__class__')", "programs don't read this attribute"),
        (14, "%9 = item(%8, -1)", "no position in a result"),
        (22, "takes arguments('a': *, *)", "a name that is missing or out of place"),
        (22, "takes {'a': *, 'a': *}", "two fields of one name"),
        (24, "return torch.float32: int64[]", "returns nodes and numbers"),
        (24, "return %99: int64[]", "reads %99"),
    ];
    for (line, new, expected) in cases {
        let error = Program::parse(&with_line(line, new)).unwrap_err();
        assert!(error.message.contains(expected), "{new}: {error}");
        assert_eq!(error.line, line, "{new}: {error}");
    }
    let whole = [
        (22, "takes *", "a leaf for each input and output"),
        (24, "", "has no return"),
        (23, "require %0.size(0) == 1", "has no gives"),
        (2, "default_dtype float32\n", ""),
    ];
    for (line, new, expected) in whole {
        match Program::parse(&with_line(line, new)) {
            Err(error) => assert!(error.message.contains(expected), "{new}: {error}"),
            Ok(_) => panic!("{new:?} was read"),
        }
    }
}

#[test]
fn nothing_nests_too_deep() {
    for open in ["(", "[", "{1: ", "slice("] {
        let text = with_line(10, &format!("%5 = torch.matmul({}", open.repeat(100_000)));
        assert!(Program::parse(&text).is_err());
    }
    let text = with_line(22, &format!("takes {}", "(".repeat(100_000)));
    assert!(Program::parse(&text).is_err());
}

proptest! {
    #[test]
    fn changed_texts_dont_panic(at in 0..TEXT.len(), len in 0..8_usize, new in "[ -~]{0,6}") {
        let mut text: Vec<char> = text().chars().collect();
        let end = (at + len).min(text.len());
        text.splice(at.min(end)..end, new.chars());
        let text: String = text.into_iter().collect();
        if let Ok(program) = Program::parse(&text) {
            let printed = program.print();
            prop_assert_eq!(Program::parse(&printed).unwrap().print(), printed);
        }
    }

    #[test]
    fn changed_bytes_dont_panic(at in 0..900_usize, new in any::<u8>()) {
        let program = Program::parse(&text()).unwrap();
        let mut bytes = pack(&program, &[&[7; 48], &[]]).unwrap();
        let at = at % bytes.len();
        bytes[at] = new;
        drop(unpack(&bytes));
    }
}
