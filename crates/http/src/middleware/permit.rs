//! Acquires a permit for each request, and holds it until the response has been sent. Gives the request
//! a share in the memory for bodies, and the response one in the memory for responses.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::connection::connections::ClientConnection;
use crate::dialects::error_response;
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Forwarded;
use crate::foundation::trace;
use crate::limits::body_memory::BodyMemory;
use crate::limits::kind::ConnectionKind;
use crate::limits::limiter::SocketPermit;
use crate::limits::memory_budget::MemoryShare;
use crate::limits::permit_body::{unread_answers, with_permit};
use crate::middleware::connection_use::kind_of;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::Body as _;
use std::sync::Arc;

/// Responses up to this size go to the kernel at once, so they hold neither permit nor memory.
const SHORT_BYTES: u64 = 64 * 1024;

/// Counts a request around its handler.
pub(crate) async fn count_request(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let extensions = request.extensions();
    let Some(route) = extensions.get::<MatchedPath>() else { return next.run(request).await };
    trace::record_route(request.method(), route.as_str());
    let Some(caller) = extensions.get::<Caller>() else { return next.run(request).await };
    let kind = kind_of(request.method(), route.as_str(), request.uri(), request.headers());
    let Some(kind) = kind else { return next.run(request).await };
    let connection = extensions.get::<Arc<ClientConnection>>();
    let tenant = caller.tenant.clone();
    let permit = match app.limiter.acquire(&tenant, kind, connection) {
        Ok(permit) => permit,
        Err(excess) => return error_response(ApiError::from(excess), request.uri().path()),
    };
    if kind == ConnectionKind::Socket {
        request.extensions_mut().insert(SocketPermit::new(permit));
        return next.run(request).await;
    }
    // Held until the handler has answered: until then, what was parsed is in memory.
    let body = BodyMemory::new(app.body_memory.share(&tenant));
    request.extensions_mut().insert(body.clone());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let response = next.run(request).await;
    drop(body);
    // A streamed body has no exact size, except that of a program, which may send a
    // `Content-Length`, and that of a response of another node.
    let streamed =
        kind == ConnectionKind::Port || response.extensions().get::<Forwarded>().is_some();
    let bytes = response.body().size_hint().exact().filter(|_| !streamed);
    match bytes {
        Some(bytes) if bytes <= SHORT_BYTES => response,
        None => with_permit(response, permit, None),
        Some(bytes) => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let mut share = app.response_memory.share(&tenant);
            match hold_answer(&mut share, kind, bytes) {
                true => with_permit(response, permit, Some(share)),
                false => error_response(unread_answers(&share, &method, bytes), &path),
            }
        }
    }
}

/// Takes the memory for a finished response; `false`: the tenant's part has less, and other answers of
/// the tenant are unread. The output of a command took its part while it was captured, and cannot be
/// had again.
fn hold_answer(share: &mut MemoryShare, kind: ConnectionKind, bytes: usize) -> bool {
    if kind == ConnectionKind::Exec {
        share.overdraw(bytes);
        return true;
    }
    share.take_or_only(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::memory_budget::MemoryBudget;
    use axum::http::Method;
    use isolet_sandbox::TenantId;

    /// 96 lists that nobody read held 368 MiB with a budget of 16 MiB, and the output of another
    /// tenant's commands was cut to 16 KiB.
    ///
    /// Promises: T27.
    #[test]
    fn t21_answers_that_nobody_reads_hold_at_most_the_tenants_part() {
        let budget = MemoryBudget::new(16 << 20);
        let greedy = TenantId::parse("greedy").unwrap();
        let mut held = Vec::new();
        let refused = loop {
            let mut share = budget.share(&greedy);
            if !hold_answer(&mut share, ConnectionKind::Call, 3 << 20) {
                break unread_answers(&share, &Method::GET, 3 << 20);
            }
            held.push(share);
        };
        assert_eq!((held.len(), budget.held_by(&greedy)), (2, 6 << 20));
        assert_eq!((refused.status().as_u16(), refused.code), (429, "too_much_memory"));
        assert!(refused.message.contains("\"greedy\"") && refused.message.contains("6291456"));
        assert!(!refused.message.contains("carried out"));
        let share = budget.share(&greedy);
        assert!(unread_answers(&share, &Method::POST, 1).message.contains("was carried out"));
        // What a command wrote is answered in any case, and costs its own tenant only.
        let mut output = budget.share(&greedy);
        assert!(hold_answer(&mut output, ConnectionKind::Exec, 100 << 20));
        let neighbour = TenantId::parse("neighbour").unwrap();
        assert_eq!(budget.share(&neighbour).take_up_to(4 << 20), 4 << 20);
    }
}
