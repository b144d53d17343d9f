//! What runs Python in a context: IPython's kernel, which the image has, and the driver without.

use isolet_kit::{Sandbox, Server, Value, json};

/// The same facts for both; `python` is the name of the context.
pub(crate) fn each(facts: impl Fn(&Sandbox)) {
    let server = Server::start();
    for kernel in [Value::Null, json!("python3")] {
        let sandbox = server.sandbox();
        if kernel.is_null() {
            driver(&sandbox);
        }
        facts(&sandbox);
        let told = sandbox.http.get(&sandbox.path("/contexts/python")).expect(200).json();
        assert_eq!((&told["language"], &told["kernel"]), (&json!("python"), &kernel), "{told}");
    }
    server.healthy();
}

/// Has `python` be the driver.
pub(crate) fn driver(sandbox: &Sandbox) {
    let made = sandbox.post("/contexts", &json!({"id": "python", "kernel": "none"})).expect(201);
    assert_eq!(made.json()["kernel"], Value::Null);
}
