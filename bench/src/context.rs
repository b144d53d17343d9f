//! A run of `1` in a code context against the same interpreter over bare pipes in this process: for
//! Python with the small driver and with the image's kernel. Also the start times of both.

use crate::http::HttpClient;
use crate::server::BenchServer;
use crate::stats::{Times, rows};
use anyhow::{Context as _, Result, ensure};
use hyper::Method;
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs of one variant in a row before the next variant follows.
const BURST: usize = 30;
/// Runs at the start of a row that are not counted, because caches are cold.
const WARM: usize = 4;

/// The time after which the spare kernel is ready.
const AHEAD: Duration = Duration::from_secs(3);

/// Python with the small driver, and with ipykernel.
const DRIVER: &str = "python-driver";
const KERNEL: &str = "python-kernel";
const PYTHON: [&str; 3] = [
    "python3",
    "-uc",
    "import sys\nnames = {}\nfor line in sys.stdin: print(repr(eval(line, names)))",
];
/// A program that reads a line, evaluates it, and prints the result.
const LOOPS: [(&str, &[&str]); 4] = [
    (DRIVER, &PYTHON),
    (KERNEL, &PYTHON),
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

/// An interpreter that is driven over pipes.
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
    let server = BenchServer::start(bin)?;
    let mut client = HttpClient::connect(&server)?;
    client.create("bench")?;
    for (engine, words) in LOOPS {
        let code = if engine == "bash" { "echo 1" } else { "1" };
        let wish = match engine {
            KERNEL => json!({ "id": engine, "language": "python" }),
            DRIVER => json!({ "id": engine, "language": "python", "kernel": "none" }),
            language => json!({ "id": language, "language": language }),
        };
        let made = client.call(Method::POST, "/v1/sandboxes/bench/contexts", Some(&wish))?;
        if engine == KERNEL && made["kernel"].is_null() {
            println!("\npython3 has no ipykernel here: {KERNEL} is left out");
            continue;
        }
        let mut pipe = Pipe::open(words)?;
        let mut bare = Times::default();
        let mut context = Times::default();
        let path = format!("/v1/sandboxes/bench/contexts/{engine}/run");
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
            &format!("### `{code}` in a context of {engine}"),
            &[("bare pipes", bare), ("context, HTTP", context)],
        );
    }
    begins(&mut client, rounds)
}

/// Start times of Python contexts, in a new sandbox for each round: the driver, and
/// several kernels in a row, of which the third takes the spare kernel.
fn begins(client: &mut HttpClient, rounds: usize) -> Result<()> {
    let mut times: [Times; 4] = Default::default();
    for round in 0..rounds {
        let id = format!("begin{round}");
        client.create(&id)?;
        let path = format!("/v1/sandboxes/{id}/contexts");
        for (turn, times) in times.iter_mut().enumerate() {
            let kernel = if turn == 0 { json!({ "kernel": "none" }) } else { json!({}) };
            let begun = Instant::now();
            let made = client.call(Method::POST, &path, Some(&kernel))?;
            times.push(begun.elapsed());
            ensure!(made["id"].is_string(), "{made}");
            // The spare kernel starts half a second after another kernel.
            std::thread::sleep(AHEAD);
        }
        client.delete(&id)?;
    }
    let [driver, first, second, spare] = times;
    let all = [
        ("driver", driver),
        ("kernel", first),
        ("second", second),
        ("spare, started in advance", spare),
    ];
    rows("### a context of Python, until it is made", &all);
    Ok(())
}
