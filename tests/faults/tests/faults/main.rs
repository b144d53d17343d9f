//! Things that break, and what must still hold afterwards. Rows of the catalogue of faults by
//! their number; each ends with the general invariant: requests are answered, a new sandbox can
//! be made, nothing is left over.

mod agents;
mod copies;
mod descriptors;
mod disk;
mod full;
mod images;
mod inside;
mod kills;
mod launcher;
mod links;
mod memory;
mod neighbours;
mod records;
mod sleep;
mod soak;
mod steps;
mod terminals;
mod wall;
