//! What answers and events say about a run in a code context.

use crate::foundation::denied::{DeniedFields, DeniedView};
use crate::foundation::json_text::{self, OutputText};
use crate::foundation::lost::{LostFields, LostStateView};
use crate::foundation::time::Millis;
use crate::stream::captured_output::{OutputFields, Truncated};
use axum::response::Response;
use isolet_sandbox::contexts::{Fault, Shown};
use isolet_sandbox::{ContextId, Denied};
use isolet_wire::context::{ContextRunEnd, InterpreterExit};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What the last event and the answer report beside the run itself.
#[derive(Debug)]
pub(crate) struct RunReport {
    pub(crate) context: ContextId,
    pub(crate) lost: LostFields,
}

/// The result of a run.
#[derive(Debug, Serialize, ToSchema)]
// More than 12 fields: it has one for each member of the JSON object.
#[schema(as = CodeRunResult)]
pub(crate) struct RunAnswer<'a> {
    /// What the code displayed, in order. The value of the last expression comes last, with kind
    /// `result`.
    #[schema(value_type = Vec<ShownView>)]
    pub(super) results: Vec<Box<RawValue>>,
    /// The exception that ended the run, if any.
    #[schema(required = true)]
    pub(super) exception: Option<FaultView<'a>>,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    #[schema(value_type = String)]
    stdout: OutputText<'a>,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    stdout_b64: Option<OutputText<'a>>,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    #[schema(value_type = String)]
    stderr: OutputText<'a>,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    stderr_b64: Option<OutputText<'a>>,
    /// How much output the answer leaves out.
    #[schema(required = true)]
    truncated: Option<Truncated>,
    /// The number of results that were too large, too many or unreadable.
    pub(super) results_lost: u64,
    /// The number of this run in the context, from 1.
    run: u64,
    /// Bytes of output that were written since the previous run and are no longer held.
    late_lost: u64,
    /// Whether the timeout ended the run.
    timed_out: bool,
    /// Whether a client interrupted the run, or restarted or deleted its context.
    interrupted: bool,
    /// Whether the kernel killed a process of the sandbox for lack of memory while the code ran.
    oom: bool,
    /// How the interpreter ended, if it ended with this run. All variables are lost, and the next
    /// run uses a new interpreter.
    #[schema(required = true)]
    died: Option<DiedView>,
    /// Whether the interpreter was started because an earlier one had ended.
    fresh: bool,
    /// The running time, in milliseconds.
    #[schema(value_type = f64)]
    duration_ms: Millis,
    /// The network traffic of the whole sandbox that was denied while this ran; at most 64 entries.
    /// Absent if nothing was denied. To allow it, send `{"allow_add": denied}` to `PATCH
    /// /v1/sandboxes/{id}/network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    denied: Option<Vec<DeniedView>>,
    /// The number of further entries that `denied` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    denied_lost: Option<u64>,
    /// The id of the context.
    context: String,
    /// What the last sleep ended: any of `shells`, `processes`, `files`, `shell_state`, `terminals`
    /// and others. Present only in the first answer after the sandbox woke.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost: Option<Vec<&'static str>>,
    /// With `shell_state` in `lost`: the shells that do not come back as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_state: Option<Vec<LostStateView>>,
    #[serde(skip)]
    text_bytes: usize,
}

impl<'a> RunAnswer<'a> {
    /// An answer without results.
    pub(super) fn new(
        end: &ContextRunEnd,
        fresh: bool,
        output: OutputFields<'a>,
        denied: Denied,
        report: RunReport,
    ) -> Self {
        let OutputFields { stdout, stdout_b64, stderr, stderr_b64, truncated, text_bytes } = output;
        let DeniedFields { denied, denied_lost } = denied.into();
        let RunReport { context, lost: LostFields { lost, lost_state } } = report;
        Self {
            results: Vec::new(),
            exception: None,
            stdout,
            stdout_b64,
            stderr,
            stderr_b64,
            truncated,
            results_lost: 0,
            run: end.number,
            late_lost: end.lost,
            timed_out: end.timed_out,
            interrupted: end.interrupted,
            oom: end.oom,
            died: end.died.map(DiedView::from),
            fresh,
            duration_ms: Millis::from_micros(end.micros),
            denied,
            denied_lost,
            context: context.into(),
            lost,
            lost_state,
            text_bytes,
        }
    }

    /// `results_bytes`: the length of the results.
    pub(super) fn into_response(self, results_bytes: usize) -> Response {
        json_text::response(&self, self.text_bytes + results_bytes)
    }
}

/// The data of `end`, the last event of a run.
#[derive(Debug, Serialize, ToSchema)]
// More than 12 fields: it has one for each member of the JSON object.
pub(crate) struct RunEndEvent {
    /// Counts the runs of this context, from 1.
    run: u64,
    /// Bytes that were written since the run before and were not held.
    late_lost: u64,
    /// Whether it was ended at its timeout.
    timed_out: bool,
    /// Whether it was interrupted, or its context was restarted or deleted.
    interrupted: bool,
    /// Whether the kernel killed a process of the sandbox for memory while it ran.
    oom: bool,
    /// Its interpreter ended with it: all variables are lost.
    died: Option<DiedView>,
    /// Whether it ran in an interpreter that replaced one that had ended.
    fresh: bool,
    /// From its beginning to its end, in ms.
    #[schema(value_type = f64)]
    duration_ms: Millis,
    /// Traffic that the sandbox was denied while it ran; absent if none was.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<Vec<DeniedView>>,
    /// How much more was denied than the list holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_lost: Option<u64>,
    /// Bytes that it wrote to standard output.
    out_bytes: u64,
    /// Bytes that it wrote to standard error.
    err_bytes: u64,
    /// Results that were too large or could not be read.
    results_lost: u64,
    /// The id of the context.
    context: String,
    /// Only in the first answer after the sandbox woke: what the sleep ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Vec<&'static str>>,
    /// With `shell_state` in `lost`: the shells that do not come back as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_state: Option<Vec<LostStateView>>,
}

