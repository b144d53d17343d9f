//! Numbers of bytes for people.

const KIB: f64 = 1024.0;

/// Formats bytes in binary units, with one decimal.
pub(in crate::client) fn binary(bytes: u64) -> String {
    let size = bytes as f64;
    match size {
        _ if size < KIB => format!("{bytes} B"),
        _ if size < KIB * KIB => format!("{:.1} KiB", size / KIB),
        _ if size < KIB * KIB * KIB => format!("{:.1} MiB", size / KIB / KIB),
        _ => format!("{:.1} GiB", size / KIB / KIB / KIB),
    }
}
