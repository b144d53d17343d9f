//! One value for each kind of message about code contexts, of both sides.

use crate::Row;
use crate::asks::env;
use isolet_wire::context::{
    ContextRequest, ContextResponse, ContextRun, ContextRunEnd, ContextStatus, DISPLAY,
    InterpreterExit, Language, OpenContext,
};

fn id() -> String {
    "notebook".to_owned()
}

pub(crate) fn asks() -> Vec<Row<ContextRequest>> {
    let open = OpenContext {
        context: id(),
        language: Language::Python,
        cwd: "/workspace".to_owned(),
        env: env(),
        timeout_ms: 60_000,
        label: b"{}".to_vec(),
        reuse: true,
    };
    let other = |language| ContextRequest::Open(OpenContext { language, ..open.clone() });
    let body = br#"{"code":"1+1","stdin":null}"#.to_vec();
    vec![
        ("context_open_python", ContextRequest::Open(open.clone())),
        ("context_open_javascript", other(Language::JavaScript)),
        ("context_open_typescript", other(Language::TypeScript)),
        ("context_open_bash", other(Language::Bash)),
        ("context_open_jupyter", other(Language::Jupyter)),
        ("context_run", ContextRequest::Run(ContextRun { context: id(), body, timeout_ms: 1000 })),
        ("context_interrupt", ContextRequest::Interrupt(id())),
        ("context_restart", ContextRequest::Restart(id())),
        ("context_close", ContextRequest::Close(id())),
        ("context_list", ContextRequest::List),
    ]
}

pub(crate) fn tells() -> Vec<Row<ContextResponse>> {
    let context = ContextStatus {
        context: id(),
        language: Language::Jupyter,
        label: b"{}".to_vec(),
        pid: 40,
        busy: true,
        queued: 2,
        runs: 7,
        restarts: 1,
        new: false,
    };
    let end = ContextRunEnd {
        timed_out: true,
        interrupted: true,
        oom: false,
        died: Some(InterpreterExit { code: None, signal: Some(9) }),
        out: 100,
        err: 200,
        lost: 3,
        number: 7,
        micros: 1_000_000,
    };
    vec![
        ("context_is", ContextResponse::State(context)),
        ("context_interrupted", ContextResponse::Interrupted(true)),
        ("context_began", ContextResponse::RunStarted { fresh: true }),
        (
            "context_part",
            ContextResponse::Part { kind: DISPLAY, bytes: b"{}".to_vec(), last: true },
        ),
        ("context_end", ContextResponse::RunEnded(end)),
        ("context_end_least", ContextResponse::RunEnded(ContextRunEnd::default())),
    ]
}
