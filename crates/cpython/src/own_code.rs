//! This library's code and read-only data, as the operating system has them in memory.

#[cfg(target_os = "linux")]
use std::ffi::{c_int, c_void};

/// Has the operating system map what it would otherwise map page by page, when code is run for the first time. It
/// only gains time, so a system that can't is asked in vain.
pub fn map() {
    // SAFETY: the callback has the declared signature, keeps nothing and doesn't unwind; it is called within this call.
    #[cfg(target_os = "linux")]
    unsafe {
        libc::dl_iterate_phdr(Some(map_library), std::ptr::null_mut());
    }
}

/// Maps the parts of a library that aren't written to, if it is the one with this function in it.
#[cfg(target_os = "linux")]
unsafe extern "C" fn map_library(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: the loader hands out a library that stays loaded meanwhile, with as many program headers as it says.
    let (base, headers) = unsafe {
        let info = &*info;
        (
            info.dlpi_addr as usize,
            std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        )
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let ranges = loaded.map(|header| {
        let start = base + header.p_vaddr as usize;
        (start, start + header.p_memsz as usize, header.p_flags & libc::PF_W == 0)
    });
    let here = map as fn() as usize;
    if !ranges.clone().any(|(start, end, _)| (start..end).contains(&here)) {
        return 0;
    }
    // SAFETY: asks for the size of a page.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    for (start, end, _) in ranges.filter(|&(_, _, read_only)| read_only) {
        let start = start / page * page;
        // SAFETY: nothing but page tables changes. A failure is of no consequence.
        unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_POPULATE_READ) };
    }
    1
}
