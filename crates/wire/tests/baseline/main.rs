//! Compares the wire format with the baseline: every kind of message in `tests/baseline/wire` still
//! decodes to the same value and encodes to the same bytes.
//!
//! An agent, and the process that owns the veth pairs, outlive the server. After an upgrade, the
//! new server reads what the old ones send, and they read what it sends. Each file holds one set of
//! messages, one message per line: its name, a space, and its bytes in hexadecimal.

mod activities;
mod asks;
mod context;
mod packets;
mod tells;

use isolet_wire::frame::{self, Frame, FrameError};
use isolet_wire::launcher;
use isolet_wire::response::AgentResponse;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

/// Messages whose format was changed on purpose since the baseline: set, name and reason. Only sets
/// whose two sides always come from one build (`orders`, `reports`) may appear here. Any other
/// change breaks sandboxes that run during an upgrade.
const CHANGED: &[(&str, &str, &str)] = &[];

/// Recorded messages that no server or agent ever sends and that are now refused: set, name and
/// reason.
const REFUSED: &[(&str, &str, &str)] =
    &[("asks", "terminal_least", "a terminal is named by its session")];

/// One message and its name in the recorded file.
pub(crate) type Row<T> = (&'static str, T);

/// How a message is transmitted.
#[derive(Clone, Copy)]
enum Form {
    /// A message frame in a stream.
    Frame,
    /// A packet of a `SOCK_SEQPACKET` connection, without a head.
    Packet,
}

fn encode<T: Serialize>(form: Form, message: &T) -> Vec<u8> {
    match form {
        Form::Packet => launcher::encode(message),
        Form::Frame => {
            let mut out = Vec::new();
            frame::put(&mut out, message);
            out
        }
    }
}

fn decode<T: DeserializeOwned>(form: Form, bytes: &[u8]) -> T {
    try_decode(form, bytes).expect("the message decodes")
}

fn try_decode<T: DeserializeOwned>(form: Form, bytes: &[u8]) -> Result<T, FrameError> {
    let body = match form {
        Form::Packet => bytes.to_vec(),
        Form::Frame => {
            let mut stream = bytes::BytesMut::from(bytes);
            let next = frame::next(&mut stream, frame::SERVER_FRAME_BYTES_MAX);
            let Ok(Some(Frame::Message(body))) = next else { panic!("{next:?} is no message") };
            assert!(stream.is_empty(), "bytes follow the frame");
            body.to_vec()
        }
    };
    frame::decode(&body)
}

fn file(set: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/baseline/wire");
    PathBuf::from(root).join(format!("{set}.txt"))
}

/// The recorded messages of one set, by name.
fn recorded(set: &str) -> BTreeMap<String, Vec<u8>> {
    let text = fs::read_to_string(file(set)).expect("the baseline is committed");
    let lines = text.lines().map(|line| line.split_once(' ').expect("a name, then bytes"));
    lines.map(|(name, bytes)| (name.to_owned(), hex::decode(bytes).expect("hexadecimal"))).collect()
}

fn check<T>(set: &str, form: Form, rows: Vec<Row<T>>)
where
    T: Serialize + DeserializeOwned + Debug + PartialEq,
{
    let mut recorded = recorded(set);
    for (name, expected) in rows {
        let Some(bytes) = recorded.remove(name) else { continue };
        let now = encode(form, &expected);
        if let Some((.., reason)) = CHANGED.iter().find(|(s, n, _)| (*s, *n) == (set, name)) {
            assert_ne!(now, bytes, "{set} {name} is listed as changed ({reason}), and is not");
            continue;
        }
        let decoded: T = decode(form, &bytes);
        assert_eq!(decoded, expected, "{set} {name} decodes to another value");
        assert_eq!(hex::encode(&now), hex::encode(&bytes), "{set} {name} encodes to other bytes");
    }
    for (_, name, reason) in REFUSED.iter().filter(|(of, ..)| *of == set) {
        let bytes = recorded.remove(*name).expect("it was recorded");
        assert_eq!(try_decode::<T>(form, &bytes), Err(FrameError::Body), "{set} {name}: {reason}");
    }
    assert!(recorded.is_empty(), "no value is known for {set} {:?}", recorded.keys());
}

/// Checks that every variant of an enum was recorded.
fn whole(set: &str, form: Form, kinds: u8) {
    let at = match form {
        Form::Frame => 5,
        Form::Packet => 0,
    };
    let seen: std::collections::BTreeSet<u8> = recorded(set).values().map(|it| it[at]).collect();
    let all = (0..kinds).collect();
    assert_eq!(seen, all, "kinds of {set} that were recorded");
}

/// Promises: F39.
#[test]
fn what_a_server_says_to_an_agent_is_as_in_the_baseline() {
    check("asks", Form::Frame, asks::rows());
    whole("asks", Form::Frame, 21);
}

/// Promises: F39.
#[test]
fn what_an_agent_says_to_a_server_is_as_in_the_baseline() {
    check("tells", Form::Frame, tells::rows());
    whole("tells", Form::Frame, 36);
}

/// Promises: F39.
#[test]
fn every_kind_of_activity_is_as_in_the_baseline() {
    check("activities", Form::Frame, activities::rows());
}

#[test]
fn a_frame_with_a_malformed_activity_is_refused() {
    for (name, bytes) in recorded("activities_malformed") {
        let decoded = try_decode::<AgentResponse>(Form::Frame, &bytes);
        assert_eq!(decoded, Err(FrameError::Body), "{name}");
    }
}

/// Promises: F39.
#[test]
fn what_server_and_launcher_say_is_as_in_the_baseline() {
    check("orders", Form::Packet, packets::orders());
    whole("orders", Form::Packet, 2);
    check("reports", Form::Packet, packets::reports());
    whole("reports", Form::Packet, 4);
}

/// Promises: F39.
#[test]
fn what_server_and_the_owner_of_links_say_is_as_in_the_baseline() {
    check("link_orders", Form::Packet, packets::link_orders());
    check("link_told", Form::Packet, packets::link_told());
}

/// Promises: F39.
#[test]
fn what_the_owner_of_links_and_the_egress_proxy_say_is_as_in_the_baseline() {
    check("proxy_orders", Form::Packet, packets::proxy_orders());
    whole("proxy_orders", Form::Packet, 5);
    check("proxy_told", Form::Packet, packets::proxy_told());
    whole("proxy_told", Form::Packet, 5);
}

/// Promises: F39.
#[test]
fn data_frames_are_as_in_the_baseline() {
    let recorded = recorded("data");
    for (name, (stream, offset, id, bytes)) in packets::data() {
        let mut now = Vec::new();
        frame::put_data_head(&mut now, stream, offset, id, bytes.len());
        now.extend_from_slice(bytes);
        assert_eq!(hex::encode(&now), hex::encode(&recorded[name]), "{name}");
        let mut stream_of = bytes::BytesMut::from(&recorded[name][..]);
        let next = frame::next(&mut stream_of, frame::AGENT_FRAME_BYTES_MAX);
        let Ok(Some(Frame::Data(body))) = next else { panic!("{name}: {next:?}") };
        let data = frame::DataFrame::parse(body).expect("it parses");
        assert_eq!((data.stream, data.offset, data.id.as_str()), (stream, offset, id), "{name}");
        assert_eq!(&data.bytes[..], bytes, "{name}");
    }
}

/// Writes the files, only for a new baseline: `make baseline` in a checkout of that commit.
#[test]
#[ignore = "writes tests/baseline/wire"]
fn record_baseline_wire_frames() {
    fn write<T: Serialize>(set: &str, form: Form, rows: Vec<Row<T>>) {
        let line =
            |(name, value): &Row<T>| format!("{name} {}\n", hex::encode(encode(form, value)));
        fs::write(file(set), rows.iter().map(line).collect::<String>()).expect("writes");
    }
    write("asks", Form::Frame, asks::rows());
    write("tells", Form::Frame, tells::rows());
    write("activities", Form::Frame, activities::rows());
    write("orders", Form::Packet, packets::orders());
    write("reports", Form::Packet, packets::reports());
    write("link_orders", Form::Packet, packets::link_orders());
    write("link_told", Form::Packet, packets::link_told());
    write("proxy_orders", Form::Packet, packets::proxy_orders());
    write("proxy_told", Form::Packet, packets::proxy_told());
    let line = |(name, (stream, offset, id, bytes)): packets::DataRow| {
        let mut out = Vec::new();
        frame::put_data_head(&mut out, stream, offset, id, bytes.len());
        out.extend_from_slice(bytes);
        format!("{name} {}\n", hex::encode(&out))
    };
    let text: String = packets::data().into_iter().map(line).collect();
    fs::write(file("data"), text).expect("writes");
}
