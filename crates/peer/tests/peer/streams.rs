//! Bodies and tunnels: backpressure, disconnects, data in both directions.

use crate::fleet::{Fleet, SOON, get, name, pool, request, soon, text, wait_until};
use crate::server::{PIECE_BYTES, TestServer, Zeros};
use http_body_util::BodyExt;
use isolet_peer::transport::ListenerLimits;
use isolet_peer::{PeerError, PeerListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BODY_BYTES: usize = 200 * 1024 * 1024;
/// What may lie between a sender and a reader that does not read: buffers of both sockets, which
/// the kernel grows to 10 MiB, and of TLS and HTTP on both sides.
const BETWEEN_BYTES: u64 = 16 * 1024 * 1024;

/// Waits until a counter has stayed the same for a second, and returns it.
async fn settled(counter: &AtomicU64) -> u64 {
    let settling = async {
        loop {
            let before = counter.load(Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            if before > 0 && counter.load(Ordering::SeqCst) == before {
                return before;
            }
        }
    };
    tokio::time::timeout(SOON, settling).await.expect("the sender stops")
}

#[tokio::test]
async fn a_download_waits_for_its_reader() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let path = format!("/zeros/{BODY_BYTES}");
    let answer = client.send(&name("node-1"), server.address, get(&path)).await.unwrap();
    let mut body = answer.into_body();
    let mut received = body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    let sent = settled(&server.seen.bytes).await;
    assert!(sent - received as u64 <= BETWEEN_BYTES, "{sent} bytes sent, {received} read");
    while let Some(frame) = body.frame().await {
        received += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(received, BODY_BYTES);
    drop(body);
    assert_eq!(client.in_use().idle, 1, "the connection is used again");
}

/// A response of a program with nearly as many headers as it may have failed when it was forwarded, because
/// nodes add some of their own.
#[tokio::test]
async fn a_response_may_have_the_headers_of_a_program_and_those_that_nodes_add() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let sent = client.send(&name("node-1"), server.address, get("/headers/270")).await;
    assert_eq!(sent.unwrap().headers().get_all("x").iter().count(), 270);
}

#[tokio::test]
async fn an_upload_waits_for_its_reader() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let sent = Arc::new(crate::server::Seen::default());
    let body = Zeros::new(BODY_BYTES, &sent).boxed_unsync();
    let node = name("node-1");
    let upload = client.send(&node, server.address, request("POST", "/drain", body));
    server.reads.add_permits(1);
    let stopped = async {
        let sent = settled(&sent.bytes).await;
        assert!(sent <= BETWEEN_BYTES, "{sent} bytes sent");
        server.reads.add_permits(BODY_BYTES);
    };
    let (answer, ()) = soon("the upload", async { tokio::join!(upload, stopped) }).await;
    assert_eq!(text(answer.unwrap()).await, BODY_BYTES.to_string());
}

#[tokio::test]
async fn a_tunnel_carries_data_in_both_directions_at_once() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let mut switch = get("/switch");
    switch.headers_mut().insert("connection", "upgrade".parse().unwrap());
    switch.headers_mut().insert("upgrade", "echo".parse().unwrap());
    let answer = client.send(&name("node-1"), server.address, switch).await.unwrap();
    let tunnel = answer.into_body().into_tunnel().await.unwrap();
    assert_eq!(client.in_use().in_use, 1, "a tunnel counts");
    let (mut read, mut write) = tokio::io::split(tunnel);
    let writing = async {
        for round in 0..512_u32 {
            let piece = vec![round.to_be_bytes()[3]; PIECE_BYTES];
            write.write_all(&piece).await.unwrap();
        }
        // The end of one direction passes through, and the other one stays open.
        write.shutdown().await.unwrap();
    };
    let reading = async {
        let mut piece = vec![0; PIECE_BYTES];
        for round in 0..512_u32 {
            read.read_exact(&mut piece).await.unwrap();
            assert!(piece.iter().all(|byte| *byte == round.to_be_bytes()[3]), "{round}");
        }
        assert_eq!(read.read(&mut piece).await.unwrap(), 0);
    };
    soon("all data", async { tokio::join!(writing, reading) }).await;
    drop((read, write));
    assert_eq!(client.in_use().in_use, 0);
}

/// A server may speak first, in the packet that switches protocols.
#[tokio::test]
async fn bytes_behind_the_head_of_a_switch_are_not_lost() {
    let mut fleet = Fleet::new();
    let any = "127.0.0.1:0".parse().unwrap();
    let limits = ListenerLimits::default();
    let mut listener = PeerListener::bind(any, fleet.node("node-1"), limits).await.unwrap();
    let address = listener.address();
    let greeting = "x".repeat(10_000);
    let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: greet\r\n\r\n";
    let serving = async {
        let (node, mut stream) = listener.accept().await.unwrap();
        assert_eq!(node, name("node-2"));
        let mut request = [0; 4096];
        loop {
            let count = stream.read(&mut request).await.unwrap();
            if request[..count].ends_with(b"\r\n\r\n") {
                break;
            }
        }
        stream.write_all(format!("{head}{greeting}").as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let client = pool(&fleet.node("node-2"));
    let node = name("node-1");
    let (answer, stream) =
        soon("the switch", async { tokio::join!(client.send(&node, address, get("/")), serving) })
            .await;
    let mut tunnel = answer.unwrap().into_body().into_tunnel().await.unwrap();
    let mut received = vec![0; greeting.len()];
    soon("the greeting", tunnel.read_exact(&mut received)).await.unwrap();
    assert!(received == greeting.as_bytes());
    drop(stream);
}

#[tokio::test]
async fn a_response_without_a_switch_is_no_tunnel() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let answer = client.send(&name("node-1"), server.address, get("/who")).await.unwrap();
    let refused = answer.into_body().into_tunnel().await.unwrap_err();
    assert!(matches!(refused, PeerError::NotSwitched(_)), "{refused}");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_request() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let under_way = |count| {
        let seen = Arc::clone(&server.seen);
        move || seen.under_way.load(Ordering::SeqCst) == count
    };
    let node = name("node-1");
    {
        let hanging = client.send(&node, server.address, get("/hang"));
        tokio::select! {
            _ = hanging => panic!("it never answers"),
            () = wait_until("the request arrives", under_way(1)) => {}
        }
    }
    wait_until("the handler is dropped", under_way(0)).await;
    let path = format!("/zeros/{BODY_BYTES}");
    let answer = client.send(&node, server.address, get(&path)).await.unwrap();
    let mut body = answer.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    wait_until("the body is dropped", under_way(0)).await;
    assert_eq!(client.in_use().idle, 0, "a connection with the rest of a body is not used again");
}

#[tokio::test]
async fn a_server_that_goes_away_ends_the_request() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let node = name("node-1");
    let hanging = client.send(&node, server.address, get("/hang"));
    let closing = async {
        wait_until("it arrives", || server.seen.under_way.load(Ordering::SeqCst) == 1).await;
        server.close.send_modify(|count| *count += 1);
    };
    let (lost, ()) = soon("the request", async { tokio::join!(hanging, closing) }).await;
    let lost = lost.unwrap_err();
    assert!(matches!(lost.error, PeerError::Lost { reused: false, .. }), "{lost}");
    assert!(lost.unsent.is_none(), "the node may have processed it");
}
