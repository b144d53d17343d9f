//! System calls without the C library.
//!
//! UNSAFETY: a child that shares its parent's memory must not touch `errno`, which is a
//! thread-local of the parent; all of libc's wrappers do.

use std::arch::asm;

/// Makes one system call. Negative results are `-errno`.
///
/// # Safety
/// As unsafe as the call itself: the kernel must be able to use the pointers.
#[inline]
pub(crate) unsafe fn syscall(nr: libc::c_long, args: [usize; 5]) -> isize {
    let result: isize;
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the aarch64 calling convention of the kernel, which changes no register but x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") nr,
            inlateout("x0") args[0] as isize => result,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
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
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above. The frame pointer and the return address are cleared for the child, which
    // never returns.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x30, xzr",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            in("x8") libc::SYS_clone3,
            inlateout("x0") std::ptr::from_ref(args) as isize => result,
            in("x1") size_of::<CloneArgs>(),
            in("x20") arg,
            in("x21") entry,
        );
    }
    result
}
