//! Images and layers between nodes: asks the others for them, and answers their requests.
//!
//! Only the listener for nodes has these paths, behind mutual TLS. The node that asks names the tenant
//! on whose behalf it asks; the other one checks what that tenant may read.

use crate::app::App;
use crate::fleet::{Fleet, Peer};
use crate::forwarding::lookup::peer_named;
use crate::forwarding::node_call::{self, NodeAnswer, NodeCall};
use crate::forwarding::peer_head::AnswerKind;
use crate::foundation::error::ApiError;
use crate::foundation::json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Limited};
use isolet_sandbox::TenantId;
use isolet_sandbox::image::{
    Digest, ImageHolder, ImagePeers, LayerBody, LayerHolder, PeerFailure, Reference,
    SENT_IMAGE_BYTES_MAX,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// What the paths of this module begin with.
const PATHS: &str = "/fleet/images/";
/// The path of an image without its layers.
const IMAGE_PATH: &str = "/fleet/images/image";
/// The path of the archive of a layer.
const LAYER_PATH: &str = "/fleet/images/layer";
/// How many nodes are asked for the layers of an image: those that report the image, then those of the
/// same region.
const LAYER_NODES_MAX: usize = 16;
/// How long a node may take to say what it has. The registry has everything too.
const FIND_WAIT: Duration = Duration::from_secs(1);
/// How long a node may take to send an image without its layers.
const IMAGE_WAIT: Duration = Duration::from_secs(10);
/// How many nodes are asked at the same time.
const ASKED_AT_ONCE: usize = 16;
/// The longest error of another node that becomes part of a message, in bytes.
const REASON_BYTES_MAX: usize = 4096;

/// An image of a tenant, for [`IMAGE_PATH`].
#[derive(Debug, Serialize, Deserialize)]
struct WantedImage {
    tenant: TenantId,
    image: String,
}

/// A layer that a tenant may read, for [`LAYER_PATH`].
#[derive(Debug, Serialize, Deserialize)]
struct WantedLayer {
    tenant: TenantId,
    layer: String,
}

/// An image that a node has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundImage {
    digest: String,
    recorded_at_ms: i64,
}

/// The other nodes, as pulls use them.
pub(crate) struct FleetImages(Arc<dyn Fleet>);

impl FleetImages {
    pub(crate) fn new(fleet: Arc<dyn Fleet>) -> Self {
        Self(fleet)
    }

    /// Asks several nodes, and returns the answers that arrive in time.
    async fn ask(&self, nodes: Vec<Peer>, call: &NodeCall) -> Vec<(Peer, NodeAnswer)> {
        let fleet = &*self.0;
        let asked = stream::iter(nodes).map(|peer| async move {
            let answer = timeout(FIND_WAIT, node_call::ask(fleet, &peer, call)).await;
            Some((peer, answer.ok()?.ok()?))
        });
        asked.buffered(ASKED_AT_ONCE).filter_map(std::future::ready).collect().await
    }

    /// Sends a request, and returns the body of the response.
    async fn request(
        &self,
        node: &str,
        path: &'static str,
        wanted: &impl Serialize,
    ) -> Result<Body, PeerFailure> {
        let failed = |reason: String| PeerFailure(reason);
        let peer = peer_named(&*self.0, node);
        let peer = peer.ok_or_else(|| failed("it is no member of the fleet".to_owned()))?;
        let text = serde_json::to_vec(wanted).map_err(|error| failed(error.to_string()))?;
        let mut request = Request::new(Body::from(text));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(path);
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        let sent = self.0.send(&peer, request).await.map_err(|error| failed(error.to_string()))?;
        let (mut head, body) = sent.response.into_parts();
        if AnswerKind::take(&mut head.headers) != Some(AnswerKind::Node) {
            return Err(failed("it does not speak the protocol of this node".to_owned()));
        }
        if head.status.is_success() {
            return Ok(body);
        }
        let reason = Limited::new(body, REASON_BYTES_MAX).collect().await;
        let reason = reason.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let reason = String::from_utf8_lossy(&reason);
        Err(failed(format!("it answered {}: {}", head.status.as_u16(), reason.trim_end())))
    }
}

