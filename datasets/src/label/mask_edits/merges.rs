//! Masks that were corrected in shards, and in what joins them.

use super::*;

fn shards(place: &Place, run: &Run) {
    for (index, output) in (1..).zip(["one", "two"]) {
        let run = Run { output: output.into(), shard: Shard::new(index, 2).ok(), ..run.clone() };
        label(place, &run).expect("the images can be labelled");
    }
}

fn join(place: &Place) -> Result<Summary> {
    merge(&["one", "two"].map(|name| place.path(name)), &place.path("joined"), &mut || Ok(()))
}

#[test]
fn merges_take_the_masks_of_a_shard_together_after_any_stop() {
    let run = run_with(&[Format::Yolo, Format::Masks, Format::Coco]);
    for writes in 0.. {
        let place = Place::new();
        (0..).zip(NAMES).for_each(|(number, name)| place.image(name, 2 + number));
        shards(&place, &run);
        if writes % 2 == 1 {
            join(&place).expect("they belong together");
        }
        let folder = |name: &str| {
            let stem = &name[..1];
            let shard = ["one", "two"]
                .into_iter()
                .find(|shard| place.path(&format!("{shard}/masks/train/{stem}")).is_dir());
            format!("{}/masks/train/{stem}", shard.expect("it is in one"))
        };
        // Another file changes the numbers first.
        let text = folder("a.png").replace("masks/train/a", "labels/train/a.txt");
        let rest = place.read(&text).unwrap_or_default();
        place.write(&text, &rest.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>());
        shards(&place, &run);
        write(&place, &format!("{}/dog-1.png", folder("a.png")), &changed(42, 2));
        place.remove(&format!("{}/dog-0.png", folder("b.png")));
        write(&place, &format!("{}/dog-7.png", folder("c.png")), &changed(30, 40));
        (0..3).for_each(|number| place.remove(&format!("{}/dog-{number}.png", folder("d.png"))));
        let is_ended = stopping(writes, || join(&place)).is_ok();
        for round in 0..2 {
            let summary = join(&place).unwrap_or_else(|e| panic!("{writes} writes: {e}"));
            assert!(
                summary.unclear.is_empty() && summary.corrected == EDITED,
                "{writes} writes: {summary:?}"
            );
            let mut parts = masks(&place, "one");
            parts.extend(masks(&place, "two"));
            let differs = parts.keys().chain(masks(&place, "joined").keys()).cloned().collect::<Vec<_>>();
            assert!(parts == masks(&place, "joined"), "{writes} writes, {round}: {differs:?}");
            check(&place, "joined", "b.png", &[(0, 0.8, square(22, 3)), (0, 0.7, square(42, 3))]);
            check(&place, "joined", "d.png", &[]);
            let own = found(&place, "joined", "c.png");
            assert!(own.len() == 4 && own.contains(&(0, 1.0, changed(30, 40))));
        }
        // What was added is taken back, and another mask is changed again.
        place.remove(&format!("{}/dog-7.png", folder("c.png")));
        write(&place, &format!("{}/dog-2.png", folder("b.png")), &changed(42, 3));
        join(&place).expect("they belong together");
        check(&place, "joined", "b.png", &[(0, 0.8, square(22, 3)), (0, 1.0, changed(42, 3))]);
        assert_eq!(found(&place, "joined", "c.png").len(), 3, "{writes} writes");
        // A correction in the joined data set stays, with all masks of its image.
        write(&place, "joined/masks/train/b/dog-1.png", &changed(24, 3));
        write(&place, &format!("{}/dog-2.png", folder("b.png")), &changed(40, 3));
        join(&place).expect("they belong together");
        check(&place, "joined", "b.png", &[(0, 1.0, changed(24, 3)), (0, 1.0, changed(42, 3))]);
        // A folder that is missing is so in the joined data set, too.
        let folder_of_e = folder("e.png");
        std::fs::remove_dir_all(place.path(&folder_of_e)).expect("it is there");
        let unclear = join(&place).expect("they belong together").unclear;
        assert!(unclear.len() == 1 && unclear[0] == "masks/train/e/: it was removed", "{unclear:?}");
        assert_eq!(found(&place, "joined", "e.png").len(), 3);
        // An empty one has none.
        std::fs::create_dir(place.path(&folder_of_e)).expect("a temporary folder");
        assert_eq!(join(&place).expect("they belong together").unclear, [""; 0]);
        check(&place, "joined", "e.png", &[]);
        if is_ended {
            assert!(writes > 20, "{writes} writes");
            break;
        }
    }
}

#[test]
fn an_image_that_is_moved_in_a_shard_is_moved_by_a_merge() {
    for is_painted in [false, true] {
        let (place, run) = (Place::new(), run_with(&[Format::Yolo, Format::Masks, Format::Coco]));
        (0..).zip(NAMES).for_each(|(number, name)| place.image(name, 2 + number));
        shards(&place, &run);
        join(&place).expect("they belong together");
        let is_there = |shard: &&str| place.path(&format!("{shard}/labels/train/a.txt")).is_file();
        let shard = ["one", "two"].into_iter().find(is_there).expect("it is in one");
        if is_painted {
            write(&place, &format!("{shard}/masks/train/a/dog-1.png"), &changed(22, 2));
            shards(&place, &run);
            join(&place).expect("they belong together");
        }
        for file in ["labels/train/a.txt", "images/train/a.png", "masks/train/a"] {
            move_to_val(&place, &format!("{shard}/{file}"));
        }
        shards(&place, &run);
        for _ in 0..2 {
            let summary = join(&place).expect("they belong together");
            assert_eq!(
                (summary.unclear.len(), summary.corrected.len()),
                (0, usize::from(is_painted)),
                "{summary:?}"
            );
            for (file, is_there) in [
                ("labels/train/a.txt", false),
                ("labels/val/a.txt", true),
                ("masks/val/a/dog-1.png", true),
                ("masks/train/a/dog-1.png", false),
            ] {
                assert_eq!(place.path(&format!("joined/{file}")).exists(), is_there, "{is_painted}: {file}");
            }
            let middle = if is_painted { (0, 1.0, changed(22, 2)) } else { (0, 0.8, square(22, 2)) };
            check(&place, "joined", "a.png", &[(0, 0.9, square(2, 2)), middle, (0, 0.7, square(42, 2))]);
        }
    }
}
