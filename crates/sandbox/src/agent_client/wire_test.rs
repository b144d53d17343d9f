//! Connections must survive whatever an agent sends. In these tests, the agent is a script of
//! bytes.

use crate::agent_client::agent_version::AgentVersion;
use crate::agent_client::connection::{ExecConnection, ShellConnection};
use crate::agent_client::pool::{Pool, Watched};
use crate::agent_client::watch::watch_at;
use crate::agent_client::wire::{AgentEvent, Wire};
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use isolet_wire::activity::{Activity, ShellKey};
use isolet_wire::frame::{self, Frame};
use isolet_wire::request::{AgentRequest, AttachShell, StartExec};
use isolet_wire::response::{self, AgentResponse, RefusalReason};
use isolet_wire::version::{OLDEST_AGENT, VERSION};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

struct Agent {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl Agent {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("agent.sock")).unwrap();
        Self { dir, listener }
    }

    /// Accepts a connection, reads its greeting and first request, and returns the request.
    async fn accept(&self) -> (UnixStream, AgentRequest) {
        let (stream, offered, request) = self.greeting().await;
        assert_eq!(offered, VERSION);
        (stream, request)
    }

    /// Accepts a connection, and returns the version that it offers and its first request.
    async fn greeting(&self) -> (UnixStream, u16, AgentRequest) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut held = bytes::BytesMut::new();
        let mut asks = Vec::new();
        while asks.len() < 2 {
            while let Some(Frame::Message(body)) =
                frame::next(&mut held, frame::SERVER_FRAME_BYTES_MAX).unwrap()
            {
                asks.push(frame::decode::<AgentRequest>(&body).unwrap());
            }
            if asks.len() < 2 {
                stream.read_buf(&mut held).await.unwrap();
            }
        }
        let AgentRequest::Hello { version } = asks[0] else { panic!("{:?} is no hello", asks[0]) };
        (stream, version, asks.remove(1))
    }

    async fn wire(&self) -> Wire {
        Wire::connect(self.dir.path(), &Arc::default()).await.unwrap()
    }
}

fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, &AgentResponse::Hello { version: VERSION });
    out
}

fn frame_of(response: &AgentResponse) -> Vec<u8> {
    let mut out = Vec::new();
    frame::put(&mut out, response);
    out
}

/// The result of a ping that the agent answers with these bytes before it closes the connection.
async fn answered(bytes: &[u8]) -> Result<AgentEvent, AgentError> {
    let agent = Agent::new();
    let mut wire = agent.wire().await;
    wire.send(&AgentRequest::Ping(1)).await.unwrap();
    let (mut stream, _) = agent.accept().await;
    stream.write_all(bytes).await.unwrap();
    drop(stream);
    wire.next().await
}

