//! Mutations of seeds, from a deterministic generator.

/// Numbers at which parsers break: the limits of types, and what lies beside them.
const NUMBERS: [u64; 16] = [
    0,
    1,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 53,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Tokens of text formats that mean something, or are too much.
const TOKENS: [&str; 30] = [
    "0",
    "-1",
    "1e-300",
    "1e300",
    "1e999",
    "NaN",
    "inf",
    "16777216",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "0.0000000000000000000000000001",
    "null",
    "true",
    "\"\"",
    "\"..\"",
    "\"/\"",
    "\u{0}",
    "\u{feff}",
    "\u{1f600}",
    "[]",
    "{}",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":",
    ",",
    ":",
    "@",
    "\n",
    "\r\n",
    "&a [*a,*a,*a,*a,*a,*a,*a,*a,*a]",
];

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, or 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.next() % end as u64) as usize }
    }

    /// A position, most often near the start, where headers are.
    fn position(&mut self, length: usize) -> usize {
        let near = self.below(4) > 0;
        self.below(if near { length.min(2048) } else { length })
    }
}

/// One to eight mutations of a seed.
pub fn mutated(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(8) {
        mutate(random, &mut bytes, seeds);
    }
    bytes.truncate(4 << 20);
    bytes
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = random.position(bytes.len());
    let end = (at + random.below(64) + 1).min(bytes.len());
    match random.below(11) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
        2..=4 => {
            let number = NUMBERS[random.below(NUMBERS.len())].wrapping_add(random.below(3) as u64);
            let width = [1, 2, 4, 8][random.below(4)];
            let raw = if random.below(2) == 0 {
                number.to_le_bytes()[..width].to_vec()
            } else {
                number.to_be_bytes()[8 - width..].to_vec()
            };
            let end = (at + width).min(bytes.len());
            bytes.splice(at.min(end)..end, raw);
        }
        5 => drop(bytes.drain(at..end)),
        6 => {
            let part = bytes[at..end].to_vec();
            let copies = 1 + random.below(5);
            bytes.splice(at..at, part.repeat(copies));
        }
        7 => {
            let token = TOKENS[random.below(TOKENS.len())];
            let end = if random.below(2) == 0 { at } else { end };
            bytes.splice(at..end, token.bytes());
        }
        8 => replace_number(random, bytes, at),
        9 => bytes.truncate(random.below(bytes.len() + 1)),
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len());
            let to = (from + random.below(512)).min(other.len());
            bytes.splice(at..at, other[from..to].iter().copied());
        }
    }
}

/// Replaces the first decimal number from a position on.
fn replace_number(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b".-+eE".contains(byte);
    let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|offset| at + offset) else {
        return;
    };
    let end =
        bytes[start..].iter().position(|byte| !is_part(byte)).map_or(bytes.len(), |offset| start + offset);
    let token = TOKENS[random.below(15)];
    bytes.splice(start..end, token.bytes());
}
