//! The contents of the warm pool, by kind. The plain kind is always kept in stock. A kind with a
//! veth pair or an image is stocked once a create needs it, and dropped when no create has needed it
//! for a while. This module does no I/O.

#[cfg(test)]
#[path = "stock_test.rs"]
mod tests;

use crate::live::prepared::PreparedSandbox;
use crate::model::record::PoolKind;
use isolet_wire::launcher::Root;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Maximum number of kinds besides the plain one.
pub(crate) const OTHERS_MAX: usize = 3;
/// Maximum number of sandboxes of each of these kinds.
pub(crate) const OTHERS_EACH: usize = 2;
/// Time after the last create of a kind at which its sandboxes are discarded.
pub(crate) const STAY: Duration = Duration::from_secs(300);

struct StockOfKind {
    kind: PoolKind,
    made: VecDeque<PreparedSandbox>,
    asked: Instant,
}

struct InPreparation {
    kind: PoolKind,
    name: String,
    /// Where to send the sandbox if a create is waiting for it.
    promised: Option<oneshot::Sender<PreparedSandbox>>,
    /// The sandbox is no longer needed.
    dropped: bool,
}

#[derive(Default)]
pub(crate) struct WarmStock {
    /// The kind that was needed last comes first.
    all: Vec<StockOfKind>,
    making: Option<InPreparation>,
    old: Vec<PreparedSandbox>,
    /// Kinds of the sandboxes that are being removed.
    removing: Vec<PoolKind>,
}

/// The result of taking a sandbox from the pool.
pub(crate) enum Taken {
    Made(PreparedSandbox),
    /// The sandbox is still being created.
    Soon(oneshot::Receiver<PreparedSandbox>),
    None,
}

impl WarmStock {
    /// Takes a sandbox of a kind, or reserves the one that is being created. From now on, the pool
    /// keeps this kind in stock.
    pub(crate) fn take(&mut self, kind: &PoolKind, now: Instant) -> Taken {
        self.want(kind, now);
        let kind_stock = self.all.first_mut().filter(|kind_stock| kind_stock.kind == *kind);
        if let Some(made) = kind_stock.and_then(|kind_stock| kind_stock.made.pop_front()) {
            return Taken::Made(made);
        }
        match &mut self.making {
            Some(making)
                if making.kind == *kind && making.promised.is_none() && !making.dropped =>
            {
                let (promised, promise) = oneshot::channel();
                making.promised = Some(promised);
                Taken::Soon(promise)
            }
            _ => Taken::None,
        }
    }

    /// Moves a kind to the front. If there are too many kinds, the one that was needed least
    /// recently is discarded.
    pub(crate) fn want(&mut self, kind: &PoolKind, now: Instant) {
        let found = self.all.iter().position(|kind_stock| kind_stock.kind == *kind);
        let kind_stock = match found {
            Some(at) => StockOfKind { asked: now, ..self.all.remove(at) },
            None => StockOfKind { kind: kind.clone(), made: VecDeque::new(), asked: now },
        };
        self.all.insert(0, kind_stock);
        let others = self.all.iter().filter(|kind_stock| !kind_stock.kind.plain()).count();
        let last = self.all.iter().rposition(|kind_stock| !kind_stock.kind.plain());
        if let Some(last) = last.filter(|_| others > OTHERS_MAX) {
            self.give_up(last);
        }
    }

    fn give_up(&mut self, at: usize) {
        let kind_stock = self.all.remove(at);
        self.old.extend(kind_stock.made);
        if let Some(making) = self.making.as_mut().filter(|making| making.kind == kind_stock.kind) {
            making.dropped = true;
        }
    }

    /// Discards every kind that does not match.
    pub(crate) fn retain(&mut self, keep: impl Fn(&PoolKind) -> bool) {
        while let Some(at) = self.all.iter().position(|kind_stock| !keep(&kind_stock.kind)) {
            self.give_up(at);
        }
    }

    /// Discards kinds that have not been needed for a while. Returns when to check again.
    pub(crate) fn age(&mut self, now: Instant) -> Option<Instant> {
        let past =
            |kind_stock: &StockOfKind| !kind_stock.kind.plain() && now >= kind_stock.asked + STAY;
        while let Some(at) = self.all.iter().position(past) {
            self.give_up(at);
        }
        let others = self.all.iter().filter(|kind_stock| !kind_stock.kind.plain());
        others.map(|kind_stock| kind_stock.asked + STAY).min()
    }

