//! Elements of the packet filter's sets.

use std::net::Ipv4Addr;

/// One element of a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    pub(crate) set: &'static str,
    pub(crate) parts: Vec<Part>,
}

/// A part of it, each from first to last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Our end of a link.
    Link(String),
    /// Addresses.
    Addresses(Ipv4Addr, Ipv4Addr),
    /// A protocol, and IP's number of it.
    Protocol(&'static str, u8),
    /// Ports.
    Ports(u16, u16),
}

impl Element {
    pub(super) fn new<const N: usize>(set: &'static str, parts: [Part; N]) -> Self {
        Self { set, parts: parts.into() }
    }

    /// Whether its set is one of ranges.
    pub(crate) fn ranges(&self) -> bool {
        matches!(self.set, "direct" | "echo")
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            let between = if at == 0 { "" } else { " . " };
            match part {
                Part::Link(name) => write!(f, "{between}{name}")?,
                Part::Addresses(first, last) if first == last => write!(f, "{between}{first}")?,
                Part::Addresses(first, last) => write!(f, "{between}{first}-{last}")?,
                Part::Protocol(name, _) => write!(f, "{between}{name}")?,
                Part::Ports(first, last) if first == last => write!(f, "{between}{first}")?,
                Part::Ports(first, last) => write!(f, "{between}{first}-{last}")?,
            }
        }
        Ok(())
    }
}
