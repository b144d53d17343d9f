//! Writes the audit log: every request that changes or runs something, with the key and the address
//! it came from. Bodies, headers and tickets are never recorded.
//!
//! An entry is written when its request has ended, also when its client disconnected before.
//! Programs and shells may run for days, so their entry is written before they start.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::{e2b, swerex};
use crate::foundation::extensions::{
    AuditedImage, AuditedKey, AuditedSandbox, AuditedWebhook, Peer,
};
use crate::foundation::query;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use isolet_sandbox::audit::{Audit, AuditEntry};
use isolet_sandbox::{SandboxId, SessionId};

/// The longest recorded name from a client, in characters; the rest is cut off.
const NAME_LETTERS_MAX: usize = 512;

/// Records a request around its handler.
pub(crate) async fn record(State(app): State<App>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let note = AuditNote::of(&app, &mut parts).await;
    let request = Request::from_parts(parts, body);
    let Some(mut note) = note else { return next.run(request).await };
    note.audit.room().await;
    note.begin();
    let response = next.run(request).await;
    note.end(&response);
    response
}

/// The audit entry of one request, written when it is dropped.
struct AuditNote {
    audit: Audit,
    /// The entry, until it is written.
    entry: Option<AuditEntry>,
    /// The entry to write when a request is refused whose start was already recorded.
    refused: Option<AuditEntry>,
}

impl AuditNote {
    /// `None` when the request changes nothing, or when its caller is unknown.
    async fn of(app: &App, parts: &mut Parts) -> Option<Self> {
        let route = parts.extensions.get::<MatchedPath>()?.as_str().to_owned();
        let event = event(&parts.method, &route, parts.headers.contains_key(header::UPGRADE))?;
        let caller = parts.extensions.get::<Caller>()?.clone();
        let names = RawPathParams::from_request_parts(parts, app).await.ok();
        let names = || names.iter().flatten();
        let sandbox = match names().find(|(name, _)| *name == "id") {
            Some((_, id)) => SandboxId::parse(id).ok(),
            None => sandbox_of_session(app, &caller, names().find(|(name, _)| *name == "sid")),
        };
        let key = caller.key.as_deref().unwrap_or("ISOLET_API_KEY");
        let mut entry =
            AuditEntry::now(caller.tenant.as_str(), sandbox.as_ref().map(|id| id.as_str()), event)
                .with("key", key)
                .with("call", format!("{} {route}", parts.method));
        if let Some(Peer(address)) = parts.extensions.get() {
            entry = entry.with("from", address.to_string());
        }
        for (name, value) in names().filter(|(name, _)| *name != "id") {
            entry = entry.with(field_name(name), shortened(value));
        }
        if let Some(path) = path(&parts.uri) {
            entry = entry.with("path", shortened(&path));
        }
        Some(Self { audit: app.service.audit().clone(), entry: Some(entry), refused: None })
    }

    /// Writes the entry of a long-running request before it starts.
    fn begin(&mut self) {
        let lasts = |entry: &mut AuditEntry| matches!(&*entry.event, "exec.start" | "context.run");
        if let Some(entry) = self.entry.take_if(lasts) {
            self.refused = Some(AuditEntry { event: "exec.refused".into(), ..entry.clone() });
            self.audit.put(entry);
        }
    }

    fn end(mut self, response: &Response) {
        let status = response.status();
        let refused = self.refused.take().filter(|_| status.as_u16() >= 400);
        if let Some(entry) = refused {
            self.audit.put(entry.with("status", status.as_u16()));
        }
        // A refused request has changed nothing.
        let Some(mut entry) = self.entry.take_if(|_| true).filter(|_| !status.is_client_error())
        else {
            return;
        };
        if let Some(AuditedKey(id)) = response.extensions().get() {
            entry = entry.with("key_id", id.clone());
        }
        if let Some(AuditedImage(name)) = response.extensions().get() {
            entry = entry.with("image", shortened(name));
        }
        if let Some(AuditedWebhook(id)) = response.extensions().get() {
            entry = entry.with("webhook", id.clone());
        }
        let own = response.extensions().get::<AuditedSandbox>().map(|of| of.0.to_string());
        let made = || {
            let location = response.headers().get(header::LOCATION)?.to_str().ok()?;
            Some(location.rsplit('/').next()?.to_owned())
                .filter(|_| entry.event == "sandbox.create")
        };
        let sandbox = own.or_else(made);
        if entry.sandbox.is_none() {
            entry.sandbox = sandbox;
        }
        self.audit.put(entry.with("status", status.as_u16()));
    }
}

