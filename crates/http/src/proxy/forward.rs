//! Forwards one request to a program that listens on a port inside a sandbox, and streams its
//! response back.
//!
//! The target is always a port on the loopback of one sandbox, whatever the request says about
//! hosts; nothing is resolved, and no redirect is followed. Both sides are parsed strictly and
//! rewritten, so that client, server and program never disagree on where a message ends.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::connection::connections::ClientConnection;
use crate::connection::upstream::{SendError, Upstream};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Proxied;
use crate::foundation::trace;
use crate::limits::kind::ConnectionKind;
use crate::limits::permit_body::hold_permit;
use crate::proxy::location::Asked;
use crate::proxy::target::Target;
use crate::proxy::{headers, response_body, tunnel};
use crate::ws::upgrade::handshake;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Error, Sandbox, TRACE_TARGET};
use isolet_wire::response::RefusalReason;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{Instrument, info_span};

/// How long a program may take to begin its response. Many programs hold a request open for minutes
/// until they have news (long polling).
const HEAD_WAIT: Duration = Duration::from_secs(600);
/// The most ports that an error message lists.
const NAMED_MAX: usize = 12;

/// Forwards a request and returns the response.
pub(crate) async fn forward(
    app: App,
    caller: &Caller,
    target: Target,
    mut request: Request<Body>,
) -> Result<Response, ApiError> {
    let mut cancellation = app.cancellations.subscribe(caller).with_deadline(target.ends);
    let connection = request.extensions_mut().remove::<Arc<ClientConnection>>();
    let permit = app.limiter.acquire(&caller.tenant, ConnectionKind::Port, connection.as_ref())?;
    let sandbox = app.service.reach(&caller.tenant, &target.sandbox, Access::Awake).await?;
    caller.check_incarnation(&sandbox)?;
    let (mut parts, body) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let upgrade = upgrade.filter(|_| headers::upgrades(&parts.method, &parts.headers));
    if upgrade.is_some() {
        // A malformed handshake is refused here, as on every other route.
        handshake(&parts.method, &parts.headers)?;
    }
    let mut parts = headers::rewrite_request(parts, &target, upgrade.is_some())?;
    let original = Asked::of(&parts);
    let span = info_span!(target: TRACE_TARGET, "port", otel.kind = "client", isolet.port = i64::from(target.port));
    trace::propagate(&span, &mut parts.headers);
    let exchange = Exchange { app: &app, sandbox: &sandbox, port: target.port };
    let asked = exchange.send(parts, body).instrument(span);
    let asked =
        async { timeout(HEAD_WAIT, asked).await.unwrap_or_else(|_| Err(no_answer(&target))) };
    let (answer, upstream) = tokio::select! {
        asked = asked => asked?,
        reason = cancellation.cancelled() => return Err(reason.into()),
    };
    let (mut head, incoming) = answer.into_parts();
    let switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
    if switched != upgrade.is_some() && switched {
        return Err(bad_answer(target.port, "it switched protocols without a request to do so"));
    }
    headers::rewrite_response(&mut head, &target, &original)
        .map_err(|problem| bad_answer(target.port, problem))?;
    head.extensions.insert(Proxied { own_origin: target.entry.own_origin() });
    match upgrade {
        Some(upgrade) if switched => {
            tunnel::spawn(upgrade, upstream.into_upgraded(), cancellation, (sandbox, permit));
            Ok(Response::from_parts(head, Body::empty()))
        }
        _ => {
            let body = response_body::ProxiedBody::new(
                incoming,
                upstream,
                sandbox,
                target.port,
                &app,
                cancellation,
            );
            Ok(hold_permit(Response::from_parts(head, Body::new(body)), permit))
        }
    }
}

/// Sends one request and receives the head of the response.
struct Exchange<'a> {
    app: &'a App,
    sandbox: &'a Sandbox,
    port: u16,
}

type Exchanged = (hyper::Response<hyper::body::Incoming>, Upstream);

impl Exchange<'_> {
    /// Uses an idle connection if there is one. When it turns out to be closed, the request is
    /// retried if a repetition is safe.
    async fn send(&self, parts: Parts, body: Body) -> Result<Exchanged, ApiError> {
        use axum::body::HttpBody;
        let mut request = Request::from_parts(parts, body);
        let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let twice = safe && request.body().is_end_stream();
        if let Some(idle) = self.app.upstreams.acquire(self.sandbox, self.port, !twice) {
            let again = twice.then(|| {
                let mut again = Request::new(Body::empty());
                again.method_mut().clone_from(request.method());
                again.uri_mut().clone_from(request.uri());
                again.headers_mut().clone_from(request.headers());
                again
            });
            match idle.send(request).await {
                Ok(asked) => return Ok(asked),
                Err(SendError { unsent: Some(unsent), .. }) => request = unsent,
                // The program closed it in between, or sent something other than a response.
                Err(SendError { error, .. }) => request = again.ok_or_else(|| self.lost(&error))?,
            }
        }
        let link = match self.sandbox.dial(self.port).await {
            Ok(link) => link,
            Err(error) => return Err(self.dial_error(error).await),
        };
        let fresh = Upstream::open(link).await.map_err(|error| self.lost(&error))?;
        fresh.send(request).await.map_err(|lost| self.lost(&lost.error))
    }

    /// The error when there is no response: the sandbox was deleted, or the program closed the
    /// connection.
    fn lost(&self, error: &hyper::Error) -> ApiError {
        match self.sandbox.destroyed() {
            Some(destroyed) => destroyed.into(),
            None => lost(self.port, error),
        }
    }

    /// The error when the connection failed; lists the ports on which programs listen.
    async fn dial_error(&self, error: Error) -> ApiError {
        if !matches!(error, Error::Refused { reason: RefusalReason::NotListening, .. }) {
            return error.into();
        }
        let all = self.sandbox.listening().await.unwrap_or_default();
        let mut ports: Vec<u16> = all.iter().map(|one| one.port).collect();
        ports.dedup();
        let named: Vec<_> = ports.iter().take(NAMED_MAX).map(u16::to_string).collect();
        let who = match named.as_slice() {
            [] => "nothing listens on any port".to_owned(),
            named => format!("listening: {}", named.join(", ")),
        };
        let port = self.port;
        let id = self.sandbox.id();
        ApiError::from_agent(
            RefusalReason::NotListening,
            format!("nothing listens on port {port} of sandbox {id}; {who}"),
        )
    }
}

fn no_answer(target: &Target) -> ApiError {
    let port = target.port;
    ApiError::from_agent(
        RefusalReason::NoAnswer,
        format!("the program on port {port} does not answer"),
    )
}

fn lost(port: u16, error: &hyper::Error) -> ApiError {
    if error.is_parse() || error.is_parse_too_large() {
        return bad_answer(port, &error.to_string());
    }
    ApiError::new(
        StatusCode::BAD_GATEWAY,
        "port_closed",
        format!("the program on port {port} closed the connection without an answer"),
        "see the log of the program; if it does not speak HTTP, use the route /tcp/{port}",
    )
}

/// 502: the response cannot be forwarded.
fn bad_answer(port: u16, problem: &str) -> ApiError {
    ApiError::new(
        StatusCode::BAD_GATEWAY,
        "bad_answer",
        format!("the program on port {port} gave no HTTP answer that can be passed on: {problem}"),
        "see the log of the program; if it does not speak HTTP, use the route /tcp/{port}",
    )
}
