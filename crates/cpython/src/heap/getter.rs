//! The field that a getter of PyTorch's returns, from the machine code of the getter: no call of it tells where the
//! field lies. Code in another shape tells nothing, and whoever asks takes a slower way.

/// The offset of the byte that a getter returns.
///
/// # Safety
/// The address of a function of this process. Functions are aligned to 16 bytes, so as many can be read.
pub(super) unsafe fn byte_offset(getter: *const u8) -> Option<usize> {
    // SAFETY: the caller's promise.
    let code = unsafe { getter.cast::<[u8; 16]>().read() };
    if cfg!(target_arch = "x86_64") {
        in_x86_64(&code)
    } else if cfg!(target_arch = "aarch64") {
        in_aarch64(&code)
    } else {
        None
    }
}

/// `movzx eax, byte ptr [rdi + offset]; ret`, perhaps behind `endbr64`.
fn in_x86_64(code: &[u8; 16]) -> Option<usize> {
    match code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(&code[..]) {
        [0x0f, 0xb6, 0x87, a, b, c, d, 0xc3, ..] => {
            Some(u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        _ => None,
    }
}

/// `ldrb w0, [x0, #offset]; ret`, perhaps behind `bti c`.
fn in_aarch64(code: &[u8; 16]) -> Option<usize> {
    const LOAD_BYTE: u32 = 0x3940_0000;
    const OFFSET: u32 = 0xfff << 10;
    const RETURN: u32 = 0xd65f_03c0;
    const LANDING: u32 = 0xd503_245f;
    let word = |at: usize| {
        let bytes = code.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let first = usize::from(word(0)? == LANDING);
    let load = word(first)?;
    (load & !OFFSET == LOAD_BYTE && word(first + 1)? == RETURN)
        .then_some(((load & OFFSET) >> 10) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: [u32; 4]) -> [u8; 16] {
        let mut code = [0; 16];
        for (place, word) in code.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        code
    }

    /// `at::Context::userEnabledCuDNN` and `allowFP16ReductionCPU` of PyTorch 2.11.0's wheel for aarch64 Linux.
    #[test]
    fn aarch64() {
        let nop = 0xd503_201f;
        assert_eq!(in_aarch64(&words([0x3952_6000, 0xd65f_03c0, nop, nop])), Some(1176));
        assert_eq!(in_aarch64(&words([0x3953_8000, 0xd65f_03c0, nop, nop])), Some(1248));
        assert_eq!(in_aarch64(&words([0xd503_245f, 0x3953_8000, 0xd65f_03c0, nop])), Some(1248));
        assert_eq!(in_aarch64(&words([0x3952_6020, 0xd65f_03c0, nop, nop])), None, "of x1");
        assert_eq!(in_aarch64(&words([0x3952_6000, nop, 0xd65f_03c0, nop])), None);
        assert_eq!(in_aarch64(&words([0x7952_6000, 0xd65f_03c0, nop, nop])), None, "two bytes");
    }

    #[test]
    fn x86_64() {
        let mut code = [0x90; 16];
        code[..8].copy_from_slice(&[0x0f, 0xb6, 0x87, 0x98, 0x04, 0, 0, 0xc3]);
        assert_eq!(in_x86_64(&code), Some(0x498));
        let mut marked = [0x90; 16];
        marked[..4].copy_from_slice(&[0xf3, 0x0f, 0x1e, 0xfa]);
        marked[4..12].copy_from_slice(&code[..8]);
        assert_eq!(in_x86_64(&marked), Some(0x498));
        code[1] = 0xb7;
        assert_eq!(in_x86_64(&code), None, "two bytes");
    }
}
