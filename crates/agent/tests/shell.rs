//! Commands in a long-lived shell with a real bash.

mod kit;

use isolet_wire::request::{AgentRequest, RunCommand};
use isolet_wire::response::{AgentResponse, RefusalReason};
use kit::{Agent, run};
use std::collections::BTreeMap;

#[test]
fn state_stays_from_command_to_command() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    assert_eq!(shell.run("cd /; export A=1; b=2; f() { echo f$A$b; }").exit.code, 0);
    let outcome = shell.run("pwd; f; echo err >&2; exit_with() { return 7; }; exit_with");
    assert_eq!((outcome.out(), outcome.err(), outcome.exit.code), ("/\nf12\n", "err\n", 7));
    assert_eq!(shell.run("echo $?").out(), "7\n");
    assert_eq!(shell.run("echo $?").out(), "0\n");
}

#[test]
fn odd_texts_end_and_the_shell_lives() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let long = format!("echo {}; exit_code() {{ return 3; }}; exit_code", "x".repeat(5000));
    for (text, code) in [
        ("echo 'a", 2),
        ("if", 2),
        ("cat <<E\nx", 0),
        ("echo \\", 0),
        ("# only this", 0),
        ("", 0),
        ("set -u; $nope", 1),
        ("set +u; ${x:?no}", 1),
        ("exec /no/such", 127),
        ("return 5", 2),
        ("break", 0),
        ("kill $$", 0),
        ("read x", 1),
        ("cat", 0),
        ("echo() { :; }; eval() { :; }; alias builtin=false", 0),
        ("unset -f echo eval; IFS=0123456789; (exit 3)", 3),
        ("unset IFS; PATH=; ls", 127),
        ("kill -INT $$", 130),
        (long.as_str(), 3),
    ] {
        let outcome = shell.run(text);
        assert_eq!(outcome.exit.code, code, "{text}: {outcome:?}");
        assert_eq!(shell.run("\\builtin echo on").out(), "on\n", "{text}");
    }
}

#[test]
fn commands_run_in_order_and_ids_are_unique_while_they_wait() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    // Until the first report, all commands wait, including this one.
    shell.run(":");
    shell.request(&AgentRequest::Run(RunCommand { stdin: true, ..run("hold", "cat") }));
    for at in 0..64 {
        shell.request(&AgentRequest::Run(run(&format!("q{at}"), &format!("echo {at}"))));
    }
    shell.skip_to(|response| matches!(response, AgentResponse::Started { id, .. } if id == "hold"));
    shell.request(&AgentRequest::Run(run("q3", "echo again")));
    let again = shell.skip_to(|response| matches!(response, AgentResponse::Refused { .. }));
    assert!(
        matches!(again, AgentResponse::Refused { reason: RefusalReason::IdInUse, .. }),
        "{again:?}"
    );
    shell.request(&AgentRequest::Run(run("more", "echo")));
    let more = shell.skip_to(|response| matches!(response, AgentResponse::Refused { .. }));
    assert!(
        matches!(more, AgentResponse::Refused { reason: RefusalReason::QueueFull, .. }),
        "{more:?}"
    );
    shell.request(&AgentRequest::Cancel { id: "q3".into() });
    shell.request(&AgentRequest::Stdin { id: "hold".into(), data: b"in".to_vec(), eof: true });
    let mut seen = Vec::new();
    while seen.len() < 65 {
        let AgentResponse::Exit(exit) =
            shell.skip_to(|response| matches!(response, AgentResponse::Exit(_)))
        else {
            continue;
        };
        assert_eq!(exit.cancelled, exit.id == "q3");
        assert_eq!(exit.seq, seen.len() as u64 + 2);
        seen.push(exit.id);
    }
    let order: Vec<_> = (0..64).filter(|at| *at != 3).map(|at| format!("q{at}")).collect();
    assert_eq!(seen[0], "q3");
    assert_eq!(seen[2..], order);
}

#[test]
fn standard_input_is_fed_by_command_and_does_not_reach_the_next() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let big = vec![b'x'; 300_000];
    shell.request(&AgentRequest::Run(RunCommand {
        stdin: true,
        ..run("a", "read l; echo \"[$l]\"; wc -c")
    }));
    shell.request(&AgentRequest::Stdin { id: "a".into(), data: b"line\n".to_vec(), eof: false });
    for part in big.chunks(60_000) {
        shell.request(&AgentRequest::Stdin { id: "a".into(), data: part.to_vec(), eof: false });
    }
    shell.request(&AgentRequest::Stdin { id: "a".into(), data: Vec::new(), eof: true });
    assert_eq!(shell.outcome("a").out(), "[line]\n300000\n");
    shell.request(&AgentRequest::Run(RunCommand { stdin: true, ..run("b", "true") }));
    shell.request(&AgentRequest::Stdin { id: "b".into(), data: b"unread\n".to_vec(), eof: true });
    shell.outcome("b");
    assert_eq!(shell.run("cat").out(), "");
    let next = RunCommand { stdin: true, ..run("c", "cat") };
    shell.request(&AgentRequest::Run(next));
    shell.request(&AgentRequest::Stdin { id: "c".into(), data: b"own".to_vec(), eof: true });
    assert_eq!(shell.outcome("c").out(), "own");
}

