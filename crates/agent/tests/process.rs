//! Background processes with an id and a log.

mod kit;

use isolet_wire::process::{
    ENDED_MAX, FollowMode, LOG_BYTES, ProcessLogStart, ProcessRequest, ProcessStatus, StartProcess,
};
use isolet_wire::request::{AgentRequest, Invocation};
use isolet_wire::response::{AgentResponse, RefusalReason, STDERR, STDOUT};
use kit::{Agent, Client, Event, open};

fn start(id: &str, text: &str) -> StartProcess {
    let program = Invocation::Command(text.into());
    StartProcess {
        id: id.into(),
        program,
        cwd: "/tmp".into(),
        env: open().env,
        ..StartProcess::default()
    }
}

fn request(client: &mut Client, order: ProcessRequest) -> Result<ProcessStatus, RefusalReason> {
    client.request(&AgentRequest::Process(order));
    match client.response() {
        AgentResponse::Process(process) => Ok(process),
        AgentResponse::Refused { reason, .. } => Err(reason),
        response => panic!("{response:?}"),
    }
}

fn done(client: &mut Client, order: ProcessRequest) -> Result<(), RefusalReason> {
    client.request(&AgentRequest::Process(order));
    match client.response() {
        AgentResponse::Done => Ok(()),
        AgentResponse::Refused { reason, .. } => Err(reason),
        response => panic!("{response:?}"),
    }
}

fn run(client: &mut Client, id: &str, text: &str) -> ProcessStatus {
    request(client, ProcessRequest::Start(start(id, text))).expect("started")
}

fn kill(id: &str) -> ProcessRequest {
    ProcessRequest::Kill { id: id.into(), signal: 9, grace_ms: 0 }
}

/// What a follower received of a log: the bytes of each stream, gaps, and the end.
#[derive(Default)]
struct Heard {
    begun: ProcessLogStart,
    out: Vec<u8>,
    err: Vec<u8>,
    missed: u64,
    end: ProcessStatus,
}

fn follow(client: &mut Client, id: &str, since: Option<u64>, follow: bool) -> Heard {
    let mode = if follow { FollowMode::Live } else { FollowMode::Current };
    let heard = begin_to_follow(client, id, since, mode);
    hear(client, heard)
}

/// Returns when the agent has a follower.
fn begin_to_follow(client: &mut Client, id: &str, since: Option<u64>, mode: FollowMode) -> Heard {
    client.request(&AgentRequest::Process(ProcessRequest::Follow { id: id.into(), since, mode }));
    match client.response() {
        AgentResponse::ProcessLog(begun) => Heard { begun, ..Heard::default() },
        response => panic!("{response:?}"),
    }
}

/// Reads until the end of the process or of its log.
fn hear(client: &mut Client, mut heard: Heard) -> Heard {
    loop {
        match client.event() {
            Event::Response(AgentResponse::ProcessGap { from, to }) => heard.missed += to - from,
            Event::Response(AgentResponse::Process(process)) => {
                heard.end = process;
                return heard;
            }
            Event::Data(data) if data.stream == STDOUT => heard.out.extend(&data.bytes),
            Event::Data(data) if data.stream == STDERR => heard.err.extend(&data.bytes),
            event => panic!("{event:?}"),
        }
    }
}

fn list(client: &mut Client) -> Vec<ProcessStatus> {
    client.request(&AgentRequest::Process(ProcessRequest::List));
    let mut all = Vec::new();
    loop {
        match client.response() {
            AgentResponse::Processes(some) => all.extend(some),
            AgentResponse::Done => return all,
            response => panic!("{response:?}"),
        }
    }
}

