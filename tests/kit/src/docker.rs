//! Runs Debian's `docker-registry`: without authentication, with passwords, or with TLS.

use crate::{Http, SOON, free_port, image, json, wait_until};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Media type of an OCI image index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A running registry; it is killed when dropped.
pub struct DockerRegistry {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl DockerRegistry {
    /// Starts a registry on a free port of 127.0.0.1, without authentication.
    ///
    /// # Panics
    /// When the package `docker-registry` is not installed.
    #[must_use]
    pub fn start() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let folder = tempfile::tempdir().expect("a directory");
        let child = serve(folder.path(), address, "", "");
        Self { child, folder, address }
    }

    /// Restarts the registry on the same data at `address`. `more` is appended to its
    /// configuration, and `http` to the section `http`.
    pub fn restart_at(&mut self, address: SocketAddr, more: &str, http: &str) {
        self.end();
        self.address = address;
        self.child = serve(self.folder.path(), address, more, http);
    }

    /// Restarts the registry at its address with password authentication; `lines` is an `htpasswd`
    /// file.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn ask_for_passwords(&mut self, lines: &str) {
        let path = self.folder().join("htpasswd");
        fs::write(&path, lines).expect("writes");
        let at = path.display();
        let more = format!("auth:\n  htpasswd:\n    realm: test\n    path: {at}\n");
        self.restart_at(self.address, &more, "");
    }

    /// The address on which the registry listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Host and port, as an image name begins.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The directory in which the registry stores its files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Pushes an image over the registry's API and returns its full name.
    ///
    /// # Panics
    /// When the registry refuses the image.
    pub fn push(&self, name: &str, image: &image::Image) -> String {
        let http = Http::new(self.address.port(), None);
        for (digest, bytes) in &image.blobs {
            let begun = http.send("POST", &format!("/v2/{name}/blobs/uploads/"), Some(b""));
            let begun = begun.expect(202);
            let place = begun.header("location").expect("a place").to_owned();
            let place = place.split_once(&self.host()).map_or(place.as_str(), |(_, path)| path);
            let to = format!("{place}&digest={digest}");
            let typed = http.with("content-type", "application/octet-stream");
            typed.send("PUT", &to, Some(bytes)).expect(201);
        }
        self.tag(name, image::MANIFEST, &image.manifest)
    }

    /// Pushes one image for each platform (a Linux `architecture`) under one name.
    ///
    /// # Panics
    /// When the registry refuses an image.
    pub fn push_index(&self, name: &str, all: &[(&str, &image::Image)]) -> String {
        let entry = |(architecture, one): &(&str, &image::Image)| {
            self.push(name, one);
            json!({"mediaType": image::MANIFEST, "digest": one.digest, "size": one.manifest.len(),
                "platform": {"os": "linux", "architecture": architecture}})
        };
        let manifests: Vec<_> = all.iter().map(entry).collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        self.tag(name, INDEX, index.to_string().as_bytes())
    }

    fn tag(&self, name: &str, kind: &str, manifest: &[u8]) -> String {
        let http = Http::new(self.address.port(), None).with("content-type", kind);
        http.send("PUT", &format!("/v2/{name}/manifests/1"), Some(manifest)).expect(201);
        format!("{}/{name}:1", self.host())
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(folder: &Path, address: SocketAddr, more: &str, http: &str) -> Child {
    let at = folder.display();
    let config = format!(
        "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {at}/data\nhttp:\n  addr: {address}\n{http}{more}"
    );
    let path = folder.join("config.yml");
    fs::write(&path, config).expect("writes");
    let mut command = Command::new("docker-registry");
    command.arg("serve").arg(&path).stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn();
    let child = child.expect("the package docker-registry is installed");
    wait_until("the registry listens", SOON, || TcpStream::connect(address).ok());
    child
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        self.end();
    }
}
