//! Escapes text for JSON strings, several bytes at a time.

/// How JSON writes each byte: 0 stands for itself, `u` for `\u00XX`, any other byte for the letter
/// after the backslash.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Bytes examined together while nothing needs an escape: two vector registers.
const BLOCK: usize = 32;

/// Bytes examined together near a byte that needs an escape.
const WORD: usize = 8;

/// Appends the content of a JSON string, exactly as `serde_json` writes it.
///
/// Output mostly consists of runs without escapes; those are found a block or a word at a time and
/// copied unchanged.
pub(super) fn write_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + bytes.len() / 8 + 2);
    let mut at = 0;
    let mut blocks_from = 0;
    while let Some(word) = bytes.get(at..at + WORD) {
        if at >= blocks_from
            && let Some(block) = bytes.get(at..at + BLOCK)
        {
            if plain(block) {
                out.extend_from_slice(block);
                at += BLOCK;
                continue;
            }
            blocks_from = at + BLOCK;
        }
        // Copied before the length of the plain run is known: cheaper than a copy of odd length.
        out.extend_from_slice(word);
        let run = word.first_chunk().map_or(0, |word| plain_run(u64::from_le_bytes(*word)));
        at += run;
        if run < WORD {
            out.truncate(out.len() - (WORD - run));
            escape(out, bytes[at]);
            at += 1;
        }
    }
    for &byte in &bytes[at..] {
        escape(out, byte);
    }
}

fn plain(bytes: &[u8]) -> bool {
    !bytes.iter().fold(false, |found, &b| found | (b < 0x20) | (b == b'"') | (b == b'\\'))
}

/// The number of bytes, from the lowest, that need no escape. A borrow only disturbs bytes above
/// the first one that needs an escape.
fn plain_run(word: u64) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; WORD]);
    const HIGH: u64 = u64::from_le_bytes([0x80; WORD]);
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let quotes = word ^ (ONES * b'"' as u64);
    let backs = word ^ (ONES * b'\\' as u64);
    let found = (below(word, 0x20) | below(quotes, 1) | below(backs, 1)) & HIGH;
    (found.trailing_zeros() / 8) as usize
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match ESCAPES[usize::from(byte)] {
        0 => out.push(byte),
        b'u' => {
            let high = HEX[usize::from(byte >> 4)];
            let low = HEX[usize::from(byte & 15)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
        letter => out.extend_from_slice(&[b'\\', letter]),
    }
}
