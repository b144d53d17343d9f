//! How long a command takes through the agent, beside the same lines on bare pipes: one run,
//! both ways in turn. Worth reading only from a release build, with `--nocapture`.

mod kit;

use isolet_wire::ask::Ask;
use kit::{Agent, run};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 30;
const BURST: usize = 30;
const COLD: usize = 4;

/// A bash with its two lines a command and its answer on a pipe.
struct Bare {
    child: std::process::Child,
    answers: BufReader<std::io::PipeReader>,
    out: std::process::ChildStdout,
}

impl Bare {
    fn start() -> Self {
        let (answers, status) = std::io::pipe().expect("a pipe");
        let script = format!(
            "exec 57>/proc/{}/fd/{} 58</dev/null; \
             exec bash --norc --noprofile --noediting -i 2>/dev/null",
            std::process::id(),
            status.as_raw_fd()
        );
        let mut child = Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let out = child.stdout.take().expect("piped");
        let mut bare = Self { child, answers: BufReader::new(answers), out };
        bare.run("PS1=", 0);
        bare
    }

    fn run(&mut self, text: &str, bytes: usize) {
        let lines = format!(
            "\\builtin eval '{text}' <&58; __ise=1:$? PS1= PROMPT_COMMAND=\n\
             \\builtin echo 1 \"$?\" \"$__ise\" \"$-\" >&57\n"
        );
        self.child.stdin.as_mut().expect("piped").write_all(lines.as_bytes()).expect("written");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        self.out.read_exact(&mut vec![0; bytes]).expect("its output");
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tenth and the fiftieth percentile, in microseconds.
fn low_and_middle(mut all: Vec<Duration>) -> (f64, f64) {
    all.sort_unstable();
    let at = |share: usize| all[all.len() * share / 100].as_secs_f64() * 1e6;
    (at(10), at(50))
}

#[test]
fn a_command_costs_little_more_than_bare_pipes() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let mut bare = Bare::start();
    for (text, bytes) in [(":", 0), ("echo $HOME", 6), ("/bin/true", 0)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            for at in 0..BURST {
                let start = Instant::now();
                bare.run(text, bytes);
                theirs.extend((at >= COLD).then(|| start.elapsed()));
            }
            for at in 0..BURST {
                let start = Instant::now();
                shell.ask(&Ask::Run(run("l", text)));
                assert_eq!(shell.outcome("l").out.len(), bytes);
                ours.extend((at >= COLD).then(|| start.elapsed()));
            }
        }
        let ((our_low, ours), (their_low, theirs)) = (low_and_middle(ours), low_and_middle(theirs));
        println!("{text:12} bare {theirs:7.1} µs   agent {ours:7.1} µs   x {:.2}", ours / theirs);
        // The tenth: a busy machine moves the median of three processes much more than of two.
        assert!(our_low < their_low * 8.0, "{text}: {our_low} µs beside {their_low}");
    }
}
