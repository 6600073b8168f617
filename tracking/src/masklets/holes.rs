//! Small holes and specks of a mask.

use crate::masklets::LogitMask;

const FILLED: f32 = 0.1;
const CLEARED: f32 = -0.1;

/// Fills background components of at most `max_area` pixels, then clears foreground components of at most `max_area` pixels
/// and half of the mask. Components are 8-connected. 0 changes nothing.
pub fn fill_holes(mask: &mut LogitMask, max_area: usize) {
    if max_area == 0 {
        return;
    }
    let background: Vec<bool> = mask.values().iter().map(|&value| value <= 0.0).collect();
    replace_small(mask, background, max_area, FILLED);
    let foreground: Vec<bool> = mask.values().iter().map(|&value| value > 0.0).collect();
    let half = foreground.iter().filter(|&&is_foreground| is_foreground).count() / 2;
    replace_small(mask, foreground, max_area.min(half), CLEARED);
}

/// Gives `value` to every component of `pixels` that has at most `max_area` pixels.
fn replace_small(mask: &mut LogitMask, mut pixels: Vec<bool>, max_area: usize, value: f32) {
    let (width, height) = (mask.width(), mask.height());
    let mut component = Vec::new();
    for start in 0..pixels.len() {
        if !std::mem::take(&mut pixels[start]) {
            continue;
        }
        component.clear();
        component.push(start);
        let mut visited = 0;
        while let Some(&pixel) = component.get(visited) {
            visited += 1;
            let (x, y) = (pixel % width, pixel / width);
            for near_y in y.saturating_sub(1)..(y + 2).min(height) {
                for near_x in x.saturating_sub(1)..(x + 2).min(width) {
                    let near = near_y * width + near_x;
                    if std::mem::take(&mut pixels[near]) {
                        component.push(near);
                    }
                }
            }
        }
        if component.len() <= max_area {
            component.iter().for_each(|&pixel| mask.values_mut()[pixel] = value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(rows: &[&str]) -> LogitMask {
        let values =
            rows.iter().flat_map(|row| row.bytes().map(|pixel| if pixel == b'#' { 5.0 } else { -5.0 }));
        LogitMask::new(rows[0].len(), rows.len(), values.collect()).expect("the rows have one length")
    }

    fn drawn(mask: &LogitMask) -> Vec<String> {
        let symbol = |value: &f32| match *value {
            FILLED => '+',
            CLEARED => '-',
            value if value > 0.0 => '#',
            _ => '.',
        };
        mask.values().chunks_exact(mask.width()).map(|row| row.iter().map(symbol).collect()).collect()
    }

    #[test]
    fn holes_are_filled_and_specks_cleared() {
        let cases: [(&str, usize, &[&str], &[&str]); 6] = [
            ("a hole", 1, &["###..", "#.#..", "###.."], &["###..", "#+#..", "###.."]),
            ("a larger hole stays", 1, &["####", "#..#", "####"], &["####", "#..#", "####"]),
            ("a speck", 1, &["###..", "###.#", "###.."], &["###..", "###.-", "###.."]),
            ("corners connect", 1, &["##...", "##...", "..#.."], &["##...", "##...", "..#.."]),
            (
                "two halves are specks",
                4,
                &["##......", "........", "....##.."],
                &["--......", "........", "....--.."],
            ),
            ("the whole mask is none", 4, &["##......", "........"], &["##......", "........"]),
        ];
        for (name, max_area, before, after) in cases {
            let mut mask = mask(before);
            fill_holes(&mut mask, max_area);
            assert_eq!(drawn(&mask), after, "{name}");
        }
    }

    #[test]
    fn an_area_of_zero_changes_nothing() {
        let mut found = mask(&["#.#", "...", "..."]);
        fill_holes(&mut found, 0);
        assert_eq!(found, mask(&["#.#", "...", "..."]));
    }
}
