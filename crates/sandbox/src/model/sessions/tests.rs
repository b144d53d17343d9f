//! Tests of the sessions of a sandbox.

use super::*;
use isolet_wire::response::Closed;

fn sessions(rows: Vec<(SessionId, String)>) -> Sessions {
    Sessions::new(&SandboxId::parse("box").unwrap(), 5, WORKSPACE, rows)
}

fn shell(name: &str, busy: bool, closed: bool) -> Activity {
    let closed = closed.then(Closed::default);
    Activity::Shell { key: name.parse().unwrap(), pid: 7, busy, queued: 0, clients: 1, closed }
}

fn terminal(session: &str, closed: bool) -> Activity {
    let closed = closed.then(Closed::default);
    Activity::Terminal { session: session.into(), pid: 7, clients: 1, closed }
}

#[test]
fn default_exists_by_itself() {
    let sessions = sessions(Vec::new());
    assert_eq!(sessions.list().len(), 1);
    let default = sessions.info(&SessionId::default_session()).unwrap();
    assert_eq!((default.cwd.as_str(), default.created_at_ms), ("/workspace", 5));
    assert!(matches!(sessions.free(&SessionId::default_session()), Err(Error::SessionExists(_))));
}

#[test]
fn a_record_that_does_not_read_hides_no_other() {
    let good = Session { cwd: "/build".into(), ..Session::plain(1, WORKSPACE) };
    let id = |text| SessionId::parse(text).unwrap();
    let sessions = sessions(vec![(id("bad"), "{".into()), (id("good"), good.json().unwrap())]);
    assert_eq!(sessions.info(&id("good")).unwrap().cwd, "/build");
    assert_eq!(sessions.info(&id("bad")).unwrap().cwd, "/workspace");
}

#[test]
fn busy_is_what_the_agent_says() {
    let sessions = sessions(Vec::new());
    let default = SessionId::default_session();
    let seen = || sessions.info(&default).map(|info| (info.busy, info.shell_pid)).unwrap();
    sessions.changed(&shell("s/default", true, false), true);
    assert_eq!(seen(), (true, Some(7)));
    sessions.changed(&shell("s/default", true, true), true);
    assert_eq!(seen(), (false, None));
    sessions.changed(&shell("s/nobody", true, false), true);
    sessions.changed(&shell("p/default", true, false), true);
    assert_eq!(seen(), (false, None));
    sessions.inventory(&[shell("s/default", true, false), terminal("default", false)]);
    assert!(sessions.info(&default).unwrap().terminal);
    sessions.changed(&terminal("default", true), true);
    assert_eq!((seen(), sessions.info(&default).unwrap().terminal), ((true, Some(7)), false));
    sessions.ended();
    assert_eq!(seen(), (false, None));
}

#[test]
fn the_set_is_bounded() {
    let sessions = sessions(Vec::new());
    for n in 1..SESSIONS_MAX {
        let id = SessionId::parse(&format!("s{n}")).unwrap();
        sessions.free(&id).unwrap();
        sessions.insert(id, Sessions::plain(WORKSPACE));
    }
    let one_more = SessionId::parse("one-more").unwrap();
    assert!(matches!(sessions.free(&one_more), Err(Error::TooManySessions { .. })));
}

#[test]
fn a_start_directory_is_below_the_workspace_unless_absolute() {
    let plan = |cwd: Option<&str>| {
        let cwd = cwd.map(|cwd| WorkingDirectory::parse(cwd.into()).unwrap());
        Session::plan(SessionSpec { cwd, ..SessionSpec::default() }, "/home".into())
    };
    assert_eq!(plan(Some("app")).unwrap().cwd, "/workspace/app");
    assert_eq!(plan(Some("/srv")).unwrap().cwd, "/srv");
    assert_eq!(plan(None).unwrap().cwd, "/home");
}
