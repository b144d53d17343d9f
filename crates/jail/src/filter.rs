//! The allow-list (`filter.json`) made into a seccomp program.
//!
//! One binary search over call numbers instead of a chain of comparisons: the kernel runs the
//! program once per call number when it is taken, so a short path makes every start cheaper.

mod syscalls;

use serde::Deserialize;
use std::collections::BTreeMap;
use syscalls::SYSCALLS;

const SOURCE: &str = include_str!("filter.json");
/// AUDIT_ARCH_X86_64.
const ARCH: u32 = 0xc000_003e;
/// Numbers from here on belong to the x32 ABI.
const X32: u32 = 0x4000_0000;

const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | 1;
const ENOSYS: u32 = ERRNO | 38;

const LD: u16 = 0x20;
const JEQ: u16 = 0x15;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const JA: u16 = 0x05;
const RET: u16 = 0x06;

/// For whom a program is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterKind {
    /// Processes of the tenant.
    Tenant,
    /// The agent: the tenant's list and what it needs to start tenants.
    Agent,
    /// The edge: a short list of its own.
    Edge,
}

/// The file, as written. Reasons are for its readers.
#[derive(Debug, Deserialize)]
struct Table {
    allow: Vec<String>,
    rules: Vec<Rule>,
    errno: Vec<Answer>,
    agent: Extra,
    edge: List,
}

impl Table {
    fn rules(&self, kind: FilterKind) -> &[Rule] {
        if kind == FilterKind::Edge { &self.edge.rules } else { &self.rules }
    }
}

