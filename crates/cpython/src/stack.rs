//! The stack of the thread that runs.

/// How many bytes of it are left below the frame that asks. `None`: the system doesn't say.
#[must_use]
pub fn room() -> Option<usize> {
    #[cfg(target_os = "linux")]
    {
        let here = 0_u8;
        let here = std::ptr::from_ref(std::hint::black_box(&here)) as usize;
        here.checked_sub(lowest()?)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// The lowest address that it may reach.
#[cfg(target_os = "linux")]
fn lowest() -> Option<usize> {
    use std::mem::MaybeUninit;

    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the thread is the one that runs, and the attributes are read and destroyed only once they were written.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &mut lowest, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        (found == 0).then_some(lowest as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn a_thread_has_what_it_was_given() {
        const GIVEN: usize = 1 << 20;
        let thread = std::thread::Builder::new().stack_size(GIVEN).spawn(room);
        let room = thread.expect("a thread").join().expect("no panic");
        if cfg!(target_os = "linux") {
            let room = room.expect("Linux says it");
            assert!(room > GIVEN / 2 && room <= 2 * GIVEN, "{room}");
        }
    }
}
