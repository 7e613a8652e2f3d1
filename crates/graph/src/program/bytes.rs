//! A program and its constants as bytes: a mark, a version, the text, the constants' elements.
//! Numbers are little-endian; so are the elements.

use super::{ConstantType, Malformed, Program};

const MARK: &[u8; 8] = b"\x93STATOR\n";
const VERSION: u32 = 1;

/// A program, and the elements of each of its constants.
pub type Packed<'a> = (Program, Vec<&'a [u8]>);

/// The byte form.
///
/// # Errors
/// If a constant isn't as long as its type says.
pub fn pack(program: &Program, constants: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
    check_lengths(&program.constants, constants)?;
    let text = program.print();
    let room = constants.iter().map(|constant| constant.len() + 8).sum::<usize>();
    let mut out = Vec::with_capacity(text.len() + room + 24);
    out.extend_from_slice(MARK);
    out.extend_from_slice(&VERSION.to_le_bytes());
    for part in std::iter::once(text.as_bytes()).chain(constants.iter().copied()) {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part);
    }
    Ok(out)
}

/// Reads the byte form.
///
/// # Errors
/// What is wrong with it.
pub fn unpack(bytes: &[u8]) -> Result<Packed<'_>, Malformed> {
    let error = |message: &str| Malformed::new(0, message);
    let rest =
        bytes.strip_prefix(MARK).ok_or_else(|| error("these bytes are no tensor program"))?;
    let (version, mut rest) =
        rest.split_first_chunk().ok_or_else(|| error("the bytes end too early"))?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        let message = format!("version {version} of the byte form is unknown: {VERSION} is known");
        return Err(Malformed::new(0, message));
    }
    let mut part = || {
        let (length, after) =
            rest.split_first_chunk().ok_or_else(|| error("the bytes end too early"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (part, after) =
            after.split_at_checked(length).ok_or_else(|| error("the bytes end too early"))?;
        rest = after;
        Ok(part)
    };
    let text = std::str::from_utf8(part()?).map_err(|_| error("the text isn't UTF-8"))?;
    let program = Program::parse(text)?;
    let constants =
        program.constants.iter().map(|_| part()).collect::<Result<Vec<_>, Malformed>>()?;
    if !rest.is_empty() {
        return Err(error("there are bytes behind the last constant"));
    }
    check_lengths(&program.constants, &constants)?;
    Ok((program, constants))
}

fn check_lengths(types: &[ConstantType], constants: &[&[u8]]) -> Result<(), Malformed> {
    if types.len() != constants.len() {
        let message = format!("{} constants where the text has {}", constants.len(), types.len());
        return Err(Malformed::new(0, message));
    }
    for (index, (ty, bytes)) in types.iter().zip(constants).enumerate() {
        if ty.byte_length() != Some(bytes.len() as u64) {
            let message = format!("constant {index} isn't as long as its type {} says", ty.tensor);
            return Err(Malformed::new(0, message));
        }
    }
    Ok(())
}

impl ConstantType {
    /// How many bytes its elements take; `None` for types without a byte form.
    pub fn byte_length(&self) -> Option<u64> {
        let mut sizes = self.tensor.sizes.iter();
        sizes.try_fold(self.tensor.dtype.bytes()?, |all, size| all.checked_mul((*size)?))
    }
}
