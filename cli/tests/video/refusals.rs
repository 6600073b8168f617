//! Tables of errors: exit status and parts of the message.

use super::{VIDEO, draw_video, index_last, succeed};
use crate::run::{Place, Refusal, refusal};

#[test]
fn invalid_videos_and_arguments_are_errors() {
    let place = Place::new();
    draw_video(&place, "in.mp4", 4);
    let whole = place.read("in.mp4");
    let behind = index_last(&whole);
    place.write("cut.mp4", &behind[..behind.len() / 2]);
    place.write("text.mp4", "hello");
    place.write("empty.mp4", "");
    place.write("notes", "hello");
    place.write("own/holiday.jpg", "an image");
    place.write("own/000000.png", "of an earlier run");
    place.folder("empty");
    succeed(&place, "--classes dog --scene-size 64x64 --max-frames 2 -o photos -q");

    let video = |rest: &str| format!("--video|in.mp4|--classes|dog|{rest}");
    let dog = |rest: &str| format!("--classes|dog|{rest}");
    let rows: Vec<(String, i32, &[&str])> = vec![
        (dog("--video|none.mp4"), 2, &["none.mp4", "no such file"]),
        (dog("--video|text.mp4"), 1, &["text.mp4", "no video"]),
        (dog("--video|notes"), 1, &["notes", "no video"]),
        (dog("--video|empty.mp4"), 1, &["empty.mp4", "empty"]),
        (dog("--video|cut.mp4"), 1, &["cut.mp4", "no index", "cut off"]),
        (dog("--video|empty"), 2, &["empty", "contains none"]),
        (dog("--video|*.png"), 2, &["*.png", "matches no image"]),
        (dog("--video|in.mp4|photos/000000.png"), 2, &["in.mp4", "expected one video"]),
        (dog("--video|77|--reconnect|0"), 1, &["camera 77", "does not exist"]),
        (dog("--video|-"), 2, &["--raw 1280x720:bgr"]),
        (dog("--raw|4x4:bgr"), 2, &["--raw", "--video -"]),
        (dog("--video|-|--raw|4x4:xyz"), 2, &["--raw", "bgr, rgb, gray, nv12"]),
        (dog("--video|-|--raw|5x4:nv12"), 2, &["--raw", "even"]),
        (dog("--video|-|--raw|4x4:bgr@1e-300"), 2, &["--raw", "rate of 1e-300"]),
        (dog("--video|-|--raw|4x4:bgr@12|--fps|10"), 2, &["--fps is 10", "--raw says @12"]),
        (dog("--video|-|--raw|60000x60000:bgr"), 2, &["--raw", "megapixels"]),
        (dog("--fps|1e-300"), 2, &["--fps is", "expected 0.000001 to 1000000"]),
        (dog("--fps|0.001|-o|out.mp4"), 2, &["out.mp4", "0.01 to 1000"]),
        (video("--live"), 2, &["--live is for URLs"]),
        (video("--file"), 2, &["--file is for URLs"]),
        (video("--stream|1"), 1, &["in.mp4", "in.mp4: no video stream 1: it has 1, and the first is 0"]),
        (video("--ffmpeg-option|colour=red"), 1, &["in.mp4", "no option colour"]),
        (video("--ffmpeg-option|probesize"), 2, &["--ffmpeg-option", "KEY=VALUE"]),
        (dog("--video|photos|--stream|0"), 2, &["--stream is for video files, URLs and cameras"]),
        (dog("--ffmpeg-option|probesize=5000"), 2, &["--ffmpeg-option is for video files"]),
        (dog("--video|photos|--hwaccel|auto"), 2, &["--hwaccel is for video files"]),
        (video("--hwaccel|abacus"), 2, &["--hwaccel", "abacus", "cuda"]),
        (dog("--video|http://127.0.0.1:9/x|--file|--live"), 2, &["--file", "--live"]),
        (
            dog("--video|http://127.0.0.1:9/none.mp4|--reconnect|0"),
            1,
            &["http://127.0.0.1:9/none.mp4", "nothing answers"],
        ),
        ("--video|in.mp4".into(), 2, &["nothing to detect", "--classes", "--coco"]),
        (video("--coco"), 2, &["--coco", "--classes"]),
        ("--classes|spaceship".into(), 2, &["no video", "--video", "person"]),
        (dog("--scene-size|7"), 2, &["--scene-size", "WIDTHxHEIGHT"]),
        (dog("--scene-size|7x7"), 2, &["7x7"]),
        (video("-o|out.foo"), 2, &["out.foo", ".mp4", ".webm"]),
        (video("-o|none/out.mp4"), 1, &["none", "does not exist"]),
        (video("-o|%s.png"), 2, &["%s.png", "%06d.png"]),
        (video("-o|%06d.xyz"), 2, &["%06d.xyz", "format"]),
        (video("-o|notes"), 1, &["notes", "it is a file"]),
        (video("-o|in.mp4"), 2, &["in.mp4", "is the input"]),
        (video("--jsonl|./in.mp4"), 2, &["in.mp4", "is the input"]),
        (video("-o|own"), 2, &["own", "images such as holiday.jpg", "name another folder"]),
        (dog("--video|photos|-o|photos"), 2, &["photos", "name another folder"]),
        (video("-o|-"), 2, &["--raw-out"]),
        (video("--raw-out|bgr"), 2, &["-o -"]),
        (video("-o|-|--raw-out|xyz"), 2, &["--raw-out", "bgr and rgb"]),
        (video("-o|-|--raw-out|bgr|--jsonl|-"), 2, &["only one", "stdout"]),
        (video("--jsonl|none/x"), 1, &["--jsonl", "does not exist"]),
        (video("--jsonl|empty"), 1, &["--jsonl", "name a file"]),
        (video("--mot|none/x"), 1, &["--mot", "does not exist"]),
        (video("--crops|notes"), 1, &["--crops", "it is a file"]),
        (video("--stats|none/x"), 1, &["--stats", "does not exist"]),
        (video("--trails|5"), 2, &["--trails", "--track"]),
        (video("--vid-stride|0"), 2, &["--vid-stride", "is 0"]),
        (video("--start|x"), 2, &["--start", "12.5"]),
        (video("--start|-1"), 2, &["--start", "12.5"]),
        (video("--start|5|--end|2"), 2, &["--end", "not after start"]),
        (video("--fps|0"), 2, &["--fps is 0"]),
        (dog("--video|77|--reconnect|-1"), 2, &["--reconnect is -1"]),
        (video("--detect-every|0"), 2, &["--detect-every", "is 0"]),
        (video("--class-budget|0"), 2, &["--class-budget", "is 0"]),
        (video("--track|--track-thresh|7"), 2, &["--track-thresh is 7"]),
        (video("--match-classes|some"), 2, &["any, same"]),
        (video("--policy|some"), 2, &["all, latest"]),
        (video("--confidence|7"), 2, &["--confidence is 7"]),
        (video("--trt|x"), 1, &["TensorRT", "x"]),
        (video("--trt-enc-dec|x"), 1, &["TensorRT", "x"]),
        (video("--model|nowhere"), 2, &["nowhere", "no such folder"]),
        (video("--clases|dog"), 2, &["--clases", "similar", "--class"]),
    ];
    let rows: Vec<Refusal<'_>> =
        rows.iter().map(|(arguments, status, words)| refusal(arguments, *status, words)).collect();
    place.refuses(VIDEO, &rows);
}

#[test]
#[cfg_attr(without_libraries, ignore = "needs ONNX Runtime: make setup")]
fn spellings_of_other_projects_are_accepted() {
    let place = Place::with_libraries();
    draw_video(&place, "in.avi", 4);
    let ours = succeed(
        &place,
        "--video in.avi --classes moon --confidence 0.2 --nms 0.5 --engine cpu --vid-stride 2 --jsonl -",
    );
    let theirs = succeed(
        &place,
        "--source in.avi --classes moon --conf 0.2 --iou 0.5 --device cpu --vid_stride 2 --jsonl - --trt-max-classes 4",
    );
    assert_eq!(ours, theirs);
    let said =
        super::run_video(&place, "--video in.avi --classes moon --trt-max-classes 4 --max-frames 1").stderr;
    assert!(said.contains("--trt-max-classes is not needed"), "{said}");
}
