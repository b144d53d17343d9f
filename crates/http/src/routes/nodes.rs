//! The nodes of a fleet.
//!
//! Nodes are the operator's business. Over HTTP the operator is the tenant `default`, as for the
//! metrics. Other tenants see what they can demand of the node of a sandbox: names, regions, labels and
//! states.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::fleet::draining::{DrainOptions, DrainProgress};
use crate::fleet::{Fleet, NodeChange, NodeError, NodeInfo, NodeList};
use crate::forwarding::errors::not_a_fleet;
use crate::forwarding::lookup::peer_named;
use crate::forwarding::node_call::drain;
use crate::forwarding::node_call::{self, NodeCall};
use crate::foundation::error::ApiError;
use crate::foundation::json::{SmallJson, not_null};
use crate::foundation::query::Query;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use isolet_sandbox::TenantId;
use isolet_wire::node::NodeName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A node that was removed.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForgottenNode {
    /// Its name.
    name: String,
    /// For how many sandboxes the ownership was given up.
    released: usize,
}

fn is_operator(caller: &Caller) -> bool {
    caller.tenant == TenantId::default_tenant()
}

fn fleet(app: &App) -> Result<&dyn Fleet, ApiError> {
    let joined = app.fleet.as_ref().ok_or_else(|| {
        not_a_fleet(
            StatusCode::NOT_IMPLEMENTED,
            "this server is no node of a fleet",
            "the operator sets [cluster] in the configuration of each node",
        )
    })?;
    Ok(&*joined.fleet)
}

/// The fleet, for the operator.
fn operated<'a>(app: &'a App, caller: &Caller) -> Result<&'a dyn Fleet, ApiError> {
    let fleet = fleet(app)?;
    if is_operator(caller) {
        return Ok(fleet);
    }
    let message = "a change of a node affects the sandboxes of every tenant";
    let hint = "use a key of the tenant `default`";
    Err(ApiError::new(StatusCode::FORBIDDEN, "not_yours", message, hint))
}

/// The node that a path names.
fn named(path: &str) -> Result<NodeName, ApiError> {
    NodeName::parse(path).map_err(|error| {
        let hint = "GET /v1/nodes lists all nodes";
        ApiError::new(StatusCode::NOT_FOUND, "no_node", error.to_string(), hint)
    })
}

