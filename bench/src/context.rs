//! A run of `1` in a code context, against the same interpreter over bare pipes in this process.

use crate::http::Client;
use crate::server::Server;
use crate::stats::{Times, rows};
use anyhow::{Context as _, Result, ensure};
use hyper::Method;
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Runs in a row of one variant before the next has its turn.
const BURST: usize = 30;
/// Of these, dropped at the start: caches and pages come back.
const WARM: usize = 4;

/// What reads a line, evaluates it, and says what it is.
const LOOPS: [(&str, &[&str]); 3] = [
    (
        "python",
        &[
            "python3",
            "-uc",
            "import sys\nnames = {}\nfor line in sys.stdin: print(repr(eval(line, names)))",
        ],
    ),
    (
        "javascript",
        &[
            "node",
            "-e",
            "require('readline').createInterface({ input: process.stdin }).on('line', (line) => \
             console.log(require('util').inspect((0, eval)(line))))",
        ],
    ),
    ("bash", &["bash", "-c", "while IFS= read -r line; do eval \"$line\"; done"]),
];

/// An interpreter and its pipes.
struct Pipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Pipe {
    fn open(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(words[0]);
        let mut child =
            command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("piped")?;
        let output = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Self { child, input, output })
    }

    fn run(&mut self, code: &str) -> Result<()> {
        self.input.write_all(format!("{code}\n").as_bytes())?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line == "1\n", "the answer is {line:?}");
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn table(bin: &Path, rounds: usize) -> Result<()> {
    let server = Server::start(bin)?;
    let mut client = Client::connect(&server)?;
    client.create("bench")?;
    for (language, words) in LOOPS {
        let code = if language == "bash" { "echo 1" } else { "1" };
        let mut pipe = Pipe::open(words)?;
        let (mut bare, mut context) = (Times::default(), Times::default());
        let path = format!("/v1/sandboxes/bench/contexts/{language}/run");
        let body = json!({ "code": code });
        for _ in 0..rounds {
            for turn in 0..BURST {
                let begun = Instant::now();
                pipe.run(code)?;
                if turn >= WARM {
                    bare.push(begun.elapsed());
                }
            }
            for turn in 0..BURST {
                let begun = Instant::now();
                let answer = client.call(Method::POST, &path, Some(&body))?;
                if turn >= WARM {
                    context.push(begun.elapsed());
                }
                ensure!(answer["exception"].is_null(), "{answer}");
            }
        }
        rows(
            &format!("### `{code}` in a context of {language}"),
            &[("bare pipes", bare), ("context, HTTP", context)],
        );
    }
    Ok(())
}
