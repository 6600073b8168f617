//! Images for the comparison of the preprocessing kernel with the CPU's preprocessing.

use super::PixelFormat;

const FORMATS: [PixelFormat; 4] =
    [PixelFormat::Rgb8, PixelFormat::Bgr8, PixelFormat::Gray8, PixelFormat::Nv12];

/// Reproducible pseudo-random numbers (xorshift).
pub struct Random(pub u32);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    fn up_to(&mut self, most: u32) -> u32 {
        self.next() % (most + 1)
    }
}

/// An image and the side of its square.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub side: usize,
    pub width: u32,
    pub height: u32,
    pub format: PixelFormat,
    /// Bytes between rows.
    pub padding: usize,
}

/// The bytes of a case and their stride: noise, with runs of black and white for the extreme values.
pub fn image(case: &Case) -> (Vec<u8>, usize) {
    let row = match case.format {
        PixelFormat::Gray8 => case.width as usize,
        PixelFormat::Nv12 => (case.width as usize).next_multiple_of(2),
        _ => case.width as usize * 3,
    };
    let stride = row + case.padding;
    let rows = match case.format {
        PixelFormat::Nv12 => case.height as usize + case.height.div_ceil(2) as usize,
        _ => case.height as usize,
    };
    let mut random = Random(case.width * 31 + case.height * 17 + 1);
    let bytes = stride * (rows - 1) + row;
    let data = (0..bytes).map(|at| match (at / 97) % 4 {
        0 => 0,
        1 => 255,
        _ => random.next() as u8,
    });
    (data.collect(), stride)
}

/// Every format, enlarged and shrunk, odd sizes, one pixel, one line, more than one tile, more lines than one band, and
/// rows that are uploaded with their padding or without.
pub fn table() -> Vec<Case> {
    let sizes =
        [(1, 1), (28, 28), (37, 23), (64, 7), (5, 300), (29, 2), (1, 700), (700, 1), (28, 90), (90, 28)];
    let mut cases = Vec::new();
    for side in [28, 70] {
        for (width, height) in sizes {
            for format in FORMATS {
                for padding in [0, 1, 1000] {
                    cases.push(Case { side, width, height, format, padding });
                }
            }
        }
    }
    cases
}

/// Random sizes and formats.
pub fn random_cases(count: usize) -> Vec<Case> {
    let mut random = Random(20_011);
    let mut cases = Vec::new();
    for side in [1, 7, 32, 33, 79] {
        cases.extend((0..count).map(|_| Case {
            side,
            width: 1 + random.up_to(400),
            height: 1 + random.up_to(400),
            format: FORMATS[random.up_to(3) as usize],
            padding: random.up_to(20) as usize,
        }));
    }
    cases
}

/// Images as cameras give them, at the side of the full-size model.
pub fn full_size() -> Vec<Case> {
    let sizes = [(640, 480), (1920, 1080), (3840, 2160), (1008, 1008)];
    let formats = [PixelFormat::Bgr8, PixelFormat::Nv12];
    let case = |(width, height), format| Case { side: 1008, width, height, format, padding: 0 };
    sizes.into_iter().flat_map(|size| formats.map(|format| case(size, format))).collect()
}