/// List the nodes of the fleet
///
/// Every node answers with all nodes, as it knows them. Keys of the tenant `default` also get
/// `details` and `skipped`.
#[utoipa::path(
    get, path = "/v1/nodes", operation_id = "nodes_list", tag = "nodes",
    responses(
        (status = 200, description = "The nodes.", body = NodeList, example = json!({"here": "node-1", "is_current": true, "nodes": [{"name": "node-1", "region": "eu", "labels": {"gpu": "yes"}, "state": "ready", "cordoned": false}]})),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<Json<NodeList>, ApiError> {
    let list = fleet(&app)?.nodes();
    Ok(Json(if is_operator(&caller) { list } else { list.without_details() }))
}

/// Get a node
///
/// Reads the node from etcd. Keys of the tenant `default` also get `details` and `owned`.
#[utoipa::path(
    get, path = "/v1/nodes/{node}", operation_id = "nodes_get", tag = "nodes",
    params(
        ("node" = String, Path)
    ),
    responses(
        (status = 200, description = "The node.", body = NodeInfo),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn get(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<String>,
) -> Result<Json<NodeInfo>, ApiError> {
    let fleet = fleet(&app)?;
    let name = named(&node)?;
    if is_operator(&caller) {
        return Ok(Json(fleet.node(&name).await?));
    }
    // A tenant's requests cost etcd nothing.
    let known = fleet.nodes().nodes.into_iter().find(|known| known.name == name.as_str());
    Ok(Json(known.ok_or(NodeError::Unknown(name))?.without_details()))
}

async fn change(
    app: &App,
    caller: &Caller,
    node: &str,
    change: NodeChange,
) -> Result<Json<NodeInfo>, ApiError> {
    let fleet = operated(app, caller)?;
    Ok(Json(fleet.change_node(&named(node)?, change).await?))
}

/// Cordon a node
///
/// Excludes the node from placement. Its sandboxes stay, and it need not run. Needs a key of the
/// tenant `default`.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/cordon", operation_id = "nodes_cordon", tag = "nodes",
    params(
        ("node" = String, Path)
    ),
    responses(
        (status = 200, description = "The node.", body = NodeInfo),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn cordon(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<String>,
) -> Result<Json<NodeInfo>, ApiError> {
    change(&app, &caller, &node, NodeChange::Cordon).await
}

/// Uncordon a node
///
/// Includes the node in placement again. Needs a key of the tenant `default`.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/uncordon", operation_id = "nodes_uncordon", tag = "nodes",
    params(
        ("node" = String, Path)
    ),
    responses(
        (status = 200, description = "The node.", body = NodeInfo),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn uncordon(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<String>,
) -> Result<Json<NodeInfo>, ApiError> {
    change(&app, &caller, &node, NodeChange::Uncordon).await
}

/// The limits of a drain. All fields are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DrainNode {
    /// The time in seconds after which no further move begins. Moves that run are finished.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    timeout_s: Option<u64>,
}

async fn drain_of(
    app: &App,
    caller: &Caller,
    node: &str,
    begin: Option<DrainOptions>,
) -> Result<Json<DrainProgress>, ApiError> {
    let fleet = operated(app, caller)?;
    let name = named(node)?;
    let joined = app.fleet.as_ref().ok_or_else(|| NodeError::Unknown(name.clone()))?;
    if begin.is_some() {
        fleet.change_node(&name, NodeChange::Cordon).await?;
    }
    let progress = if name == *fleet.here() {
        drain::here(app, joined, begin)
    } else {
        let peer = peer_named(fleet, name.as_str());
        let peer = peer.ok_or_else(|| NodeError::Unknown(name.clone()))?;
        node_call::ask(fleet, &peer, &NodeCall::Drain { begin }).await?.drain
    };
    let none = || {
        let message = format!("node \"{name}\" has not been drained since its server started");
        let hint = "begin with POST /v1/nodes/{node}/drain";
        ApiError::new(StatusCode::NOT_FOUND, "no_drain", message, hint)
    };
    Ok(Json(progress.ok_or_else(none)?))
}

/// Drain a node
///
/// Cordons the node and begins to move all its sandboxes to other nodes of their regions, four at a time;
/// those of the class `store` that sleep are only stored away. Answers at once with the progress; if a
/// drain runs, nothing begins. The node must run. Its snapshots stay on it. Needs a key of the tenant
/// `default`.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/drain", operation_id = "nodes_drain", tag = "nodes",
    params(
        ("node" = String, Path)
    ),
    request_body(content = DrainNode, example = json!({"timeout_s": 600})),
    responses(
        (status = 200, description = "The progress.", body = DrainProgress, example = json!({"node": "node-1", "running": true, "total": 12, "moved": 0, "stored": 0, "remaining": 12, "left": []})),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn drain(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<String>,
    body: SmallJson<DrainNode>,
) -> Result<Json<DrainProgress>, ApiError> {
    let options = DrainOptions { timeout_s: body.value.timeout_s };
    drain_of(&app, &caller, &node, Some(options)).await
}

/// Get the progress of a drain
///
/// Of the last drain since the server of the node started. Needs a key of the tenant `default`.
#[utoipa::path(
    get, path = "/v1/nodes/{node}/drain", operation_id = "nodes_drain_progress", tag = "nodes",
    params(
        ("node" = String, Path)
    ),
    responses(
        (status = 200, description = "The progress.", body = DrainProgress),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn drain_progress(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<String>,
) -> Result<Json<DrainProgress>, ApiError> {
    drain_of(&app, &caller, &node, None).await
}

/// Declare a node dead
///
/// For a node that will not return. Its lease must have ended (409 `node_alive` otherwise). The files of
/// its sandboxes of the class `node` are on that node only, and no other node takes these sandboxes over:
/// requests for them get 410 `node_dead` from then on, and deleting one frees its id. If the node returns,
/// it is not dead any more. `owned` of `GET /v1/nodes/{node}` counts its sandboxes. Needs a key of the
/// tenant `default`.
#[utoipa::path(
    post, path = "/v1/nodes/{node}/declare-dead", operation_id = "nodes_declare_dead", tag = "nodes",
    params(
        ("node" = String, Path)
    ),
    responses(
        (status = 200, description = "The node, in state `dead`.", body = NodeInfo),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn declare_dead(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<String>,
) -> Result<Json<NodeInfo>, ApiError> {
    change(&app, &caller, &node, NodeChange::DeclareDead).await
}

/// Forget a dead node
///
/// Removes the last records of a node that was declared dead and owns no sandboxes. Needs a key of the
/// tenant `default`.
#[utoipa::path(
    delete, path = "/v1/nodes/{node}", operation_id = "nodes_forget", tag = "nodes",
    params(
        ("node" = String, Path),
        ("release" = Option<bool>, Query, description = "Give up the ownership of its sandboxes of the class `node` first, so that their ids can be used again. A node that returns continues those whose ids are free then.")
    ),
    responses(
        (status = 200, description = "The node is forgotten.", body = ForgottenNode),
        (status = 501, description = "The server is no node of a fleet.", body = ApiError)
    )
)]
pub(crate) async fn forget(
    State(app): State<App>,
    caller: Caller,
    Path(node): Path<String>,
    uri: Uri,
) -> Result<Json<ForgottenNode>, ApiError> {
    let fleet = operated(&app, &caller)?;
    let release = Query::of(&uri, &["release"])?.flag("release")?;
    let name = named(&node)?;
    let released = fleet.forget_node(&name, release).await?;
    Ok(Json(ForgottenNode { name: name.to_string(), released }))
}
