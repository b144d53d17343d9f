//! Parses the writes and syncs of a process from the output of `strace -f -y -xx`.

use std::path::Path;

/// One call on a file in the traced directory.
#[derive(Debug)]
pub(crate) enum TraceEvent {
    /// Bytes at an offset.
    Write(String, u64, Vec<u8>),
    /// Truncated or extended to a length.
    Truncate(String, u64),
    /// The file was synced.
    Sync(String),
    /// The file was removed.
    Remove(String),
    /// The directory was synced.
    SyncNames,
    /// One more change was acknowledged.
    Answered,
}

/// Parses all calls in their order.
///
/// # Panics
/// On an unknown call, and on overlapping calls of two threads, whose order would be a guess.
pub(crate) fn read(log: &Path, folder: &Path) -> Vec<TraceEvent> {
    let text = std::fs::read_to_string(log).expect("a log");
    let folder = hex(folder.as_os_str().as_encoded_bytes());
    let ours = text.lines().filter(|line| line.contains(&folder));
    ours.filter_map(|line| event(line, &folder)).collect()
}

fn event(line: &str, folder: &str) -> Option<TraceEvent> {
    assert!(!line.contains("unfinished"), "calls that overlap: {}", &line[..line.len().min(200)]);
    let (head, rest) = line.split_once('(').expect("a call");
    let call = head.rsplit(' ').next().expect("its name");
    let (_, rest) = rest.split_once(folder)?;
    let (file, rest) = rest.split_once(['>', '"']).expect("a file");
    let file = String::from_utf8(bytes(file)).expect("a name").trim_start_matches('/').to_owned();
    let (arguments, result) = rest.rsplit_once(") = ").expect("a result");
    assert!(!result.starts_with('-'), "{head}: {result}");
    // The shared index is rebuilt from the log.
    if file.ends_with("-shm") {
        return None;
    }
    let last = || arguments.rsplit(", ").next().and_then(|text| text.parse().ok());
    Some(match call {
        "write" if file == "answered" => TraceEvent::Answered,
        "pwrite64" => {
            let data = bytes(arguments.split('"').nth(1).expect("bytes"));
            TraceEvent::Write(file, last().expect("an offset"), data)
        }
        "ftruncate" => TraceEvent::Truncate(file, last().expect("a length")),
        "fsync" | "fdatasync" if file.is_empty() => TraceEvent::SyncNames,
        "fsync" | "fdatasync" => TraceEvent::Sync(file),
        "unlink" => TraceEvent::Remove(file),
        _ => panic!("{call} on {file} is not understood"),
    })
}

/// Encodes bytes as `strace -xx` does.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// Decodes bytes that `strace -xx` wrote, such as `\x0a\xff`.
fn bytes(text: &str) -> Vec<u8> {
    let one = |hex| u8::from_str_radix(hex, 16).expect("two digits");
    text.split("\\x").skip(1).map(one).collect()
}
