//! Unmodified package managers through rules that allow only their hosts: pip, npm, git, and apt in
//! a Debian image. What they fetched works; another host is refused, and the refusal is reported.

use crate::host_names::{denied, goes, server, trusting};
use isolet_kit::docker::DockerRegistry;
use isolet_kit::image::{Image, Layer, busybox, debian};
use isolet_kit::internet::{Internet, zone};
use isolet_kit::net::{OTHER, PUBLIC};
use isolet_kit::{Options, Value, json};
use std::process::Command;

const MAKE: &str = include_str!("packages.py");

/// A simulated internet with an index of each kind and a host that no rule allows.
fn internet() -> Internet {
    let names = ["pypi.example", "files.example", "npm.example", "git.example", "deb.example"];
    let mut all: Vec<_> = names.iter().map(|name| (*name, PUBLIC)).collect();
    all.push(("evil.example", OTHER));
    let internet = Internet::new(&zone(&all));
    let made = Command::new("/usr/bin/python3").args(["-c", MAKE]).arg(internet.folder()).output();
    let made = made.expect("python3 is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    internet
}

/// Whether this host was refused and no other one.
#[track_caller]
fn only_evil(denied: &Value) {
    let list = denied.as_array().unwrap_or_else(|| panic!("{denied}"));
    assert!(
        !list.is_empty()
            && list.iter().all(|one| one["host"] == "evil.example" && one["rule"] == "default"),
        "{denied}"
    );
}

/// Checks that everything arrived under the names of these hosts, and nothing at another host.
#[track_caller]
fn came_by(internet: &Internet, hosts: &[&str]) {
    let log = internet.log();
    for line in log.iter().filter(|line| line.starts_with("web ")) {
        assert!(
            hosts.iter().any(|host| line.contains(&format!(" {host} "))
                || line.contains(&format!(" {host}:8080 "))),
            "{line}"
        );
    }
    let asked = log
        .iter()
        .filter(|line| line.starts_with("asked "))
        .all(|line| hosts.iter().any(|host| line.contains(host)));
    assert!(asked, "{log:#?}");
    let arrived = internet.arrived();
    assert!(
        !arrived.is_empty() && !arrived.iter().any(|it| it.contains(&OTHER.to_string())),
        "{arrived:?}"
    );
}

/// Promises: Q31.
#[test]
fn pip_installs_through_rules_and_another_index_is_refused_and_reported() {
    let internet = internet();
    let server = server(&internet);
    let rules = json!({"allow": ["pypi.example:443", "files.example:443"]});
    let sandbox = trusting(&internet, &server, rules, json!({}));
    let pip = "/usr/bin/python3 -m pip --disable-pip-version-check --retries 0 --timeout 60";
    let install = format!("{pip} install --break-system-packages --index-url");
    let evil = format!("{install} https://evil.example/simple/ tiny");
    only_evil(&denied(&sandbox, &evil));
    let both = format!(
        "{install} https://pypi.example/simple/ --extra-index-url https://evil.example/simple/ tiny"
    );
    let answer = sandbox.exec(&both);
    assert_eq!(answer["exit_code"], 0, "{answer}");
    only_evil(&answer["denied"]);
    let used = goes(&sandbox, "/usr/bin/python3 -c 'import tiny; print(tiny.word)'");
    assert_eq!(used, "a wheel\n");
    came_by(&internet, &["pypi.example", "files.example"]);
}

/// Promises: Q31.
#[test]
fn npm_installs_through_rules_and_another_registry_is_refused_and_reported() {
    let internet = internet();
    let server = server(&internet);
    let rules = json!({"allow": ["npm.example:443"]});
    let sandbox = trusting(&internet, &server, rules, json!({}));
    let npm = |host: &str| {
        format!(
            "npm install --registry https://{host}/ --no-audit --no-fund --no-update-notifier --fetch-retries 0 tiny"
        )
    };
    only_evil(&denied(&sandbox, &npm("evil.example")));
    goes(&sandbox, &npm("npm.example"));
    assert_eq!(goes(&sandbox, "node -p 'require(\"tiny\")'"), "a module\n");
    came_by(&internet, &["npm.example"]);
}

/// Promises: Q31.
#[test]
fn git_clones_and_fetches_through_rules_and_another_host_is_refused_and_reported() {
    let internet = internet();
    let server = server(&internet);
    let rules = json!({"allow": ["git.example:443"]});
    let sandbox = trusting(&internet, &server, rules, json!({}));
    only_evil(&denied(&sandbox, "git clone -q https://evil.example/git/tiny.git"));
    goes(&sandbox, "git clone -q https://git.example/git/tiny.git && cd tiny && git fetch -q");
    let said = goes(&sandbox, "cd tiny && git log --format=%s && wc -l <text && git fsck");
    assert_eq!(said, "2\n1\n1000\n");
    came_by(&internet, &["git.example"]);
}

/// Promises: A20.
#[test]
fn apt_installs_in_a_debian_image_through_rules() {
    let internet = internet();
    let registry = DockerRegistry::start();
    let name = registry.push("debian", &debian(&["apt", "bash"]));
    let config = format!("{}[images]\nregistries = [\"{}\"]\n", internet.config(), registry.host());
    let server = Options::new().config(&config).start();
    let rules = json!({"allow": ["deb.example"]});
    let sandbox = trusting(&internet, &server, rules, json!({"image": name}));
    let apt = "export DEBIAN_FRONTEND=noninteractive; apt-get -q -o Acquire::Retries=0 -o Acquire::https::CAInfo=$SSL_CERT_FILE";
    let list = |places: &[&str]| {
        let lines: Vec<String> =
            places.iter().map(|place| format!("deb [trusted=yes] {place} ./")).collect();
        format!(
            "printf '{}\\n' >/etc/apt/sources.list; {apt} update -o APT::Update::Error-Mode=any",
            lines.join("\\n")
        )
    };
    only_evil(&denied(&sandbox, &list(&["http://deb.example/", "https://evil.example/"])));
    // Over HTTP, as Debian's own mirrors are used, and over TLS.
    for (place, package) in
        [("http://deb.example/", "tiny-words"), ("https://deb.example/", "tiny")]
    {
        goes(&sandbox, &list(&[place]));
        goes(&sandbox, &format!("{apt} install -y --no-install-recommends {package}"));
        // What follows changes files that lie in a layer, where snapshots use them.
        asleep_and_copied(&sandbox);
    }
    assert_eq!(goes(&sandbox, "tiny"), "a package\nset up\n");
    let said = goes(
        &sandbox,
        "dpkg -l tiny tiny-words | grep -c ^ii; dpkg --audit tiny tiny-words; id -u",
    );
    assert_eq!(said, "2\n0\n");
    goes(&sandbox, &format!("{apt} purge -y tiny"));
    assert_eq!(sandbox.exec("tiny")["exit_code"], 127);
    came_by(&internet, &["deb.example"]);
    server.healthy();
}

/// The parts of Alpine's images: busybox, and programs that are linked with musl.
/// Promises: A20.
#[test]
fn an_image_of_busybox_and_musl_runs_shells_and_its_own_programs_through_rules() {
    let internet = internet();
    std::fs::create_dir(internet.folder().join("www/git.example")).expect("makes");
    std::fs::write(internet.folder().join("www/git.example/page"), "through\n").expect("writes");
    let registry = DockerRegistry::start();
    let name = registry.push("alpine", &musl(&internet));
    let config = format!("{}[images]\nregistries = [\"{}\"]\n", internet.config(), registry.host());
    let server = Options::new().config(&config).start();
    let rules = json!({"allow": ["git.example:8080"]});
    let sandbox = server.sandbox_with(&json!({"image": name, "network": rules}));
    let mut shell = sandbox.shell();
    shell.run("x=kept; echo $BASH_VERSION | cut -c1,2").is("5.\n", 0);
    // The program uses musl's own resolver, which queries both kinds of addresses.
    shell.run("fetch git.example 8080 /page").is("through\n", 0);
    let refused = sandbox.exec("fetch evil.example 8080 /page");
    assert_ne!(refused["exit_code"], 0, "{refused}");
    only_evil(&refused["denied"]);
    shell.run("echo $x; ldd /usr/bin/fetch | grep -q musl").is("kept\n", 0);
    shell.close();
    assert_eq!(sandbox.command("s", "/bin/sh -c 'echo of busybox'")["stdout"], "of busybox\n");
    came_by(&internet, &["git.example"]);
    server.healthy();
}

const FETCH: &str = r#"
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
    struct addrinfo *at, want = {.ai_socktype = SOCK_STREAM};
    if (count != 4 || getaddrinfo(words[1], words[2], &want, &at)) return 2;
    int to = socket(at->ai_family, at->ai_socktype, 0);
    if (connect(to, at->ai_addr, at->ai_addrlen)) return 3;
    dprintf(to, "GET %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n", words[3], words[1], words[2]);
    char said[9999] = {0};
    for (size_t length = 0, more; length < 9998 && (more = read(to, said + length, 9998 - length)) + 1 > 1;) length += more;
    char *body = strstr(said, "\r\n\r\n");
    if (!body || strncmp(said + 8, " 200", 4)) return 4;
    fputs(body + 4, stdout);
    return 0;
}
"#;

