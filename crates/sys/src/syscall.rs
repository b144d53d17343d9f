//! System calls without the C library.
//!
//! UNSAFETY: a child that shares its parent's memory must not touch `errno`, which is a
//! thread-local of the parent; all of libc's wrappers do. x86-64 only, as are the filters.

use std::arch::asm;

/// Makes one system call. Negative results are `-errno`.
///
/// # Safety
/// As unsafe as the call itself: the kernel must be able to use the pointers.
#[inline]
pub(crate) unsafe fn syscall(nr: libc::c_long, args: [usize; 5]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 calling convention of the kernel; rcx and r11 are its only clobbers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as isize => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Ends this process with all of its threads at once.
pub(crate) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: exit_group takes no pointer and does not return.
        unsafe { syscall(libc::SYS_exit_group, [code as usize, 0, 0, 0, 0]) };
    }
}

/// The arguments of `clone3`, in the kernel's layout (version 2, with the cgroup).
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct CloneArgs {
    pub(crate) flags: u64,
    pub(crate) pidfd: u64,
    pub(crate) child_tid: u64,
    pub(crate) parent_tid: u64,
    pub(crate) exit_signal: u64,
    pub(crate) stack: u64,
    pub(crate) stack_size: u64,
    pub(crate) tls: u64,
    pub(crate) set_tid: u64,
    pub(crate) set_tid_size: u64,
    pub(crate) cgroup: u64,
}

/// `CLONE_INTO_CGROUP`, which does not fit libc's type for flags.
pub(crate) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// `clone3` whose child runs `entry(arg)` on the stack named in `args`.
///
/// # Safety
/// `args.stack` must be mapped, unused, and stay so until the child has executed or ended; `entry`
/// must never return.
pub(crate) unsafe fn clone_onto(
    args: &CloneArgs,
    entry: extern "C" fn(usize) -> !,
    arg: usize,
) -> isize {
    let result: isize;
    // SAFETY: in the child the stack pointer is the top of `args.stack` and nothing of this frame
    // is read: entry and argument stand in registers, which clone3 copies.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") std::ptr::from_ref(args),
            in("rsi") size_of::<CloneArgs>(),
            in("r12") arg,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}
