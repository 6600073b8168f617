//! Text that DejaVu Sans cannot show, with the fonts of the system: other scripts, emoji, and text from right to left.

use std::sync::{LazyLock, Mutex};

use cosmic_text::fontdb::Database;
use cosmic_text::{
    Attrs, Buffer, Family, FontSystem, LayoutGlyph, Metrics, Shaping, SwashCache, SwashContent,
};

use ocelli_images::canvas::Canvas;

use crate::threads::locked;

/// The font of text that needs no other.
const FAMILY: &str = "DejaVu Sans";

/// The fonts of the system, which are searched for when the first text needs them.
struct System {
    fonts: FontSystem,
    images: SwashCache,
    /// Set once a missing glyph was reported.
    has_warned: bool,
}

static SYSTEM: LazyLock<Mutex<System>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_system_fonts();
    // Decides between the Chinese, Japanese and Korean forms of a letter.
    let language = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| std::env::var(name).ok());
    let language = language.unwrap_or_default();
    let locale = language.split('.').next().unwrap_or_default().replace('_', "-");
    let locale = if locale.len() < 2 || locale == "POSIX" { "en-US".to_owned() } else { locale };
    Mutex::new(System {
        fonts: FontSystem::new_with_locale_and_db(locale, fonts),
        images: SwashCache::new(),
        has_warned: false,
    })
});

/// A line of text with laid-out glyphs.
pub(super) struct Shaped {
    /// From left to right; positions start at 0 on the base line.
    glyphs: Vec<LayoutGlyph>,
    pub(super) width: f32,
}

/// Lays out a text, if a font of the system has letters that DejaVu Sans lacks. If no font has a letter, this is reported
/// once.
pub(super) fn shaped(text: &str, size: f32, is_from_right_to_left: bool) -> Option<Shaped> {
    let mut system = locked(&SYSTEM);
    let mut buffer = Buffer::new(&mut system.fonts, Metrics::new(size, size));
    buffer.set_text(text, &Attrs::new().family(Family::Name(FAMILY)), Shaping::Advanced, None);
    buffer.shape_until_scroll(&mut system.fonts, false);
    let mut glyphs: Vec<LayoutGlyph> = buffer.layout_runs().flat_map(|run| run.glyphs.to_vec()).collect();
    if let Some(missing) = glyphs.iter().find(|glyph| glyph.glyph_id == 0)
        && !system.has_warned
    {
        system.has_warned = true;
        let letters = text.get(missing.start..missing.end).unwrap_or(text);
        tracing::warn!(
            "no font has the letters \"{letters}\" of \"{text}\", so boxes are drawn; install fonts for them, such as \
             fonts-noto-cjk and fonts-noto-color-emoji"
        );
    }
    let is_plain = |glyph: &LayoutGlyph| glyph.glyph_id == 0 || is_own(&system.fonts, glyph);
    if !is_from_right_to_left && glyphs.iter().all(is_plain) {
        return None;
    }
    let left = glyphs.iter().map(|glyph| glyph.x).fold(f32::INFINITY, f32::min);
    glyphs.iter_mut().for_each(|glyph| glyph.x -= left);
    let width = glyphs.iter().map(|glyph| glyph.x + glyph.w).fold(0.0, f32::max);
    Some(Shaped { glyphs, width })
}

/// `true` if a glyph is of DejaVu Sans.
fn is_own(fonts: &FontSystem, glyph: &LayoutGlyph) -> bool {
    let face = fonts.db().face(glyph.font_id);
    face.is_some_and(|face| face.families.iter().any(|(name, _)| name == FAMILY))
}

impl Shaped {
    /// Draws the text from `left` on the base line. Emoji have their own colours.
    pub(super) fn draw(&self, canvas: &mut Canvas<'_>, left: f32, base: f32, color: [u8; 3]) {
        let mut system = locked(&SYSTEM);
        let System { fonts, images, .. } = &mut *system;
        for glyph in &self.glyphs {
            let at = glyph.physical((left, base), 1.0);
            let Some(image) = images.get_image(fonts, at.cache_key) else { continue };
            let (x0, y0) = (at.x + image.placement.left, at.y - image.placement.top);
            let width = image.placement.width.max(1) as usize;
            let place = |index: usize| (x0 + (index % width) as i32, y0 + (index / width) as i32);
            match image.content {
                SwashContent::Mask => {
                    for (index, covered) in image.data.iter().enumerate().filter(|(_, covered)| **covered > 0)
                    {
                        let (x, y) = place(index);
                        canvas.blend(x, y, color, f32::from(*covered) / 255.0);
                    }
                }
                SwashContent::Color | SwashContent::SubpixelMask => {
                    for (index, pixel) in image.data.chunks_exact(4).enumerate().filter(|(_, p)| p[3] > 0) {
                        let (x, y) = place(index);
                        canvas.blend(x, y, [pixel[0], pixel[1], pixel[2]], f32::from(pixel[3]) / 255.0);
                    }
                }
            }
        }
    }
}
