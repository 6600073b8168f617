//! The page, which is inside the program, and its example.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use image::ImageFormat;
use ocelli::Result;
use ocelli_verify::scenes::{Scene, SceneGenerator, SceneOptions};

use crate::http::body::off_the_workers;
use crate::http::problem::{Answer, Problem};

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The classes of the example.
pub(crate) const EXAMPLE: [&str; 4] = ["dog", "house", "tree", "butterfly"];
/// A scene without overlaps, in which the built-in model finds everything.
const SEED: u64 = 14;
/// A drawn scene of what the built-in model knows, as a PNG. It is drawn when it is first asked for, so that the program does
/// not hold it.
static EXAMPLE_IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let png = example().and_then(|scene| scene.image.view().encoded(ImageFormat::Png, 0));
    png.expect("the scene is constant")
});

fn example() -> Result<Scene> {
    let options = SceneOptions {
        width: 640,
        height: 480,
        objects: 8..=8,
        kinds: 4..=4,
        noisy: 0.0,
        labels: EXAMPLE.map(str::to_owned).into(),
        sizes: None,
    };
    Ok(SceneGenerator::new(SEED, options)?.scene(0))
}

/// The page itself.
pub(crate) async fn index() -> Response {
    answer(HTML, include_str!("../page/index.html"))
}

/// Its style, its scripts, its icon and the example.
pub(crate) async fn file(Path(name): Path<String>) -> Answer {
    Ok(match name.as_str() {
        "style.css" => answer(STYLE, include_str!("../page/style.css")),
        "app.js" => answer(SCRIPT, include_str!("../page/app.js")),
        "stage.js" => answer(SCRIPT, include_str!("../page/stage.js")),
        "formats.js" => answer(SCRIPT, include_str!("../page/formats.js")),
        "server.js" => answer(SCRIPT, include_str!("../page/server.js")),
        "gallery.js" => answer(SCRIPT, include_str!("../page/gallery.js")),
        "clicks.js" => answer(SCRIPT, include_str!("../page/clicks.js")),
        "video.js" => answer(SCRIPT, include_str!("../page/video.js")),
        "camera.js" => answer(SCRIPT, include_str!("../page/camera.js")),
        "example.png" => {
            let image = off_the_workers(|_| Ok(EXAMPLE_IMAGE.as_slice())).await?;
            answer("image/png", image)
        }
        "icon.svg" => answer("image/svg+xml", include_str!("../page/icon.svg")),
        _ => return Err(Problem::missing("the page has no such file")),
    })
}

fn answer(kind: &'static str, content: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_has_each_of_its_names() {
        let scene = example().expect("the names are in the vocabulary");
        for name in EXAMPLE {
            assert!(scene.objects.iter().any(|object| object.label == name), "{name}");
        }
        assert!(EXAMPLE_IMAGE.starts_with(b"\x89PNG"));
    }
}
