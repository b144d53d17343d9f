//! Makes one stream of the events of all nodes. The id of an event holds the position in the events
//! of each node, so that a client that reconnects continues on all of them.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::fleet::joined::JoinedFleet;
use crate::fleet::{Fleet, Peer};
use crate::forwarding::event_cursor::EventCursor;
use crate::forwarding::event_frames::{EventFrame, EventFrames};
use crate::forwarding::lists::UNREACHABLE_NODES;
use crate::forwarding::peer_head::{AnswerKind, PeerHead};
use crate::foundation::error::ApiError;
use crate::foundation::request_id::{REQUEST_ID, current_request_id};
use crate::routes::events::EVENT_POSITION;
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::future::join_all;
use isolet_wire::node::NodeName;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

/// How long a node may take to begin its stream.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// The pause before another attempt to follow a node, and between two looks for new nodes.
const RETRY: Duration = Duration::from_secs(2);
/// How many events wait for the client, of all nodes together. A node whose event does not fit is not
/// read, and ends the stream of a client that is too slow.
const WAITING_MAX: usize = 64;

/// Answers a request for the events of all sandboxes.
///
/// # Errors
/// When `Last-Event-ID` is malformed.
pub(crate) async fn answer(
    app: &App,
    joined: &JoinedFleet,
    caller: &Caller,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let cursor = EventCursor::of(request.headers())?;
    let fleet = Arc::clone(&joined.fleet);
    let here = fleet.here().clone();
    let follower = Follower {
        head: PeerHead::of(request.extensions(), Some(caller)),
        request_id: current_request_id(),
        fleet,
    };
    let last = cursor.as_ref().map(|cursor| cursor.start(&here));
    set_last(request.headers_mut(), last);
    let own = next.run(request).await;
    if own.status() != StatusCode::OK {
        return Ok(own);
    }
    let mut merged = MergedEvents::new(follower, cursor.clone().unwrap_or_default());
    merged.positions.set(&here, position(own.headers()).unwrap_or_default());
    let (mut parts, body) = own.into_parts();
    merged.follow_here(here, body);
    let unreachable = merged.follow_all(cursor.as_ref()).await;
    let mut first = EventBuffer::default();
    first.comment("following");
    first.position(&merged.positions.text());
    let cancellation = app.cancellations.subscribe(caller);
    let stream = EventStream::new(Some(merged), first, cancellation).into_response();
    let names = HeaderValue::try_from(unreachable.join(", "));
    if let Some(Ok(names)) = (!unreachable.is_empty()).then_some(names) {
        parts.headers.insert(UNREACHABLE_NODES, names);
    }
    // The position of one node means nothing to the client.
    parts.headers.remove(EVENT_POSITION);
    Ok(Response::from_parts(parts, stream.into_body()))
}

fn set_last(headers: &mut HeaderMap, last: Option<u64>) {
    match last {
        Some(last) => drop(headers.insert("last-event-id", HeaderValue::from(last))),
        None => drop(headers.remove("last-event-id")),
    }
}

fn position(headers: &HeaderMap) -> Option<u64> {
    headers.get(EVENT_POSITION)?.to_str().ok()?.parse().ok()
}

/// Opens the streams of other nodes.
struct Follower {
    fleet: Arc<dyn Fleet>,
    head: PeerHead,
    request_id: Option<String>,
}

/// The stream of a node, and the position at which it begins.
type NodeStream = (Body, u64);

impl Follower {
    /// `None`: the node does not answer.
    async fn open(&self, peer: &Peer, last: Option<u64>) -> Option<NodeStream> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = axum::http::Uri::from_static("/v1/events");
        let headers = request.headers_mut();
        self.head.write(headers);
        if let Some(Ok(id)) = self.request_id.as_ref().map(HeaderValue::try_from) {
            headers.insert(REQUEST_ID, id);
        }
        set_last(headers, last);
        let sent = timeout(HEAD_WAIT, self.fleet.send(peer, request)).await.ok()?.ok()?;
        let (mut parts, body) = sent.response.into_parts();
        let node = AnswerKind::take(&mut parts.headers) == Some(AnswerKind::Node);
        let begun = node && parts.status == StatusCode::OK;
        Some((body, position(&parts.headers).filter(|_| begun)?))
    }
}

/// What a node's task reports.
enum Report {
    Event(NodeName, EventFrame),
    /// The node does not answer any more; its task keeps trying.
    Unreachable(NodeName),
    /// The node answers again.
    Reachable(NodeName),
    /// The node has left the fleet, and its task has ended.
    Left(NodeName),
}

/// The data of an event about a node.
#[derive(Serialize)]
struct NodeEvent<'a> {
    node: &'a str,
}

/// The events of all nodes. Dropping it ends the streams.
struct MergedEvents {
    follower: Arc<Follower>,
    positions: EventCursor,
    here: Option<NodeName>,
    followed: BTreeSet<NodeName>,
    sender: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
    tasks: JoinSet<()>,
    look: Interval,
}

impl MergedEvents {
    fn new(follower: Follower, positions: EventCursor) -> Self {
        let (sender, reports) = mpsc::channel(WAITING_MAX);
        let mut look = interval(RETRY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            follower: Arc::new(follower),
            positions,
            here: None,
            followed: BTreeSet::new(),
            sender,
            reports,
            tasks: JoinSet::new(),
            look,
        }
    }

