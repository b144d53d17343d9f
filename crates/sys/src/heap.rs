//! Free memory that the C library's allocator holds.
//!
//! UNSAFETY: a call into the C library; nothing in Rust's standard library returns memory.

/// Returns the whole free pages of the allocator's arenas to the kernel. The allocator itself
/// returns only what lies at an arena's end, so one small allocation above a burst keeps all of
/// it. It locks each arena while it walks it: a few milliseconds for 100 MiB.
pub fn trim() {
    // Other C libraries have no such call; musl's allocator returns memory when it is freed.
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers, and only free memory is touched.
    unsafe {
        libc::malloc_trim(0)
    };
}
