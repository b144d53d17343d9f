//! Compiles the allow-list (`filter.json`) into seccomp programs.
//!
//! A program is one binary search over call numbers instead of a chain of comparisons: the kernel
//! runs it once for every call number when it is installed, so a short path makes every start
//! cheaper.

mod allow_list;
mod bpf;
mod syscalls;

use allow_list::{AllowList, SyscallRule};
use bpf::{
    ALLOW, ARCH_OFFSET, ENOSYS, EPERM, ERRNO, JA, JEQ, JGE, JSET, KILL, LD, NUMBER_OFFSET, RET,
    X32, instruction, jump_if_among, jump_unless_among, load_argument,
};
use std::collections::BTreeMap;
use syscalls::{Architecture, Syscalls};

/// Which processes a program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterKind {
    /// Processes of the tenant.
    Tenant,
    /// The agent: the tenant's calls, and those that starting a tenant's process needs.
    Agent,
    /// The egress proxy, which has a short list of its own.
    EgressProxy,
}

/// The action of a program for one call number.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Return(u32),
    /// Decided by the rules of the call with this name.
    CheckArguments(String),
}

/// The program for `kind`, as raw `sock_filter`s.
///
/// # Panics
/// When `filter.json` names a call that does not exist; a test reads it.
#[must_use]
pub fn compile(kind: FilterKind) -> Vec<u64> {
    compile_for(Architecture::HOST, kind)
}

fn compile_for(architecture: Architecture, kind: FilterKind) -> Vec<u64> {
    let list = AllowList::read();
    let ranges = number_ranges(&list, kind, &Syscalls::of(architecture));
    let mut program = vec![
        instruction(LD, 0, 0, ARCH_OFFSET),
        instruction(JEQ, 1, 0, architecture.audit()),
        instruction(RET, 0, 0, KILL),
        instruction(LD, 0, 0, NUMBER_OFFSET),
    ];
    program.extend(search_tree(&ranges, list.rules(kind)));
    program
}

/// The program for `kind` as bytes, for [`isolet_sys::seccomp::read`].
#[must_use]
pub fn bytes(kind: FilterKind) -> Vec<u8> {
    compile(kind).iter().flat_map(|step| step.to_ne_bytes()).collect()
}

/// Ranges of call numbers with the same action: the first number of each, in order. Entries of the
/// list whose call the architecture lacks have no effect.
fn number_ranges(list: &AllowList, kind: FilterKind, calls: &Syscalls) -> Vec<(u32, Action)> {
    let mut by_number: BTreeMap<u32, Action> = BTreeMap::new();
    for (_, known) in calls.all() {
        by_number.insert(known, Action::Return(EPERM));
    }
    let mut set = |name: &str, action: Action| {
        if let Some(number) = calls.number(name) {
            by_number.insert(number, action);
        }
    };
    let allow =
        if kind == FilterKind::EgressProxy { &list.egress_proxy.allow } else { &list.allow };
    for name in allow {
        set(name, Action::Return(ALLOW));
    }
    for rule in list.rules(kind) {
        set(&rule.call, Action::CheckArguments(rule.call.clone()));
    }
    for answer in &list.errno {
        set(&answer.call, Action::Return(ERRNO | answer.errno));
    }
    if kind == FilterKind::Agent {
        for name in &list.agent.allow {
            set(name, Action::Return(ALLOW));
        }
    }
    merge_ranges(&by_number)
}

fn merge_ranges(by_number: &BTreeMap<u32, Action>) -> Vec<(u32, Action)> {
    let unknown = Action::Return(ENOSYS);
    let mut ranges: Vec<(u32, Action)> = Vec::new();
    let mut push = |from: u32, action: &Action| {
        if ranges.last().is_none_or(|(_, last)| last != action) {
            ranges.push((from, action.clone()));
        }
    };
    let mut next = 0;
    for (number, action) in by_number {
        if *number > next {
            push(next, &unknown);
        }
        push(*number, action);
        next = number + 1;
    }
    push(next, &unknown);
    push(X32, &Action::Return(EPERM));
    ranges
}

