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
use isolet_wire::json_tree::tree_bytes;
use isolet_wire::request::AgentRequest;
use isolet_wire::response::AgentResponse;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

/// Maximum size of one message from a driver, in bytes of JSON. Longer ones are only counted.
pub const SAID_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum number of media types of one displayed value. Kernels send fewer than ten.
const MEDIA_TYPES_MAX: usize = 64;
/// Maximum memory for the values of an error report, in bytes: a traceback of 20,000 lines.
const FAULT_VALUES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Memory for what a driver says, out of the budget of the caller.
pub trait SaidMemory: Send + fmt::Debug {
    /// Takes `bytes` more; `false`: there is not that much left, and nothing was taken.
    fn take(&mut self, bytes: usize) -> bool;
    /// Returns everything that was taken.
    fn clear(&mut self);
}

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
///
/// Its values are JSON of the tenant that nobody on the way reads, so they stay texts: a text of
/// 31 MiB can become a tree of 3 GiB.
#[derive(Debug, Clone)]
pub struct Shown {
    /// `result` for the value of the last expression, `display` for a value that the code
    /// displayed.
    pub kind: String,
    /// The value by media type: text as it is, JSON as JSON, bytes in base64.
    pub data: BTreeMap<String, Box<RawValue>>,
    /// Metadata from the code or the kernel: an object.
    pub metadata: Box<RawValue>,
    /// The sizes of representations that were left out because they were too large, by media type.
    pub cut: BTreeMap<String, u64>,
}

impl Shown {
    /// Reads the message of a driver; `None`: it is malformed, or has too many media types.
    fn parse(said: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Said<'a> {
            kind: String,
            data: MediaMap<Box<RawValue>>,
            #[serde(default, borrow)]
            metadata: Option<&'a RawValue>,
            #[serde(default)]
            cut: MediaMap<u64>,
        }
        let Said { kind, data, metadata, cut } = serde_json::from_slice(said).ok()?;
        if metadata.is_some_and(|metadata| !metadata.get().starts_with('{')) {
            return None;
        }
        let metadata = match metadata {
            Some(metadata) => metadata.to_owned(),
            None => RawValue::from_string("{}".to_owned()).ok()?,
        };
        Some(Self { kind, data: data.0, metadata, cut: cut.0 })
    }
}

/// Values by media type, at most [`MEDIA_TYPES_MAX`].
struct MediaMap<T>(BTreeMap<String, T>);

impl<T> Default for MediaMap<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for MediaMap<T> {
    fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct MediaMapVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MediaMapVisitor<T> {
            type Value = MediaMap<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object with at most {MEDIA_TYPES_MAX} media types")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MediaMap<T>, A::Error> {
                let mut all = BTreeMap::new();
                while let Some((media, value)) = map.next_entry()? {
                    if all.len() == MEDIA_TYPES_MAX {
                        return Err(serde::de::Error::invalid_length(all.len() + 1, &self));
                    }
                    all.insert(media, value);
                }
                Ok(MediaMap(all))
            }
        }
        reader.deserialize_map(MediaMapVisitor(PhantomData))
    }
}

/// The error that ended a run.
#[derive(Debug, Clone, Deserialize)]
pub struct Fault {
    /// The class of the error.
    pub name: String,
    /// The message of the error.
    pub message: String,
    /// The traceback, line by line.
    pub traceback: Vec<String>,
}

impl Fault {
    /// Reads the message of a driver. One that is too long was dropped, so it is no JSON either.
    fn parse(said: &[u8], long: bool) -> Self {
        let many = tree_bytes(said) > FAULT_VALUES_BYTES_MAX;
        let read = if many { None } else { serde_json::from_slice(said).ok() };
        read.unwrap_or_else(|| Self::unread(long || many))
    }

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
    /// The message is too long, or there is no memory for it.
    long: bool,
    memory: Box<dyn SaidMemory>,
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
        // Twice: a message and its values are in memory at the same time.
        self.long |= self.said.len() + bytes.len() > SAID_BYTES_MAX
            || (!self.long && !self.memory.take(2 * bytes.len()));
        if self.long {
            self.said = Vec::new();
            self.memory.clear();
        } else {
            self.said.extend_from_slice(bytes);
        }
        if !last {
            return None;
        }
        let said = std::mem::take(&mut self.said);
        let long = std::mem::take(&mut self.long);
        let event = match kind {
            DISPLAY => Shown::parse(&said).map_or(ContextRunEvent::Unread, ContextRunEvent::Shown),
            _ => ContextRunEvent::Fault(Fault::parse(&said, long)),
        };
        self.memory.clear();
        Some(event)
    }
}

impl Sandbox {
    /// Runs code in a context. `memory` bounds what its driver says in one message.
    ///
    /// # Errors
    /// [`Error::Link`]. A refusal arrives as the first event.
    pub async fn context_run(
        &self,
        id: &ContextId,
        code: Code,
        memory: Box<dyn SaidMemory>,
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
        let said = Vec::new();
        Ok(ContextRunConnection { wire, over: false, pool, said, long: false, memory, meter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of 31 MiB from code that pretends to be the driver became 3 GiB of values.
    ///
    /// Promises: T26.
    #[test]
    fn t21_a_displayed_value_stays_the_text_that_it_was() {
        let many = format!("[{}0]", "{\"a\":0},".repeat(100_000));
        let said = format!(r#"{{"kind":"display","data":{{"a/b":{many}}},"metadata":{{"c": 1}}}}"#);
        let shown = Shown::parse(said.as_bytes()).expect("it is well-formed");
        assert_eq!(shown.data["a/b"].get(), many);
        assert_eq!(shown.metadata.get(), r#"{"c": 1}"#);
        assert!(shown.cut.is_empty());
    }

    /// Promises: T26.
    #[test]
    fn t21_a_displayed_value_has_few_media_types() {
        let media = |count: usize| {
            let all: Vec<String> = (0..count).map(|n| format!("\"m/{n}\":1")).collect();
            all.join(",")
        };
        let data = |count| format!(r#"{{"kind":"display","data":{{{}}}}}"#, media(count));
        let cut = |count| format!(r#"{{"kind":"display","data":{{}},"cut":{{{}}}}}"#, media(count));
        for said in [data(MEDIA_TYPES_MAX), cut(MEDIA_TYPES_MAX)] {
            assert!(Shown::parse(said.as_bytes()).is_some());
        }
        for said in [
            data(MEDIA_TYPES_MAX + 1),
            cut(MEDIA_TYPES_MAX + 1),
            r#"{"kind":"display","data":{},"metadata":[]}"#.to_owned(),
            r#"{"kind":"display","data":[]}"#.to_owned(),
            String::new(),
        ] {
            assert!(Shown::parse(said.as_bytes()).is_none(), "{}", said.len());
        }
    }

    /// Promises: T26.
    #[test]
    fn t21_an_error_report_with_too_many_values_is_replaced() {
        let report = |lines: usize| {
            let lines = vec!["\"\""; lines].join(",");
            format!(r#"{{"name":"E","message":"m","traceback":[{lines}]}}"#)
        };
        let read = Fault::parse(report(20_000).as_bytes(), false);
        assert_eq!((read.name.as_str(), read.traceback.len()), ("E", 20_000));
        let replaced = Fault::parse(report(100_000).as_bytes(), false);
        assert!(replaced.traceback.is_empty() && replaced.message.contains("too long"));
        assert!(Fault::parse(b"", true).message.contains("too long"));
        assert!(Fault::parse(b"{", false).message.contains("cannot be read"));
    }
}
