//! The parts of the OpenAPI document that do not come from routes.

use crate::dialects::cloudflare::error::RefusalView;
use crate::foundation::error::ApiError;
use crate::router::openapi::error_codes;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{OpenApi, RefOr, Schema};
use utoipa::{OpenApi as _, ToSchema};

/// The name of the security scheme for keys.
pub(super) const BEARER: &str = "bearer";
/// The name of the security scheme for tickets.
const TICKET: &str = "ticket";

/// What holds for every call.
const DESCRIPTION: &str = "\
Isolet runs sandboxes with persistent shells for AI agents.\n\
\n\
## Keys\n\
Send a key as `Authorization: Bearer KEY`. `isolet keys add` creates one, and \
`POST /v1/keys` another one of the same tenant. A read-only key may use \
`GET` and `HEAD`, watch terminals, and create tickets for watching. A browser, which cannot send \
headers when it opens a WebSocket, sends a ticket as `?ticket=` instead (`POST /v1/tickets`).\n\
\n\
## Requests\n\
Bodies are JSON unless a call says otherwise. The server refuses unknown fields and query \
parameters. Flags in a query are `1` or `0`. Times are in milliseconds since 1970 unless a field \
says otherwise.\n\
\n\
## Retries\n\
Calls that create something accept an `Idempotency-Key`. Answers with status 429 and 503 carry \
`Retry-After`.\n\
\n\
## Streams\n\
Calls with event streams send server-sent events. Lines that begin with `:` keep the connection \
alive. An event `error` with an `Error` as its data ends a stream early.\n\
\n\
## Errors\n\
Every error is an `Error` object: `{\"error\": CODE, \"message\": TEXT, \"hint\": TEXT}`. Programs \
should compare the code; the schema `Error` lists all of them. New codes may be added.\n";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Isolet"),
    servers(
        (url = "/", description = "The server that serves this document."),
        (url = "http://127.0.0.1:7300", description = "A server with the default address."),
    ),
    security(("bearer" = [])),
    components(schemas(ApiError, RefusalView)),
    tags(
        (name = "sandboxes", description = "Create, change and delete sandboxes, and set their network rules."),
        (name = "sessions", description = "A session is a working directory, an environment and a persistent shell in a sandbox."),
        (name = "commands", description = "Run commands over HTTP, or interactively over the shell WebSocket."),
        (name = "processes", description = "Background processes with a log, standard input and signals."),
        (name = "contexts", description = "Code interpreters that keep variables and imports between runs."),
        (name = "files", description = "Read, write, search and watch the files of a sandbox."),
        (name = "terminals", description = "Terminals over WebSocket, their recordings, and tickets for browsers."),
        (name = "ports", description = "Reach programs that listen inside a sandbox, by HTTP, WebSocket, TCP and signed links."),
        (name = "images", description = "Container images that sandboxes are created from."),
        (name = "snapshots", description = "The files and shells of a sandbox at one moment, and sandboxes that start from them."),
        (name = "events", description = "Streams of what happens to sandboxes."),
        (name = "audit", description = "The signed log of the calls that clients made."),
        (name = "keys", description = "The API keys of the tenant."),
        (name = "webhooks", description = "URLs that the server tells about the tenant's sandboxes."),
        (name = "nodes", description = "The nodes of a fleet."),
        (name = "server", description = "The state of the server."),
        (name = "cloudflare", description = "The dialect of the bridge of Cloudflare's sandboxes. Its errors are `BridgeError` objects."),
        (name = "isorun", description = "The dialect of Isorun: runs, and network profiles for all sandboxes."),
        (name = "pokee", description = "The dialect of Pokee: sessions across the sandboxes of a tenant, with a limited lifetime."),
    )
)]
struct DocumentBase;

/// The document without its routes.
pub(super) fn document_base() -> OpenApi {
    let mut document = DocumentBase::openapi();
    document.info.description = Some(DESCRIPTION.to_owned());
    let key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A key of a tenant, in the header `Authorization: Bearer KEY`."))
        .build();
    let ticket = ApiKeyValue::with_description(
        "ticket",
        "A ticket from `POST /v1/tickets`, which opens one WebSocket once.",
    );
    let components = document.components.get_or_insert_default();
    if let Some(RefOr::T(Schema::Object(error))) =
        components.schemas.get_mut(ApiError::name().as_ref())
    {
        let text = error.description.get_or_insert_default();
        text.push_str("\n\n");
        text.push_str(&error_codes::table());
    }
    components.add_security_scheme(BEARER, SecurityScheme::Http(key));
    components.add_security_scheme(TICKET, SecurityScheme::ApiKey(ApiKey::Query(ticket)));
    document
}
