//! A sandbox is created in the network namespace of its veth pair, over which it has no privileges.

use crate::fixture::{VethFixture, policy};
use isolet_jail::{Launcher, SandboxHandle};
use isolet_kit::net::{self, HOST, PUBLIC};
use isolet_wire::launcher::{Limits, Spec};
use std::os::fd::AsFd as _;
use std::time::Duration;

/// Promises: Q9.
#[test]
fn a_sandbox_is_created_in_the_network_of_its_veth_without_privileges_over_it() {
    let mut fixture = VethFixture::new();
    fixture.config.agent = isolet_kit::programs().join("isolet-agent");
    for name in ["sandboxes", "trash"] {
        std::fs::create_dir(fixture.config.data_dir.join(name)).expect("a directory");
    }
    let mut launcher = Launcher::start(&fixture.config).expect("it starts");
    let (_, network) = fixture.claim(&["*"], &[]);
    let limits = Limits { memory_mib: 256, cpu_millis: 1000, pids: 64, disk_mib: 0 };
    let spec = |name: &str| Spec {
        name: name.to_owned(),
        slot: u32::try_from(name.len()).expect("short"),
        hostname: "sandbox".to_owned(),
        limits,
        root: None,
        directory_exists: false,
        has_veth: false,
        id_base: None,
        snapshot_layers: Vec::new(),
    };
    let descriptors = format!("/proc/{}/fd", launcher.pid());
    let open_in_launcher = || std::fs::read_dir(&descriptors).expect("the process runs").count();
    let open_before = open_in_launcher();
    let pid = launcher.launch(&spec("a"), Some(network.as_fd())).expect("it is made");
    let place =
        |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("the process runs");
    let own =
        std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&network)));
    assert_eq!(place(pid), own.expect("a namespace"));
    // As root of the sandbox's user namespace, which has more privileges than any process inside.
    let inside = |text: &str| {
        let words = format!("-t {pid} -U -n --preserve-credentials -- sh -c");
        let mut command = std::process::Command::new("nsenter");
        command.args(words.split(' ')).arg(text).output().expect("nsenter is there")
    };
    for forbidden in
        ["ip link set eth0 down", "ip addr add 10.231.0.9/32 dev eth0", "nft list ruleset"]
    {
        assert!(!inside(forbidden).status.success(), "{forbidden}");
    }
    let reach = format!("exec 3<>/dev/tcp/{PUBLIC}/80; head -n 1 <&3");
    let said = std::process::Command::new("nsenter")
        .args(["-t", &pid.to_string(), "-n", "bash", "-c", &reach])
        .output()
        .expect("nsenter is there");
    assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{HOST} {PUBLIC}\n"));
    // Without a pair a sandbox has only loopback: the launcher is back in its own namespace.
    let alone = launcher.launch(&spec("bc"), None).expect("it is made");
    assert_ne!(place(alone), place(pid));
    // The launcher once left the directory of each sandbox open.
    assert_eq!(open_in_launcher(), open_before, "the launcher has no descriptor of a sandbox open");
    assert_eq!(net::run("nsenter", &format!("-t {alone} -n ip -o link")).lines().count(), 1);
    // A running sandbox gets a pair.
    let netns = std::fs::File::open(format!("/proc/{alone}/ns/net")).expect("the process runs");
    let veth = fixture.client.attach("bc", &policy(&["*"], &[]), netns.as_fd()).expect("a pair");
    assert_eq!(veth.name, "bc");
    drop((network, netns));
    for name in ["a", "bc"] {
        let sandbox = SandboxHandle::open(&fixture.config, name);
        sandbox.kill().expect("killed");
        assert!(sandbox.wait_empty(Duration::from_secs(20)));
        sandbox.remove().expect("removed");
    }
    for _ in 0..2 {
        fixture.wait(|event| matches!(event, isolet_jail::VethEvent::Gone { .. }));
    }
}
