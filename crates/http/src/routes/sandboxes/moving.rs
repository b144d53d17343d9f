//! Moving a sandbox to another node.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::fleet::MoveTo;
use crate::forwarding::errors::not_a_fleet;
use crate::forwarding::node_call::moving;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::foundation::json::{SmallJson, not_null};
use crate::routes::sandboxes::view::SandboxView;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use isolet_wire::node::NodeName;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Where to move a sandbox: exactly one of both.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MoveSandbox {
    /// The name of a node.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    node: Option<String>,
    /// A region, in which placement chooses the node.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    region: Option<String>,
}

impl MoveSandbox {
    fn to(self) -> Result<MoveTo, ApiError> {
        match (self.node, self.region) {
            (Some(node), None) => match NodeName::parse(&node) {
                Ok(node) => Ok(MoveTo::Node(node)),
                Err(error) => Err(ApiError::bad_field("node", &error.to_string())),
            },
            (None, Some(region)) => Ok(MoveTo::Region(region)),
            (None, None) => Err(ApiError::bad_field("node", "is required, or region")),
            (Some(_), Some(_)) => {
                Err(ApiError::bad_field("region", "cannot be combined with node"))
            }
        }
    }
}

/// Move a sandbox to another node
///
/// In a fleet with an object store. Pushes a snapshot of the sandbox, ends it on its node, and restores it
/// on the other one: with its files, sessions, environment, settings, links and credentials. Processes
/// end; `restored_from` in the answer and the next command report what is lost. A sleeping sandbox stays
/// asleep, and a paused one arrives running. While it moves, requests for it wait or get 503 with
/// `Retry-After`. A sandbox that is there already is returned as it is, so a move can be repeated.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/move", operation_id = "sandboxes_move", tag = "sandboxes",
    params(
        ("id" = String, Path)
    ),
    request_body(content = MoveSandbox, example = json!({"node": "node-2"})),
    responses(
        (status = 200, description = "The sandbox on its new node.", body = SandboxView),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn move_sandbox(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    body: SmallJson<MoveSandbox>,
) -> Result<Json<Value>, ApiError> {
    let to = body.value.to()?;
    let Some(joined) = &app.fleet else {
        app.service.get(&caller.tenant, &ids.sandbox).await?;
        return Err(not_a_fleet(
            StatusCode::NOT_IMPLEMENTED,
            "this server is no node of a fleet",
            "the operator sets [cluster] in the configuration of each node",
        ));
    };
    let moved = moving::move_away(&app, joined, &caller.tenant, &ids.sandbox, to).await?;
    Ok(Json(moved))
}
