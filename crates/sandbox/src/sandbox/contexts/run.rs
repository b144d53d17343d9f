//! Runs code in a context: output, results, end.

use crate::{
    agent_client::{
        pool::Pool,
        wire::{AgentEvent, Wire},
    },
    model::{agent_error::AgentError, error::Error, ids::ContextId},
    sandbox::Sandbox,
};
use isolet_wire::{
    context::{self, DISPLAY, TIMEOUT_MS_MAX},
    frame::Data,
    request::AgentRequest,
    response::AgentResponse,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

/// The longest thing that a driver may say at once, in bytes of JSON; what is longer is counted.
pub const SAID_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Code to run.
#[derive(Debug, Clone)]
pub struct Code {
    /// Its text.
    pub code: String,
    /// What `input()` and its like read; nothing otherwise.
    pub stdin: Option<String>,
    /// Interrupted after so many ms; as the context has it unless told.
    pub timeout_ms: Option<u64>,
}

/// What came of a run.
#[derive(Debug)]
pub enum Event {
    /// It begins; `true`: in an interpreter that replaced one that had ended.
    Began(bool),
    /// Output: stream number, offset within the run, bytes.
    Output(Data),
    /// Something to show.
    Shown(Shown),
    /// The error that ended it.
    Fault(Fault),
    /// The driver showed what is too long or cannot be read.
    Unread,
    /// It is over.
    End(context::End),
}

/// Something to show, by its kinds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Shown {
    /// `result`: the value of the last expression; `display`: what the code has shown.
    pub kind: String,
    /// By media type: text as it is, JSON as JSON, bytes in base64.
    pub data: Map<String, Value>,
    /// What its maker says of it.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// By media type, how large what was left out is; only where something was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cut: BTreeMap<String, u64>,
}

/// The error that ended a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    /// Its class.
    pub name: String,
    /// What it says.
    pub message: String,
    /// Where it came from, line by line.
    pub traceback: Vec<String>,
}

impl Fault {
    /// Of an error that was told, and not as it must be: the run has failed all the same.
    fn unread(long: bool) -> Self {
        let why = if long { "is too long" } else { "cannot be read" };
        let message = format!("the code ended with an error; what was said of it {why}");
        Self { name: "Error".to_owned(), message, traceback: Vec::new() }
    }
}

/// One run, until its end.
#[derive(Debug)]
pub struct RunLink {
    wire: Wire,
    over: bool,
    pool: Weak<Pool>,
    said: Vec<u8>,
    long: bool,
}

impl RunLink {
    /// What comes next; [`Event::End`] is the last. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Refused`] where it was not begun, [`Error::Link`].
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            let heard = self.wire.next().await?;
            if let Some(event) = self.event(heard)? {
                return Ok(event);
            }
        }
    }

    /// What has already arrived; `None` when that is nothing.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn ready(&mut self) -> Result<Option<Event>, Error> {
        while let Some(heard) = self.wire.try_next()? {
            if let Some(event) = self.event(heard)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// It is not wanted any more: interrupted, or taken out of the queue.
    ///
    /// # Errors
    /// [`Error::Link`].
    pub fn cancel(&mut self) -> Result<(), Error> {
        Ok(self.wire.push(&AgentRequest::Cancel { id: String::new() })?)
    }

    /// Gives the connection back after its end. Dropping it before that leaves the run alone; one
    /// that has not begun is not begun then.
    pub fn park(self) {
        if let (true, Some(pool)) = (self.over, self.pool.upgrade()) {
            pool.park(self.wire);
        }
    }

    fn event(&mut self, heard: AgentEvent) -> Result<Option<Event>, Error> {
        let told = match heard {
            AgentEvent::Data(body) => {
                return Ok(Some(Event::Output(Data::parse(body).map_err(AgentError::from)?)));
            }
            AgentEvent::Response(AgentResponse::Context(told)) => told,
            AgentEvent::Response(AgentResponse::Refused { why, message, .. }) => {
                return Err(Error::Refused { why, message });
            }
            AgentEvent::Response(_) => {
                return Err(AgentError::Turn("another answer to a run").into());
            }
        };
        Ok(match told {
            context::ContextResponse::Began { fresh } => Some(Event::Began(fresh)),
            context::ContextResponse::Part { kind, bytes, last } => self.part(kind, &bytes, last),
            context::ContextResponse::End(end) => {
                self.over = true;
                Some(Event::End(end))
            }
            _ => return Err(AgentError::Turn("another answer to a run").into()),
        })
    }

    fn part(&mut self, kind: u8, bytes: &[u8], last: bool) -> Option<Event> {
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
        // What is too long was not kept, and is no JSON either.
        Some(match kind {
            DISPLAY => serde_json::from_slice(&said).map_or(Event::Unread, Event::Shown),
            _ => {
                Event::Fault(serde_json::from_slice(&said).unwrap_or_else(|_| Fault::unread(long)))
            }
        })
    }
}

impl Sandbox {
    /// Runs code in a context.
    ///
    /// # Errors
    /// [`Error::Link`]; a refusal is the first thing that the link says.
    pub async fn context_run(&self, id: &ContextId, code: Code) -> Result<RunLink, Error> {
        let body = serde_json::json!({"code": code.code, "stdin": code.stdin});
        let timeout_ms = match code.timeout_ms {
            Some(0) => TIMEOUT_MS_MAX,
            Some(ms) => ms.min(TIMEOUT_MS_MAX),
            None => 0,
        };
        let context = id.to_string();
        let run = context::Run { context, body: body.to_string().into_bytes(), timeout_ms };
        let scope = self.home(id).await?;
        let mut wire = self.wire(scope.as_deref()).await?;
        wire.send(&AgentRequest::Context(context::ContextRequest::Run(run))).await?;
        let pool = Arc::downgrade(self.pool_at(scope.as_deref()));
        Ok(RunLink { wire, over: false, pool, said: Vec::new(), long: false })
    }
}
