//! An end is never reported before the last byte of output (F46). In these tests, the agent is
//! stopped while a program writes its last bytes and exits, so that it finds everything at once
//! when it continues.

mod kit;

use isolet_wire::process::{FollowMode, ProcessRequest, StartProcess};
use isolet_wire::request::{AgentRequest, Invocation, StartExec};
use isolet_wire::response::{AgentResponse, STDOUT};
use kit::{Agent, Client, Event, open, run, terminal};
use rustix::process::{Pid, Signal, kill_process};

/// A command that waits for the file `go`, writes `hello` and exits.
fn waiting(agent: &Agent) -> String {
    format!("until [ -e {} ]; do sleep 0.01; done; echo hello", agent.dir.at("go"))
}

impl Agent {
    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process id"), signal).expect("the agent is there");
    }

    fn children(&self) -> Vec<String> {
        let path = format!("/proc/{0}/task/{0}/children", self.child.id());
        let text = std::fs::read_to_string(path).expect("alive");
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Lets the waiting program write and exit while the agent is stopped. `before` is called
    /// first.
    fn miss(&self, before: impl FnOnce()) {
        let own = self.child.id().to_string();
        // The agent handles events in the order in which they arrive while it waits for them.
        kit::until("the agent waits", || state(&own) == Some('S'));
        self.signal(Signal::STOP);
        kit::until("the agent is stopped", || state(&own) == Some('T'));
        before();
        std::fs::write(self.dir.at("go"), "").expect("written");
        kit::until("the program has ended", || {
            self.children().iter().any(|pid| state(pid) == Some('Z'))
        });
        self.signal(Signal::CONT);
    }
}

/// The state of a process: the letter after its name in `stat`.
fn state(pid: &str) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

fn out(client: &mut Client) -> (Vec<u8>, AgentResponse) {
    let mut out = Vec::new();
    loop {
        match client.event() {
            Event::Data(data) if data.stream == STDOUT => out.extend(&data.bytes),
            Event::Response(
                end @ (AgentResponse::Process(_)
                | AgentResponse::Exit(_)
                | AgentResponse::Closed(_)),
            ) => {
                return (out, end);
            }
            _ => {}
        }
    }
}

/// Promises: F46.
#[test]
fn f46_a_log_that_says_exited_holds_the_last_byte() {
    let agent = Agent::start();
    let mut starter = agent.connect();
    let mut reader = agent.connect();
    let start = StartProcess {
        id: "a".into(),
        program: Invocation::Command(waiting(&agent)),
        cwd: "/tmp".into(),
        env: open().env,
        ..StartProcess::default()
    };
    starter.request(&AgentRequest::Process(ProcessRequest::Start(start)));
    assert!(matches!(starter.response(), AgentResponse::Process(_)), "it runs");
    // The request arrives before the output and the exit, and the agent handles all three in one
    // round.
    agent.miss(|| {
        let follow =
            ProcessRequest::Follow { id: "a".into(), since: Some(0), mode: FollowMode::Current };
        reader.request(&AgentRequest::Process(follow));
    });
    let (out, end) = out(&mut reader);
    let AgentResponse::Process(process) = end else { panic!("{end:?}") };
    if process.end.is_some() {
        assert_eq!((out.as_slice(), process.out), (&b"hello\n"[..], 6), "{process:?}");
    }
}

/// Promises: F46.
#[test]
fn f46_a_follower_hears_the_last_byte_before_the_end() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let start = StartProcess {
        id: "a".into(),
        program: Invocation::Command(waiting(&agent)),
        cwd: "/tmp".into(),
        env: open().env,
        ..StartProcess::default()
    };
    client.request(&AgentRequest::Process(ProcessRequest::Start(start)));
    assert!(matches!(client.response(), AgentResponse::Process(_)), "it runs");
    client.request(&AgentRequest::Process(ProcessRequest::Follow {
        id: "a".into(),
        since: None,
        mode: FollowMode::Live,
    }));
    assert!(matches!(client.response(), AgentResponse::ProcessLog(_)), "it is followed");
    agent.miss(|| {});
    assert_eq!(out(&mut client).0, b"hello\n");
}

/// Promises: F46.
#[test]
fn f46_a_program_and_a_shell_report_the_last_byte_before_the_end() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let program = Invocation::Command(waiting(&agent));
    client.request(&AgentRequest::Exec(StartExec {
        program,
        cwd: "/tmp".into(),
        env: open().env,
        ..StartExec::default()
    }));
    kit::until("it runs", || !agent.children().is_empty());
    agent.miss(|| {});
    assert_eq!(out(&mut client).0, b"hello\n");

    // Bash exits with the command.
    std::fs::remove_file(agent.dir.at("go")).expect("removed");
    let mut shell = agent.shell();
    shell.request(&AgentRequest::Run(run("r", &format!("{}; exit 3", waiting(&agent)))));
    shell.skip_to(|response| matches!(response, AgentResponse::Started { .. }));
    agent.miss(|| {});
    assert_eq!(out(&mut shell).0, b"hello\n");
}

/// Promises: F46.
#[test]
fn f46_a_terminal_shows_the_last_byte_before_its_end() {
    let agent = Agent::start();
    let argv = ["bash", "-c", &waiting(&agent)].map(str::to_owned).to_vec();
    let open = isolet_wire::terminal::OpenTerminal { argv, ..terminal::bash() };
    let mut screen = agent.screen(terminal::attach_options(open));
    agent.miss(|| {});
    screen.end();
    assert_eq!(screen.text(), "hello\n");
}
