//! Sandboxes that are made before anybody asks for them: with a way out, and of an image.

use isolet_kit::image::{Image, Registry, busybox};
use isolet_kit::{
    Options, SOON, Sandbox, Server, Value, json,
    net::{self, PUBLIC, World},
    process, wait_until,
};

/// The network namespace of a process, as the kernel names it.
fn space(pid: impl std::fmt::Display) -> String {
    let link = std::fs::read_link(format!("/proc/{pid}/ns/net"));
    link.map(|link| link.display().to_string()).unwrap_or_default()
}

/// Whether it has a link.
fn linked(pid: i32) -> bool {
    let words = ["-t", &pid.to_string(), "-n", "ip", "-o", "link"];
    let output = std::process::Command::new("nsenter").args(words).output().expect("nsenter");
    String::from_utf8_lossy(&output.stdout).contains("eth0")
}

/// The one that waits with a link, where no sandbox stands.
fn waiting(server: &Server) -> i32 {
    wait_until("one with a link waits beside a plain one", SOON, || {
        let agents = server.agents();
        let all: Vec<i32> = agents.iter().copied().filter(|pid| linked(*pid)).collect();
        (agents.len() == 2 && all.len() == 1).then(|| all[0])
    })
}

/// A server of which somebody has asked for a sandbox with a way out.
fn asked() -> Server {
    let server = Options::new().ready(1).others(1).start();
    let first = server.sandbox_with(&rules());
    assert!(fetched(&first, 80).contains(&PUBLIC.to_string()));
    first.delete();
    server
}

fn rules() -> Value {
    json!({"network": {"allow": [format!("{PUBLIC}:80")]}})
}

fn fetch(port: u16) -> String {
    format!("timeout 5 cat </dev/tcp/{PUBLIC}/{port}")
}

fn fetched(sandbox: &Sandbox, port: u16) -> String {
    let told = sandbox.exec(&fetch(port));
    told["stdout"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn one_with_a_way_out_is_made_ahead_closed_and_has_its_rules_when_it_is_taken() {
    let _world = World::new();
    let server = asked();
    for network in [rules(), json!({"network": "open"})] {
        let agent = waiting(&server);
        let words = ["-t", &agent.to_string(), "-n", "bash", "-c", &fetch(80)];
        let output = std::process::Command::new("nsenter").args(words).output().expect("nsenter");
        assert!(!output.status.success() && output.stdout.is_empty(), "nothing leaves: {output:?}");
        let sandbox = server.sandbox_with(&network);
        let inside = sandbox.says("readlink /proc/self/ns/net");
        assert_eq!(inside.trim_end(), space(agent), "it is the one that waited");
        assert!(fetched(&sandbox, 80).contains(&PUBLIC.to_string()));
        let open = network["network"] == "open";
        assert_eq!(fetched(&sandbox, 443).contains(&PUBLIC.to_string()), open, "{network}");
        sandbox.delete();
    }
    let plain = server.sandbox();
    assert_eq!(fetched(&plain, 80), "", "who asks for no way out has none");
}

#[test]
fn one_whose_link_is_gone_is_not_handed_out() {
    let _world = World::new();
    let mut server = asked();
    let agent = waiting(&server);
    net::run("nsenter", &format!("-t {agent} -n ip link del eth0"));
    wait_until("another waits", SOON, || (waiting(&server) != agent).then_some(()));
    let agent = waiting(&server);
    process::kill(links(&server));
    let sandbox = server.sandbox_with(&rules());
    assert!(fetched(&sandbox, 80).contains(&PUBLIC.to_string()));
    assert_eq!(fetched(&sandbox, 443), "");
    sandbox.delete();
    // Also where it was taken in the moment before that was known, and given another link.
    wait_until("what had lost its link is gone", SOON, || {
        (!server.agents().contains(&agent)).then_some(())
    });
    // What a killed server had made is nobody's.
    let agent = waiting(&server);
    server.restart();
    assert!(!server.agents().contains(&agent));
    let sandbox = server.sandbox_with(&rules());
    assert!(fetched(&sandbox, 80).contains(&PUBLIC.to_string()));
    sandbox.delete();
    waiting(&server);
    server.stop();
    assert_eq!(server.agents(), Vec::<i32>::new());
    wait_until("no link is left", SOON, || net::links("isolet0").is_empty().then_some(()));
}

/// The process that owns links of this test's world.
fn links(server: &Server) -> i32 {
    let data = server.data().display().to_string();
    let owns = |pid: &i32| {
        let arguments = process::arguments(*pid);
        arguments.contains("--links") && arguments.contains(&data)
    };
    wait_until("somebody owns links", SOON, || process::all().into_iter().find(owns))
}

#[test]
fn one_of_an_image_is_made_ahead_and_keeps_no_image_from_being_removed() {
    let registry = Registry::start();
    let image = Image::new(&[busybox().file("own", b"kept\n").bytes()], &json!({}));
    let name = registry.has("app", image);
    let config = format!("[images]\nregistries = [\"{}\"]\n", registry.host());
    let server = Options::new().ready(1).others(1).config(&config).start();
    let wish = json!({"image": name});
    server.sandbox_with(&wish).delete();
    let ready = |count: usize| {
        wait_until("as many wait", SOON, || {
            let agents = server.agents();
            (agents.len() == count).then_some(agents)
        })
    };
    let waited: Vec<String> = ready(2).into_iter().map(space).collect();
    let sandbox = server.sandbox_with(&wish);
    assert_eq!(sandbox.says("cat /own; echo $(pwd)"), "kept\n/workspace\n");
    let inside = sandbox.says("readlink /proc/self/ns/net");
    assert!(waited.contains(&inside.trim_end().to_owned()), "it is one that waited");
    let path = format!("/v1/images/{name}");
    assert_eq!(server.http().delete(&path).expect(409).error(), "image_in_use");
    assert_eq!(sandbox.says("cat /own"), "kept\n");
    sandbox.delete();
    server.sandbox_with(&wish).delete();
    ready(2);
    server.http().delete(&path).expect(204);
    let layers = server.data().join("images/layers");
    let left: Vec<_> = std::fs::read_dir(layers).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    ready(1);
    // Nothing of an image is made ahead again before somebody asks.
    server.sandbox_with(&wish).delete();
    ready(2);
}
