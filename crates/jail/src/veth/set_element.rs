//! Elements of the packet filter's sets, and how `nft` writes them. Pure.

use std::net::Ipv4Addr;

/// One element of a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Element {
    pub(crate) set: &'static str,
    pub(crate) parts: Vec<Part>,
}

/// A part of an element's key. Ranges include both ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The name of the gateway's end of a pair.
    Interface(String),
    Addresses(Ipv4Addr, Ipv4Addr),
    /// A protocol's name, and its number in IP.
    Protocol(&'static str, u8),
    Ports(u16, u16),
}

impl Element {
    pub(super) fn new<const N: usize>(set: &'static str, parts: [Part; N]) -> Self {
        Self { set, parts: parts.into() }
    }

    /// Whether its set holds ranges.
    pub(crate) fn is_range(&self) -> bool {
        matches!(self.set, "direct" | "echo")
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, part) in self.parts.iter().enumerate() {
            let between = if at == 0 { "" } else { " . " };
            match part {
                Part::Interface(name) => write!(f, "{between}{name}")?,
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
