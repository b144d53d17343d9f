//! An S3 server (moto) in a network namespace.

use crate::addresses::{STORE, STORE_PORT};
use crate::namespace::NetworkNamespace;
use crate::switch::Switch;
use isolet_kit::s3::{self, BUCKET};
use isolet_kit::{SOON, wait_until};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

/// A running S3 server. It ends when it is dropped, and its objects are lost.
#[derive(Debug)]
pub struct ObjectStore {
    network: NetworkNamespace,
    child: Child,
}

impl ObjectStore {
    /// Starts the server, and waits until its bucket exists. Call it in the clients' namespace.
    ///
    /// # Panics
    /// When moto is not installed (`make clients`), or does not start.
    #[must_use]
    pub fn start(switch: &Switch) -> Self {
        let network = switch.attach(STORE);
        let mut command = network.command(s3::program());
        command
            .args(["-H", &STORE.to_string(), "-p", &STORE_PORT.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("nsenter is there");
        let store = Self { network, child };
        let path = format!("/{BUCKET}");
        wait_until("the bucket exists", SOON, || s3::request(Self::address(), "PUT", &path));
        store
    }

    /// Where it listens.
    #[must_use]
    pub fn address() -> SocketAddr {
        SocketAddr::from((STORE, STORE_PORT))
    }

    /// The keys of all objects, without those after the first 1,000. Call it in the clients' namespace.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let list = s3::request(Self::address(), "GET", &format!("/{BUCKET}?list-type=2"));
        s3::keys(&list.expect("a list"))
    }

    /// The network namespace of the server.
    #[must_use]
    pub fn network(&self) -> &NetworkNamespace {
        &self.network
    }

    /// The table `[store]` of a node's configuration. Nodes with the same folder need the same key file.
    #[must_use]
    pub fn config(key_file: &Path, folder: &str) -> String {
        format!(
            "[store]\nurl = \"s3://{BUCKET}/{folder}\"\nkey_file = \"{}\"\n[store.options]\n\
             endpoint = \"http://{}\"\nregion = \"us-east-1\"\nallow_http = \"true\"\n",
            key_file.display(),
            Self::address()
        )
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