fn musl(internet: &Internet) -> Image {
    let source = internet.folder().join("fetch.c");
    let program = internet.folder().join("fetch");
    std::fs::write(&source, FETCH).expect("writes");
    let made = Command::new("musl-gcc").arg("-o").arg(&program).arg(&source).output();
    let made = made.expect("the package musl-tools is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let program = std::fs::read(program).expect("made");
    let loader = format!("lib/ld-musl-{}.so.1", std::env::consts::ARCH);
    let library = std::fs::read(format!("/{loader}")).expect("the package musl is installed");
    let low = busybox().link("bin/cut", "busybox").link("bin/grep", "busybox");
    let high = Layer::new()
        .directory("lib")
        .file(&loader, &library)
        .directory("usr")
        .directory("usr/bin")
        .file("usr/bin/fetch", &program)
        .link("usr/bin/ldd", &format!("/{loader}"));
    Image::new(&[low.bytes(), high.bytes()], &json!({"Env": ["PATH=/usr/bin:/bin"]}))
}

/// Package managers replace files and directories that lie in layers of snapshots.
///
/// Promises: SN1.
#[test]
fn pip_npm_and_git_change_what_lies_in_layers_of_snapshots() {
    let internet = internet();
    let server = server(&internet);
    let names = ["pypi.example:443", "files.example:443", "npm.example:443", "git.example:443"];
    let sandbox = trusting(&internet, &server, json!({"allow": names}), json!({"disk_mib": 0}));
    let pip = "/usr/bin/python3 -m pip --disable-pip-version-check --retries 0 --timeout 60 install \
               --index-url https://pypi.example/simple/ --no-cache-dir";
    let npm = "npm install --registry https://npm.example/ --no-audit --no-fund \
               --no-update-notifier --fetch-retries 0";
    goes(&sandbox, &format!("{pip} --break-system-packages tiny"));
    goes(&sandbox, &format!("{pip} --target /opt/python tiny"));
    goes(&sandbox, &format!("mkdir -p /opt/app; cd /opt/app; {npm} tiny"));
    goes(&sandbox, "cd /root; git clone -q https://git.example/git/tiny.git");
    asleep_and_copied(&sandbox);
    goes(&sandbox, &format!("{pip} --break-system-packages --force-reinstall tiny"));
    goes(&sandbox, &format!("{pip} --target /opt/python --upgrade tiny"));
    goes(&sandbox, "PYTHONPATH=/opt/python /usr/bin/python3 -c 'import tiny'");
    let pip = "/usr/bin/python3 -m pip --disable-pip-version-check";
    goes(&sandbox, &format!("{pip} uninstall -y --break-system-packages tiny"));
    goes(&sandbox, &format!("cd /opt/app; {npm} --force tiny; node -p 'require(\"tiny\")'"));
    goes(&sandbox, "cd /opt/app; rm -r node_modules");
    goes(&sandbox, &format!("cd /opt/app; {npm}; node -p 'require(\"tiny\")'"));
    goes(&sandbox, "cd /root/tiny; git fetch -q; git gc -q; git fsck; git rm -q text; git status");
}

/// Makes the changes of a sandbox a layer.
fn asleep_and_copied(sandbox: &isolet_kit::Sandbox) {
    isolet_kit::wait_until("it sleeps", isolet_kit::SOON, || {
        (sandbox.post("/sleep", &json!({})).status == 200).then_some(())
    });
    sandbox.post("/snapshots", &json!({})).expect(201);
}