#[tokio::test]
async fn frames_split_at_every_byte_arrive_whole() {
    let mut bytes = hello();
    frame::put(&mut bytes, &AgentResponse::Pong(7));
    frame::put_data_head(&mut bytes, response::STDOUT, 3, "r1", 2);
    bytes.extend_from_slice(b"hi");
    let agent = Agent::new();
    let mut wire = agent.wire().await;
    wire.send(&AgentRequest::Ping(7)).await.unwrap();
    let (mut stream, _) = agent.accept().await;
    let writer = tokio::spawn(async move {
        for byte in bytes {
            stream.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        stream
    });
    assert_eq!(wire.next().await.unwrap(), AgentEvent::Response(AgentResponse::Pong(7)));
    let AgentEvent::Data(body) = wire.next().await.unwrap() else { panic!("no data") };
    assert_eq!(
        &body[..],
        b"\x01\0\0\0\0\0\0\0\x03\0\x02r1hi",
        "laid out as the WebSocket's binary frame"
    );
    drop(writer.await.unwrap());
    assert_eq!(wire.next().await, Err(AgentError::Ended));
}

#[tokio::test]
async fn garbage_and_oversize_end_the_link_with_a_typed_error() {
    let after = |more: &[u8]| [hello(), more.to_vec()].concat();
    let bad = |bytes: Vec<u8>| async move { answered(&bytes).await.unwrap_err() };
    assert!(matches!(bad(b"HTTP/1.1 200 OK\r\n".to_vec()).await, AgentError::Frame(_)));
    for length in [0u32, frame::AGENT_FRAME_BYTES_MAX as u32 + 1, 1 << 31, u32::MAX] {
        assert!(
            matches!(bad(after(&length.to_be_bytes())).await, AgentError::Frame(_)),
            "{length}"
        );
    }
    assert!(matches!(bad(after(&[0, 0, 0, 2, 9, 9])).await, AgentError::Frame(_)), "unknown kind");
    assert!(
        matches!(bad(after(&[0, 0, 0, 2, 0, 0x7f])).await, AgentError::Frame(_)),
        "unknown message"
    );
    let mut long = frame_of(&AgentResponse::Pong(1));
    long[3] += 1;
    long.push(0);
    assert!(matches!(bad(after(&long)).await, AgentError::Frame(_)), "bytes left over");
    assert_eq!(bad(frame_of(&AgentResponse::Pong(1))).await, AgentError::Turn("no greeting"));
    let other = frame_of(&AgentResponse::Hello { version: VERSION + 1 });
    assert_eq!(bad(other).await, AgentError::Version { theirs: VERSION + 1 });
    assert_eq!(bad(Vec::new()).await, AgentError::Ended);
}

#[tokio::test]
async fn waiting_for_the_next_frame_may_be_given_up_at_any_time() {
    let agent = Agent::new();
    let mut wire = agent.wire().await;
    wire.send(&AgentRequest::Ping(1)).await.unwrap();
    let (mut stream, _) = agent.accept().await;
    let bytes = [hello(), frame_of(&AgentResponse::Pong(u64::MAX))].concat();
    let (first, rest) = bytes.split_at(bytes.len() - 3);
    stream.write_all(first).await.unwrap();
    // Cancels the read with half a frame in the buffer until the half has surely arrived.
    for _ in 0..20 {
        tokio::select! {
            biased;
            event = wire.next() => panic!("{event:?} of half a frame"),
            () = tokio::task::yield_now() => {}
        }
    }
    stream.write_all(rest).await.unwrap();
    assert_eq!(wire.next().await.unwrap(), AgentEvent::Response(AgentResponse::Pong(u64::MAX)));
}

#[tokio::test]
async fn a_send_that_was_dropped_half_way_leaves_the_link_unusable() {
    let agent = Agent::new();
    let mut wire = agent.wire().await;
    let big = AgentRequest::Stdin { id: String::new(), data: vec![0; 64 * 1024], eof: false };
    let cut_off = tokio::time::timeout(std::time::Duration::from_millis(200), async {
        loop {
            wire.send(&big).await.unwrap();
        }
    });
    assert!(cut_off.await.is_err(), "nobody reads");
    assert!(matches!(wire.send(&AgentRequest::Ping(1)).await, Err(AgentError::Turn(_))));
}

#[tokio::test]
async fn a_reader_that_goes_on_is_noticed_without_an_event() {
    let agent = Agent::new();
    let mut wire = agent.wire().await;
    let limit = 256 * 1024;
    let data = vec![0; 64 * 1024];
    let request = AgentRequest::Stdin { id: String::new(), data, eof: false };
    while wire.waiting() <= limit {
        wire.push(&request).unwrap();
    }
    let (mut stream, _) = agent.accept().await;
    stream.write_all(&hello()).await.unwrap();
    let reading = tokio::spawn(async move {
        let mut buffer = vec![0; 64 * 1024];
        while stream.read(&mut buffer).await.unwrap() > 0 {}
    });
    assert_eq!(wire.next_or_sent(limit).await.unwrap(), None);
    assert!(wire.waiting() <= limit);
    // Fewer bytes wait than before, but no more than the limit did.
    let next = wire.next_or_sent(limit);
    assert!(tokio::time::timeout(Duration::from_millis(50), next).await.is_err());
    drop(wire);
    reading.await.unwrap();
}

#[tokio::test]
async fn a_malformed_name_ends_the_link_and_a_new_one_can_be_opened() {
    let activity = Activity::Terminal { session: "a".into(), pid: 7, clients: 0, closed: None };
    let good = frame_of(&AgentResponse::Changed { activity: Some(activity), execs: 0 });
    let mut bad = good.clone();
    let at = bad.windows(3).position(|part| part == b"t/a").unwrap();
    bad[at] = b'x';
    assert!(matches!(answered(&[hello(), bad].concat()).await, Err(AgentError::Frame(_))));
    assert!(matches!(
        answered(&[hello(), good].concat()).await,
        Ok(AgentEvent::Response(AgentResponse::Changed { activity: Some(_), .. }))
    ));
}

#[tokio::test]
async fn a_long_path_connects_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let short = dir.path().join("s");
    let _listener = UnixListener::bind(&short).unwrap();
    std::fs::rename(short, deep.join("agent.sock")).unwrap();
    Wire::connect(&deep, &Arc::default()).await.unwrap();
}

