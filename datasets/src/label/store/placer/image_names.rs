//! The images of a data set in a file of COCO's that another program wrote again, maybe with other names.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

use hotcoco::types::Image;

use crate::label::store::layout::copy_name;

/// The image in a file for each name of an image, with the name that was written for it, which a program may have given another
/// folder, or none; and the images of the file that are none of these. An image that can be two is an error if it is `strict`, and
/// neither otherwise.
pub(crate) fn images_of<'a>(
    images: impl Iterator<Item = &'a Image>,
    names: &[(String, String)],
    strict: bool,
) -> Result<(Vec<Option<&'a Image>>, Vec<&'a Image>), String> {
    let images: Vec<(String, &Image)> =
        images.map(|image| (image.file_name.replace('\\', "/"), image)).collect();
    let mut found: Vec<Option<&Image>> = vec![None; names.len()];
    let mut taken = vec![false; images.len()];
    // As it was written; below other folders; without its folders.
    for step in 0..3 {
        let mut by_end: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, (path, _)) in images.iter().enumerate().filter(|(at, _)| !taken[*at]) {
            let ends = ends(path).take(if step == 1 { usize::MAX } else { 1 });
            ends.for_each(|end| by_end.entry(end).or_default().push(at));
        }
        // The images that each name fits, with how much of their paths, and the most for each image with the number of its names.
        let mut fits: Vec<(usize, BTreeMap<usize, usize>)> = Vec::new();
        let mut best: HashMap<usize, (usize, usize)> = HashMap::new();
        for number in (0..names.len()).filter(|number| found[*number].is_none()) {
            let (name, written) = &names[number];
            let copy = copy_name(name);
            let paths: Vec<&str> = match step {
                0 => vec![written],
                1 => vec![name, &copy, written],
                _ => ends(written).collect(),
            };
            let mut own: BTreeMap<usize, usize> = BTreeMap::new();
            for (path, at) in paths
                .iter()
                .flat_map(|path| by_end.get(path).into_iter().flatten().map(move |at| (path, *at)))
            {
                let length = own.entry(at).or_default();
                *length = path.len().max(*length);
            }
            for (at, length) in &own {
                let (most, count) = best.entry(*at).or_default();
                match (*most).cmp(length) {
                    Ordering::Less => (*most, *count) = (*length, 1),
                    Ordering::Equal => *count += 1,
                    Ordering::Greater => {}
                }
            }
            fits.push((number, own));
        }
        for (number, mut own) in fits {
            own.retain(|at, length| best[at].0 == *length);
            match own.keys().collect::<Vec<_>>()[..] {
                [] => {}
                [at] if best[at].1 == 1 => (taken[*at], found[number]) = (true, Some(images[*at].1)),
                // Another step may tell them apart.
                [at, ..] if step == 2 && strict => return Err(unclear(&images[*at].0)),
                _ => {}
            }
        }
    }
    // In a file without folders, that of another image may be this one's.
    let paths: HashSet<&str> = images.iter().map(|(path, _)| path.as_str()).collect();
    let are_plain = strict && !paths.iter().any(|path| path.contains('/'));
    for ((_, written), _) in names.iter().zip(&found).filter(|(_, found)| are_plain && found.is_none()) {
        if let Some(end) = ends(written).find(|end| paths.contains(end)) {
            return Err(unclear(end));
        }
    }
    let unknown =
        images.iter().zip(taken).filter(|(_, taken)| !taken).map(|((_, image), _)| *image).collect();
    Ok((found, unknown))
}

fn unclear(path: &str) -> String {
    format!("image {path}: it is not clear which image it is")
}

/// A path, and what follows each of its folders.
fn ends(path: &str) -> impl Iterator<Item = &str> {
    let after = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
    std::iter::once(path).chain(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_of_the_image_that_it_can_be_alone() {
        const NONE: Option<usize> = None;
        // The names of the images and those that were written, the names in the file, and which of these each image has; without
        // these, it is an error.
        type Case<'a> = (&'a str, &'a [&'a str], &'a [&'a str], Option<&'a [Option<usize>]>);
        let cases: [Case<'_>; 12] = [
            ("train/", &["a.png", "b/a.png"], &["train/b/a.png", "train/a.png"], Some(&[Some(1), Some(0)])),
            ("train/", &["a.png", "b/a.png"], &["b/a.png", "a.png"], Some(&[Some(1), Some(0)])),
            (
                "train/",
                &["a.png", "b/a.png"],
                &["images/a.png", "images\\b\\a.png"],
                Some(&[Some(0), Some(1)]),
            ),
            // One is missing.
            ("train/", &["a.png", "b/a.png"], &["b/a.png"], Some(&[NONE, Some(0)])),
            ("train/", &["a.png", "b/a.png"], &["images/b/a.png"], Some(&[NONE, Some(0)])),
            (
                "train/",
                &["b/d.png", "b/z.png", "z.png"],
                &["b/d.png", "z.png"],
                Some(&[Some(0), NONE, Some(1)]),
            ),
            ("", &["a.png", "b/a.png", "c/d.png"], &["a.png", "c/d.png"], Some(&[Some(0), NONE, Some(1)])),
            // It may be the other one, without its folder.
            ("", &["a.png", "b/a.png"], &["a.png"], None),
            ("train/", &["a.png", "b/a.png"], &["a.png", "a.png"], None),
            ("", &["b/a.png", "c/a.png"], &["a.png", "a.png"], None),
            ("", &["b/a.png", "c/d.png"], &["d.png", "a.png"], Some(&[Some(1), Some(0)])),
            ("train/", &["a.gif"], &["images/a.png"], Some(&[Some(0)])),
        ];
        for (folder, names, files, expected) in cases {
            let written = |name: &&str| format!("{folder}{}", name.replace(".gif", ".png"));
            let names: Vec<_> = names.iter().map(|name| ((*name).to_owned(), written(name))).collect();
            let image =
                |(id, name): (u64, &&str)| Image { id, file_name: (*name).into(), ..Image::default() };
            let images: Vec<Image> = (0..).zip(files).map(image).collect();
            let found = images_of(images.iter(), &names, true);
            let found = found.map(|(found, unknown)| {
                let ids: Vec<_> = found.iter().map(|image| image.map(|image| image.id as usize)).collect();
                assert_eq!(ids.iter().flatten().count() + unknown.len(), files.len(), "{files:?}");
                ids
            });
            assert_eq!(found.ok().as_deref(), expected, "{names:?} in {files:?}");
        }
    }
}
