//! `/mcp`: the tools of the Model Context Protocol over streamable HTTP. Every tool call becomes a
//! request to the API's routes, on behalf of the client's caller and with its rights.

use crate::app::App;
use crate::auth::caller::{Caller, read_only_key, unauthorized};
use crate::auth::not_found_limiter::{NotFoundLimiter, Requester};
use crate::auth::route_access::{MCP_PATH, RouteAccess};
use crate::connection::connections::ClientConnection;
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::is_event_stream;
use crate::foundation::extensions::{Peer, Proxied, Scheme};
use crate::foundation::json::{SMALL_BODY_BYTES_MAX, read_body_within};
use crate::limits::body_memory::BodyMemory;
use crate::limits::kind::ConnectionKind;
use crate::limits::limiter::Limiter;
use crate::limits::memory_budget::MemoryBudget;
use crate::limits::permit_body::{
    AnswersHandle, AnswersOfResponse, hold_permit_and_memory, unread_answers,
};
use axum::Router;
use axum::body::Body;
use axum::http::{Extensions, Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use isolet_mcp::{
    AnswerMemory, Api, ApiFuture, CLIENTS_MAX, CLIENTS_PER_OWNER_MAX, ClientRefused, Clients,
    MESSAGE_BYTES_MAX, Reply,
};
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The largest response that a tool reads: outputs of a MiB each, as JSON.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The routes of the API, as tools call them.
struct RouterApi {
    router: Router,
    not_found: Arc<NotFoundLimiter>,
}

/// Adds the tools to the routes. Their clients are closed when `stop` is cancelled.
pub(crate) fn with_mcp(
    router: Router,
    app: &App,
    not_found: Arc<NotFoundLimiter>,
    stop: CancellationToken,
) -> Router {
    let state = McpState {
        limiter: Arc::clone(&app.limiter),
        bodies: Arc::clone(&app.body_memory),
        answers: Arc::clone(&app.response_memory),
    };
    let inside = Arc::new(RouterApi { router: router.clone(), not_found });
    let clients = Clients::new(inside, stop);
    router.route(MCP_PATH, any(move |request| answer(clients, state, request)))
}

/// What a request to `/mcp` takes its permit and its memory from.
#[derive(Clone)]
struct McpState {
    limiter: Arc<Limiter>,
    bodies: Arc<MemoryBudget>,
    answers: Arc<MemoryBudget>,
}

/// Takes memory for an answer that a client has not read yet.
///
/// # Errors
/// A sentence for the client: its tenant has no such part left.
fn take_answer(answers: &AnswersHandle, bytes: usize) -> Result<(), String> {
    let taken = answers.with(|share| match share.take_or_only(bytes) {
        true => Ok(()),
        false => {
            let refused = unread_answers(share, &Method::POST, bytes);
            Err(format!("{} ({})", refused.message, refused.hint))
        }
    });
    taken.unwrap_or_else(|| Err("the client has left".to_owned()))
}

/// Reads a message. The protocol's library parses it more than once into values of any shape, so it
/// only gets messages with few values. A key that only reads sends no files.
async fn read_message(
    request: Request<Body>,
    read_only: bool,
    memory: &BodyMemory,
) -> Result<Request<Body>, ApiError> {
    let max = if read_only { SMALL_BODY_BYTES_MAX } else { MESSAGE_BYTES_MAX };
    let (parts, body) = request.into_parts();
    let message = read_body_within(body, Some(memory), max).await?;
    Ok(Request::from_parts(parts, Body::from(message)))
}

async fn answer(
    clients: Clients,
    McpState { limiter, bodies, answers }: McpState,
    mut request: Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let caller = request.extensions().get::<Caller>().ok_or_else(unauthorized)?;
    // A client listens with GET. The calls of its tools are also counted by their own routes.
    let listens = request.method() == Method::GET;
    let kind = if listens { ConnectionKind::EventStream } else { ConnectionKind::Call };
    let owner = caller.tenant.clone();
    let read_only = caller.read_only;
    // The client outlives the request and must not hold the slot of its connection.
    let connection = request.extensions_mut().remove::<Arc<ClientConnection>>();
    let mut permit = limiter.acquire(&owner, kind, connection.as_ref())?;
    let message = BodyMemory::new(bodies.share(&owner));
    if request.method() == Method::POST {
        request = read_message(request, read_only, &message).await?;
    }
    // Dropped with this future when the client leaves before there is a response.
    let answers = AnswersOfResponse::new(answers.share(&owner));
    let handle = answers.handle();
    let memory = AnswerMemory::new(move |bytes| take_answer(&handle, bytes));
    request.extensions_mut().insert(memory);
    let answered = clients.answer(owner.as_str(), request).await;
    // A tool may run for long, so it counts as an event stream instead of a call: otherwise tools
    // could use up the calls that are needed to stop them. A tenant without a free event stream
    // stays counted as a call.
    let streams = answered.as_ref().is_ok_and(|reply| is_event_stream(reply.headers()));
    if kind == ConnectionKind::Call && streams {
        let stream = limiter.acquire(&owner, ConnectionKind::EventStream, connection.as_ref());
        permit = stream.unwrap_or(permit);
    }
    let hold =
        |reply: Reply| hold_permit_and_memory(reply.map(Body::new), permit, message, answers);
    answered.map(hold).map_err(|refused| match refused {
        ClientRefused::Unknown => ApiError::new(
            StatusCode::NOT_FOUND,
            "no_client",
            "no client with this Mcp-Session-Id: the session has ended or never existed",
            "send `initialize` without an Mcp-Session-Id",
        ),
        ClientRefused::Full => ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_clients",
            format!("at most {CLIENTS_PER_OWNER_MAX} clients of a tenant, and {CLIENTS_MAX} in total, may be connected at the same time"),
            "end a session with DELETE and its Mcp-Session-Id; an idle session ends after an hour",
        ),
    })
}

impl Api for RouterApi {
    fn call<'a>(&'a self, request: Request<Bytes>, on_behalf: Extensions) -> ApiFuture<'a> {
        Box::pin(async move {
            let caller = on_behalf.get::<Caller>().ok_or("the caller of the tool is unknown")?;
            self.answer(request, caller.clone(), &on_behalf).await
        })
    }
}

impl RouterApi {
    async fn answer(
        &self,
        request: Request<Bytes>,
        caller: Caller,
        on_behalf: &Extensions,
    ) -> Result<Response<Bytes>, String> {
        let requester = Requester::of(&caller);
        let access = RouteAccess::of(request.method(), request.uri().path());
        let reads = access.only_reads(request.method());
        let refusal = if caller.read_only && !reads {
            Some(read_only_key("use a key that was created without --read-only"))
        } else {
            self.not_found.check(&requester, Instant::now()).err()
        };
        let response = match refusal {
            Some(failure) => failure.into_response(),
            None => {
                let mut request = request.map(Body::from);
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(Scheme::of(on_behalf));
                if let Some(peer) = on_behalf.get::<Peer>() {
                    request.extensions_mut().insert(*peer);
                }
                match self.router.clone().oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        };
        let foreign = response.extensions().get::<Proxied>().is_some();
        if response.status() == StatusCode::NOT_FOUND && !foreign {
            self.not_found.record(requester, Instant::now());
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| format!("the response is incomplete: {error}"))?;
        Ok(Response::from_parts(head, body.to_bytes()))
    }
}
