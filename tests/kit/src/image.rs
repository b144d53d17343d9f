//! Builds images, and runs a registry that misbehaves on command.

use crate::{Value, json};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
pub use tar::EntryType;
use tar::{Builder, Header};

/// A layer under construction.
pub struct Layer(Builder<Vec<u8>>);

impl Default for Layer {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer {
    /// Creates an empty layer.
    #[must_use]
    pub fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    /// Adds an entry exactly as given, including entries that no archiver would write.
    #[must_use]
    pub fn entry(
        mut self,
        kind: EntryType,
        path: &str,
        link: &str,
        mode: u32,
        bytes: &[u8],
    ) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..path.len().min(100)]
            .copy_from_slice(&path.as_bytes()[..path.len().min(100)]);
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_600_000_000);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        self.0.append(&header, bytes).expect("appends");
        self
    }

    /// Adds an empty directory to the layer.
    #[must_use]
    pub fn directory(self, path: &str) -> Self {
        self.entry(EntryType::Directory, path, "", 0o755, b"")
    }

    /// Adds an executable file.
    #[must_use]
    pub fn file(self, path: &str, bytes: &[u8]) -> Self {
        self.entry(EntryType::Regular, path, "", 0o755, bytes)
    }

    /// Adds a symbolic link at `path` that points to `to`.
    #[must_use]
    pub fn link(self, path: &str, to: &str) -> Self {
        self.entry(EntryType::Symlink, path, to, 0o777, b"")
    }

    /// The layer as a tar archive.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.0.into_inner().expect("finishes")
    }
}

/// Busybox with its usual applet names: a small userland without bash.
#[must_use]
pub fn busybox() -> Layer {
    let program = fs::read("/bin/busybox").expect("the package busybox-static is installed");
    let mut layer = Layer::new().directory("bin").file("bin/busybox", &program);
    for name in [
        "sh", "cat", "ls", "id", "echo", "stat", "pwd", "env", "sleep", "readlink", "mkdir", "test",
    ] {
        layer = layer.link(&format!("bin/{name}"), "busybox");
    }
    layer
}

/// Builds an image from these Debian packages and their dependencies, as they are installed on this
/// machine.
///
/// # Panics
/// When one of the packages is not installed.
#[must_use]
pub fn debian(packages: &[&str]) -> Image {
    let folder = tempfile::tempdir().expect("a directory");
    let mut make = Command::new("/usr/bin/python3");
    make.args(["-c", include_str!("debian.py")]).arg(folder.path()).args(packages);
    let made = make.output().expect("python3 is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let whole = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    let layer = fs::read(folder.path().join("layer.tar.gz")).expect("made");
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    Image::of_blobs(vec![layer], vec![whole], &json!({"Env": [path], "Cmd": ["bash"]}))
}

/// An image: its blobs by digest, and its manifest.
#[derive(Debug, Clone)]
pub struct Image {
    /// The blobs by digest, `sha256:…`.
    pub blobs: HashMap<String, Vec<u8>>,
    /// Digest of the manifest.
    pub digest: String,
    /// The manifest as JSON bytes.
    pub manifest: Vec<u8>,
}

/// The digest of `bytes` in the form `sha256:…`.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// Media type of an OCI image manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

impl Image {
    /// Builds an image from layers, the lowest one first, and settings (`Env`, `User`, …).
    #[must_use]
    pub fn new(layers: &[Vec<u8>], settings: &Value) -> Self {
        let zipped = |layer: &Vec<u8>| {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
            gzip.write_all(layer).expect("compresses");
            gzip.finish().expect("compresses")
        };
        let diff_ids = layers.iter().map(|layer| digest(layer)).collect();
        Self::of_blobs(layers.iter().map(zipped).collect(), diff_ids, settings)
    }

    /// The same image, marked as built for another architecture.
    ///
    /// # Panics
    /// When the image has no configuration.
    #[must_use]
    pub fn on(&self, architecture: &str) -> Self {
        let manifest: Value = serde_json::from_slice(&self.manifest).expect("a manifest");
        let digests = manifest["layers"].as_array().expect("layers").iter();
        let layers = digests.map(|one| self.blobs[one["digest"].as_str().expect("text")].clone());
        let config = &self.blobs[manifest["config"]["digest"].as_str().expect("text")];
        let mut config: Value = serde_json::from_slice(config).expect("a configuration");
        config["architecture"] = json!(architecture);
        Self::assembled(layers.collect(), &config)
    }

    /// Builds an image from layer blobs that are used unchanged and the digests that the
    /// configuration claims for their unpacked content.
    #[must_use]
    pub fn of_blobs(layers: Vec<Vec<u8>>, diff_ids: Vec<String>, settings: &Value) -> Self {
        let config = json!({
            "os": "linux", "architecture": "amd64", "config": settings,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        Self::assembled(layers, &config)
    }

    fn assembled(layers: Vec<Vec<u8>>, config: &Value) -> Self {
        let config = config.to_string().into_bytes();
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()});
        let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
        let parts: Vec<Value> = layers.iter().map(|layer| part(kind, layer)).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("application/vnd.oci.image.config.v1+json", &config), "layers": parts,
        });
        let manifest = manifest.to_string().into_bytes();
        let all = layers.into_iter().chain([config]);
        let blobs = all.map(|blob| (digest(&blob), blob)).collect();
        Self { blobs, digest: digest(&manifest), manifest }
    }

    /// The image as a tar archive of an OCI layout.
    #[must_use]
    pub fn layout(&self) -> Vec<u8> {
        let index = json!({"schemaVersion": 2, "manifests": [
            {"mediaType": MANIFEST, "digest": self.digest, "size": self.manifest.len()},
        ]});
        let mut all = Layer::new()
            .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)
            .file("index.json", index.to_string().as_bytes());
        let manifest = (&self.digest, &self.manifest);
        for (digest, bytes) in self.blobs.iter().chain([manifest]) {
            all = all.file(&format!("blobs/{}", digest.replace(':', "/")), bytes);
        }
        all.bytes()
    }
}