/// Promises: J1.
#[test]
fn a_process_is_told_of_while_it_runs_and_after_its_end() {
    let agent = Agent::start();
    let mut client = agent.connect();
    // Its input is empty, so it may have ended before its status arrives.
    let begun = run(&mut client, "a", "echo out; echo err >&2; read x; exit 7");
    assert_eq!(begun.id, "a");
    let heard = follow(&mut client, "a", Some(0), true);
    assert_eq!((&heard.out[..], &heard.err[..]), (&b"out\n"[..], &b"err\n"[..]));
    let end = heard.end.end.clone().expect("it has ended");
    assert_eq!((end.code, end.signal, end.killed), (7, None, false));
    assert_eq!((heard.end.out, heard.end.err, heard.end.held), (4, 4, 0));
    assert_eq!(request(&mut client, ProcessRequest::Get("a".into())).unwrap(), heard.end);
    assert_eq!(list(&mut client), std::slice::from_ref(&heard.end));
    let again = follow(&mut client, "a", Some(4), false);
    assert_eq!(again.out.len() + again.err.len(), 4);
    assert_eq!(follow(&mut client, "a", None, false).begun.position, 8);
    assert_eq!(done(&mut client, ProcessRequest::Forget("a".into())), Ok(()));
    assert_eq!(
        request(&mut client, ProcessRequest::Get("a".into())),
        Err(RefusalReason::NoSuchProcess)
    );
    assert_eq!(done(&mut client, ProcessRequest::Forget("a".into())), Ok(()));
    let lasting = run(&mut client, "b", "exec sleep 1000");
    assert_eq!((lasting.id.as_str(), lasting.end), ("b", None));
}

/// Promises: J2.
#[test]
fn what_cannot_be_started_is_refused_and_its_id_is_free() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let nowhere = StartProcess { cwd: "/no/such".into(), ..start("a", "true; true") };
    assert_eq!(request(&mut client, ProcessRequest::Start(nowhere)), Err(RefusalReason::BadCwd));
    let argv =
        StartProcess { program: Invocation::Argv(vec!["no-such-thing".into()]), ..start("a", "") };
    assert_eq!(request(&mut client, ProcessRequest::Start(argv)), Err(RefusalReason::NotFound));
    assert_eq!(
        request(&mut client, ProcessRequest::Start(start("", "true"))),
        Err(RefusalReason::BadRequest)
    );
    assert_eq!(list(&mut client), []);
    run(&mut client, "a", "no-such-thing --now");
    let heard = follow(&mut client, "a", Some(0), true);
    assert_eq!(heard.end.end.expect("ended").code, 127);
    assert_eq!(heard.err, b"bash: line 1: no-such-thing: command not found\n");
    assert_eq!(
        request(&mut client, ProcessRequest::Start(start("a", "true"))),
        Err(RefusalReason::IdInUse)
    );
}

/// Promises: J5.
#[test]
fn input_signals_and_ends_reach_it() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let cat = StartProcess { stdin: true, ..start("cat", "cat") };
    assert!(request(&mut client, ProcessRequest::Start(cat)).unwrap().stdin);
    let input =
        |data: &[u8], eof| ProcessRequest::Input { id: "cat".into(), data: data.to_vec(), eof };
    assert_eq!(done(&mut client, input(b"a\0b", false)), Ok(()));
    assert_eq!(done(&mut client, input(b"c", true)), Ok(()));
    let heard = follow(&mut client, "cat", Some(0), true);
    assert_eq!((&heard.out[..], heard.end.end.expect("ended").code), (&b"a\0bc"[..], 0));
    assert_eq!(done(&mut client, input(b"d", false)), Err(RefusalReason::Ended));

    run(&mut client, "trap", "trap 'echo got; exit 3' USR1; echo on; while :; do sleep 0.01; done");
    let signal = |signal| ProcessRequest::Signal { id: "trap".into(), signal, all: false };
    kit::until("it listens", || follow(&mut client, "trap", Some(0), false).out == b"on\n");
    assert_eq!(done(&mut client, signal(10)), Ok(()));
    let heard = follow(&mut client, "trap", Some(0), true);
    assert_eq!((&heard.out[..], heard.end.end.expect("ended").code), (&b"on\ngot\n"[..], 3));
    assert_eq!(done(&mut client, signal(10)), Err(RefusalReason::Ended));
    assert_eq!(done(&mut client, signal(65)), Err(RefusalReason::BadRequest));

    run(&mut client, "deaf", "trap '' TERM; echo on; sleep 1000");
    kit::until("it is deaf", || follow(&mut client, "deaf", Some(0), false).out == b"on\n");
    let polite = ProcessRequest::Kill { id: "deaf".into(), signal: 15, grace_ms: 50 };
    let end = request(&mut client, polite).unwrap().end.expect("ended");
    assert_eq!((end.code, end.signal, end.killed), (137, Some(9), true));
}

