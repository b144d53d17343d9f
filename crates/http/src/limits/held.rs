//! The permit of a request, from its head to the end of its answer.

use super::{Kind, Permit};
use crate::{
    auth::Caller,
    connections::Connection,
    error::Failure,
    server::{self, App},
};
use axum::{
    body::{Body, Bytes},
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::Response,
};
use hyper::body::{Body as _, Frame, SizeHint};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// An answer that is made already and no longer than this is on its way: the kernel takes it whole,
/// and nothing is held for it.
const SHORT_BYTES: u64 = 64 * 1024;

/// The permit of a request that becomes a socket; its task takes it.
#[derive(Debug, Clone)]
pub(crate) struct Held(#[allow(dead_code)] Arc<Permit>);

/// Counts a request around its handler.
pub(crate) async fn held(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    let route = extensions.get::<MatchedPath>();
    let (Some(route), Some(caller)) = (route, extensions.get::<Caller>()) else {
        return next.run(request).await;
    };
    let kind = Kind::of(request.method(), route.as_str(), request.uri(), request.headers());
    let Some(kind) = kind else { return next.run(request).await };
    let connection = extensions.get::<Arc<Connection>>();
    let permit = match app.limiter.enter(&caller.tenant, kind, connection) {
        Ok(permit) => permit,
        Err(excess) => return server::refused(Failure::from(excess), request.uri().path()),
    };
    if kind == Kind::Socket {
        request.extensions_mut().insert(Held(Arc::new(permit)));
        return next.run(request).await;
    }
    let response = next.run(request).await;
    let made = matches!(kind, Kind::Call | Kind::Exec);
    if made && response.body().size_hint().exact().is_some_and(|bytes| bytes <= SHORT_BYTES) {
        return response;
    }
    guarded(response, permit)
}

/// An answer that holds its permit until its last byte is taken, or its client has gone.
pub(crate) fn guarded(response: Response, permit: Permit) -> Response {
    response.map(|body| Body::new(Guarded { body, permit: Some(permit) }))
}

struct Guarded {
    body: Body,
    permit: Option<Permit>,
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.permit = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
