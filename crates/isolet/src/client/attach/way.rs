//! The way to the server: open, or lost and being made again.

use super::{
    link::{Came, Link},
    place::Back,
};
use crate::client::Server;
use anyhow::Result;
use serde_json::Value;
use std::{future::Future, pin::Pin, rc::Rc, time::Duration};
use tokio::time::{Instant, sleep};

/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

type Trying = Pin<Box<dyn Future<Output = Result<(Link, Value)>>>>;

/// Open or lost.
pub(super) enum Way {
    /// Frames go and come.
    Open {
        /// The socket.
        link: Box<Link>,
        /// When the server was last heard of.
        heard: Instant,
    },
    /// It is tried again and again.
    Lost {
        /// Since when.
        since: Instant,
        /// How often it was tried.
        tries: u32,
        /// The try that goes on.
        trying: Trying,
        /// The person knows.
        told: bool,
    },
}

/// What the way brought.
pub(super) enum Turn {
    /// What was given to the link has gone out.
    Sent,
    /// A frame.
    Came(Came),
    /// A try is over: the new link, and what the server said first.
    Opened(Box<Result<(Link, Value)>>),
}

impl Way {
    /// By this link.
    pub(super) fn open(link: Link) -> Self {
        Self::Open { link: Box::new(link), heard: Instant::now() }
    }

    /// Lost just now; `back` is how to come back.
    pub(super) fn lost(server: &Rc<Server>, back: Back) -> Self {
        let trying = after(Duration::ZERO, server, back);
        Self::Lost { since: Instant::now(), tries: 0, trying, told: false }
    }

    /// The last try failed: the next comes after a pause that grows.
    pub(super) fn again(&mut self, server: &Rc<Server>, back: Back) {
        let Self::Lost { tries, trying, .. } = self else { return };
        *tries += 1;
        let pause = Duration::from_millis(100 << (*tries).min(6)).min(PAUSE_MAX);
        // Clients that were lost together do not come back together.
        let jitter = pause.mul_f64(f64::from(std::process::id() % 64) / 256.0);
        *trying = after(pause + jitter, server, back);
    }

    /// The server need not have spoken until now.
    pub(super) fn hear(&mut self) {
        if let Self::Open { heard, .. } = self {
            *heard = Instant::now();
        }
    }

    /// What comes next; frames only where they are to be `read`. May be dropped at any time.
    pub(super) async fn next(&mut self, read: bool) -> Turn {
        match self {
            Self::Open { link, heard } => {
                let Some(came) = link.next(read).await else { return Turn::Sent };
                *heard = Instant::now();
                Turn::Came(came)
            }
            Self::Lost { trying, .. } => Turn::Opened(Box::new(trying.await)),
        }
    }
}

fn after(pause: Duration, server: &Rc<Server>, back: Back) -> Trying {
    let server = Rc::clone(server);
    Box::pin(async move {
        sleep(pause).await;
        back.open(&server).await
    })
}
