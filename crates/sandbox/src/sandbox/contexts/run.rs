//! Runs of code in a context: output, displayed values and results.

use crate::agent_client::metering::count_output;
use crate::agent_client::pool::Pool;
use crate::agent_client::wire::{AgentEvent, Wire};
use crate::model::agent_error::AgentError;
use crate::model::error::Error;
use crate::model::ids::ContextId;
use crate::model::input::EnvironmentChange;
use crate::sandbox::Sandbox;
use isolet_metrics::Meter;
use isolet_wire::context::{self, DISPLAY, TIMEOUT_MS_MAX};
use isolet_wire::frame::DataFrame;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::AgentResponse;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Maximum size of one message from a driver, in bytes of JSON. Longer ones are only counted.
pub const SAID_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Code to run in a context.
#[derive(Debug, Clone)]
pub struct Code {
    /// The source text, in the language of the context.
    pub code: String,
    /// The text that `input()` and similar functions read; `None` means end of file.
    pub stdin: Option<String>,
    /// Environment variables of this run only.
    pub env: EnvironmentChange,
    /// Time after which the run is interrupted, in ms; by default the context's timeout.
    pub timeout_ms: Option<u64>,
}

/// An event of a run.
#[derive(Debug)]
pub enum ContextRunEvent {
    /// The run has started; `true` means that the interpreter replaced one that had ended.
    Began(bool),
    /// Output with its stream number and its offset within the run.
    Output(DataFrame),
    /// The code displays a value.
    Shown(Shown),
    /// The error that ended the run.
    Fault(Fault),
    /// The driver displayed a value that is too long or invalid.
    Unread,
    /// The run has ended.
    End(context::ContextRunEnd),
}

/// A displayed value in several media types.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shown {
    /// `result` for the value of the last expression, `display` for a value that the code
    /// displayed.
    pub kind: String,
    /// The value by media type: text as it is, JSON as JSON, bytes in base64.
    pub data: Map<String, Value>,
    /// Metadata from the code or the kernel.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// The sizes of representations that were left out because they were too large, by media type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut: BTreeMap<String, u64>,
}

/// The error that ended a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    /// The class of the error.
    pub name: String,
    /// The message of the error.
    pub message: String,
    /// The traceback, line by line.
    pub traceback: Vec<String>,
}

impl Fault {
    /// A replacement for an invalid error report, because the run has failed in any case.
    fn unread(long: bool) -> Self {
        let problem = if long { "is too long" } else { "cannot be read" };
        let message = format!("the code ended with an error; what was said of it {problem}");
        Self { name: "Error".to_owned(), message, traceback: Vec::new() }
    }
}

/// A connection for one run.
#[derive(Debug)]
pub struct ContextRunConnection {
    wire: Wire,
    over: bool,
    pool: Weak<Pool>,
    said: Vec<u8>,
    long: bool,
    meter: Arc<Meter>,
}

impl ContextRunConnection {
    /// Waits for the next event; [`ContextRunEvent::End`] is the last one. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Refused`] if the run did not start, [`Error::Link`].
    pub async fn next(&mut self) -> Result<ContextRunEvent, Error> {
        loop {
            let event = self.wire.next().await?;
            if let Some(event) = self.event(event)? {
                return Ok(event);
            }
        }
    }

    /// Returns an event that has already arrived, without waiting.
    ///
    /// # Errors
    /// See [`Self::next`].
    pub fn ready(&mut self) -> Result<Option<ContextRunEvent>, Error> {
        while let Some(event) = self.wire.try_next()? {
            if let Some(event) = self.event(event)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Interrupts the run or removes it from the queue.
    ///
    /// # Errors
    /// [`Error::Link`].
    pub fn cancel(&mut self) -> Result<(), Error> {
        Ok(self.wire.push(&AgentRequest::Cancel { id: String::new() })?)
    }

    /// Returns the connection to the pool after the end of the run. Dropping the connection before
    /// does not interrupt a running run, but removes a queued one.
    pub fn park(self) {
        if self.over
            && let Some(pool) = self.pool.upgrade()
        {
            pool.park(self.wire);
        }
    }

    fn event(&mut self, event: AgentEvent) -> Result<Option<ContextRunEvent>, Error> {
        count_output(&self.meter, &event);
        let response = match event {
            AgentEvent::Data(body) => {
                return Ok(Some(ContextRunEvent::Output(
                    DataFrame::parse(body).map_err(AgentError::from)?,
                )));
            }
            AgentEvent::Response(AgentResponse::Context(response)) => response,
            AgentEvent::Response(AgentResponse::Refused { reason, message, .. }) => {
                return Err(Error::Refused { reason, message });
            }
            AgentEvent::Response(_) => {
                return Err(AgentError::Turn("unexpected answer to a run").into());
            }
        };
        Ok(match response {
            context::ContextResponse::RunStarted { fresh } => Some(ContextRunEvent::Began(fresh)),
            context::ContextResponse::Part { kind, bytes, last } => self.part(kind, &bytes, last),
            context::ContextResponse::RunEnded(end) => {
                self.over = true;
                Some(ContextRunEvent::End(end))
            }
            _ => return Err(AgentError::Turn("unexpected answer to a run").into()),
        })
    }

    fn part(&mut self, kind: u8, bytes: &[u8], last: bool) -> Option<ContextRunEvent> {
        self.long |= self.said.len() + bytes.len() > SAID_BYTES_MAX;
        if self.long {
            self.said = Vec::new();
        } else {
            self.said.extend_from_slice(bytes);
        }
        if !last {
            return None;
        }
        let said = std::mem::take(&mut self.said);
        let long = std::mem::take(&mut self.long);
        // A message that is too long was dropped, so it is not valid JSON either.
        Some(match kind {
            DISPLAY => serde_json::from_slice(&said)
                .map_or(ContextRunEvent::Unread, ContextRunEvent::Shown),
            _ => ContextRunEvent::Fault(
                serde_json::from_slice(&said).unwrap_or_else(|_| Fault::unread(long)),
            ),
        })
    }
}

impl Sandbox {
    /// Runs code in a context.
    ///
    /// # Errors
    /// [`Error::Link`]. A refusal arrives as the first event.
    pub async fn context_run(
        &self,
        id: &ContextId,
        code: Code,
    ) -> Result<ContextRunConnection, Error> {
        let env = code.env.into_inner();
        let body = serde_json::json!({"code": code.code, "stdin": code.stdin, "env": env});
        let timeout_ms = match code.timeout_ms {
            Some(0) => TIMEOUT_MS_MAX,
            Some(ms) => ms.min(TIMEOUT_MS_MAX),
            None => 0,
        };
        let context = id.to_string();
        let run = context::ContextRun { context, body: body.to_string().into_bytes(), timeout_ms };
        let scope = self.home(id).await?;
        let mut wire = self.wire(scope.as_deref()).await?;
        wire.send(&AgentRequest::Context(context::ContextRequest::Run(run))).await?;
        let pool = Arc::downgrade(self.pool_at(scope.as_deref()));
        let meter = Arc::clone(&self.entry.meter);
        Ok(ContextRunConnection { wire, over: false, pool, said: Vec::new(), long: false, meter })
    }
}