impl RunEndEvent {
    pub(super) fn new(
        end: &ContextRunEnd,
        fresh: bool,
        results_lost: u64,
        denied: Denied,
        report: RunReport,
    ) -> Self {
        let DeniedFields { denied, denied_lost } = denied.into();
        let RunReport { context, lost: LostFields { lost, lost_state } } = report;
        Self {
            run: end.number,
            late_lost: end.lost,
            timed_out: end.timed_out,
            interrupted: end.interrupted,
            oom: end.oom,
            died: end.died.map(DiedView::from),
            fresh,
            duration_ms: Millis::from_micros(end.micros),
            denied,
            denied_lost,
            out_bytes: end.out,
            err_bytes: end.err,
            results_lost,
            context: context.into(),
            lost,
            lost_state,
        }
    }
}

/// A value that a run displayed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DisplayedValue)]
pub(crate) struct ShownView<'a> {
    /// `result` for the value of the last expression, `display` for what the code displayed.
    kind: &'a str,
    /// The value by media type: text, JSON values, or images in base64.
    #[schema(value_type = Map<String, Value>)]
    data: &'a BTreeMap<String, Box<RawValue>>,
    /// The metadata that the code gave.
    #[schema(value_type = Map<String, Value>)]
    metadata: &'a RawValue,
    /// The size in bytes of representations that were too large, by media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, u64>>, nullable = false)]
    cut: Option<&'a BTreeMap<String, u64>>,
}

impl<'a> From<&'a Shown> for ShownView<'a> {
    fn from(shown: &'a Shown) -> Self {
        let Shown { kind, data, metadata, cut } = shown;
        Self { kind, data, metadata, cut: Some(cut).filter(|cut| !cut.is_empty()) }
    }
}

/// An exception that ended a run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CodeException)]
pub(crate) struct FaultView<'a> {
    /// The class of the exception, such as `ValueError`. `ContextDied` if the interpreter ended.
    name: &'a str,
    /// The message of the exception.
    message: &'a str,
    /// The traceback, line by line.
    #[schema(value_type = Vec<String>)]
    traceback: &'a [String],
}

impl<'a> From<&'a Fault> for FaultView<'a> {
    fn from(fault: &'a Fault) -> Self {
        let Fault { name, message, traceback } = fault;
        Self { name, message, traceback }
    }
}

/// How an interpreter ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InterpreterExit)]
pub(crate) struct DiedView {
    /// The exit code, if it exited.
    #[schema(required = true)]
    code: Option<i32>,
    /// The number of the signal that ended it.
    #[schema(required = true)]
    signal: Option<i32>,
}

impl From<InterpreterExit> for DiedView {
    fn from(died: InterpreterExit) -> Self {
        Self { code: died.code, signal: died.signal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> RunReport {
        let lost = LostFields { lost: Some(vec!["contexts"]), lost_state: None };
        RunReport { context: "c".parse().unwrap(), lost }
    }

    #[test]
    fn answers_and_events_keep_their_bytes() {
        let died = Some(InterpreterExit { code: None, signal: Some(9) });
        let end = ContextRunEnd {
            number: 2,
            lost: 3,
            oom: true,
            died,
            out: 4,
            err: 5,
            micros: 1500,
            ..ContextRunEnd::default()
        };
        let denied = || Denied { list: Vec::new(), lost: 7 };
        let output = OutputFields {
            stdout: "a\n".into(),
            stdout_b64: None,
            stderr: "�".into(),
            stderr_b64: Some("/w==".into()),
            truncated: None,
            text_bytes: 9,
        };
        let data = serde_json::from_str(r#"{"text/plain":"1"}"#).unwrap();
        let mut shown = Shown {
            kind: "result".into(),
            data,
            metadata: serde_json::from_str("{}").unwrap(),
            cut: BTreeMap::new(),
        };
        let fault = Fault { name: "E".into(), message: "m\"".into(), traceback: vec!["t".into()] };
        let mut answer = RunAnswer::new(&end, true, output, denied(), report());
        answer.results = vec![serde_json::value::to_raw_value(&ShownView::from(&shown)).unwrap()];
        answer.exception = Some(FaultView::from(&fault));
        assert_eq!(
            json_text::to_string(&answer, 0),
            r#"{"results":[{"kind":"result","data":{"text/plain":"1"},"metadata":{}}],"exception":{"name":"E","message":"m\"","traceback":["t"]},"stdout":"a\n","stderr":"�","stderr_b64":"/w==","truncated":null,"results_lost":0,"run":2,"late_lost":3,"timed_out":false,"interrupted":false,"oom":true,"died":{"code":null,"signal":9},"fresh":true,"duration_ms":1.5,"denied":[],"denied_lost":7,"context":"c","lost":["contexts"]}"#
        );
        let event = RunEndEvent::new(&end, false, 6, Denied::default(), report());
        assert_eq!(
            json_text::to_string(&event, 0),
            r#"{"run":2,"late_lost":3,"timed_out":false,"interrupted":false,"oom":true,"died":{"code":null,"signal":9},"fresh":false,"duration_ms":1.5,"out_bytes":4,"err_bytes":5,"results_lost":6,"context":"c","lost":["contexts"]}"#
        );
        shown.cut.insert("image/png".into(), 8);
        assert_eq!(
            json_text::to_string(&ShownView::from(&shown), 0),
            r#"{"kind":"result","data":{"text/plain":"1"},"metadata":{},"cut":{"image/png":8}}"#
        );
    }
}