/// Promises: J4.
#[test]
fn a_timeout_ends_it_and_says_so() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let short = StartProcess { timeout_ms: 50, ..start("a", "sleep 1000") };
    request(&mut client, ProcessRequest::Start(short)).unwrap();
    let end = follow(&mut client, "a", Some(0), true).end.end.expect("ended");
    assert_eq!((end.timed_out, end.killed, end.signal), (true, false, Some(15)));
}

/// Promises: J6.
#[test]
fn a_log_is_bounded_and_what_was_cut_is_told() {
    let agent = Agent::start();
    let mut client = agent.connect();
    // No client reads its output, and it ends anyway.
    run(&mut client, "a", "seq 1 1000000");
    let mut other = agent.connect();
    kit::until("it ends", || {
        request(&mut other, ProcessRequest::Get("a".into())).unwrap().end.is_some()
    });
    let heard = follow(&mut client, "a", Some(0), true);
    let total = (1..=1_000_000_u64).map(|n| n.to_string().len() as u64 + 1).sum::<u64>();
    assert_eq!(heard.end.out, total);
    assert_eq!(heard.missed, heard.end.held);
    assert_eq!(heard.out.len() as u64 + heard.missed, total);
    assert!(heard.out.len() <= LOG_BYTES && heard.out.ends_with(b"999999\n1000000\n"));
    // A follower that reads from the beginning misses nothing.
    let waiting = StartProcess { stdin: true, ..start("b", "read x; seq 1 1000000") };
    request(&mut client, ProcessRequest::Start(waiting)).expect("started");
    let heard = begin_to_follow(&mut client, "b", Some(0), FollowMode::Live);
    let line = ProcessRequest::Input { id: "b".into(), data: b"\n".to_vec(), eof: false };
    assert_eq!(done(&mut other, line), Ok(()));
    let heard = hear(&mut client, heard);
    assert_eq!((heard.out.len() as u64, heard.missed), (total, 0));
}

/// Promises: J7.
#[test]
fn one_that_does_not_read_holds_up_nobody() {
    let agent = Agent::start();
    let mut client = agent.connect();
    run(&mut client, "a", "seq 1 3000000");
    let mut deaf = agent.connect();
    deaf.request(&AgentRequest::Process(ProcessRequest::Follow {
        id: "a".into(),
        since: Some(0),
        mode: FollowMode::Live,
    }));
    let heard = follow(&mut client, "a", None, true);
    assert_eq!(heard.end.end.expect("ended").code, 0);
}

/// Promises: J13.
#[test]
fn a_thousand_rounds_leave_nothing() {
    let agent = Agent::start();
    let mut client = agent.connect();
    let round = |client: &mut Client, n: usize| {
        let id = format!("p{n}");
        run(client, &id, "sleep 1000 & sleep 1000");
        request(client, kill(&id)).expect("killed");
    };
    let descriptors = agent.size().1;
    (0..200).for_each(|n| round(&mut client, n));
    let before = agent.size().0;
    (200..1_000).for_each(|n| round(&mut client, n));
    let after = agent.size().0;
    assert!(after < before + 4096, "{before} KiB, then {after}");
    kit::until("no descriptor is left", || agent.size().1 == descriptors);
    assert_eq!(list(&mut client).len(), ENDED_MAX);
    let task = format!("/proc/{0}/task/{0}/children", agent.child.id());
    kit::until("no child is left", || {
        std::fs::read_to_string(&task).expect("alive").trim().is_empty()
    });
}