fn attach() -> AttachShell {
    let shell = ShellKey::Session("default".to_owned());
    AttachShell { shell, open: None, owner: "o".into(), watch: false, since: None }
}

#[tokio::test]
async fn a_refused_attach_says_why() {
    let agent = Agent::new();
    let wire = agent.wire().await;
    let server = async {
        let (mut stream, request) = agent.accept().await;
        assert!(matches!(request, AgentRequest::Attach(_)));
        let refused = AgentResponse::Refused {
            id: None,
            reason: RefusalReason::NoShell,
            message: "no such shell".into(),
        };
        stream.write_all(&[hello(), frame_of(&refused)].concat()).await.unwrap();
    };
    let (connection, ()) = tokio::join!(ShellConnection::open(wire, attach(), Weak::new()), server);
    assert!(matches!(connection, Err(Error::Refused { reason: RefusalReason::NoShell, .. })));
}

/// An attached connection of a session's pool, and the agent's end of it.
async fn parked(agent: &Agent, pool: &Arc<Pool>) -> UnixStream {
    let wire = agent.wire().await;
    let server = async {
        let (mut stream, _) = agent.accept().await;
        let attached = AgentResponse::Attached { pid: 2, fresh: true, at: Default::default() };
        stream.write_all(&[hello(), frame_of(&attached)].concat()).await.unwrap();
        stream
    };
    let (connection, stream) =
        tokio::join!(ShellConnection::open(wire, attach(), Arc::downgrade(pool)), server);
    let connection = connection.unwrap().pooled();
    assert_eq!((connection.shell_id(), connection.pid(), connection.fresh()), ("default", 2, true));
    connection.park();
    stream
}

#[tokio::test]
async fn a_parked_shell_is_taken_again_unless_it_has_heard_something() {
    let agent = Agent::new();
    let watched = Arc::new(Watched::default());
    let pool = Arc::new(Pool::new(Arc::clone(&watched)));
    let session = SessionId::default_session();
    let _stream = parked(&agent, &pool).await;
    assert!(pool.take_shell(&SessionId::parse("other").unwrap()).is_none());
    assert!(pool.take_shell(&session).is_some());
    assert!(pool.take_shell(&session).is_none(), "taken once");
    // A background job writes. No client may block the shell by not reading.
    let mut stream = parked(&agent, &pool).await;
    let watcher = tokio::spawn(async move { watched.run().await });
    stream
        .write_all(&frame_of(&AgentResponse::Started { id: "x".into(), command: None }))
        .await
        .unwrap();
    let mut rest = Vec::new();
    // A socket error (a reset with unread bytes) also ends the stream.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty() && pool.take_shell(&session).is_none(), "no connection is held");
    watcher.abort();
}

#[tokio::test]
async fn a_program_s_connection_is_used_again_after_its_exit_only() {
    let agent = Agent::new();
    let pool = Arc::new(Pool::new(Arc::default()));
    for (over, kept) in [(false, false), (true, true)] {
        let wire = agent.wire().await;
        let (connection, (mut stream, _)) = tokio::join!(
            ExecConnection::open(wire, StartExec::default(), Arc::downgrade(&pool)),
            agent.accept()
        );
        let mut connection = connection.unwrap();
        let last = if over {
            AgentResponse::Exit(response::CommandExit::default())
        } else {
            AgentResponse::Pong(0)
        };
        stream.write_all(&[hello(), frame_of(&last)].concat()).await.unwrap();
        assert_eq!(connection.next().await.unwrap(), AgentEvent::Response(last));
        connection.park();
        assert_eq!(pool.take().is_some(), kept);
    }
}

