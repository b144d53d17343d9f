//! Packs the workspace into an archive, and unpacks an archive into the workspace.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::dialects::cloudflare::address::sandbox;
use crate::dialects::cloudflare::error::{BridgeError, Done};
use crate::foundation::binary::Binary;
use crate::foundation::json::reject_content_encoding;
use crate::foundation::query::{self, Query};
use crate::routes::files::content::raw;
use crate::routes::files::target::HOME;
use crate::routes::files::upload::receive;
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::Uri;
use axum::response::Response;
use isolet_sandbox::service::Access;

/// Parses the excluded paths, which are separated by commas.
fn excludes(uri: &Uri) -> Result<Vec<Vec<u8>>, BridgeError> {
    let query = Query::of(uri, &["excludes"])?;
    let all = query.bytes("excludes").unwrap_or_default().split(|byte| *byte == b',');
    let one = |path: &[u8]| {
        let parts: Vec<_> =
            path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
        if path.starts_with(b"/") || parts.contains(&&b".."[..]) {
            let reason = "paths below /workspace, without a slash before them and without ..";
            return Err(query::bad_parameter("excludes", reason));
        }
        Ok(parts.join(&b'/'))
    };
    let all = all.map(one).collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().filter(|path| !path.is_empty()).collect())
}

/// Download the workspace as an archive
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/persist", operation_id = "cloudflare_workspace_persist", tag = "cloudflare",
    params(
        ("id" = String, Path),
        ("excludes" = Option<String>, Query, description = "Paths below the workspace to leave out, separated by commas.")
    ),
    responses(
        (status = 200, description = "`/workspace` as a tar archive.", content_type = "application/octet-stream", body = inline(Binary))
    )
)]
pub(crate) async fn persist(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, BridgeError> {
    let id = sandbox(&id)?;
    let without = excludes(&uri)?;
    let sandbox = app.service.reach(&caller.tenant, &id, Access::Read).await?;
    Ok(raw(sandbox.file_pack_but(HOME, without).await?))
}

/// Unpack an archive into the workspace
///
/// Creates the sandbox if it does not exist.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/hydrate", operation_id = "cloudflare_workspace_hydrate", tag = "cloudflare",
    params(
        ("id" = String, Path)
    ),
    request_body(content = inline(Binary), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The archive was unpacked.", body = Done)
    )
)]
pub(crate) async fn hydrate(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Done>, BridgeError> {
    let id = sandbox(&id)?;
    Query::of(request.uri(), &[])?;
    reject_content_encoding(request.headers())?;
    let sandbox = app.service.reach(&caller.tenant, &id, Access::CreateIfMissing).await?;
    let mut writer = sandbox.file_unpack(HOME).await?;
    receive(request.into_body(), &mut writer).await?;
    writer.finish().await?;
    Ok(Done::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_paths_lie_below_the_workspace() {
        let of = |query: &str| excludes(&format!("/p?excludes={query}").parse().unwrap());
        let all = of("a,b/c/,./d,,e%2ff").unwrap();
        assert_eq!(all, [b"a".as_slice(), b"b/c", b"d", b"e/f"]);
        assert!(excludes(&Uri::from_static("/p")).unwrap().is_empty());
        for bad in ["..", "a/../b", "/etc", "a,/b"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