impl Drop for AuditNote {
    fn drop(&mut self) {
        // The client disconnected or the handler panicked: the request may have had an effect.
        if let Some(entry) = self.entry.take() {
            self.audit.put(entry.with("answered", false));
        }
    }
}

/// The sandbox of a session that the path names by its id alone.
fn sandbox_of_session(
    app: &App,
    caller: &Caller,
    session: Option<(&str, &str)>,
) -> Option<SandboxId> {
    let session = SessionId::parse(session?.1).ok()?;
    Some(app.service.session(&caller.tenant, &session).ok()?.sandbox_id)
}

/// The name of a path parameter in an entry.
fn field_name(name: &str) -> &str {
    match name {
        "sid" => "session",
        "cid" => "context",
        other => other,
    }
}

/// The `path` parameter of the query, as text.
fn path(uri: &Uri) -> Option<String> {
    let value = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("path="))?;
    Some(String::from_utf8_lossy(&query::decode_query_value(value)?).into_owned())
}

fn shortened(value: &str) -> String {
    let mut letters = value.chars();
    let mut text: String = letters.by_ref().take(NAME_LETTERS_MAX).collect();
    if letters.next().is_some() {
        text.push('…');
    }
    text
}

/// The event of a request; `None` when it only reads, or is for a program in a sandbox.
fn event(method: &Method, route: &str, upgrade: bool) -> Option<&'static str> {
    if route.contains("/ports/{port}") || route.contains("/proxy/{port}") {
        return None;
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return if upgrade { socket_event(route) } else { None };
    }
    let dialect = e2b::routes::audit_event(route).or_else(|| swerex::routes::audit_event(route));
    if let Some(event) = dialect {
        return event;
    }
    let last = route.rsplit('/').find(|part| !part.starts_with('{')).unwrap_or_default();
    let named = route.ends_with('}');
    Some(match (method.as_str(), last) {
        ("POST", "sandboxes" | "sandbox" | "runs") => "sandbox.create",
        ("DELETE", "sandboxes" | "sandbox" | "runs") => "sandbox.destroy",
        ("PATCH", "sandboxes" | "runs") => "sandbox.change",
        ("POST", "cordon") => "node.cordon",
        ("POST", "uncordon") => "node.uncordon",
        ("POST", "declare-dead") => "node.declare_dead",
        ("POST", "drain") => "node.drain",
        ("POST", "move") => "sandbox.move",
        ("DELETE", "nodes") => "node.forget",
        ("POST", "sleep") => "sandbox.sleep",
        ("POST", "pause" | "hibernate") => "sandbox.pause",
        ("POST", "resume") => "sandbox.resume",
        ("POST", "recover") => "sandbox.recover",
        ("POST", "snapshots" | "snapshot") => "snapshot.create",
        ("DELETE", "snapshots") if route.starts_with("/v1/store/") => "snapshot.delete_stored",
        ("DELETE", "snapshots") => "snapshot.delete",
        ("POST", "push") => "snapshot.push",
        ("POST", "pull") if route.starts_with("/v1/store/") => "snapshot.pull",
        ("POST", "fork") => "sandbox.fork",
        ("POST", "restore") if route.starts_with("/v1/sandboxes/") => "sandbox.restore",
        ("POST", "restore") => "sandbox.create",
        ("POST", "keys") => "key.create",
        ("DELETE", "keys") => "key.revoke",
        ("POST", "webhooks") => "webhook.create",
        ("PATCH", "webhooks") => "webhook.update",
        ("DELETE", "webhooks") => "webhook.delete",
        ("POST", "rotate") => "webhook.rotate",
        ("POST", "test") => "webhook.test",
        ("POST", "images") => "image.commit",
        ("POST", "builds") => "image.build",
        ("DELETE", "builds") => "image.build_cancel",
        ("POST", "pull") => "image.pull",
        ("POST", "import") => "image.import",
        ("POST", "tag") => "image.tag",
        ("POST", "gc") => "image.collect",
        ("DELETE", "images") => "image.remove",
        ("POST", "exec") => "exec.start",
        ("POST", "run") => "context.run",
        ("POST", "contexts") => "context.create",
        ("POST", "interrupt") => "context.interrupt",
        ("POST", "restart") => "context.restart",
        ("DELETE", "contexts") => "context.delete",
        ("POST", "sessions" | "session") => "session.create",
        ("PATCH", "sessions") => "session.update",
        ("DELETE", "sessions" | "session") => "session.delete",
        ("POST", "processes") => "process.start",
        ("DELETE", "processes") | ("POST", "kill") => "process.kill",
        ("POST", "signal") => "process.signal",
        ("POST", "stdin") => "process.stdin",
        ("POST", "wait") => return None,
        ("PUT", "files") if route.starts_with("/v1/images/") => "image.upload",
        ("PUT", "files" | "file") | ("POST", "upload") => "file.write",
        ("DELETE", "files") if named => "file.remove",
        ("POST", "files") => "file.order",
        ("POST", "hydrate") => "file.unpack",
        ("POST", "persist") => "file.pack",
        ("POST", "links" | "tunnel") => "link.create",
        ("DELETE", "links" | "tunnel") => "link.withdraw",
        ("POST", "prime" | "shutdown-prewarmed") => "pool.renew",
        ("POST", "recording") => "recording.start",
        ("DELETE", "recording") => "recording.stop",
        ("DELETE", "recordings") => "recording.delete",
        ("DELETE", "terminals") => "terminal.hang_up",
        ("POST", "tickets") => "ticket.create",
        ("PATCH", "network") => "network.change",
        ("PUT", "network-profiles") => "network_profile.write",
        ("DELETE", "network-profiles") => "network_profile.delete",
        _ => "call",
    })
}

