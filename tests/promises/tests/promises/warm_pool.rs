//! The warm pool: sandboxes created in advance, with egress and from an image.

use isolet_kit::image::{Image, Registry, busybox};
use isolet_kit::net::{self, PUBLIC, World};
use isolet_kit::{Options, SOON, Sandbox, Server, Value, json, process, wait_until};

/// The network namespace of a process, as the kernel names it.
fn network_namespace(pid: impl std::fmt::Display) -> String {
    let target = std::fs::read_link(format!("/proc/{pid}/ns/net"));
    target.map(|target| target.display().to_string()).unwrap_or_default()
}

/// Whether it has a veth interface.
fn has_veth(pid: i32) -> bool {
    let words = ["-t", &pid.to_string(), "-n", "ip", "-o", "link"];
    let output = std::process::Command::new("nsenter").args(words).output().expect("nsenter");
    String::from_utf8_lossy(&output.stdout).contains("eth0")
}

/// The agent of the warm sandbox with a veth pair, when there is no other sandbox.
fn waiting(server: &Server) -> i32 {
    wait_until("the warm pool holds one with a veth pair and a plain one", SOON, || {
        let agents = server.agents();
        let all: Vec<i32> = agents.iter().copied().filter(|pid| has_veth(*pid)).collect();
        (agents.len() == 2 && all.len() == 1).then(|| all[0])
    })
}

/// A server that has had a request for a sandbox with egress.
fn asked() -> Server {
    let server = Options::new().warm_pool(1).other_kinds(1).start();
    let first = server.sandbox_with(&rules());
    assert!(fetched(&first, 80).contains(&PUBLIC.to_string()));
    server.delete_with_agent(&first);
    server
}

fn rules() -> Value {
    json!({"network": {"allow": [format!("{PUBLIC}:80")]}})
}

/// A command that prints the answer of a server in the simulated network, or ends after this time.
fn fetch(port: u16, seconds: u64) -> String {
    format!("timeout {seconds} cat </dev/tcp/{PUBLIC}/{port}")
}

/// The answer of the server, which is reached on port 80.
fn fetched(sandbox: &Sandbox, port: u16) -> String {
    fetched_within(sandbox, port, if port == 80 { 60 } else { 5 })
}

fn fetched_within(sandbox: &Sandbox, port: u16, seconds: u64) -> String {
    let answer = sandbox.exec(&fetch(port, seconds));
    answer["stdout"].as_str().unwrap_or_default().to_owned()
}

/// Promises: Q24.
#[test]
fn the_warm_pool_holds_closed_sandboxes_with_egress_that_get_their_rules_when_taken() {
    let _world = World::new();
    let server = asked();
    for network in [rules(), json!({"network": "open"})] {
        let agent = waiting(&server);
        let words = ["-t", &agent.to_string(), "-n", "bash", "-c", &fetch(80, 5)];
        let output = std::process::Command::new("nsenter").args(words).output().expect("nsenter");
        assert!(!output.status.success() && output.stdout.is_empty(), "nothing leaves: {output:?}");
        let sandbox = server.sandbox_with(&network);
        let inside = sandbox.says("readlink /proc/self/ns/net");
        assert_eq!(inside.trim_end(), network_namespace(agent), "it is the one from the warm pool");
        assert!(fetched(&sandbox, 80).contains(&PUBLIC.to_string()));
        let open = network["network"] == "open";
        let reached = fetched_within(&sandbox, 443, if open { 60 } else { 5 });
        assert_eq!(reached.contains(&PUBLIC.to_string()), open, "{network}");
        server.delete_with_agent(&sandbox);
    }
    let plain = server.sandbox();
    assert_eq!(
        fetched_within(&plain, 80, 5),
        "",
        "a sandbox without a network setting has no egress"
    );
}

/// Promises: Q24.
#[test]
fn a_warm_sandbox_whose_veth_pair_is_gone_is_not_handed_out() {
    let _world = World::new();
    let mut server = asked();
    let agent = waiting(&server);
    net::run("nsenter", &format!("-t {agent} -n ip link del eth0"));
    wait_until("the warm pool holds another", SOON, || (waiting(&server) != agent).then_some(()));
    let agent = waiting(&server);
    process::kill(veth_manager(&server));
    // A create that meets the loss itself is refused, and says that it can be repeated.
    let created = wait_until("it is created", SOON, || {
        let reply = server.http().post("/v1/sandboxes", &rules());
        assert!(reply.status == 201 || reply.error() == "network_lost", "{}", reply.text());
        (reply.status == 201).then(|| reply.json())
    });
    let sandbox = server.named(created["id"].as_str().expect("text"));
    assert!(fetched(&sandbox, 80).contains(&PUBLIC.to_string()));
    assert_eq!(fetched(&sandbox, 443), "");
    sandbox.delete();
    // This includes a sandbox that was handed out just before the loss was detected and got a new
    // veth pair.
    wait_until("the sandbox without a veth pair is gone", SOON, || {
        (!server.agents().contains(&agent)).then_some(())
    });
    // The warm sandboxes of a killed server are not used.
    let agent = waiting(&server);
    server.restart();
    assert!(!server.agents().contains(&agent));
    let sandbox = server.sandbox_with(&rules());
    assert!(fetched(&sandbox, 80).contains(&PUBLIC.to_string()));
    sandbox.delete();
    waiting(&server);
    server.stop();
    assert_eq!(server.agents(), Vec::<i32>::new());
    wait_until("no veth interface is left", SOON, || {
        net::links("isolet0").is_empty().then_some(())
    });
}

/// The veth manager of this test.
fn veth_manager(server: &Server) -> i32 {
    let data = server.data().display().to_string();
    let owns = |pid: &i32| {
        let arguments = process::arguments(*pid);
        arguments.contains("--veth") && arguments.contains(&data)
    };
    wait_until("the veth manager runs", SOON, || process::all().into_iter().find(owns))
}

/// Promises: A12.
#[test]
fn the_warm_pool_holds_sandboxes_of_an_image_without_preventing_its_removal() {
    let registry = Registry::start();
    let image = Image::new(&[busybox().file("own", b"kept\n").bytes()], &json!({}));
    let name = registry.has("app", image);
    let config = format!("[images]\nregistries = [\"{}\"]\n", registry.host());
    let server = Options::new().warm_pool(1).other_kinds(1).config(&config).start();
    let spec = json!({"image": name});
    server.delete_with_agent(&server.sandbox_with(&spec));
    let warm = |count: usize| {
        wait_until("the warm pool is full again", SOON, || {
            let agents = server.agents();
            (agents.len() == count).then_some(agents)
        })
    };
    let waited: Vec<String> = warm(2).into_iter().map(network_namespace).collect();
    let sandbox = server.sandbox_with(&spec);
    assert_eq!(sandbox.says("cat /own; echo $(pwd)"), "kept\n/workspace\n");
    let inside = sandbox.says("readlink /proc/self/ns/net");
    assert!(waited.contains(&inside.trim_end().to_owned()), "it comes from the warm pool");
    let path = format!("/v1/images/{name}");
    assert_eq!(server.http().delete(&path).expect(409).error(), "image_in_use");
    assert_eq!(sandbox.says("cat /own"), "kept\n");
    server.delete_with_agent(&sandbox);
    server.delete_with_agent(&server.sandbox_with(&spec));
    warm(2);
    server.http().delete(&path).expect(204);
    let layers = server.data().join("images/layers");
    let left: Vec<_> = std::fs::read_dir(layers).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    warm(1);
    // The warm pool holds no sandbox of an image before the next request for one.
    server.delete_with_agent(&server.sandbox_with(&spec));
    warm(2);
}
