//! Instructions of seccomp programs (classic BPF).

/// Numbers from here on belong to the x32 ABI of x86-64 (`__X32_SYSCALL_BIT`). No other
/// architecture has calls there.
pub(super) const X32: u32 = 0x4000_0000;

pub(super) const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
pub(super) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
pub(super) const ERRNO: u32 = libc::SECCOMP_RET_ERRNO;
pub(super) const EPERM: u32 = ERRNO | libc::EPERM as u32;
pub(super) const ENOSYS: u32 = ERRNO | libc::ENOSYS as u32;

pub(super) const LD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
pub(super) const JEQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
pub(super) const JGE: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
pub(super) const JSET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
pub(super) const JA: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
pub(super) const RET: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offsets in `struct seccomp_data`.
pub(super) const NUMBER_OFFSET: u32 = 0;
pub(super) const ARCH_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;

/// Jumps over the `skip` instructions after this block when the value is one of `values`.
pub(super) fn jump_if_among(values: &[u32], skip: usize) -> Vec<u64> {
    let count = values.len();
    let jump = |at: usize| (count - 1 - at + skip) as u8;
    values.iter().enumerate().map(|(at, value)| instruction(JEQ, jump(at), 0, *value)).collect()
}

/// Jumps over the `skip` instructions after this block unless the value is one of `values`.
pub(super) fn jump_unless_among(values: &[u32], skip: usize) -> Vec<u64> {
    let last = values.len() - 1;
    let jump = |at: usize, value: &u32| match at {
        at if at == last => instruction(JEQ, 0, skip as u8, *value),
        at => instruction(JEQ, (last - at) as u8, 0, *value),
    };
    values.iter().enumerate().map(|(at, value)| jump(at, value)).collect()
}

/// Loads the low half of an argument: the kernel uses no more of those that rules check.
pub(super) fn load_argument(arg: u32) -> u64 {
    instruction(LD, 0, 0, ARGUMENTS_OFFSET + 8 * arg)
}

/// One `sock_filter`. `yes` and `no` are the instructions to skip when the condition holds or not.
pub(super) fn instruction(code: u16, yes: u8, no: u8, constant: u32) -> u64 {
    u64::from(code) | u64::from(yes) << 16 | u64::from(no) << 24 | u64::from(constant) << 32
}
