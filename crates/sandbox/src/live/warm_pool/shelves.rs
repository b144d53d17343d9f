//! The sandboxes that wait, by kind. Plain ones are always available. Those with a veth pair, or of
//! an image, are created from the first create of that kind until no create has used it for a
//! while. Pure.

#[cfg(test)]
#[path = "shelves_test.rs"]
mod tests;

use crate::{live::prepared::Made, model::record::Kind};
use isolet_wire::launcher::Root;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Kinds beside the plain one that are kept at once.
pub(crate) const OTHERS_MAX: usize = 3;
/// Sandboxes of each of them, at most.
pub(crate) const OTHERS_EACH: usize = 2;
/// How long after the last create of its kind they are given up.
pub(crate) const STAY: Duration = Duration::from_secs(300);

struct Shelf {
    kind: Kind,
    made: VecDeque<Made>,
    asked: Instant,
}

struct Making {
    kind: Kind,
    name: String,
    /// Who waits for it.
    promised: Option<oneshot::Sender<Made>>,
    /// Nobody wants it any more.
    dropped: bool,
}

#[derive(Default)]
pub(crate) struct Shelves {
    /// The one asked for last comes first.
    all: Vec<Shelf>,
    making: Option<Making>,
    /// Are to be removed.
    old: Vec<Made>,
    /// Are being removed.
    removing: Vec<Kind>,
}

/// What a taker gets.
pub(crate) enum Taken {
    Made(Made),
    /// It is being made.
    Soon(oneshot::Receiver<Made>),
    None,
}

impl Shelves {
    /// One of a kind, or a promise of the one that is being made. From now on more are wanted.
    pub(crate) fn take(&mut self, kind: &Kind, now: Instant) -> Taken {
        self.want(kind, now);
        let shelf = self.all.first_mut().filter(|shelf| shelf.kind == *kind);
        if let Some(made) = shelf.and_then(|shelf| shelf.made.pop_front()) {
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

    /// Brings a kind to the front; where that is one too many, the one not asked for longest goes.
    pub(crate) fn want(&mut self, kind: &Kind, now: Instant) {
        let found = self.all.iter().position(|shelf| shelf.kind == *kind);
        let shelf = match found {
            Some(at) => Shelf { asked: now, ..self.all.remove(at) },
            None => Shelf { kind: kind.clone(), made: VecDeque::new(), asked: now },
        };
        self.all.insert(0, shelf);
        let others = self.all.iter().filter(|shelf| !shelf.kind.plain()).count();
        let last = self.all.iter().rposition(|shelf| !shelf.kind.plain());
        if let Some(last) = last.filter(|_| others > OTHERS_MAX) {
            self.give_up(last);
        }
    }

    fn give_up(&mut self, at: usize) {
        let shelf = self.all.remove(at);
        self.old.extend(shelf.made);
        if let Some(making) = self.making.as_mut().filter(|making| making.kind == shelf.kind) {
            making.dropped = true;
        }
    }

    /// Gives up every kind that is not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Kind) -> bool) {
        while let Some(at) = self.all.iter().position(|shelf| !keep(&shelf.kind)) {
            self.give_up(at);
        }
    }

    /// Gives up what nobody asks for any more; when to look again.
    pub(crate) fn age(&mut self, now: Instant) -> Option<Instant> {
        let past = |shelf: &Shelf| !shelf.kind.plain() && now >= shelf.asked + STAY;
        while let Some(at) = self.all.iter().position(past) {
            self.give_up(at);
        }
        let others = self.all.iter().filter(|shelf| !shelf.kind.plain());
        others.map(|shelf| shelf.asked + STAY).min()
    }

    /// What is to be made next where there are to be so many plain ones; it is being made under
    /// this name from now on.
    pub(crate) fn next(&mut self, size: usize, name: &str) -> Option<Kind> {
        let short = |shelf: &&Shelf| {
            shelf.made.len() < if shelf.kind.plain() { size } else { size.min(OTHERS_EACH) }
        };
        let kind = self.all.iter().find(short)?.kind.clone();
        let name = name.to_owned();
        self.making = Some(Making { kind: kind.clone(), name, promised: None, dropped: false });
        Some(kind)
    }

    /// One that was made, or is given back.
    pub(crate) fn put(&mut self, mut made: Made) {
        if let Some(making) = self.making.take_if(|making| making.name == made.name) {
            if making.dropped {
                return self.old.push(made);
            }
            made = match making.promised {
                None => made,
                Some(promised) => match promised.send(made) {
                    Ok(()) => return,
                    // Who waited has gone.
                    Err(made) => made,
                },
            };
        }
        match self.all.iter_mut().find(|shelf| shelf.kind == made.kind) {
            Some(shelf) => shelf.made.push_back(made),
            None => self.old.push(made),
        }
    }

    /// None is being made any more; who waited makes one itself.
    pub(crate) fn none_made(&mut self) {
        self.making = None;
    }

    /// One is not to be used: what it was born with is gone.
    pub(crate) fn lost(&mut self, gone: impl Fn(&str, &Kind) -> bool) {
        for shelf in &mut self.all {
            let all = std::mem::take(&mut shelf.made).into_iter();
            let (lost, kept): (Vec<_>, Vec<_>) = all.partition(|made| gone(&made.name, &made.kind));
            shelf.made = kept.into();
            self.old.extend(lost);
        }
        if let Some(making) = self.making.as_mut().filter(|it| gone(&it.name, &it.kind)) {
            making.dropped = true;
            // Who waited makes one itself.
            making.promised = None;
        }
    }

    /// All that wait; more of their kinds are wanted.
    pub(crate) fn empty(&mut self) {
        for shelf in &mut self.all {
            self.old.extend(shelf.made.drain(..));
        }
    }

    /// One that was taken and cannot be used.
    pub(crate) fn discard(&mut self, made: Made) {
        self.old.push(made);
    }

    /// What is to be removed, which is being done from now on.
    pub(crate) fn remove(&mut self) -> Vec<Made> {
        let old = std::mem::take(&mut self.old);
        self.removing.extend(old.iter().map(|made| made.kind.clone()));
        old
    }

    /// One of this kind is removed.
    pub(crate) fn removed(&mut self, kind: &Kind) {
        if let Some(at) = self.removing.iter().position(|one| one == kind) {
            self.removing.swap_remove(at);
        }
    }

    /// How many plain ones wait.
    pub(crate) fn count(&self) -> usize {
        let plain = self.all.iter().find(|shelf| shelf.kind.plain());
        plain.map_or(0, |shelf| shelf.made.len())
    }

    /// Whether something of a kind is being made or removed.
    pub(crate) fn busy(&self, with: impl Fn(&Kind) -> bool) -> bool {
        self.making.as_ref().is_some_and(|making| with(&making.kind))
            || self.removing.iter().any(&with)
            || self.old.iter().any(|made| with(&made.kind))
    }

    /// Whether one of this name waits, or is being made.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.making.as_ref().is_some_and(|making| making.name == name)
            || self.all.iter().any(|shelf| shelf.made.iter().any(|made| made.name == name))
    }

    /// What their roots are made of.
    pub(crate) fn roots(&self) -> Vec<Root> {
        let all = self.all.iter().map(|shelf| &shelf.kind);
        let all = all.chain(self.making.iter().map(|making| &making.kind));
        let all = all.chain(&self.removing).chain(self.old.iter().map(|made| &made.kind));
        all.filter_map(|kind| kind.root.clone()).collect()
    }
}