    fn follow_here(&mut self, here: NodeName, body: Body) {
        self.here = Some(here.clone());
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            let mut frames = EventFrames::new(body);
            while let Some(frame) = frames.next().await {
                if sender.send(Report::Event(here.clone(), frame)).await.is_err() {
                    return;
                }
            }
            // The server stops; the stream of the client ends with that error.
        });
    }

    /// Begins to follow all other nodes. Returns the names of those that do not answer.
    async fn follow_all(&mut self, cursor: Option<&EventCursor>) -> Vec<String> {
        let peers = self.follower.fleet.peers();
        let opened = peers.iter().map(|peer| {
            let last = cursor.map(|cursor| cursor.start(&peer.node));
            self.follower.open(peer, last)
        });
        let opened = join_all(opened).await;
        let mut unreachable = Vec::new();
        for (peer, stream) in peers.into_iter().zip(opened) {
            match &stream {
                Some((_, position)) => self.positions.set(&peer.node, *position),
                None => unreachable.push(peer.node.to_string()),
            }
            self.follow_node(peer, stream);
        }
        unreachable
    }

    fn follow_node(&mut self, peer: Peer, stream: Option<NodeStream>) {
        if !self.followed.insert(peer.node.clone()) {
            return;
        }
        let task = NodeTask {
            follower: Arc::clone(&self.follower),
            sender: self.sender.clone(),
            position: self.positions.get(&peer.node),
            peer,
        };
        self.tasks.spawn(task.run(stream));
    }

    /// Follows nodes that have joined the fleet, from their first event on.
    fn follow_new(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            drop(ended);
        }
        for peer in self.follower.fleet.peers() {
            self.follow_node(peer, None);
        }
    }
}

/// Follows one node until it has left the fleet. A node that returns is followed by a new task, which
/// continues at the same position.
struct NodeTask {
    follower: Arc<Follower>,
    sender: mpsc::Sender<Report>,
    peer: Peer,
    /// The id of the last event; `None`: the node has never answered.
    position: Option<u64>,
}

impl NodeTask {
    async fn run(mut self, stream: Option<NodeStream>) {
        let mut stream = stream;
        let mut answers = stream.is_some();
        loop {
            if let Some((body, _)) = stream.take() {
                if !answers
                    && self.report(Report::Reachable(self.peer.node.clone())).await.is_none()
                {
                    return;
                }
                answers = true;
                if self.relay(body).await.is_none() {
                    return;
                }
            }
            if answers && self.report(Report::Unreachable(self.peer.node.clone())).await.is_none() {
                return;
            }
            answers = false;
            sleep(RETRY).await;
            let member = self.follower.fleet.peers().into_iter();
            let Some(peer) = member.into_iter().find(|peer| peer.node == self.peer.node) else {
                let _ = self.report(Report::Left(self.peer.node.clone())).await;
                return;
            };
            self.peer = peer;
            // Without a position, the node's events from the oldest on: none may be missed.
            stream = self.follower.open(&self.peer, Some(self.position.unwrap_or(0))).await;
        }
    }

    /// Relays the events of one stream to its end. `None`: the client has disconnected.
    async fn relay(&mut self, body: Body) -> Option<()> {
        let mut frames = EventFrames::new(body);
        while let Some(frame) = frames.next().await {
            if frame.name == "error" {
                break;
            }
            // A node that has just joined has no events before its first one.
            if frame.name == "gap" && self.position.is_none() {
                continue;
            }
            self.position = frame.id.or(self.position);
            self.report(Report::Event(self.peer.node.clone(), frame)).await?;
        }
        Some(())
    }

    async fn report(&self, report: Report) -> Option<()> {
        self.sender.send(report).await.ok()
    }
}

impl EventSource for MergedEvents {
    type Item = Report;

    async fn next(&mut self) -> Result<Report, ApiError> {
        loop {
            tokio::select! {
                report = self.reports.recv() => {
                    // This source holds a sender, so the channel never ends.
                    return report.ok_or_else(|| isolet_sandbox::Error::Stopping.into());
                }
                _ = self.look.tick() => self.follow_new(),
            }
        }
    }

    fn ready(&mut self) -> Result<Option<Report>, ApiError> {
        Ok(self.reports.try_recv().ok())
    }

    fn write(&mut self, report: Report, out: &mut EventBuffer) -> ControlFlow<()> {
        match report {
            Report::Event(node, frame) => {
                if let Some(id) = frame.id {
                    self.positions.set(&node, id);
                    out.relayed_event(&self.positions.text(), &frame.name, &frame.data);
                } else {
                    out.line_event(&frame.name, &frame.data);
                }
                // The stream of this node ends with an error, for example of a slow client.
                if frame.name == "error" && self.here.as_ref() == Some(&node) {
                    return ControlFlow::Break(());
                }
            }
            Report::Unreachable(node) => {
                out.event(None, "node_unreachable", &NodeEvent { node: node.as_str() });
            }
            Report::Left(node) => {
                // It is followed again when it returns.
                self.followed.remove(&node);
            }
            Report::Reachable(node) => {
                out.event(None, "node_reachable", &NodeEvent { node: node.as_str() });
            }
        }
        ControlFlow::Continue(())
    }
}
