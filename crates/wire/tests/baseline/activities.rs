//! One value for each kind of activity, alone and in an inventory.

use crate::Row;
use isolet_wire::activity::{Activity, CloseCause, ShellKey};
use isolet_wire::response::{AgentResponse, Closed};

fn closed(code: Option<i32>, signal: Option<i32>, cause: CloseCause) -> Option<Closed> {
    Some(Closed { code, signal, cause })
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn shells() -> Vec<Row<Activity>> {
    let shell =
        |key, closed| Activity::Shell { key, pid: 12, busy: true, queued: 2, clients: 3, closed };
    let session = || ShellKey::Session(text("dev"));
    vec![
        ("session", shell(session(), None)),
        ("private", shell(ShellKey::Private(text("sh_1")), None)),
        ("session_exit", shell(session(), closed(Some(7), None, CloseCause::Exit))),
        ("session_killed", shell(session(), closed(None, Some(9), CloseCause::Killed))),
        ("session_closed", shell(session(), closed(None, Some(1), CloseCause::ClosedByClient))),
        ("session_left", shell(session(), closed(None, Some(1), CloseCause::NobodyAttached))),
        ("session_mute", shell(session(), closed(None, Some(9), CloseCause::StatusChannelClosed))),
        ("session_loud", shell(session(), closed(None, Some(9), CloseCause::StatusChannelFlooded))),
        ("session_stuck", shell(session(), closed(None, Some(9), CloseCause::DidNotStart))),
        ("session_other", shell(session(), closed(None, None, CloseCause::Other(text("odd"))))),
    ]
}

fn others() -> Vec<Row<Activity>> {
    let terminal =
        |closed| Activity::Terminal { session: text("dev"), pid: 33, clients: 2, closed };
    let context = |busy, queued, ended| Activity::Context {
        id: text("notebook"),
        pid: 34,
        busy,
        queued,
        threads: 11,
        ended,
    };
    vec![
        ("terminal", terminal(None)),
        ("terminal_exit", terminal(closed(Some(0), None, CloseCause::Exit))),
        ("context", context(false, 0, false)),
        ("context_busy", context(true, 4, false)),
        ("context_ended", context(false, 0, true)),
        ("spare_kernel", Activity::SpareKernel { pid: 35, threads: 6 }),
    ]
}

pub(crate) fn rows() -> Vec<Row<AgentResponse>> {
    let all: Vec<_> = shells().into_iter().chain(others()).collect();
    let activities = all.iter().map(|(_, activity)| activity.clone()).collect();
    let mut rows = vec![("inventory", AgentResponse::Inventory { activities, execs: 5 })];
    rows.extend(all.into_iter().map(|(name, activity)| {
        (name, AgentResponse::Changed { activity: Some(activity), execs: 5 })
    }));
    rows.push(("programs", AgentResponse::Changed { activity: None, execs: 5 }));
    rows
}
