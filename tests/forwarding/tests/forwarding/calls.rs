//! Every documented call, with a body that it accepts.

use isolet_kit::{Value, json};

/// A call of the API.
#[derive(Debug)]
pub(crate) struct Call {
    /// The method, in capitals.
    pub(crate) method: String,
    pattern: String,
    /// Whether it continues as a WebSocket.
    pub(crate) is_socket: bool,
}

impl Call {
    pub(crate) fn is_about_a_sandbox(&self) -> bool {
        self.pattern.contains("/{id}")
    }

    /// The path for a sandbox.
    pub(crate) fn path(&self, id: &str) -> String {
        let filled = self.pattern.replace("{id}", id).replace("{sid}", "dev");
        let filled = filled.replace("{cid}", "c").replace("{port}", "80");
        filled.replace("{path}", "x").replace(['{', '}'], "")
    }
}

/// All calls of the document.
pub(crate) fn calls() -> Vec<Call> {
    let document: Value = isolet_http::document().parse().expect("JSON");
    let mut all = Vec::new();
    for (pattern, calls) in document["paths"].as_object().expect("paths") {
        for (method, call) in calls.as_object().expect("calls") {
            all.push(Call {
                method: method.to_uppercase(),
                pattern: pattern.clone(),
                is_socket: call["responses"].get("101").is_some(),
            });
        }
    }
    all
}

/// A body with which a call could create a sandbox.
pub(crate) fn body(call: &Call) -> Option<Value> {
    if matches!(call.method.as_str(), "GET" | "DELETE") {
        return None;
    }
    let last = call.pattern.rsplit('/').find(|part| !part.starts_with('{'))?;
    Some(match last {
        "exec" | "processes" => json!({"command": "true"}),
        "contexts" => json!({"language": "bash"}),
        "run" => json!({"code": "true"}),
        "links" => json!({"port": 80}),
        "files" => json!({"op": "mkdir", "path": "x"}),
        "restore" => json!({"snapshot": "none"}),
        "signal" => json!({"signal": "TERM"}),
        _ => json!({}),
    })
}
