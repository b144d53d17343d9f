//! Web servers in a [`World`] that speak TLS, with certificates of an authority that the simulated
//! host trusts and no sandbox does.

use crate::net::{Background, World, background, run};
use crate::{Server, Value};
use rustix::thread::UnshareFlags;
use std::path::Path;

const SERVERS: &str = include_str!("tls.py");
/// Where the host's programs look for certificate authorities.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Web servers that report the requests that they get.
#[derive(Debug)]
pub struct Hosts {
    servers: Background,
    _folder: tempfile::TempDir,
}

/// Gives this thread a mount namespace of its own; call it before anything is started.
///
/// # Panics
/// When the namespace cannot be created.
pub fn own_mounts() {
    isolet_sys::namespaces::unshare(UnshareFlags::NEWNS).expect("mounts of its own");
    run("mount", "--make-rprivate /");
}

impl Hosts {
    /// Starts the servers: `names` on port 8443 with TLS and on 8081 without. From here on the
    /// test's host trusts their authority; `_server` must run already, so that its image does not.
    ///
    /// # Panics
    /// When a server cannot be started.
    #[must_use]
    pub fn new(world: &World, _server: &Server, names: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name).display().to_string();
        let key = at("key.pem");
        let pem = at("cert.pem");
        certificates(folder.path(), names);
        let mut bundle =
            std::fs::read_to_string(BUNDLE).expect("the host has a bundle of authorities");
        bundle.push_str(&std::fs::read_to_string(at("ca.pem")).expect("was made"));
        std::fs::write(at("bundle.pem"), bundle).expect("written");
        run("mount", &format!("--bind {} {BUNDLE}", at("bundle.pem")));
        let program = format!("import sys\nsys.argv = ['tls', {pem:?}, {key:?}]\n{SERVERS}");
        let network = world.network();
        let mut servers = background(&network, &program);
        assert_eq!(servers.line(), "ready");
        // The program has entered the namespace by now.
        drop(network);
        Self { servers, _folder: folder }
    }

    /// The next request that a server got: `{tls, host, path, at, headers}`.
    ///
    /// # Panics
    /// When the servers have ended.
    #[track_caller]
    pub fn asked(&mut self) -> Value {
        self.servers.line().parse().expect("each line is one request")
    }
}

/// Creates an authority and one of its certificates for these names.
fn certificates(folder: &Path, names: &[&str]) {
    let at = |name: &str| folder.join(name).display().to_string();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    let ca = at("ca.pem");
    let ca_key = at("ca.key");
    run("openssl", &format!("req -x509 {key} -keyout {ca_key} -out {ca} -subj /CN=world"));
    let spec = at("request.pem");
    let made = at("key.pem");
    run("openssl", &format!("req {key} -keyout {made} -out {spec} -subj /CN=hosts"));
    let all: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let words = format!("subjectAltName={}\nextendedKeyUsage=serverAuth\n", all.join(","));
    std::fs::write(at("words"), words).expect("written");
    let by = format!("-CA {ca} -CAkey {ca_key} -CAcreateserial -extfile {}", at("words"));
    run("openssl", &format!("x509 -req -in {spec} {by} -out {} -days 2", at("cert.pem")));
}
