//! The page, which is inside the program.

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use crate::example;
use crate::http::body::off_the_workers;
use crate::http::problem::Problem;

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page itself.
pub(crate) async fn index() -> Response {
    answer(HTML, include_str!("../page/index.html"))
}

/// Its style, its scripts, its icon and the example.
pub(crate) async fn file(Path(name): Path<String>) -> Result<Response, Problem> {
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
            let picture = off_the_workers(|_| Ok(example::picture()?)).await?;
            answer("image/png", picture)
        }
        "icon.svg" => answer("image/svg+xml", include_str!("../page/icon.svg")),
        _ => return Err(Problem::missing("the page has no such file")),
    })
}

fn answer(kind: &'static str, content: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], content).into_response()
}
