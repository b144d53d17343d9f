//! A private network for one test: one network namespace plays the host, another the internet. What
//! a test does to interfaces, rules and forwarding affects nothing else.

use crate::{SOON, wait_until};
use rustix::thread::UnshareFlags;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// The host's public address.
pub const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The address of a public host.
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// The address of another public host.
pub const OTHER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 20);
/// An address in the host's private network.
pub const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
/// The metadata address of cloud providers.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

const HELLO: &str = include_str!("world.py");

/// The private network; dropping it removes it.
#[derive(Debug)]
pub struct World {
    internet: Child,
    _open: Option<ChildStdin>,
}

impl World {
    /// Moves this thread into a network namespace that plays the host and connects it to another
    /// that plays the internet. Every process that this thread starts afterwards runs there.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn new() -> Self {
        Self::running(HELLO, &[])
    }

    /// Like [`World::new`], with another program and its arguments as the internet. The program
    /// prints `ready` once it serves, and ends when its standard input closes.
    ///
    /// # Panics
    /// When a part cannot be created.
    #[must_use]
    pub fn running(program: &str, words: &[&str]) -> Self {
        isolet_sys::namespaces::unshare(UnshareFlags::NEWNET).expect("a network namespace");
        isolet_sys::loopback::bring_up().expect("loopback");
        let mut internet = Command::new("unshare")
            .args(["--net", "--", "python3", "-c", program])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare and python3 are there");
        let open = internet.stdin.take();
        let mut line = String::new();
        let output = internet.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("it prints a line");
        assert_eq!(line, "ready\n");
        let pid = internet.id();
        ip(&format!("link add wan type veth peer name eth0 netns {pid}"));
        ip("link set wan up");
        ip(&format!("addr add {HOST}/24 dev wan"));
        let there = |what: &str| {
            run("nsenter", &format!("-t {pid} -n ip {what}"));
        };
        there("link set lo up");
        there("link set eth0 up");
        for address in [PUBLIC, OTHER, PRIVATE, METADATA] {
            there(&format!("addr add {address}/32 dev eth0"));
            if address != OTHER {
                ip(&format!("route add {address} dev wan"));
            }
        }
        there(&format!("route add {HOST} dev eth0"));
        Self { internet, _open: open }
    }

    /// The network namespace of the internet.
    ///
    /// # Panics
    /// When its process has ended.
    #[must_use]
    pub fn network(&self) -> std::os::fd::OwnedFd {
        let path = format!("/proc/{}/ns/net", self.internet.id());
        std::fs::File::open(path).expect("it runs").into()
    }

    /// Runs a command line in the internet's namespace.
    #[track_caller]
    pub fn there(&self, command: &str) {
        drop(self.says(command));
    }

    /// Runs a command line in the internet's namespace and returns its output.
    #[track_caller]
    #[must_use]
    pub fn says(&self, command: &str) -> String {
        run("nsenter", &format!("-t {} -n {command}", self.internet.id()))
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.internet.kill();
        let _ = self.internet.wait();
    }
}

/// Runs `ip` in the host's namespace.
///
/// # Panics
/// When the command fails.
#[track_caller]
pub fn ip(words: &str) {
    run("ip", words);
}

/// Applies an nftables ruleset in the host's namespace.
///
/// # Panics
/// When nft refuses the ruleset.
#[track_caller]
pub fn nft(text: &str) {
    let output = Command::new("nft").arg(text).output().expect("nft is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {errors}");
}

/// Runs a program and returns its output.
///
/// # Panics
/// When the program fails.
#[track_caller]
pub fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split(' ')).output().expect(program);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The network interfaces of the host's namespace whose lines contain `part`.
#[must_use]
pub fn links(part: &str) -> Vec<String> {
    let all = run("ip", "-o link");
    all.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// Runs a program in the network namespace of a descriptor and returns its output.
///
/// # Panics
/// When the program fails.
#[track_caller]
pub fn inside(network: &impl std::os::fd::AsFd, program: &str, words: &str) -> String {
    let place = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_fd().as_raw_fd());
    run("nsenter", &format!("{place} {program} {words}"))
}

/// Runs a Python program to its end in the network namespace of a descriptor.
///
/// # Panics
/// When it cannot be started.
pub fn python(network: &impl std::os::fd::AsFd, program: &str) -> Output {
    let place = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_fd().as_raw_fd());
    let mut command = Command::new("nsenter");
    command.args([&place, "timeout", "60", "python3", "-c", program]);
    command.stdin(Stdio::null()).output().expect("nsenter is there")
}

/// Starts a Python program in the network namespace of a descriptor; its output can be read by
/// lines.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn background(network: &impl std::os::fd::AsFd, program: &str) -> Background {
    let place = format!("--net=/proc/{}/fd/{}", std::process::id(), network.as_fd().as_raw_fd());
    let mut command = Command::new("nsenter");
    command.args([&place, "python3", "-u", "-c", program]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("nsenter is there");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    Background { child, lines }
}

/// A running Python program, killed on drop.
#[derive(Debug)]
pub struct Background {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Background {
    /// Reads the next line of output; empty at the end.
    ///
    /// # Panics
    /// When the output cannot be read.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("reads");
        line.trim_end().to_owned()
    }

    /// Waits until the program has ended.
    pub fn end(&mut self) {
        wait_until("the program ends", SOON, || self.child.try_wait().expect("its child"));
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
