//! Completes what routes say about themselves by what holds for all of them: common parameters,
//! errors, and whether a key is needed.

use crate::auth::route_access::RouteAccess;
use crate::dialects::cloudflare::error::RefusalView;
use crate::foundation::error::ApiError;
use crate::router::openapi::info::BEARER;
use axum::http::Method;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, OpenApi, PathItem, Ref, RefOr, Response, ResponseBuilder};

/// Parameters that mean the same in every call, by name.
const PARAMETERS: [(&str, &str); 14] = [
    (
        "Idempotency-Key",
        "1 to 255 visible ASCII characters. A second request with the same key and body returns what the first one created; with another body it is refused with 422 `idempotency_mismatch`.",
    ),
    (
        "If-None-Match",
        "The `ETag` of an earlier answer. If the file has not changed, the answer is 304.",
    ),
    (
        "Range",
        "One range of bytes, such as `bytes=0-1023`. Several ranges are answered with the whole file.",
    ),
    ("cid", "The id of the context."),
    ("cursor", "Continue after the previous page, as given by its `Link` header."),
    ("id", "The id of the sandbox."),
    ("limit", "The most entries in the page, 1 to 1000."),
    ("name", "The name of the network profile."),
    ("node", "The name of the node."),
    ("port", "The port, 1 to 65535."),
    ("process", "The id of the process."),
    ("recording", "The id of the recording."),
    ("sid", "The id of the session."),
    ("path", "The path."),
];

/// Completes every operation of the document.
pub(super) fn complete(document: &mut OpenApi) {
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            complete_parameters(operation);
            complete_responses(operation);
            complete_security(path, operation);
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    all.into_iter().flatten()
}

/// Describes parameters that the route only names.
fn complete_parameters(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(Parameter { name, description, .. }) = parameter else { continue };
        let known = PARAMETERS.iter().find(|(known, _)| known == name);
        if let (None, Some((_, text))) = (&description, known) {
            *description = Some((*text).to_owned());
        }
    }
}

/// Adds the errors that every call can answer with. A call that forwards to a program does not get
/// them, because any status may be the program's.
fn complete_responses(operation: &mut Operation) {
    let tagged = |tag: &str| operation.tags.iter().flatten().any(|one| one == tag);
    if tagged("server") || operation.responses.responses.contains_key("default") {
        return;
    }
    let schema = match tagged("cloudflare") {
        true => RefusalView::name(),
        false => ApiError::name(),
    };
    let refused = "The server refused the request. `error` holds the code.";
    let failed = "The server, or something that it needs, failed. `error` holds the code.";
    for (status, description) in [("4XX", refused), ("5XX", failed)] {
        let response = error(description, &schema);
        operation.responses.responses.insert(status.to_owned(), response.into());
    }
}

fn error(description: &str, schema: &str) -> Response {
    let schema = Ref::from_schema_name(schema);
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}

/// Declares whether the operation needs a key, as the server decides it.
fn complete_security(path: &str, operation: &mut Operation) {
    let needed = match RouteAccess::of(&Method::GET, path) {
        RouteAccess::Public => Vec::new(),
        _ => vec![SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, [])],
    };
    operation.security.get_or_insert(needed);
}
