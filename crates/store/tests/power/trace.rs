//! What a process wrote and synced, out of the log of `strace -f -y -xx`.

use std::path::Path;

/// One call on a file in the directory that is looked at.
#[derive(Debug)]
pub(crate) enum TraceEvent {
    /// Bytes at an offset.
    Write(String, u64, Vec<u8>),
    /// Cut or extended to a length.
    Truncate(String, u64),
    /// Everything of it is on the disk.
    Sync(String),
    /// Its name is gone.
    Remove(String),
    /// Which names there are is on the disk.
    SyncNames,
    /// One more change was answered.
    Answered,
}

/// The calls in their order.
///
/// # Panics
/// On a call that is not understood, or that another thread interrupted: the order would be a guess.
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
    // Shared memory beside the log is made anew from it.
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

/// As `strace -xx` writes it.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// `\x0a\xff…` as bytes.
fn bytes(text: &str) -> Vec<u8> {
    let one = |hex| u8::from_str_radix(hex, 16).expect("two digits");
    text.split("\\x").skip(1).map(one).collect()
}
