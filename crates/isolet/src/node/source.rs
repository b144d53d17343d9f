//! Who answers: a server, or etcd.

use crate::client::ApiClient;
use crate::client::server_error::ServerError;
use crate::config::{Overrides, ServerSettings};
use anyhow::{Context, Result, anyhow};
use hyper::Method;
use isolet_fleet::Nodes;
use isolet_http::fleet::{NodeChange, NodeError};
use isolet_wire::node::NodeName;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Answers about nodes. The answers of both have the form of the API.
pub(super) enum Source {
    Server(ApiClient),
    Etcd {
        nodes: Nodes,
        /// The node of the settings.
        here: NodeName,
    },
}

impl Source {
    pub(super) fn open(is_etcd: bool, config: Option<PathBuf>) -> Result<Self> {
        if !is_etcd {
            return Ok(Self::Server(ApiClient::find()?));
        }
        let settings = ServerSettings::read(Overrides { file: config, ..Overrides::default() })?;
        let cluster = settings.cluster.context(
            "the configuration file has no table [cluster], so this machine is no node of a fleet",
        )?;
        Ok(Self::Etcd { nodes: Nodes::open(&cluster)?, here: cluster.node })
    }

    pub(super) async fn list(&self) -> Result<Value> {
        match self {
            Self::Server(server) => asked(server, Method::GET, "/v1/nodes").await,
            Self::Etcd { nodes, here } => value(&nodes.list(here).await.map_err(explained)?),
        }
    }

    pub(super) async fn get(&self, node: &NodeName) -> Result<Value> {
        match self {
            Self::Server(server) => asked(server, Method::GET, &format!("/v1/nodes/{node}")).await,
            Self::Etcd { nodes, .. } => value(&nodes.get(node).await.map_err(explained)?),
        }
    }

    pub(super) async fn change(&self, node: &NodeName, change: NodeChange) -> Result<Value> {
        match self {
            Self::Server(server) => {
                let word = match change {
                    NodeChange::Cordon => "cordon",
                    NodeChange::Uncordon => "uncordon",
                    NodeChange::DeclareDead => "declare-dead",
                };
                asked(server, Method::POST, &format!("/v1/nodes/{node}/{word}")).await
            }
            Self::Etcd { nodes, .. } => {
                value(&nodes.change(node, change).await.map_err(explained)?)
            }
        }
    }

    /// Forgets a dead node; `None` if it still owns sandboxes.
    pub(super) async fn forget(&self, node: &NodeName, release: bool) -> Result<Option<Value>> {
        match self {
            Self::Server(server) => {
                let query = if release { "?release=true" } else { "" };
                let path = format!("/v1/nodes/{node}{query}");
                match asked(server, Method::DELETE, &path).await {
                    Err(error) if is_code(&error, "node_owns_sandboxes") => Ok(None),
                    done => done.map(Some),
                }
            }
            Self::Etcd { nodes, .. } => match nodes.forget(node, release).await {
                Ok(released) => Ok(Some(json!({"name": node, "released": released}))),
                Err(NodeError::OwnsSandboxes { .. }) => Ok(None),
                Err(error) => Err(explained(error)),
            },
        }
    }
}

fn is_code(error: &anyhow::Error, code: &str) -> bool {
    error.downcast_ref::<ServerError>().is_some_and(|error| error.code == code)
}

async fn asked(server: &ApiClient, method: Method, path: &str) -> Result<Value> {
    match server.json(method, path).await {
        Ok((value, _)) => Ok(value),
        Err(error) if error.is::<ServerError>() => Err(error),
        Err(error) => {
            Err(anyhow!("{error:#}; on a node of the fleet, --etcd asks etcd without a server"))
        }
    }
}

fn value(of: &impl Serialize) -> Result<Value> {
    Ok(serde_json::to_value(of)?)
}

/// An error of etcd with what to do next.
fn explained(error: NodeError) -> anyhow::Error {
    let next = match &error {
        NodeError::Unavailable(_) => "check the settings with `isolet doctor`".to_owned(),
        NodeError::Unknown(_) => "`isolet node ls` lists all".to_owned(),
        NodeError::Alive(node) => format!(
            "stop its server, and wait until its lease has ended; `isolet node cordon {node}` keeps new \
             sandboxes away"
        ),
        NodeError::NotDead(node) => format!("`isolet node rm {node}` declares it dead"),
        NodeError::OwnsSandboxes { node, .. } => {
            format!("`isolet node rm {node} --release` gives up their ids")
        }
        NodeError::OwnsRestorable { node, .. } => format!(
            "a request for each, with a key of its tenant, restores it on another node; then `isolet node \
             rm {node} --release` again"
        ),
    };
    anyhow!("{error} ({next})")
}
