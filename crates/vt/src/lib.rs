//! A terminal emulator without a window.
//!
//! A [`Screen`] reads the bytes that programs write to a terminal and maintains the state of the
//! terminal: two screens of cells, a history, modes, titles and colours. A snapshot of it is a
//! string of bytes that draws the same screen on any terminal, so a client that attaches late, or
//! that was too slow to read everything, sees the same as a client that read every byte. The crate
//! knows nothing about clients and PTYs.
//!
//! ```text
//! bytes ─ scan ─┬─ text ──────────▶ model ── snapshot ─▶ bytes that draw it
//!               └─ sequences ─ act ─┘  └── query ─▶ queries, and default replies to them
//! ```
//!
//! Terminals reply to some sequences (the cursor's position, colours, capabilities). With several
//! clients attached, each of their terminals replies; a [`ReplyFilter`] lets one reply to each
//! query through to the program.
//!
//! Text and sequences have the same effect as in xterm.js, which most clients use; `tests/xterm`
//! compares the two cell by cell. Memory is bounded, whatever a program writes: lines
//! and cells of the history, links, combining marks, titles, and sequences without an end.
#![forbid(unsafe_code)]

mod act;
mod buffer;
mod cell;
mod csi;
mod line;
mod model;
mod modes;
mod osc;
mod pen;
mod query;
mod reply_filter;
mod resize;
mod scan;
mod screen;
mod sgr;
mod snapshot;
mod width;

pub use isolet_wire::terminal::Size;
pub use query::Query;
pub use reply_filter::{ClientInput, ReplyFilter};
pub use screen::Screen;
