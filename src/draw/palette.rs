//! Colours of classes and tracks.

/// The rim of lines and labels, and dark text.
pub(super) const DARK: [u8; 3] = [16, 18, 22];
const LIGHT: [u8; 3] = [255, 255, 255];
/// The number of classes whose colours are chosen by hand.
pub(super) const CHOSEN_COLORS: usize = 20;

/// Colours that are easy to tell apart, neighbours above all; none so light or dark that a line disappears in sky or
/// shadow.
const COLORS: [[u8; 3]; CHOSEN_COLORS] = [
    [0x1E, 0x88, 0xFF], // azure
    [0xFF, 0x6B, 0x1A], // orange
    [0x10, 0xB9, 0x6B], // green
    [0xF2, 0x2F, 0x5B], // crimson
    [0x9B, 0x51, 0xE0], // violet
    [0xFF, 0xC4, 0x1F], // amber
    [0x00, 0xC2, 0xE0], // cyan
    [0xE8, 0x4F, 0xCB], // magenta
    [0x84, 0xC1, 0x1A], // lime
    [0x95, 0x60, 0x3D], // brown
    [0x41, 0x52, 0xD9], // indigo
    [0xFF, 0x94, 0xA6], // rose
    [0x0B, 0x87, 0x80], // teal
    [0xD8, 0xDC, 0x3A], // citron
    [0xA8, 0x32, 0x3E], // maroon
    [0x7F, 0xB4, 0xFF], // sky
    [0xFF, 0xB2, 0x7A], // peach
    [0x66, 0x3B, 0xA8], // purple
    [0x6E, 0xDC, 0xA6], // mint
    [0x7B, 0x88, 0x9C], // slate
];

/// The colour of a class: red, green, blue.
///
/// The first twenty are chosen by hand. The others are golden-angle steps around the colour wheel with varying lightness,
/// so that neighbours differ for any number of classes. The colour of a class id never changes.
pub fn class_color(class_id: usize) -> [u8; 3] {
    let Some(beyond) = class_id.checked_sub(COLORS.len()) else { return COLORS[class_id] };
    // The remainder keeps the f32 exact; it repeats the wheel after more classes than are ever used.
    let hue = ((beyond % 9973) as f32 * 0.618_034 + 0.07).fract();
    let (saturation, value) = [(0.80, 0.95), (0.55, 0.98), (0.85, 0.68)][beyond % 3];
    from_hsv(hue, saturation, value)
}

/// The colour of a track: red, green, blue. Successive ids differ, and the colour of an id never changes.
pub fn track_color(id: u64) -> [u8; 3] {
    class_color(id.saturating_sub(1) as usize)
}

fn from_hsv(hue: f32, saturation: f32, value: f32) -> [u8; 3] {
    [5.0, 3.0, 1.0].map(|offset| {
        let place = (offset + hue * 6.0) % 6.0;
        let share = place.min(4.0 - place).clamp(0.0, 1.0);
        (255.0 * value * (1.0 - saturation * share)).round() as u8
    })
}

/// The text colour, dark or white, with the better contrast on `background`.
pub(super) fn text_color_on(background: [u8; 3]) -> [u8; 3] {
    if contrast(LIGHT, background) >= 0.62 * contrast(DARK, background) { LIGHT } else { DARK }
}

/// The contrast ratio of WCAG 2.1, 1 to 21.
pub(super) fn contrast(a: [u8; 3], b: [u8; 3]) -> f32 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Relative luminance of sRGB, WCAG 2.1.
fn luminance(color: [u8; 3]) -> f32 {
    let [red, green, blue] = color.map(|channel| {
        let value = f32::from(channel) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}
