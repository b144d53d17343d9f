//! `isolet snapshot push` and `pull`, and the snapshots in the store.

use crate::client::ApiClient;
use crate::client::events::progress::{Followed, follow};
use crate::client::lifecycle::snapshot::size;
use crate::client::list::{pretty, text};
use crate::client::output::{print_message, write};
use anyhow::Result;
use hyper::Method;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

pub(super) async fn push(server: &ApiClient, snapshot: &str, json: bool) -> Result<ExitCode> {
    let path = format!("/v1/snapshots/{snapshot}/push");
    transfer(server, &path, None, "push", json).await
}

pub(super) async fn pull(
    server: &ApiClient,
    snapshot: &str,
    name: Option<String>,
    json: bool,
) -> Result<ExitCode> {
    let mut body = Map::new();
    body.extend(name.map(|name| ("name".to_owned(), json!(name))));
    let path = format!("/v1/store/snapshots/{snapshot}/pull");
    transfer(server, &path, Some(body.into()), "pull", json).await
}

async fn transfer(
    server: &ApiClient,
    path: &str,
    body: Option<Value>,
    what: &str,
    json: bool,
) -> Result<ExitCode> {
    let of = Followed { path, body: body.as_ref(), what, numbers };
    let done = follow(server, of, json).await?;
    if json {
        return pretty(&done);
    }
    write(true, format!("{}\n", text(&done["snapshot"]["id"])).as_bytes())?;
    print_message(summary(what, &done));
    Ok(ExitCode::SUCCESS)
}

fn numbers(now: &Value) -> String {
    let bytes = |field: &str| size(now[field].as_u64().unwrap_or(0));
    format!("{} of {}, transferred {}", bytes("done"), bytes("total"), bytes("transferred"))
}

fn summary(what: &str, done: &Value) -> String {
    let bytes = done["transferred_bytes"].as_u64().unwrap_or(0);
    let whole = done["snapshot"]["size_bytes"].as_u64().unwrap_or(0);
    let left_out = done["left_out"].as_u64().unwrap_or(0);
    let mut summary = match (done["existed"] == true, what) {
        (true, "push") => "the store has the snapshot already".to_owned(),
        (true, _) => "the server has the snapshot already".to_owned(),
        (false, "push") => format!("sent {} for {} of files", size(bytes), size(whole)),
        (false, _) => format!("received {} for {} of files", size(bytes), size(whole)),
    };
    if left_out > 0 {
        let _ = write!(summary, "; left out: {left_out} sockets or devices");
    }
    summary
}

/// Lists the snapshots in the store.
pub(super) async fn list(server: &ApiClient, json: bool) -> Result<ExitCode> {
    let (list, _) = server.json(Method::GET, "/v1/store/snapshots").await?;
    if json {
        return pretty(&list);
    }
    let all = list["snapshots"].as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        print_message("no snapshots in the store; copy one with `isolet snapshot push SNAPSHOT`");
        return Ok(ExitCode::SUCCESS);
    }
    write(true, table(all).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn table(all: &[Value]) -> String {
    let name = |one: &Value| one["name"].as_str().map_or_else(|| "-".to_owned(), str::to_owned);
    let width = |of: &dyn Fn(&Value) -> String, head: &str| {
        all.iter().map(|one| of(one).len()).max().unwrap_or(0).max(head.len())
    };
    let ids = width(&|one| text(&one["id"]), "ID");
    let names = width(&name, "NAME");
    let mut table = format!("{:<ids$}  {:<names$}  {:>9}  HERE  PUSHED\n", "ID", "NAME", "SIZE");
    for one in all {
        let _ = writeln!(
            table,
            "{:<ids$}  {:<names$}  {:>9}  {:<4}  {}",
            text(&one["id"]),
            name(one),
            size(one["size_bytes"].as_u64().unwrap_or(0)),
            if one["is_here"] == true { "yes" } else { "no" },
            text(&one["pushed_at"]),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_which_snapshots_are_on_this_server() {
        let one = json!({"id": "snap_a", "name": "ready", "size_bytes": 1, "is_here": true,
                         "pushed_at": "2026-01-01T00:00:00Z"});
        let other = json!({"id": "snap_bb", "name": null, "size_bytes": 3 << 20, "is_here": false,
                           "pushed_at": "2026-01-02T00:00:00Z"});
        assert_eq!(
            table(&[one, other]),
            "ID       NAME        SIZE  HERE  PUSHED\n\
             snap_a   ready      1 KiB  yes   2026-01-01T00:00:00Z\n\
             snap_bb  -        3.0 MiB  no    2026-01-02T00:00:00Z\n"
        );
    }

    #[test]
    fn the_end_says_what_was_sent() {
        let done = json!({"transferred_bytes": 1 << 20, "existed": false, "left_out": 2,
                          "snapshot": {"size_bytes": 4 << 20}});
        let said = "sent 1.0 MiB for 4.0 MiB of files; left out: 2 sockets or devices";
        assert_eq!(summary("push", &done), said);
        assert_eq!(
            summary("pull", &json!({"existed": true})),
            "the server has the snapshot already"
        );
    }
}