/// The binary search for the number, which is in the accumulator.
fn search_tree(ranges: &[(u32, Action)], rules: &[SyscallRule]) -> Vec<u64> {
    if let [(_, action)] = ranges {
        return action_steps(action, rules);
    }
    let middle = ranges.len() / 2;
    let low = search_tree(&ranges[..middle], rules);
    let high = search_tree(&ranges[middle..], rules);
    let mut program = Vec::with_capacity(low.len() + high.len() + 2);
    let pivot = ranges[middle].0;
    if let Ok(skip) = u8::try_from(low.len()) {
        program.push(instruction(JGE, skip, 0, pivot));
    } else {
        // A conditional jump skips up to 255 instructions; an unconditional one skips any number.
        program.push(instruction(JGE, 0, 1, pivot));
        program.push(instruction(JA, 0, 0, low.len() as u32));
    }
    program.extend(low);
    program.extend(high);
    program
}

fn action_steps(action: &Action, rules: &[SyscallRule]) -> Vec<u64> {
    let name = match action {
        Action::Return(value) => return vec![instruction(RET, 0, 0, *value)],
        Action::CheckArguments(name) => name,
    };
    let mut program = Vec::new();
    let mut refusal = EPERM;
    for rule in rules.iter().filter(|rule| rule.call == *name) {
        program.extend(rule_steps(rule));
        refusal = rule.otherwise.map_or(EPERM, |errno| ERRNO | errno);
    }
    program.push(instruction(RET, 0, 0, refusal));
    program
}