#[derive(Debug, Clone, Deserialize)]
struct Rule {
    call: String,
    arg: u32,
    one_of: Option<Vec<u32>>,
    not_one_of: Option<Vec<u32>>,
    none_of_bits: Option<u32>,
    any_of_bits: Option<u32>,
    and_arg: Option<u32>,
    and_one_of: Option<Vec<u32>>,
    /// The errno when no rule of the call fits; 1 (EPERM) unless the last of them names one.
    otherwise: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Answer {
    call: String,
    errno: u32,
}

#[derive(Debug, Deserialize)]
struct Extra {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct List {
    allow: Vec<String>,
    rules: Vec<Rule>,
}

/// What happens at one call number.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Return(u32),
    /// Index into the list of rules of this call.
    Look(String),
}

/// The program for `kind`, as raw `sock_filter`s.
///
/// # Panics
/// When `filter.json` names a call that does not exist; a test reads it.
#[must_use]
pub fn compile(kind: FilterKind) -> Vec<u64> {
    let table: Table = serde_json::from_str(SOURCE).expect("filter.json parses");
    let fates = fates(&table, kind);
    let mut program =
        vec![step(LD, 0, 0, 4), step(JEQ, 1, 0, ARCH), step(RET, 0, 0, KILL), step(LD, 0, 0, 0)];
    program.extend(search(&fates, table.rules(kind)));
    program
}

/// The same as bytes, as [`isolet_sys::seccomp::read`] reads them.
#[must_use]
pub fn bytes(kind: FilterKind) -> Vec<u8> {
    compile(kind).iter().flat_map(|step| step.to_ne_bytes()).collect()
}

/// The number of a call.
fn number(name: &str) -> u32 {
    let found = SYSCALLS.iter().find(|(known, _)| *known == name);
    u32::try_from(found.unwrap_or_else(|| panic!("no call {name}")).1).expect("small numbers")
}

/// Ranges of call numbers with one fate each: where they begin, in order.
fn fates(table: &Table, kind: FilterKind) -> Vec<(u32, Fate)> {
    let mut by_number: BTreeMap<u32, Fate> = BTreeMap::new();
    for (_, known) in SYSCALLS {
        by_number.insert(*known as u32, Fate::Return(EPERM));
    }
    let allow = if kind == FilterKind::Edge { &table.edge.allow } else { &table.allow };
    for name in allow {
        by_number.insert(number(name), Fate::Return(ALLOW));
    }
    for rule in table.rules(kind) {
        by_number.insert(number(&rule.call), Fate::Look(rule.call.clone()));
    }
    for answer in &table.errno {
        by_number.insert(number(&answer.call), Fate::Return(ERRNO | answer.errno));
    }
    if kind == FilterKind::Agent {
        for name in &table.agent.allow {
            by_number.insert(number(name), Fate::Return(ALLOW));
        }
    }
    ranges(&by_number)
}

fn ranges(by_number: &BTreeMap<u32, Fate>) -> Vec<(u32, Fate)> {
    let unknown = Fate::Return(ENOSYS);
    let mut ranges: Vec<(u32, Fate)> = Vec::new();
    let mut push = |from: u32, fate: &Fate| {
        if ranges.last().is_none_or(|(_, last)| last != fate) {
            ranges.push((from, fate.clone()));
        }
    };
    let mut next = 0;
    for (number, fate) in by_number {
        if *number > next {
            push(next, &unknown);
        }
        push(*number, fate);
        next = number + 1;
    }
    push(next, &unknown);
    push(X32, &Fate::Return(EPERM));
    ranges
}

/// The binary search: the number stands in the accumulator.
fn search(ranges: &[(u32, Fate)], rules: &[Rule]) -> Vec<u64> {
    if let [(_, fate)] = ranges {
        return leaf(fate, rules);
    }
    let middle = ranges.len() / 2;
    let low = search(&ranges[..middle], rules);
    let high = search(&ranges[middle..], rules);
    let mut program = Vec::with_capacity(low.len() + high.len() + 2);
    let pivot = ranges[middle].0;
    if let Ok(skip) = u8::try_from(low.len()) {
        program.push(step(JGE, skip, 0, pivot));
    } else {
        // A conditional jump reaches 255 steps; this one goes further by a plain jump.
        program.push(step(JGE, 0, 1, pivot));
        program.push(step(JA, 0, 0, low.len() as u32));
    }
    program.extend(low);
    program.extend(high);
    program
}

fn leaf(fate: &Fate, rules: &[Rule]) -> Vec<u64> {
    let name = match fate {
        Fate::Return(value) => return vec![step(RET, 0, 0, *value)],
        Fate::Look(name) => name,
    };
    let mut program = Vec::new();
    let mut refusal = EPERM;
    for rule in rules.iter().filter(|rule| rule.call == *name) {
        program.extend(look(rule));
        refusal = rule.otherwise.map_or(EPERM, |errno| ERRNO | errno);
    }
    program.push(step(RET, 0, 0, refusal));
    program
}

/// Returns ALLOW when the rule fits, else falls through behind its last step.
fn look(rule: &Rule) -> Vec<u64> {
    let mut program = vec![load(rule.arg)];
    if let Some(bits) = rule.none_of_bits {
        program.extend([step(JSET, 1, 0, bits), step(RET, 0, 0, ALLOW)]);
    } else if let Some(bits) = rule.any_of_bits {
        program.extend([step(JSET, 0, 1, bits), step(RET, 0, 0, ALLOW)]);
    } else if let Some(values) = &rule.not_one_of {
        program.extend(among(values, 1));
        program.push(step(RET, 0, 0, ALLOW));
    } else if let Some(values) = &rule.one_of {
        let rest = match (&rule.and_arg, &rule.and_one_of) {
            (Some(arg), Some(allowed)) => {
                let mut rest = vec![load(*arg)];
                rest.extend(unless_among(allowed, 1));
                rest.push(step(RET, 0, 0, ALLOW));
                rest
            }
            _ => vec![step(RET, 0, 0, ALLOW)],
        };
        program.extend(unless_among(values, rest.len()));
        program.extend(rest);
    }
    program
}

/// Jumps over the `skip` steps behind this block when the value is one of `values`.
fn among(values: &[u32], skip: usize) -> Vec<u64> {
    let count = values.len();
    let jump = |at: usize| (count - 1 - at + skip) as u8;
    values.iter().enumerate().map(|(at, value)| step(JEQ, jump(at), 0, *value)).collect()
}

/// Jumps over the `skip` steps behind this block unless the value is one of `values`.
fn unless_among(values: &[u32], skip: usize) -> Vec<u64> {
    let last = values.len() - 1;
    let jump = |at: usize, value: &u32| match at {
        at if at == last => step(JEQ, 0, skip as u8, *value),
        at => step(JEQ, (last - at) as u8, 0, *value),
    };
    values.iter().enumerate().map(|(at, value)| jump(at, value)).collect()
}

/// Loads the low half of an argument: the kernel takes no more of those that rules look at.
fn load(arg: u32) -> u64 {
    step(LD, 0, 0, 16 + 8 * arg)
}

/// One `sock_filter`: code, jump if true, jump if false, constant.
fn step(code: u16, yes: u8, no: u8, constant: u32) -> u64 {
    u64::from(code) | u64::from(yes) << 16 | u64::from(no) << 24 | u64::from(constant) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAFNOSUPPORT: u32 = ERRNO | 97;

    /// Runs a program as the kernel does.
    fn run(program: &[u64], arch: u32, number: u32, args: [u64; 6]) -> u32 {
        let mut data = [0_u32; 16];
        data[0] = number;
        data[1] = arch;
        for (at, arg) in args.iter().enumerate() {
            data[4 + 2 * at] = *arg as u32;
            data[5 + 2 * at] = (*arg >> 32) as u32;
        }
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let raw = program[at];
            let (code, yes, no) = (raw as u16, (raw >> 16) as u8, (raw >> 24) as u8);
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

    fn tenant(name: &str, args: [u64; 6]) -> u32 {
        run(&compile(FilterKind::Tenant), ARCH, number(name), args)
    }

    #[test]
    fn every_known_call_has_the_fate_that_the_table_gives_it() {
        let table: Table = serde_json::from_str(SOURCE).expect("parses");
        let program = compile(FilterKind::Tenant);
        for (name, known) in SYSCALLS {
            let fate = run(&program, ARCH, *known as u32, [0; 6]);
            let ruled = table.rules.iter().any(|rule| rule.call == *name);
            let answered = table.errno.iter().find(|answer| answer.call == *name);
            match answered {
                _ if ruled => {}
                Some(answer) => assert_eq!(fate, ERRNO | answer.errno, "{name}"),
                None if table.allow.iter().any(|allowed| allowed == name) => {
                    assert_eq!(fate, ALLOW, "{name}");
                }
                None => assert_eq!(fate, EPERM, "{name}"),
            }
        }
        assert!(program.len() < 400, "{} steps", program.len());
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
            let fate = tenant("socket", [family, 1, 0, 0, 0, 0]);
            let expected = if [1, 2, 10, 16].contains(&family) { ALLOW } else { EAFNOSUPPORT };
            assert_eq!(fate, expected, "family {family}");
        }
        // What libaudit takes for "no audit here"; at EPERM `useradd` gives up.
        assert_eq!(tenant("socket", [16, 3, 9, 0, 0, 0]), EAFNOSUPPORT);
        assert_eq!(tenant("socketpair", [16, 3, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn terminals_cannot_be_typed_into_whatever_the_high_half_says() {
        for call in [0x5412_u64, 0x1_0000_5412, 0x541c, 0x541d, 0x5423, 0xffff_ffff_0000_5423] {
            assert_eq!(tenant("ioctl", [0, call, 0, 0, 0, 0]), EPERM, "{call:#x}");
        }
        assert_eq!(tenant("ioctl", [0, 0x5401, 0, 0, 0, 0]), ALLOW);
        assert_eq!(tenant("personality", [0x0004_0000, 0, 0, 0, 0, 0]), EPERM);
        assert_eq!(tenant("personality", [0xffff_ffff, 0, 0, 0, 0, 0]), ALLOW);
    }

    /// Each would be compiled into memory that the whole machine shares.
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

    /// Its requests are counted for the whole host.
    #[test]
    fn e53_the_kernels_asynchronous_io_is_not_there_for_libraries_to_fall_back() {
        for name in ["io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents"] {
            assert_eq!(tenant(name, [0; 6]), ENOSYS, "{name}");
        }
        let io_pgetevents = 333;
        assert_eq!(run(&compile(FilterKind::Tenant), ARCH, io_pgetevents, [0; 6]), ENOSYS);
    }

    #[test]
    fn other_architectures_and_unknown_calls_are_refused() {
        let program = compile(FilterKind::Tenant);
        assert_eq!(run(&program, 0x4000_0003, 4, [0; 6]), KILL);
        assert_eq!(run(&program, ARCH, X32 | 1, [0; 6]), EPERM);
        assert_eq!(run(&program, ARCH, 1000, [0; 6]), ENOSYS);
    }

    #[test]
    fn the_edge_starts_nothing_writes_no_file_and_executes_no_memory() {
        let program = compile(FilterKind::Edge);
        let fate = |name: &str, args: [u64; 6]| run(&program, ARCH, number(name), args);
        let arg = |at: usize, value: u64| {
            let mut args = [0; 6];
            args[at] = value;
            args
        };
        for name in ["execve", "execveat", "fork", "vfork", "kill", "ptrace", "open", "openat2"]
            .into_iter()
            .chain(["process_vm_readv", "unlink", "mount", "setns", "unshare", "memfd_create"])
        {
            assert_eq!(fate(name, [0; 6]), EPERM, "{name}");
        }
        assert_eq!(fate("clone", arg(0, 0x3d_0f00)), ALLOW, "a thread");
        assert_eq!(fate("clone", arg(0, 17)), EPERM, "a process");
        assert_eq!(fate("clone3", [0; 6]), ENOSYS);
        assert_eq!(fate("openat", arg(2, 0o2_000_000)), ALLOW, "reading");
        for flags in [0o1, 0o2, 0o100, 0o1000, 0o2000, 0o20_200_002] {
            assert_eq!(fate("openat", arg(2, flags)), EPERM, "{flags:o}");
        }
        for family in 0..48 {
            let expected = if [2, 10].contains(&family) { ALLOW } else { EPERM };
            assert_eq!(fate("socket", arg(0, family)), expected, "family {family}");
        }
        for name in ["mmap", "mprotect"] {
            assert_eq!(fate(name, arg(2, 3)), ALLOW);
            assert_eq!(fate(name, arg(2, 5)), EPERM, "executed");
        }
        assert_eq!(fate("ioctl", arg(1, 0x5421)), ALLOW);
        assert_eq!(fate("ioctl", arg(1, 0x5412)), EPERM);
        assert_eq!(run(&program, ARCH, 1000, [0; 6]), ENOSYS);
    }

    #[test]
    fn an_agent_may_start_tenants() {
        let program = compile(FilterKind::Agent);
        for name in ["clone3", "setns", "seccomp", "read"] {
            assert_eq!(run(&program, ARCH, number(name), [0; 6]), ALLOW, "{name}");
        }
        assert_eq!(run(&program, ARCH, number("mount"), [0; 6]), EPERM);
    }
}