/// The event of a WebSocket.
fn socket_event(route: &str) -> Option<&'static str> {
    let last = route.rsplit('/').find(|part| !part.starts_with('{'))?;
    match last {
        "shell" => Some("shell.open"),
        "terminal" | "pty" => Some("terminal.open"),
        "tcp" => Some("port.open"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new route that changes something would be recorded as `call`.
    /// Promises: T17.
    #[test]
    fn t17_every_call_that_changes_something_has_a_name() {
        let document: serde_json::Value = serde_json::from_str(crate::document()).unwrap();
        for (route, calls) in document["paths"].as_object().unwrap() {
            for method in calls.as_object().unwrap().keys() {
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let event = event(&method, route, false);
                assert_ne!(event, Some("call"), "{method} {route}");
                if matches!(method, Method::PUT | Method::PATCH | Method::DELETE) {
                    assert!(event.is_some(), "{method} {route}");
                }
            }
        }
    }

    #[test]
    fn requests_that_only_read_are_not_recorded() {
        let none = [
            (Method::GET, "/v1/sandboxes/{id}", false),
            (Method::GET, "/v1/sandboxes/{id}/shell", false),
            (Method::POST, "/v1/sandboxes/{id}/processes/{process}/wait", false),
            (Method::POST, "/v1/runs/{id}/proxy/{port}/{*path}", false),
            (Method::GET, "/v1/sandboxes/{id}/ports/{port}/", true),
        ];
        for (method, route, upgrade) in none {
            assert_eq!(event(&method, route, upgrade), None, "{method} {route}");
        }
        assert_eq!(event(&Method::GET, "/v1/runs/{id}/shell", true), Some("shell.open"));
        assert_eq!(event(&Method::GET, "/v1/sandbox/{id}/pty", true), Some("terminal.open"));
    }

    /// Promises: T17.
    #[tokio::test]
    async fn t17_a_call_that_was_not_answered_is_noted() {
        let folder = std::env::temp_dir().join(format!("isolet-noted-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let audit = Audit::open(&folder).unwrap();
        let entry = AuditEntry::now("t", Some("box"), "sandbox.destroy");
        drop(AuditNote { audit: audit.clone(), entry: Some(entry), refused: None });
        let mut read = audit.read("t", None).await.unwrap();
        let text = String::from_utf8(read.next().await.unwrap().unwrap()).unwrap();
        assert!(text.contains(r#""event":"sandbox.destroy","data":{"answered":false}"#), "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_long_name_is_cut_off() {
        assert_eq!(shortened("ü"), "ü");
        assert_eq!(shortened(&"ü".repeat(5000)).chars().count(), NAME_LETTERS_MAX + 1);
    }
}
