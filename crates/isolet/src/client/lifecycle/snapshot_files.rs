//! `isolet snapshot diff`, `files` and `cat`: what is in snapshots, without a sandbox.

use crate::client::ApiClient;
use crate::client::list::{pretty, text};
use crate::client::output::write;
use anyhow::{Context as _, Result};
use http_body_util::BodyExt as _;
use hyper::Method;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

/// Prints the paths that differ, page by page.
pub(super) async fn diff(server: &ApiClient, from: &str, to: &str, json: bool) -> Result<ExitCode> {
    let mut next = Some(format!("/v1/snapshots/{from}/diff/{to}?limit=10000"));
    let mut all = Vec::new();
    while let Some(path) = next {
        let (mut page, link) = server.json(Method::GET, &path).await?;
        next = link;
        let Value::Array(changes) = page["changes"].take() else { continue };
        if json {
            all.extend(changes);
        } else {
            write(true, lines(&changes).as_bytes())?;
        }
    }
    if json { pretty(&json!({ "changes": all })) } else { Ok(ExitCode::SUCCESS) }
}

/// A letter and the path for each change.
fn lines(changes: &[Value]) -> String {
    let mut lines = String::new();
    for change in changes {
        let letter = match change["change"].as_str() {
            Some("added") => 'A',
            Some("removed") => 'D',
            _ => 'C',
        };
        let slash = if change["type"] == "directory" { "/" } else { "" };
        let _ = writeln!(lines, "{letter} {}{slash}", text(&change["path"]));
    }
    lines
}

/// Lists a directory.
pub(super) async fn files(
    server: &ApiClient,
    snapshot: &str,
    path: Option<&str>,
    recursive: bool,
    json: bool,
) -> Result<ExitCode> {
    let path = encoded(path.unwrap_or("/workspace"));
    let query = format!("limit=10000&hidden=1&recursive={}&path={path}", u8::from(recursive));
    let mut next = Some(format!("/v1/snapshots/{snapshot}/files?{query}"));
    let mut all = Vec::new();
    while let Some(path) = next {
        let (page, link) = server.json(Method::GET, &path).await?;
        next = link;
        let page = page.as_array().cloned().unwrap_or_default();
        if json {
            all.extend(page);
        } else {
            write(true, listed(&page).as_bytes())?;
        }
    }
    if json { pretty(&all) } else { Ok(ExitCode::SUCCESS) }
}

fn listed(files: &[Value]) -> String {
    let mut lines = String::new();
    for file in files {
        let path = text(&file["path"]);
        let behind = match file["type"].as_str() {
            Some("directory") => "/".to_owned(),
            Some("symlink") => format!(" -> {}", text(&file["target"])),
            _ => String::new(),
        };
        let size = file["size"].as_u64().unwrap_or(0);
        let _ = writeln!(lines, "{} {size:>12} {path}{behind}", text(&file["mode"]));
    }
    lines
}

/// Writes the content of a file.
pub(super) async fn cat(server: &ApiClient, snapshot: &str, path: &str) -> Result<ExitCode> {
    let path = format!("/v1/snapshots/{snapshot}/files?path={}", encoded(path));
    let response = server.send(Method::GET, &path, "application/octet-stream", None).await?;
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("connection lost")?;
        write(true, &frame.into_data().unwrap_or_default())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A path in a query.
fn encoded(path: &str) -> String {
    let mut all = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                all.push(char::from(byte));
            }
            _ => {
                let _ = write!(all, "%{byte:02X}");
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_files_are_one_line_each() {
        let changes = [
            json!({"change": "added", "path": "/workspace/new", "type": "directory"}),
            json!({"change": "removed", "path": "/old\u{1b}[m", "type": "file"}),
        ];
        let printed = lines(&changes);
        assert!(printed.starts_with("A /workspace/new/\nD /old"), "{printed}");
        assert!(!printed.contains('\u{1b}'), "a name cannot change the terminal");
        let link =
            json!({"path": "/a", "type": "symlink", "target": "b", "mode": "0777", "size": 1});
        assert_eq!(listed(&[link]), "0777            1 /a -> b\n");
        assert_eq!(encoded("/a b\u{e9}&"), "/a%20b%C3%A9%26");
    }
}
