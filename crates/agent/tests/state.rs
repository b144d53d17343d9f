//! The agent reports the state of a session's shell to watchers, and the next shell restores it.

mod kit;

use isolet_wire::activity::ShellKey;
use isolet_wire::request::{AgentRequest, AttachShell, OpenShell};
use isolet_wire::response::{AgentResponse, SaveFailure, SavedState};
use kit::{Agent, Client, open};
use std::time::{Duration, Instant};

fn session(agent: &Agent, restore: Option<Vec<u8>>) -> Client {
    let mut client = agent.connect();
    client.request(&AgentRequest::Attach(AttachShell {
        shell: ShellKey::Session("x".to_owned()),
        open: Some(OpenShell { save: true, restore, ..open() }),
        owner: "me".into(),
        watch: false,
        since: None,
    }));
    let response = client.response();
    assert!(matches!(response, AgentResponse::Attached { .. }), "{response:?}");
    client
}

fn watch(agent: &Agent) -> Client {
    let mut watcher = agent.connect();
    watcher.request(&AgentRequest::Watch);
    watcher.skip_to(|response| matches!(response, AgentResponse::Inventory { .. }));
    watcher
}

/// The next reported state with its number, or why there is none.
fn saved(watcher: &mut Client) -> Result<(Vec<u8>, u64), SavedState> {
    let mut state = Vec::new();
    loop {
        match watcher.skip_to(|response| matches!(response, AgentResponse::ShellState { .. })) {
            AgentResponse::ShellState { update: SavedState::Part(part), .. } => state.extend(part),
            AgentResponse::ShellState { update: SavedState::Complete { number }, .. } => {
                return Ok((state, number));
            }
            AgentResponse::ShellState { update, .. } => return Err(update),
            _ => {}
        }
    }
}

/// Promises: L10.
#[test]
fn a_shell_takes_over_what_another_held() {
    let agent = Agent::start();
    let mut watcher = watch(&agent);
    let mut shell = session(&agent, None);
    let plain = "set +o; shopt -p; alias; umask; pwd; declare -p | grep -vE \
        ' (BASHPID|BASH_.*|__is.|_|PPID|LINENO|SHELLOPTS|BASHOPTS|SECONDS|RANDOM|PIPESTATUS|HISTCMD)(=|$)'; \
        declare -f; declare -F; trap; printf '<%s>' \"$@\"";
    shell.run("cd /usr; umask 027; x=$'a\\nb\\'\"$(1)`\\x01\\xff'; declare -i n=5; declare -r r=1");
    shell.run(
        "declare -A m=([$'k \\n']='v w' [b]=c); a=(1 [5]='x y'); declare -n ref=x; declare -u up",
    );
    shell.run(
        "export E='e e'; unset HOME IFS; declare +x PATH; declare -a none; set -- 'a b' '' c\\'d",
    );
    shell.run("shopt -s extglob nullglob; alias ll='ls -l' -- -o=x");
    shell.run("f() { ll; case $1 in @(a|b)) echo \"$1\";; esac; cat <<E\nhi $x\nE\n}; export -f f");
    shell.run(
        "a-b() { :; }; function while { :; }; alias f2=f; trap 'echo bye' EXIT; set -euo pipefail",
    );
    let before = shell.run(plain);
    let (state, number) = saved(&mut watcher).expect("it is saved");
    assert_eq!(number, 7);
    let other = Agent::start();
    let mut watcher = watch(&other);
    let mut shell = session(&other, Some(state));
    let after = shell.run(plain);
    assert_eq!(after.err(), before.err());
    assert_eq!(after.out(), before.out());
    shell.run(":");
    watcher.request(&AgentRequest::SaveStates);
    let response = saved(&mut watcher);
    assert!(response.is_ok(), "{response:?}");
}

#[test]
fn all_are_saved_at_once_when_asked_and_what_is_kept_is_not_saved_again() {
    let agent = Agent::start();
    let mut watcher = watch(&agent);
    let mut shell = session(&agent, None);
    watcher.request(&AgentRequest::SaveStates);
    watcher.skip_to(|response| {
        assert!(
            !matches!(response, AgentResponse::ShellState { .. }),
            "nothing has been done in it"
        );
        *response == AgentResponse::Done
    });
    let mut number = 0;
    // A shell that nobody asks for is saved after a second, so each of these would take as long.
    let is_at_once = (0..5).any(|turn| {
        shell.run(&format!("x={turn}"));
        let begin = Instant::now();
        watcher.request(&AgentRequest::SaveStates);
        number = saved(&mut watcher).expect("it is saved").1;
        watcher.skip_to(|response| *response == AgentResponse::Done);
        begin.elapsed() < Duration::from_millis(900)
    });
    assert!(is_at_once, "the save waits until the shell has been idle");
    watcher
        .request(&AgentRequest::StateStored { shell: ShellKey::Session("x".to_owned()), number });
    watcher.request(&AgentRequest::SaveStates);
    watcher.skip_to(|response| {
        assert!(!matches!(response, AgentResponse::ShellState { .. }), "it is kept already");
        *response == AgentResponse::Done
    });
    shell.request(&AgentRequest::Run(kit::run("r", "exit 3")));
    assert_eq!(saved(&mut watcher), Err(SavedState::Gone));
}

/// Promises: L11.
#[test]
fn a_command_does_not_wait_for_the_save_of_a_large_shell() {
    let agent = Agent::start();
    let mut watcher = watch(&agent);
    let mut shell = session(&agent, None);
    shell.run("x=$(head -c 5000000 /dev/zero | tr '\\0' '\\1'); y=$x");
    let mut all = Vec::new();
    for pause in 0..20 {
        watcher.request(&AgentRequest::SaveStates);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(pause) {
            std::hint::spin_loop();
        }
        let begin = Instant::now();
        assert_eq!(shell.run("echo ${#x}").out(), "5000000\n");
        all.push(begin.elapsed());
        watcher.skip_to(|response| *response == AgentResponse::Done);
    }
    // Each would wait. A busy machine delays one or the other.
    all.sort();
    eprintln!("{all:?}");
    assert!(all[all.len() / 2] < Duration::from_millis(500), "{all:?}");
    watcher.request(&AgentRequest::SaveStates);
    assert_eq!(saved(&mut watcher), Err(SavedState::Failed(SaveFailure::TooLarge)));
}
