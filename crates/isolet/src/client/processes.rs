//! Background processes: starts, lists, reads and ends them.

pub(crate) mod kill;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod start;

use super::list::text;
use serde_json::Value;

/// Parses the id of a process.
pub(crate) fn id(text: &str) -> Result<String, String> {
    isolet_sandbox::ProcessId::parse(text).map(String::from).map_err(|error| error.to_string())
}

/// The path of a process of a sandbox, or of a resource below it.
fn path(which: (&str, &str), rest: &str) -> String {
    let (sandbox, process) = which;
    format!("/v1/sandboxes/{sandbox}/processes/{process}{rest}")
}

/// The state of a process in a few words.
fn state(process: &Value) -> String {
    let status = text(&process["status"]);
    let mut words = match (&process["signal"], &process["exit_code"]) {
        (Value::Number(signal), _) => format!("{status} (signal {signal})"),
        (_, Value::Number(code)) => format!("{status} (exit {code})"),
        _ => status,
    };
    for (name, more) in [("timed_out", ", timed out"), ("oom", ", out of memory")] {
        if process[name] == true {
            words.push_str(more);
        }
    }
    if process["remains"] == true {
        words.push_str(", descendants still run");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_state_says_how_it_ended() {
        let of = |value: Value| state(&value);
        assert_eq!(of(json!({"status": "running", "exit_code": null})), "running");
        assert_eq!(of(json!({"status": "exited", "exit_code": 3})), "exited (exit 3)");
        assert_eq!(
            of(
                json!({"status": "killed", "exit_code": 137, "signal": 9, "oom": true, "remains": true})
            ),
            "killed (signal 9), out of memory, descendants still run"
        );
    }
}
