//! Images: unpacking a layer of 100 MB against `tar`, and creating sandboxes from an image against
//! creating them from the host's programs.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use crate::warm_pool;
use anyhow::{Context, Result, ensure};
use hyper::Method;
use isolet_kit::image::{Image, Layer, Registry, busybox};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The number of files in the layer, typical for a userland of that size.
const FILES: usize = 3000;
const FILE_BYTES: usize = 34_000;
/// The most pulls and unpacks, because each writes the whole layer.
const PULLS_MAX: usize = 6;

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("isolet-bench-image-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let done = unpacking(bin, &folder, rounds.min(PULLS_MAX));
    let done = done.and_then(|()| creates(bin, &folder, rounds));
    let _ = std::fs::remove_dir_all(&folder);
    done
}

/// A server that pulls from this registry.
fn server(bin: &Path, folder: &Path, registry: &Registry, ready: &str) -> Result<BenchServer> {
    let config = folder.join("isolet.toml");
    std::fs::write(&config, format!("[images]\nregistries = [\"{}\"]\n", registry.host()))?;
    let config = config.to_str().context("a path of text")?;
    BenchServer::start_with(bin, &[("ISOLET_CONFIG", config), ("ISOLET_WARM_POOL_SIZE", ready)])
}

/// Writes files that compress as programs do, by a third to a half.
fn much() -> Vec<u8> {
    let mut layer = Layer::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for n in 0..FILES {
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        while bytes.len() < FILE_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
            bytes.extend(b"\x48\x89\xe5\x48\x8b\x45\0\0");
        }
        if n % 100 == 0 {
            layer = layer.directory(&format!("usr{}", n / 100));
        }
        layer = layer.file(&format!("usr{}/file{n}", n / 100), &bytes);
    }
    layer.bytes()
}

/// Runs a command line with `sh -c`.
fn sh(line: &str) -> Result<Duration> {
    let begun = Instant::now();
    let status = Command::new("sh").args(["-ec", line]).stdin(Stdio::null()).status()?;
    ensure!(status.success(), "{line}: {status}");
    Ok(begun.elapsed())
}

fn unpacking(bin: &Path, folder: &Path, rounds: usize) -> Result<()> {
    let layer = much();
    let image = Image::new(&[layer], &json!({}));
    let blob = image.blobs.values().max_by_key(|blob| blob.len()).context("it has a layer")?;
    let archive = folder.join("layer.tar.gz");
    std::fs::write(&archive, blob)?;
    let at = archive.display();
    let place = folder.join("unpacked");
    let place = place.display();
    let size = blob.len() / 1_000_000;
    let registry = Registry::start();
    let name = registry.has("much", image);
    let server = server(bin, folder, &registry, "0")?;
    let names = [
        "tar -xzf, and written out (sync -f)",
        "tar -xzf alone",
        "sha256sum, tar -xzf, sha256sum of what it unpacked, sync -f",
        "isolet, pull: comes, both sums, unpacked, written out",
    ];
    let mut times: Vec<_> = names.iter().map(|name| (*name, Times::default())).collect();
    let fresh = format!("rm -rf {place}; mkdir {place}; sync -f {place}");
    let unpack = format!("tar -xzf {at} -C {place}");
    for _ in 0..rounds {
        sh(&fresh)?;
        times[0].1.push(sh(&format!("{unpack}; sync -f {place}"))?);
        sh(&fresh)?;
        times[1].1.push(sh(&unpack)?);
        sh(&fresh)?;
        let sums = format!("sha256sum {at} >/dev/null; zcat {at} | sha256sum >/dev/null");
        times[2].1.push(sh(&format!("{sums}; {unpack}; sync -f {place}"))?);
        sh(&fresh)?;
        // Unpacking takes longer than the server keeps an idle connection open.
        let mut client = HttpClient::connect(&server)?;
        let begun = Instant::now();
        client.call(Method::POST, "/v1/images/pull", Some(&json!({ "image": name })))?;
        times[3].1.push(begun.elapsed());
        client.call(Method::DELETE, &format!("/v1/images/{name}"), None)?;
        sh("sync")?;
    }
    rows(&format!("### a layer of 100 MB, {size} MB as it comes ({FILES} files)"), &times);
    Ok(())
}

/// With a warm pool, and without one.
fn creates(bin: &Path, folder: &Path, rounds: usize) -> Result<()> {
    let registry = Registry::start();
    let image = Image::new(&[busybox().bytes(), much()], &json!({}));
    let name = registry.has("some", image);
    for (title, ready) in
        [("a create, from the warm pool (aim: 1.1)", "2"), ("a create, cold", "0")]
    {
        let server = server(bin, folder, &registry, ready)?;
        let mut client = HttpClient::connect(&server)?;
        client.call(Method::POST, "/v1/images/pull", Some(&json!({ "image": name })))?;
        let of = |image: &str| json!({ "image": image });
        let variants = [("host", of("host")), ("an image that was pulled", of(&name))];
        warm_pool::table(&mut client, title, &variants, rounds)?;
    }
    Ok(())
}