#[tokio::test]
async fn a_pool_keeps_eight_and_none_that_has_ended() {
    let agent = Agent::new();
    let pool = Arc::new(Pool::new(Arc::default()));
    let mut ends = Vec::new();
    for _ in 0..12 {
        pool.park(agent.wire().await);
        ends.push(agent.listener.accept().await.unwrap());
    }
    let mut kept = 0;
    while pool.take().is_some() {
        kept += 1;
    }
    assert_eq!(kept, 8);
    pool.park(agent.wire().await);
    drop(agent.listener.accept().await.unwrap());
    assert!(pool.take().is_none(), "the agent closed it");
}

fn inventory() -> Vec<u8> {
    frame_of(&AgentResponse::Inventory { activities: Vec::new(), execs: 0 })
}

/// Watches an agent that answers every greeting with `answered`. Returns the offered version, and
/// the version of the agent from then on.
async fn watched_by(answered: u16) -> (u16, Result<u16, AgentError>) {
    let agent = Agent::new();
    let version = Arc::new(AgentVersion::default());
    let server = async {
        let (mut stream, offered, request) = agent.greeting().await;
        assert_eq!(request, AgentRequest::Watch);
        let hello = frame_of(&AgentResponse::Hello { version: answered });
        stream.write_all(&[hello, inventory()].concat()).await.unwrap();
        (stream, offered)
    };
    let watching = watch_at(agent.dir.path(), &version, Duration::from_secs(5));
    let (found, (_stream, offered)) = tokio::join!(watching, server);
    (offered, found.map(|_| version.get()))
}

#[tokio::test]
async fn the_version_of_an_agent_is_found_out_by_watching_it() {
    assert_eq!(watched_by(VERSION).await, (VERSION, Ok(VERSION)));
}

#[tokio::test]
async fn an_agent_without_a_common_version_is_reported_as_such() {
    for theirs in [OLDEST_AGENT - 1, VERSION + 1] {
        let (offered, found) = watched_by(theirs).await;
        assert_eq!(offered, VERSION);
        let error = found.unwrap_err();
        assert_eq!(error, AgentError::Version { theirs });
        assert!(error.is_unsupported(), "{theirs}");
    }
    assert!(!AgentError::Ended.is_unsupported() && !AgentError::Silent.is_unsupported());
}

/// An agent of an older version than the one that this server offers at first.
#[tokio::test]
async fn connections_offer_the_version_that_the_agent_agreed_on() {
    let agent = Agent::new();
    let version = Arc::new(AgentVersion::offering(VERSION + 2));
    let mut first = Wire::connect(agent.dir.path(), &version).await.unwrap();
    first.send(&AgentRequest::Ping(1)).await.unwrap();
    let (mut stream, offered, _) = agent.greeting().await;
    assert_eq!(offered, VERSION + 2);
    let answers = [AgentResponse::Hello { version: VERSION + 1 }, AgentResponse::Pong(1)];
    stream.write_all(&answers.map(|answer| frame_of(&answer)).concat()).await.unwrap();
    assert_eq!(first.next().await.unwrap(), AgentEvent::Response(AgentResponse::Pong(1)));
    let mut second = Wire::connect(agent.dir.path(), &version).await.unwrap();
    second.send(&AgentRequest::Ping(2)).await.unwrap();
    assert_eq!(agent.greeting().await.1, VERSION + 1);
}

#[tokio::test]
async fn a_request_that_an_agent_does_not_know_is_not_sent() {
    let agent = Agent::new();
    let version = Arc::new(AgentVersion::offering(OLDEST_AGENT - 1));
    let mut wire = Wire::connect(agent.dir.path(), &version).await.unwrap();
    let needs = AgentRequest::Ping(1).since();
    let refused = Err(AgentError::TooOld { has: OLDEST_AGENT - 1, needs });
    assert_eq!(wire.send(&AgentRequest::Ping(1)).await, refused);
    assert_eq!(wire.push(&AgentRequest::Ping(2)), refused);
    // The connection stays usable for what the agent knows.
    version.set(VERSION);
    wire.send(&AgentRequest::Ping(3)).await.unwrap();
    let (_, offered, request) = agent.greeting().await;
    assert_eq!((offered, request), (OLDEST_AGENT - 1, AgentRequest::Ping(3)));
}
