//! A command whose output is read over a WebSocket that breaks whenever the server is killed: every
//! byte must arrive once, at its offset.

use super::work::{Gone, Worker};
use isolet_kit::{Frame, LONG, Shell, Value, json};
use std::time::{Duration, Instant};

/// Silence after which the client checks whether its command ever started.
const QUIET: Duration = Duration::from_secs(3);

/// What one client has read.
struct Reading {
    id: String,
    expected: Vec<u8>,
    /// The offset at which the command's output begins, and the position of the reader.
    begin: u64,
    out: u64,
    err: u64,
    seq: u64,
}

enum StreamStep {
    /// More output will follow.
    On,
    /// The connection broke and must be opened again.
    Cut,
    /// The command has ended.
    Ended,
}

/// Streams one command to its end.
pub(super) fn stream(worker: &mut Worker) -> Result<(), Gone> {
    let number = worker.number();
    let lines = 20 + worker.random.below(300);
    let expected: String = (0..lines).map(|line| format!("{number} line {line}\n")).collect();
    let text = format!(
        "echo {number} >>/workspace/ledger; for ((i=0; i<{lines}; i++)); do echo \"{number} line $i\"; ((i % 40)) || sleep 0.1; done"
    );
    let end = Instant::now() + LONG;
    let (mut shell, opened) = loop {
        let mut shell = connect(worker, "session=out&opened=1&frames=binary")?;
        match shell.next(LONG) {
            Some(Frame::Text(opened)) if opened["type"] == "shell_opened" => break (shell, opened),
            // The server was killed after it had accepted the connection.
            Some(Frame::Close(_)) if Instant::now() < end => worker.check()?,
            first => worker.unless_gone(&format!("the first frame is {first:?}"))?,
        }
    };
    let [out, err, seq] = positions(&opened);
    let id = format!("c{number}");
    let mut reading =
        Reading { id: id.clone(), expected: expected.into_bytes(), begin: out, out, err, seq };
    worker.ledger.insert(number, false);
    let run = json!({"type": "shell_run", "id": id, "command": text});
    let _ = shell.try_send(&run);
    let name = shell.id.clone();
    let mut progress = Instant::now();
    loop {
        let step = match shell.next(QUIET) {
            Some(frame) => {
                progress = Instant::now();
                take(worker, &mut reading, frame)?
            }
            None if never_began(worker, number)? => {
                worker.tally.never_began += 1;
                return Ok(());
            }
            None if progress.elapsed() > LONG => {
                return worker.unless_gone(&format!("command {number} says nothing any more"));
            }
            None => StreamStep::On,
        };
        match step {
            StreamStep::On => {}
            StreamStep::Ended => break,
            StreamStep::Cut => {
                worker.tally.resumes += 1;
                let Reading { out, err, seq, .. } = reading;
                let query =
                    format!("session=out&resume={name}&frames=binary&since={out},{err},{seq}");
                shell = connect(worker, &query)?;
            }
        }
    }
    worker.ledger.insert(number, true);
    worker.tally.streams += 1;
    worker.tally.bytes += reading.expected.len();
    Ok(())
}

fn take(worker: &mut Worker, reading: &mut Reading, frame: Frame) -> Result<StreamStep, Gone> {
    match frame {
        Frame::Data { stream: 1, offset, id, bytes } => {
            let at = (reading.out - reading.begin) as usize;
            let due = reading.expected.get(at..at + bytes.len());
            if id != reading.id || offset != reading.out || due != Some(&bytes[..]) {
                let said = String::from_utf8_lossy(&bytes).into_owned();
                let wanted = reading.out;
                let command = &reading.id;
                return worker.unless_gone_step(&format!(
                    "at {wanted} of {command} came offset {offset} of {id}: {said:?}"
                ));
            }
            reading.out += bytes.len() as u64;
            Ok(StreamStep::On)
        }
        Frame::Text(value) if value["type"] == "shell_exit" && value["id"] == *reading.id => {
            let whole = reading.out - reading.begin == reading.expected.len() as u64;
            if value["code"] != 0 || !whole {
                let read = reading.out - reading.begin;
                let due = reading.expected.len();
                return worker.unless_gone_step(&format!("{value} after {read} of {due} bytes"));
            }
            Ok(StreamStep::Ended)
        }
        Frame::Close(_) => Ok(StreamStep::Cut),
        other => worker.unless_gone_step(&format!("an unexpected frame: {other:?}")),
    }
}

impl Worker {
    fn unless_gone_step(&mut self, what: &str) -> Result<StreamStep, Gone> {
        self.unless_gone(what).map(|()| StreamStep::On)
    }
}

/// Whether a command never reached the shell: it has left no trace, and nothing of its session
/// runs.
fn never_began(worker: &mut Worker, number: u64) -> Result<bool, Gone> {
    let Some(session) = worker.call("GET", "/sessions/out", None)? else { return Ok(false) };
    if session.json()["busy"] != false {
        return Ok(false);
    }
    let ledger = worker.call("GET", "/files/ledger", None)?;
    Ok(ledger.is_some_and(|ledger| !ledger.text().lines().any(|line| line == number.to_string())))
}

/// Connects, and retries while the server is down.
fn connect(worker: &mut Worker, query: &str) -> Result<Shell, Gone> {
    let end = Instant::now() + LONG;
    loop {
        match worker.sandbox.try_open(query) {
            Ok(shell) => return Ok(shell),
            Err(status) if Instant::now() > end => {
                worker.unless_gone(&format!("no shell within {LONG:?}: status {status}"))?;
            }
            Err(status) => worker.tally.refuse(&format!("shell {status}")),
        }
        worker.check()?;
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn positions(opened: &Value) -> [u64; 3] {
    let text = opened["at"].as_str().expect("shell_opened has positions");
    let mut numbers = text.split(',').map(|part| part.parse().expect("a number"));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}
