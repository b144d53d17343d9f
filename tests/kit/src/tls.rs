//! Web servers of a [`World`] that speak TLS, with certificates of an authority that "the host"
//! trusts and no sandbox does.

use crate::net::{Background, World, background, run};
use crate::{Server, Value};
use rustix::thread::UnshareFlags;
use std::path::Path;

const SERVERS: &str = include_str!("tls.py");
/// Where the host's programs look for authorities.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Hosts that say what they were asked.
#[derive(Debug)]
pub struct Hosts {
    servers: Background,
    _folder: tempfile::TempDir,
}

/// Leaves the machine's mounts for a host's own: before anything is started.
///
/// # Panics
/// When that cannot be.
pub fn own_mounts() {
    isolet_sys::namespaces::unshare(UnshareFlags::NEWNS).expect("mounts of its own");
    run("mount", "--make-rprivate /");
}

impl Hosts {
    /// Starts them: `names` on 8443 with TLS and on 8081 without. The host of this test trusts
    /// them from here on; `_server` runs by now, so that its image does not.
    ///
    /// # Panics
    /// When one cannot be started.
    #[must_use]
    pub fn new(world: &World, _server: &Server, names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let key = at("key.pem");
        let pem = at("cert.pem");
        certificates(folder.path(), names);
        let mut bundle = std::fs::read_to_string(BUNDLE).expect("the host trusts somebody");
        bundle.push_str(&std::fs::read_to_string(at("ca.pem")).expect("was made"));
        std::fs::write(at("bundle.pem"), bundle).expect("written");
        run("mount", &format!("--bind {} {BUNDLE}", at("bundle.pem")));
        let program = format!("import sys\nsys.argv = ['tls', {pem:?}, {key:?}]\n{SERVERS}");
        let network = world.network();
        let mut servers = background(&network, &program);
        assert_eq!(servers.line(), "ready");
        // It has entered by now.
        drop(network);
        Self { servers, _folder: folder }
    }

    /// What a host was asked next: `{tls, host, path, at, headers}`.
    ///
    /// # Panics
    /// When they have ended.
    #[track_caller]
    pub fn asked(&mut self) -> Value {
        self.servers.line().parse().expect("each line is one request")
    }
}

/// An authority, and a certificate of it for these names.
fn certificates(folder: &Path, names: &[&str]) {
    let at = |name: &str| folder.join(name).display().to_string();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let (ca, ca_key) = (at("ca.pem"), at("ca.key"));
    run("openssl", &format!("req -x509 {key} -keyout {ca_key} -out {ca} -subj /CN=world"));
    let wish = at("wish.pem");
    let made = at("key.pem");
    run("openssl", &format!("req {key} -keyout {made} -out {wish} -subj /CN=hosts"));
    let all: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let words = format!("subjectAltName={}\nextendedKeyUsage=serverAuth\n", all.join(","));
    std::fs::write(at("words"), words).expect("written");
    let by = format!("-CA {ca} -CAkey {ca_key} -CAcreateserial -extfile {}", at("words"));
    run("openssl", &format!("x509 -req -in {wish} {by} -out {} -days 2", at("cert.pem")));
}
