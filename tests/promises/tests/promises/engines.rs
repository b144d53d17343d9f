//! The two engines of a Python context: the image's IPython kernel, and the driver.

use isolet_kit::{Sandbox, Server, Value, json};

/// Checks the same facts with both engines; the context is named `python`.
pub(crate) fn each(facts: impl Fn(&Sandbox)) {
    let server = Server::start();
    for kernel in [Value::Null, json!("python3")] {
        let sandbox = server.sandbox();
        if kernel.is_null() {
            driver(&sandbox);
        }
        facts(&sandbox);
        let answer = sandbox.http.get(&sandbox.path("/contexts/python")).expect(200).json();
        assert_eq!(
            (&answer["language"], &answer["kernel"]),
            (&json!("python"), &kernel),
            "{answer}"
        );
    }
    server.healthy();
}

/// Makes the context `python` use the driver.
pub(crate) fn driver(sandbox: &Sandbox) {
    let made = sandbox.post("/contexts", &json!({"id": "python", "kernel": "none"})).expect(201);
    assert_eq!(made.json()["kernel"], Value::Null);
}