/// Returns `ALLOW` when the rule matches, otherwise falls through.
fn rule_steps(rule: &SyscallRule) -> Vec<u64> {
    let mut program = vec![load_argument(rule.arg)];
    if let Some(bits) = rule.none_of_bits {
        program.extend([instruction(JSET, 1, 0, bits), instruction(RET, 0, 0, ALLOW)]);
    } else if let Some(bits) = rule.any_of_bits {
        program.extend([instruction(JSET, 0, 1, bits), instruction(RET, 0, 0, ALLOW)]);
    } else if let Some(values) = &rule.not_one_of {
        program.extend(jump_if_among(values, 1));
        program.push(instruction(RET, 0, 0, ALLOW));
    } else if let Some(values) = &rule.one_of {
        let rest = match (&rule.and_arg, &rule.and_one_of) {
            (Some(arg), Some(allowed)) => {
                let mut rest = vec![load_argument(*arg)];
                rest.extend(jump_unless_among(allowed, 1));
                rest.push(instruction(RET, 0, 0, ALLOW));
                rest
            }
            _ => vec![instruction(RET, 0, 0, ALLOW)],
        };
        program.extend(jump_unless_among(values, rest.len()));
        program.extend(rest);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAFNOSUPPORT: u32 = ERRNO | 97;

    /// Interprets a program as the kernel does.
    fn run(program: &[u64], arch: u32, number: u32, args: [u64; 6]) -> u32 {
        let mut data = [0_u32; 16];
        data[0] = number;
        data[1] = arch;
        for (at, arg) in args.iter().enumerate() {
            data[4 + 2 * at] = *arg as u32;
            data[5 + 2 * at] = (*arg >> 32) as u32;
        }
        let mut at = 0;
        let mut accumulator = 0;
        loop {
            let raw = program[at];
            let code = raw as u16;
            let yes = (raw >> 16) as u8;
            let no = (raw >> 24) as u8;
            let constant = (raw >> 32) as u32;
            let jump = |cond: bool| usize::from(if cond { yes } else { no });
            at += 1 + match code {
                LD => {
                    accumulator = data[constant as usize / 4];
                    0
                }
                JEQ => jump(accumulator == constant),
                JGE => jump(accumulator >= constant),
                JSET => jump(accumulator & constant != 0),
                JA => constant as usize,
                RET => return constant,
                _ => panic!("unknown step {code:#x}"),
            };
        }
    }

    const X86_64: Architecture = Architecture::X86_64;

    fn number(architecture: Architecture, name: &str) -> u32 {
        Syscalls::of(architecture).number(name).expect("the architecture has it")
    }

    fn tenant(name: &str, args: [u64; 6]) -> u32 {
        let program = compile_for(X86_64, FilterKind::Tenant);
        run(&program, X86_64.audit(), number(X86_64, name), args)
    }

    #[test]
    fn every_known_call_has_the_action_of_the_list() {
        let list = AllowList::read();
        for architecture in [X86_64, Architecture::Aarch64] {
            let program = compile_for(architecture, FilterKind::Tenant);
            for (name, known) in Syscalls::of(architecture).all() {
                let action = run(&program, architecture.audit(), known, [0; 6]);
                let ruled = list.rules.iter().any(|rule| rule.call == *name);
                let answered = list.errno.iter().find(|answer| answer.call == *name);
                match answered {
                    _ if ruled => {}
                    Some(answer) => assert_eq!(action, ERRNO | answer.errno, "{name}"),
                    None if list.allow.iter().any(|allowed| allowed == name) => {
                        assert_eq!(action, ALLOW, "{name}");
                    }
                    None => assert_eq!(action, EPERM, "{name}"),
                }
            }
            assert!(program.len() < 400, "{} steps", program.len());
        }
    }

    #[test]
    fn each_architecture_refuses_the_programs_of_the_other() {
        let aarch64 = Architecture::Aarch64;
        let program = compile_for(aarch64, FilterKind::Tenant);
        let arguments = [0x0800_0011, 0, 0, 0, 0, 0];
        let clone = number(aarch64, "clone");
        assert_eq!(run(&program, aarch64.audit(), clone, arguments), EPERM, "a user namespace");
        assert_eq!(run(&program, X86_64.audit(), clone, arguments), KILL);
        let program = compile_for(X86_64, FilterKind::Tenant);
        assert_eq!(run(&program, aarch64.audit(), number(X86_64, "read"), [0; 6]), KILL);
    }

    #[test]
    fn namespaces_cannot_be_made_and_threads_can() {
        assert_eq!(tenant("clone", [0x0011, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(tenant("clone", [0x3d_0f00, 0, 0, 0, 0, 0]), ALLOW);
        for flag in [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000_u64] {
            assert_eq!(tenant("clone", [flag | 17, 0, 0, 0, 0, 0]), EPERM, "{flag:#x}");
        }
        assert_eq!(tenant("clone3", [0; 6]), ENOSYS);
        assert_eq!(tenant("unshare", [0; 6]), EPERM);
        assert_eq!(tenant("setns", [0; 6]), EPERM);
    }

    #[test]
    fn sockets_are_unix_internet_and_routes() {
        for family in 0..48_u64 {
            let action = tenant("socket", [family, 1, 0, 0, 0, 0]);
            let expected = if [1, 2, 10, 16].contains(&family) { ALLOW } else { EAFNOSUPPORT };
            assert_eq!(action, expected, "family {family}");
        }
        // libaudit takes this for a kernel without audit; at `EPERM` `useradd` would fail.
        assert_eq!(tenant("socket", [16, 3, 9, 0, 0, 0]), EAFNOSUPPORT);
        assert_eq!(tenant("socketpair", [16, 3, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn terminals_cannot_be_typed_into_whatever_the_high_half_says() {
        for call in [0x5412_u64, 0x1_0000_5412, 0x541c, 0x541d, 0x5423, 0xffff_ffff_0000_5423] {
            assert_eq!(tenant("ioctl", [0, call, 0, 0, 0, 0]), EPERM, "{call:#x}");
        }
        assert_eq!(tenant("ioctl", [0, 0x5401, 0, 0, 0, 0]), ALLOW);
        assert_eq!(tenant("ioctl", [0, 0x4004_9409, 0, 0, 0, 0]), ALLOW, "FICLONE");
        for subvolume in [0x5000_9401_u64, 0x5000_940e, 0x5000_9417, 0x5000_9418, 0x5000_943f] {
            assert_eq!(tenant("ioctl", [0, subvolume, 0, 0, 0, 0]), EPERM, "{subvolume:#x}");
        }
        assert_eq!(tenant("personality", [0x0004_0000, 0, 0, 0, 0, 0]), EPERM);
        assert_eq!(tenant("personality", [0xffff_ffff, 0, 0, 0, 0, 0]), ALLOW);
    }

    /// The kernel would compile each filter into memory that the whole machine shares.
    /// Promises: B8.
    #[test]
    fn e53_no_filter_is_attached_to_a_socket_and_other_options_are_set() {
        const SOL_SOCKET: u64 = 1;
        const IPPROTO_IPV6: u64 = 41;
        for option in 0..80_u64 {
            let attaches = [26, 50, 51, 52].contains(&option);
            let expected = if attaches { EPERM } else { ALLOW };
            assert_eq!(
                tenant("setsockopt", [3, SOL_SOCKET, option, 0, 0, 0]),
                expected,
                "{option}"
            );
            assert_eq!(tenant("setsockopt", [3, IPPROTO_IPV6, option, 0, 0, 0]), ALLOW, "{option}");
        }
        // The kernel reads a level and an option of 32 bits.
        assert_eq!(tenant("setsockopt", [3, 1 << 32 | SOL_SOCKET, 1 << 32 | 26, 0, 0, 0]), EPERM);
    }

    /// The kernel counts these requests for the whole host.
    /// Promises: B8.
    #[test]
    fn e53_the_kernels_asynchronous_io_is_not_there_for_libraries_to_fall_back() {
        for name in ["io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents"] {
            assert_eq!(tenant(name, [0; 6]), ENOSYS, "{name}");
        }
        let io_pgetevents = 333;
        assert_eq!(
            run(&compile_for(X86_64, FilterKind::Tenant), X86_64.audit(), io_pgetevents, [0; 6]),
            ENOSYS
        );
    }

    #[test]
    fn other_architectures_and_unknown_calls_are_refused() {
        let program = compile_for(X86_64, FilterKind::Tenant);
        let arch = X86_64.audit();
        assert_eq!(run(&program, 0x4000_0003, 4, [0; 6]), KILL);
        assert_eq!(run(&program, arch, X32 | 1, [0; 6]), EPERM);
        assert_eq!(run(&program, arch, 1000, [0; 6]), ENOSYS);
    }

    /// Promises: R8.
    #[test]
    fn the_egress_proxy_starts_no_process_writes_no_file_and_executes_no_memory() {
        let program = compile_for(X86_64, FilterKind::EgressProxy);
        let arch = X86_64.audit();
        let action = |name: &str, args: [u64; 6]| run(&program, arch, number(X86_64, name), args);
        let arg = |at: usize, value: u64| {
            let mut args = [0; 6];
            args[at] = value;
            args
        };
        for name in ["execve", "execveat", "fork", "vfork", "kill", "ptrace", "open", "openat2"]
            .into_iter()
            .chain(["process_vm_readv", "unlink", "mount", "setns", "unshare", "memfd_create"])
        {
            assert_eq!(action(name, [0; 6]), EPERM, "{name}");
        }
        assert_eq!(action("clone", arg(0, 0x3d_0f00)), ALLOW, "a thread");
        assert_eq!(action("clone", arg(0, 17)), EPERM, "a process");
        assert_eq!(action("clone3", [0; 6]), ENOSYS);
        assert_eq!(action("openat", arg(2, 0o2_000_000)), ALLOW, "reading");
        for flags in [0o1, 0o2, 0o100, 0o1000, 0o2000, 0o20_200_002] {
            assert_eq!(action("openat", arg(2, flags)), EPERM, "{flags:o}");
        }
        for family in 0..48 {
            let expected = if [2, 10].contains(&family) { ALLOW } else { EPERM };
            assert_eq!(action("socket", arg(0, family)), expected, "family {family}");
        }
        for name in ["mmap", "mprotect"] {
            assert_eq!(action(name, arg(2, 3)), ALLOW);
            assert_eq!(action(name, arg(2, 5)), EPERM, "executed");
        }
        assert_eq!(action("ioctl", arg(1, 0x5421)), ALLOW);
        assert_eq!(action("ioctl", arg(1, 0x5412)), EPERM);
        assert_eq!(run(&program, arch, 1000, [0; 6]), ENOSYS);
    }

    #[test]
    fn an_agent_may_start_tenants() {
        let program = compile_for(X86_64, FilterKind::Agent);
        let action = |name: &str| run(&program, X86_64.audit(), number(X86_64, name), [0; 6]);
        for name in ["clone3", "setns", "seccomp", "read"] {
            assert_eq!(action(name), ALLOW, "{name}");
        }
        assert_eq!(action("mount"), EPERM);
    }
}