    /// Selects the kind to create next, if the pool needs one, and records its creation under this
    /// name.
    pub(crate) fn next(&mut self, size: usize, name: &str) -> Option<PoolKind> {
        let short = |kind_stock: &&StockOfKind| {
            kind_stock.made.len()
                < if kind_stock.kind.plain() { size } else { size.min(OTHERS_EACH) }
        };
        let kind = self.all.iter().find(short)?.kind.clone();
        let name = name.to_owned();
        self.making =
            Some(InPreparation { kind: kind.clone(), name, promised: None, dropped: false });
        Some(kind)
    }

    /// Adds a sandbox that was created or returned.
    pub(crate) fn put(&mut self, mut made: PreparedSandbox) {
        if let Some(making) = self.making.take_if(|making| making.name == made.name) {
            if making.dropped {
                return self.old.push(made);
            }
            made = match making.promised {
                None => made,
                Some(promised) => match promised.send(made) {
                    Ok(()) => return,
                    // The create that waited for it has gone.
                    Err(made) => made,
                },
            };
        }
        match self.all.iter_mut().find(|kind_stock| kind_stock.kind == made.kind) {
            Some(kind_stock) => kind_stock.made.push_back(made),
            None => self.old.push(made),
        }
    }

    /// Records that the creation failed. A create that waited starts its own sandbox.
    pub(crate) fn none_made(&mut self) {
        self.making = None;
    }

    /// Discards sandboxes whose veth pair or image is gone.
    pub(crate) fn lost(&mut self, gone: impl Fn(&str, &PoolKind) -> bool) {
        for kind_stock in &mut self.all {
            let all = std::mem::take(&mut kind_stock.made).into_iter();
            let (lost, kept): (Vec<_>, Vec<_>) = all.partition(|made| gone(&made.name, &made.kind));
            kind_stock.made = kept.into();
            self.old.extend(lost);
        }
        if let Some(making) = self.making.as_mut().filter(|it| gone(&it.name, &it.kind)) {
            making.dropped = true;
            // A create that waited starts its own sandbox.
            making.promised = None;
        }
    }

    /// Discards all waiting sandboxes. Their kinds stay in stock.
    pub(crate) fn empty(&mut self) {
        for kind_stock in &mut self.all {
            self.old.extend(kind_stock.made.drain(..));
        }
    }

    /// Discards a sandbox that was taken and cannot be used.
    pub(crate) fn discard(&mut self, made: PreparedSandbox) {
        self.old.push(made);
    }

    /// Takes the sandboxes to remove, and records that their removal is in progress.
    pub(crate) fn remove(&mut self) -> Vec<PreparedSandbox> {
        let old = std::mem::take(&mut self.old);
        self.removing.extend(old.iter().map(|made| made.kind.clone()));
        old
    }

    /// Records that a sandbox of this kind was removed.
    pub(crate) fn removed(&mut self, kind: &PoolKind) {
        if let Some(at) = self.removing.iter().position(|one| one == kind) {
            self.removing.swap_remove(at);
        }
    }

    /// Number of waiting sandboxes of the plain kind.
    pub(crate) fn count(&self) -> usize {
        let plain = self.all.iter().find(|kind_stock| kind_stock.kind.plain());
        plain.map_or(0, |kind_stock| kind_stock.made.len())
    }

    /// Whether a sandbox of a matching kind is being created or removed.
    pub(crate) fn busy(&self, with: impl Fn(&PoolKind) -> bool) -> bool {
        self.making.as_ref().is_some_and(|making| with(&making.kind))
            || self.removing.iter().any(&with)
            || self.old.iter().any(|made| with(&made.kind))
    }

    /// Whether a sandbox of this name waits or is being created.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.making.as_ref().is_some_and(|making| making.name == name)
            || self
                .all
                .iter()
                .any(|kind_stock| kind_stock.made.iter().any(|made| made.name == name))
    }

    /// The roots of all sandboxes in the pool.
    pub(crate) fn roots(&self) -> Vec<Root> {
        let all = self.all.iter().map(|kind_stock| &kind_stock.kind);
        let all = all.chain(self.making.iter().map(|making| &making.kind));
        let all = all.chain(&self.removing).chain(self.old.iter().map(|made| &made.kind));
        all.filter_map(|kind| kind.root.clone()).collect()
    }
}
