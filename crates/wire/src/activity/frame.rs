//! The form of an activity on the wire.

use super::Activity;
use super::closed::Closed;
use super::key::ShellKey;
use serde::{Deserialize, Serialize};

/// What every agent sends for an activity, whichever kind it is. The order of the fields is the
/// format; for a code context and a spare kernel, `clients` holds the number of threads.
#[derive(Serialize, Deserialize)]
pub(super) struct ActivityFrame {
    name: ShellKey,
    pid: i32,
    busy: bool,
    queued: u32,
    clients: u32,
    closed: Option<Closed>,
}

/// An activity whose fields contradict its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an activity of this kind cannot have these fields")]
pub struct BadActivity;

impl TryFrom<ActivityFrame> for Activity {
    type Error = BadActivity;

    fn try_from(frame: ActivityFrame) -> Result<Self, BadActivity> {
        let ActivityFrame { name, pid, busy, queued, clients, closed } = frame;
        let idle = !busy && queued == 0;
        match name {
            key @ (ShellKey::Session(_) | ShellKey::Private(_)) => {
                Ok(Self::Shell { key, pid, busy, queued, clients, closed })
            }
            ShellKey::Terminal(session) if idle => {
                Ok(Self::Terminal { session, pid, clients, closed })
            }
            ShellKey::Context(id) => {
                let ended = closed.is_some();
                Ok(Self::Context { id, pid, busy, queued, threads: clients, ended })
            }
            ShellKey::SpareKernel if idle && closed.is_none() => {
                Ok(Self::SpareKernel { pid, threads: clients })
            }
            ShellKey::Terminal(_) | ShellKey::SpareKernel => Err(BadActivity),
        }
    }
}

impl From<Activity> for ActivityFrame {
    fn from(activity: Activity) -> Self {
        let name = activity.key();
        match activity {
            Activity::Shell { pid, busy, queued, clients, closed, .. } => {
                Self { name, pid, busy, queued, clients, closed }
            }
            Activity::Terminal { pid, clients, closed, .. } => {
                Self { name, pid, busy: false, queued: 0, clients, closed }
            }
            Activity::Context { pid, busy, queued, threads, ended, .. } => {
                let closed = ended.then(Closed::default);
                Self { name, pid, busy, queued, clients: threads, closed }
            }
            Activity::SpareKernel { pid, threads } => {
                Self { name, pid, busy: false, queued: 0, clients: threads, closed: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    #[derive(Serialize)]
    struct Sent<'a> {
        name: &'a str,
        pid: i32,
        busy: bool,
        queued: u32,
        clients: u32,
        closed: Option<Closed>,
    }

    fn decode(sent: &Sent<'_>) -> Result<Activity, frame::FrameError> {
        frame::decode(&crate::launcher::encode(sent))
    }

    #[test]
    fn an_activity_whose_fields_contradict_its_name_is_refused() {
        let sent = |name| Sent { name, pid: 1, busy: false, queued: 0, clients: 0, closed: None };
        for name in ["s/dev", "p/sh_1", "t/dev", "c/notebook", "k/"] {
            let activity = decode(&sent(name)).expect(name);
            assert_eq!(activity.key().to_string(), name);
            assert_eq!(frame::decode(&crate::launcher::encode(&activity)), Ok(activity));
        }
        for name in ["", "dev", "x/dev", "s/", "k/1"] {
            assert!(decode(&sent(name)).is_err(), "{name:?}");
        }
        assert!(decode(&Sent { busy: true, ..sent("t/dev") }).is_err());
        assert!(decode(&Sent { queued: 1, ..sent("k/") }).is_err());
        assert!(decode(&Sent { closed: Some(Closed::default()), ..sent("k/") }).is_err());
    }
}
