//! Messages written and read again, and broken ones.

mod deep;
mod fuzz;
mod golden;
mod rules;

use super::*;
use crate::dtype::DType;

fn int32() -> Type {
    Type::scalar(DType::Int32)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