fn own(cwd: Option<&str>, env: &[(&str, Option<&str>)], text: &str) -> RunCommand {
    let env = env.iter().map(|(k, v)| ((*k).into(), v.map(Into::into)));
    RunCommand { cwd: cwd.map(Into::into), env: env.collect(), ..run("own", text) }
}

#[test]
fn directory_and_environment_of_one_command_are_put_back() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    shell
        .run("cd /usr; cd /etc; export A='o ld'; declare -i N=5; B=plain; arr=(1 '2 3'); (exit 9)");
    let env = [
        ("A", Some("it's")),
        ("B", None),
        ("N", Some("text")),
        ("arr", Some("s")),
        ("NEW", Some("")),
    ];
    let text = "echo $?; pwd; echo $A ${B-none} $N ${#arr[@]} ${NEW-no}; (exit 4)";
    let outcome = shell.run_with(own(Some("/var"), &env, text));
    assert_eq!(outcome.out(), "9\n/var\nit's none text 1\n", "{outcome:?}");
    assert_eq!((outcome.exit.code, outcome.err()), (4, ""));
    let state = "echo $?; pwd; echo $OLDPWD; echo \"$A $B $N ${arr[1]} ${NEW-no}\"; declare -p A N";
    assert_eq!(
        shell.run(state).out(),
        "4\n/etc\n/usr\no ld plain 5 2 3 no\ndeclare -x A=\"o ld\"\ndeclare -i N=\"5\"\n"
    );
    shell.run_with(own(Some("/var"), &[("A", Some("x"))], "cd /tmp; A=mine"));
    assert_eq!(shell.run("pwd; echo $A").out(), "/tmp\nmine\n");
}

#[test]
fn a_directory_that_is_not_there_fails_the_command_alone() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    shell.request(&AgentRequest::Run(own(Some("/no/such"), &[("A", Some("1"))], "echo ran")));
    match shell.response() {
        AgentResponse::Refused { reason: RefusalReason::BadCwd, message, .. } => {
            assert!(message.contains("/no/such"))
        }
        response => panic!("{response:?}"),
    }
    shell.run("set -eu; readonly R=1");
    let outcome =
        shell.run_with(own(Some("/var"), &[("A", Some("1")), ("R", Some("2"))], "echo ran"));
    assert_eq!((outcome.exit.code, outcome.out()), (1, ""));
    assert_eq!(shell.run("pwd; echo ${A-unset} $R").out(), "/tmp\nunset 1\n");
}

#[test]
fn a_name_that_is_no_variable_is_refused() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    for bad in [own(None, &[("A;id", Some("x"))], ":"), run("own", "a\0b"), run("", ":")] {
        shell.request(&AgentRequest::Run(bad));
        let response = shell.response();
        assert!(
            matches!(response, AgentResponse::Refused { reason: RefusalReason::BadRequest, .. }),
            "{response:?}"
        );
    }
}

#[test]
fn the_drivers_own_words_are_not_shown() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    assert_eq!(shell.run("set -x").err(), "");
    assert_eq!(shell.run("echo ho").err(), "++ echo ho\n");
    assert_eq!(shell.run("false").err(), "++ false\n");
    assert_eq!(shell.run("echo \"it's\"").err(), "++ echo 'it'\\''s'\n");
    assert_eq!(shell.run("set +x").err(), "++ set +x\n");
    assert_eq!(shell.run("sleep 0.01 & wait").err(), "");
    assert_eq!(shell.run("echo k >&2; kill -INT $$").err(), "k\n\n");
}

#[test]
fn history_lists_earlier_commands() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    shell.run("echo 'a\nb'");
    shell.run("true");
    let out = shell.run("history").out().to_owned();
    assert!(
        out.contains("echo 'a\nb'") && out.contains("true") && out.contains("3  history"),
        "{out}"
    );
    assert_eq!(shell.run("fc -ln -1 -1 | wc -l").exit.code, 0);
}

#[test]
fn merged_streams_keep_their_order() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let text = "for i in 1 2 3; do echo o$i; echo e$i >&2; done";
    let outcome = shell.run_with(RunCommand { merge: true, ..run("m", text) });
    assert_eq!((outcome.out(), outcome.err()), ("o1\ne1\no2\ne2\no3\ne3\n", ""));
}

#[test]
fn exact_bytes_pass_in_both_streams() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let outcome = shell.run("printf 'a\\0\\xff\\n\\n'; printf '\\xfe\\0' >&2");
    assert_eq!(outcome.out, b"a\0\xff\n\n");
    assert_eq!(outcome.err, b"\xfe\0");
    assert_eq!((outcome.exit.out, outcome.exit.err), (5, 2));
}

#[test]
fn several_variables_of_any_value_reach_the_command() {
    let agent = Agent::start();
    let mut shell = agent.shell();
    let value = "a'b\"c\n$(id) `id` \\ *".repeat(100);
    let env = BTreeMap::from([("V".to_owned(), Some(value.clone()))]);
    let outcome = shell.run_with(RunCommand { env, ..run("v", "printf %s \"$V\"") });
    assert_eq!(outcome.out(), value);
}