impl ImagePeers for FleetImages {
    fn find_layers<'a>(
        &'a self,
        tenant: &'a str,
        image: &'a Digest,
        layers: &'a [Digest],
    ) -> BoxFuture<'a, Vec<LayerHolder>> {
        Box::pin(async move {
            let Ok(tenant) = TenantId::parse(tenant) else { return Vec::new() };
            let mut nodes = self.0.peers_by_image(&image.to_string());
            nodes.retain(|peer| !self.0.has_failed(peer));
            nodes.truncate(LAYER_NODES_MAX);
            let names = layers.iter().map(ToString::to_string).collect();
            let call = NodeCall::FindLayers { tenant, layers: names };
            let answers = self.ask(nodes, &call).await;
            let holder = |(peer, answer): (Peer, NodeAnswer)| LayerHolder {
                node: peer.node.to_string(),
                layers: answer.layers.iter().filter_map(|at| layers.get(*at).cloned()).collect(),
            };
            answers.into_iter().map(holder).filter(|holder| !holder.layers.is_empty()).collect()
        })
    }

    fn find_image<'a>(
        &'a self,
        tenant: &'a str,
        reference: &'a Reference,
    ) -> BoxFuture<'a, Option<ImageHolder>> {
        Box::pin(async move {
            let tenant = TenantId::parse(tenant).ok()?;
            let mut nodes = self.0.peers();
            nodes.retain(|peer| !self.0.has_failed(peer));
            let call = NodeCall::FindImage { tenant, image: reference.to_string() };
            let answers = self.ask(nodes, &call).await;
            let found = answers.into_iter().filter_map(|(peer, answer)| {
                let FoundImage { digest, recorded_at_ms } = answer.image?;
                Some(ImageHolder { node: peer.node.to_string(), digest, recorded_at_ms })
            });
            found.max_by_key(|holder| holder.recorded_at_ms)
        })
    }

    fn image<'a>(
        &'a self,
        node: &'a str,
        tenant: &'a str,
        reference: &'a Reference,
    ) -> BoxFuture<'a, Result<Bytes, PeerFailure>> {
        Box::pin(async move {
            let failed = |reason: String| PeerFailure(reason);
            let tenant = TenantId::parse(tenant).map_err(|error| failed(error.to_string()))?;
            let wanted = WantedImage { tenant, image: reference.to_string() };
            let received = async {
                let body = self.request(node, IMAGE_PATH, &wanted).await?;
                let body = Limited::new(body, SENT_IMAGE_BYTES_MAX).collect().await;
                Ok(body.map_err(|error| failed(error.to_string()))?.to_bytes())
            };
            let late = |_| failed(format!("no answer within {} s", IMAGE_WAIT.as_secs()));
            timeout(IMAGE_WAIT, received).await.map_err(late)?
        })
    }

    fn layer<'a>(
        &'a self,
        node: &'a str,
        tenant: &'a str,
        layer: &'a Digest,
    ) -> BoxFuture<'a, Result<LayerBody, PeerFailure>> {
        Box::pin(async move {
            let failed = |reason: String| PeerFailure(reason);
            let tenant = TenantId::parse(tenant).map_err(|error| failed(error.to_string()))?;
            let wanted = WantedLayer { tenant, layer: layer.to_string() };
            let body = self.request(node, LAYER_PATH, &wanted).await?;
            let pieces = body.into_data_stream();
            let pieces = pieces.map(|piece| piece.map_err(|error| PeerFailure(error.to_string())));
            Ok(Box::pin(pieces) as LayerBody)
        })
    }
}

/// Whether a path of the listener for nodes is one of this module.
pub(crate) fn owns(path: &str) -> bool {
    path.starts_with(PATHS)
}

/// Answers a request of another node for an image or a layer.
///
/// # Errors
/// 404 if the tenant has no such image or layer here, 429 if this node sends too many layers.
pub(crate) async fn answer(app: &App, request: Request<Body>) -> Result<Response, ApiError> {
    let path = request.uri().path().to_owned();
    let raw = json::read_body(request.into_body(), None).await?;
    match path.as_str() {
        IMAGE_PATH => {
            let WantedImage { tenant, image } = json::parse(&raw)?;
            let text = app.service.image_for_peer(&tenant, &image).await?;
            Ok(text.into_response())
        }
        LAYER_PATH => {
            let WantedLayer { tenant, layer } = json::parse(&raw)?;
            let body = app.service.layer_for_peer(&tenant, &layer)?;
            Ok(Body::from_stream(body).into_response())
        }
        _ => Err(ApiError::bad_request("this version does not know the call")),
    }
}

/// Which of these layers this node can send to a tenant, as indexes.
pub(super) async fn layers(
    app: &App,
    tenant: TenantId,
    layers: Vec<String>,
) -> Result<Vec<usize>, ApiError> {
    Ok(app.service.sendable_layers(&tenant, layers).await?)
}

/// The image that this node can send to a tenant.
pub(super) fn image(app: &App, tenant: &TenantId, image: &str) -> Option<FoundImage> {
    let held = app.service.sendable_image(tenant, image)?;
    Some(FoundImage { digest: held.digest, recorded_at_ms: held.recorded_at_ms })
}
