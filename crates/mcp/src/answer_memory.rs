//! The memory of a tool's answer, from the end of the tool until the client has read the answer. Until
//! then the protocol's library holds the answer, as a value and as text, without a limit of its own.

use crate::tool_result::failure;
use http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult};
use rmcp::service::RequestContext;
use std::io;
use std::sync::Arc;

/// Answers up to this size are not counted: the number of requests at a time bounds them.
const SHORT_BYTES: usize = 64 * 1024;

/// Takes memory for the answer to one HTTP request, in the extensions of that request. The HTTP server
/// puts it there, and gives the memory back once the response was sent or its client has left.
#[derive(Clone)]
pub struct AnswerMemory(Arc<TakeMemory>);

type TakeMemory = dyn Fn(usize) -> Result<(), String> + Send + Sync;

impl AnswerMemory {
    /// `take` gets a number of bytes, and returns a sentence for the client if the tenant may not hold
    /// that many.
    pub fn new(take: impl Fn(usize) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// The memory for the answer to this call. Over standard input and output there is one client, and
    /// no limit.
    pub(crate) fn of_call(context: &RequestContext<RoleServer>) -> Option<Self> {
        context.extensions.get::<Parts>()?.extensions.get::<Self>().cloned()
    }

    /// The answer, or the reason why there is no memory for it.
    pub(crate) fn hold(&self, answer: CallToolResponse) -> CallToolResponse {
        let CallToolResponse::Complete(result) = &answer else { return answer };
        let bytes = text_bytes(result);
        if bytes <= SHORT_BYTES {
            return answer;
        }
        // Once as a value, and once as the text that is sent.
        match (self.0)(bytes.saturating_mul(2)) {
            Ok(()) => answer,
            Err(reason) => failure(reason).into(),
        }
    }
}

/// The length of the result as JSON.
fn text_bytes(result: &CallToolResult) -> usize {
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count(0);
    match serde_json::to_writer(&mut count, result) {
        Ok(()) => count.0,
        // It cannot be sent either.
        Err(_) => 0,
    }
}