/// How the registry misbehaves when a request matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryFault {
    /// Answers with this status.
    Status(u16),
    /// Sends 90 % of the bytes and then nothing.
    Cut,
    /// Sends single bytes with pauses.
    Drip,
    /// Sends bytes that do not match the digest.
    Wrong,
    /// Redirects to the same address.
    Loop,
    /// Sends bytes until the client closes the connection.
    Endless,
}

/// A registry for one test, without TLS.
pub struct Registry {
    port: u16,
    said: Arc<RegistryState>,
}

#[derive(Default)]
struct RegistryState {
    images: Mutex<HashMap<String, Image>>,
    fault: Mutex<Option<(String, RegistryFault)>>,
    asked: Mutex<Vec<String>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::start()
    }
}

impl Registry {
    /// Starts a registry, which ends with the test process.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let said = Arc::new(RegistryState::default());
        let own = Arc::clone(&said);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                std::thread::spawn(move || own.serve(stream));
            }
        });
        Self { port, said }
    }

    /// Host and port, as an image name begins.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stores an image under `name` and returns its full name.
    pub fn has(&self, name: &str, image: Image) -> String {
        self.said.images.lock().expect("no panic").insert(name.to_owned(), image);
        format!("{}/{name}:1", self.host())
    }

    /// Sets the fault of all requests whose path contains `part`, or one of several parts separated
    /// by `|`; `None` removes it.
    pub fn fault(&self, part: &str, fault: Option<RegistryFault>) {
        *self.said.fault.lock().expect("no panic") = fault.map(|fault| (part.to_owned(), fault));
    }

    /// Takes the paths that were requested since the last call.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.said.asked.lock().expect("no panic"))
    }
}

impl RegistryState {
    fn serve(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let Some(path) = head.split(' ').nth(1) else { return };
        self.asked.lock().expect("no panic").push(path.to_owned());
        let fault = self.fault.lock().expect("no panic").clone();
        let meant = |parts: &str| parts.split('|').any(|part| path.contains(part));
        let fault = fault.filter(|(parts, _)| meant(parts)).map(|(_, fault)| fault);
        let found = self.find(path);
        let _ = answer(&mut stream, path, found, fault);
    }

    fn find(&self, path: &str) -> Option<Vec<u8>> {
        let rest = path.strip_prefix("/v2/")?;
        let images = self.images.lock().expect("no panic");
        let (name, which) =
            rest.split_once("/manifests/").or_else(|| rest.split_once("/blobs/"))?;
        let image = images.get(name)?;
        if rest.contains("/blobs/") {
            return image.blobs.get(which).cloned();
        }
        let own = (which == "1" || which == image.digest).then(|| image.manifest.clone());
        // An index refers to other manifests by their digests.
        own.or_else(|| image.blobs.get(which).cloned())
    }
}

fn answer(
    stream: &mut TcpStream,
    path: &str,
    found: Option<Vec<u8>>,
    fault: Option<RegistryFault>,
) -> std::io::Result<()> {
    let head =
        |status: u16, more: &str| format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{more}\r\n");
    let Some(mut bytes) = found else {
        let text = r#"{"errors":[{"code":"NAME_UNKNOWN","message":"not known here"}]}"#;
        let more = format!("content-length: {}\r\n", text.len());
        return stream.write_all((head(404, &more) + text).as_bytes());
    };
    let length = format!("content-length: {}\r\n", bytes.len());
    match fault {
        None => {}
        Some(RegistryFault::Status(status)) => {
            return stream.write_all(head(status, "content-length: 0\r\n").as_bytes());
        }
        Some(RegistryFault::Loop) => {
            let more = format!("location: {path}\r\ncontent-length: 0\r\n");
            return stream.write_all(head(307, &more).as_bytes());
        }
        Some(RegistryFault::Cut) => {
            stream.write_all(head(200, &length).as_bytes())?;
            return stream.write_all(&bytes[..bytes.len() * 9 / 10]);
        }
        Some(RegistryFault::Wrong) => {
            if let Some(byte) = bytes.last_mut() {
                *byte ^= 1;
            }
        }
        Some(RegistryFault::Drip) => {
            stream.write_all(head(200, &length).as_bytes())?;
            for byte in bytes {
                stream.write_all(&[byte])?;
                std::thread::sleep(Duration::from_millis(200));
            }
            return Ok(());
        }
        Some(RegistryFault::Endless) => {
            stream.write_all(head(200, "").as_bytes())?;
            loop {
                stream.write_all(&[b' '; 65_536])?;
            }
        }
    }
    stream.write_all(head(200, &length).as_bytes())?;
    stream.write_all(&bytes)
}
