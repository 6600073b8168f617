//! Models by name, from a server on this machine that speaks the hub's protocol.

mod server;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime};

use server::{COMMIT, Fault, Server};

use crate::checkpoints;
use crate::run::{Outcome, Place, outcome};

const OCELLI: &str = env!("CARGO_BIN_EXE_ocelli");
const NAME: &str = "acme/tiny";
const WEIGHTS: &str = "model.safetensors";

struct Hub {
    place: Place,
    server: Server,
}

impl Hub {
    /// A server with a small random checkpoint.
    fn new() -> Self {
        let hub = Self { place: Place::new().with_empty_cache(), server: Server::start() };
        checkpoints::copy(&hub.place, "plain", "served");
        hub.place.write("served/README.md", "not needed");
        hub.server.add(NAME, &hub.place.path("served"), None);
        hub
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(OCELLI, arguments);
        for name in [
            "HF_TOKEN",
            "HF_HUB_CACHE",
            "HF_TOKEN_PATH",
            "HUGGING_FACE_HUB_TOKEN",
            "HF_HUB_OFFLINE",
            "ALL_PROXY",
            "all_proxy",
            "HTTPS_PROXY",
            "https_proxy",
            "HTTP_PROXY",
            "http_proxy",
            "NO_PROXY",
            "no_proxy",
        ] {
            command.env_remove(name);
        }
        command.env("HF_ENDPOINT", &self.server.address).env("HF_HOME", self.place.path("cache/hf"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(&mut self.command(arguments))
    }

    fn succeed(&self, arguments: &[&str]) -> Outcome {
        let outcome = self.run(arguments);
        assert_eq!(outcome.status, Some(0), "{arguments:?}: {outcome:?}");
        outcome
    }

    fn refuses(&self, arguments: &[&str], status: i32, words: &[&str]) {
        let outcome = self.run(arguments);
        let is_one_line = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).count() == 1;
        let has_words = words.iter().all(|word| outcome.stderr.contains(word));
        assert!(outcome.status == Some(status) && is_one_line && has_words, "{words:?}: {outcome:?}");
    }

    /// The file in the cache that has the content of a file of the repository.
    fn cached(&self, file: &str) -> Option<Vec<u8>> {
        let folder = format!("cache/hf/hub/models--acme--tiny/snapshots/{COMMIT}/{file}");
        std::fs::read(self.place.path(&folder)).ok()
    }

    /// The bytes of downloads that have not ended.
    fn in_part(&self) -> Vec<u64> {
        let folder = std::fs::read_dir(self.place.path("cache/hf/hub/models--acme--tiny/blobs"));
        let files = folder.into_iter().flatten().flatten();
        let parts = files.filter(|file| file.path().extension().is_some_and(|end| end == "incomplete"));
        parts.map(|file| file.metadata().expect("it is there").len()).collect()
    }

    fn has_all(&self) {
        let files = ["config.json", WEIGHTS, "tokenizer.json"];
        for file in files {
            assert_eq!(self.cached(file), Some(self.place.read(&format!("served/{file}"))), "{file}");
        }
        assert_eq!(self.cached("README.md"), None, "it is not needed");
        assert_eq!(self.in_part(), [0_u64; 0]);
    }
}

fn detect<'a>(image: &'a str, model: &'a str) -> [&'a str; 9] {
    ["detect", "--image", image, "--classes", "dog", "--model", model, "--json", "found.json"]
}

/// The first bytes of the ranges that were asked for of the large file.
fn resumed(requests: &[String]) -> Vec<&str> {
    let of_weights = requests.iter().filter(|request| request.contains("/cdn/"));
    of_weights.filter_map(|request| request.rsplit(' ').next()).collect()
}

#[test]
fn a_named_model_is_downloaded_exported_and_used_once() {
    let hub = Hub::new();
    hub.place.copy_folder(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/scenes"), "images");
    let image = std::fs::read_dir(hub.place.path("images")).expect("it was copied").flatten().next();
    let image = image.expect("there is one").path().display().to_string();
    let found = |model: &str| {
        let outcome = hub.succeed(&detect(&image, model));
        (outcome.stderr, hub.place.json("found.json")["images"][0]["detections"].clone())
    };
    let exported = || {
        let models = std::fs::read_dir(hub.place.path("cache/models")).expect("it is there").flatten();
        let exports = models.filter(|entry| {
            entry.path().is_dir() && entry.file_name().to_string_lossy().starts_with("acme_tiny-")
        });
        exports.map(|entry| entry.metadata().and_then(|meta| meta.modified()).expect("it is there")).collect()
    };
    let (said, first) = found(NAME);
    let at: Vec<SystemTime> = exported();
    assert_eq!(at.len(), 1);
    hub.has_all();
    assert!(said.contains("downloading model.safetensors") && first.is_array(), "{said}, {first}");
    assert!(!hub.server.requests().is_empty());
    assert_eq!(found(NAME).1, first);
    assert_eq!((hub.server.requests(), exported()), (Vec::new(), at), "it is in the cache");
    assert_eq!(found("served").1, first, "the same by its path");
    hub.succeed(&["export", "--checkpoint", NAME, "--output", "graphs"]);
    let again = hub.succeed(&["pull", NAME]);
    assert!(again.stdout.contains(&COMMIT[..8]), "{again:?}");
    assert_eq!(hub.server.requests().len(), 1, "whether there is a newer revision");
    let offline = outcome(hub.command(&detect(&image, NAME)).env("HF_HUB_OFFLINE", "1"));
    assert_eq!(offline.status, Some(0), "{offline:?}");
    let exports = || hub.succeed(&["cache"]).stdout.matches("models/acme_tiny-").count();
    assert_eq!(exports(), 1);
    hub.succeed(&["models", "--remove", NAME]);
    assert_eq!((hub.cached(WEIGHTS), exports()), (None, 0), "the files, and what was exported from them");
}

#[test]
fn a_proxy_is_obeyed() {
    let hub = Hub::new();
    let mut pull = hub.command(&["pull", NAME]);
    pull.env("HF_ENDPOINT", "http://hub.invalid").env("http_proxy", &hub.server.address);
    let pulled = outcome(&mut pull);
    assert_eq!(pulled.status, Some(0), "{pulled:?}");
    assert!(hub.server.requests().contains(&"CONNECT hub.invalid:80".to_owned()));
    hub.has_all();
}

/// A server that says nothing for a minute is asked again, from the byte where it stopped.
#[test]
#[ignore = "takes a minute"]
fn long_silence_is_a_fault_like_others() {
    let hub = Hub::new();
    hub.server.repositories(|all| all.get_mut(NAME).map(|it| it.files.retain(|name, _| name == WEIGHTS)));
    hub.server.fail(&[Fault::Stall(200_000)]);
    let pulled = hub.succeed(&["pull", NAME]);
    assert!(pulled.stderr.contains("nothing came for a minute; trying again"), "{pulled:?}");
    assert_eq!(resumed(&hub.server.requests()), ["0", "200000"]);
}

/// A file system that is mounted.
#[cfg(target_os = "linux")]
struct Mounted(std::path::PathBuf);

#[cfg(target_os = "linux")]
impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs root, to mount a small disk"]
fn a_disk_without_room_is_refused_before_the_download() {
    let hub = Hub::new();
    hub.place.folder("cache/hf");
    let disk = hub.place.path("cache/hf");
    let mount = |options: &str| {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&disk).status();
        assert!(status.is_ok_and(|status| status.success()), "mounting needs root");
    };
    mount("size=300k");
    let _mounted = Mounted(disk.clone());
    hub.server.requests();
    hub.refuses(
        &["pull", NAME],
        1,
        &["it needs", "the disk has", "set HF_HUB_CACHE to a folder on another one"],
    );
    assert_eq!(resumed(&hub.server.requests()), [""; 0]);
    mount("remount,size=64m");
    hub.succeed(&["pull", NAME]);
}

#[test]
fn a_download_goes_on_after_every_fault() {
    for (faults, expected) in [
        (
            &[Fault::Cut(200_000), Fault::Cut(0), Fault::Cut(100_000)][..],
            &["0", "200000", "200000", "300000"][..],
        ),
        (&[Fault::Status(503, "X: y"), Fault::Status(500, "X: y")], &["0", "0", "0"]),
        (&[Fault::Status(429, "Retry-After: 1")], &["0", "0"]),
        (&[Fault::Cut(200_000), Fault::WithoutRange], &["0", "200000"]),
    ] {
        let hub = Hub::new();
        // The first files that are asked for are small.
        hub.server.repositories(|all| all.get_mut(NAME).map(|it| it.files.retain(|name, _| name == WEIGHTS)));
        hub.server.fail(faults);
        hub.succeed(&["pull", NAME]);
        assert_eq!(resumed(&hub.server.requests()), expected, "{faults:?}");
        assert_eq!(hub.cached(WEIGHTS), Some(hub.place.read("served/model.safetensors")), "{faults:?}");
    }
}

#[test]
fn what_was_downloaded_is_kept_when_a_download_fails() {
    let hub = Hub::new();
    hub.server.repositories(|all| all.get_mut(NAME).map(|it| it.files.retain(|name, _| name == WEIGHTS)));
    hub.server.fail(&[Fault::Cut(123_456), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0), Fault::Cut(0)]);
    hub.refuses(&["pull", NAME], 1, &["cannot download acme/tiny", "the connection failed", "is kept"]);
    assert_eq!(hub.in_part(), [123_456]);
    hub.server.requests();
    hub.succeed(&["pull", NAME]);
    assert_eq!(resumed(&hub.server.requests()), ["123456"]);
    // Wrong bytes are never used.
    hub.succeed(&["models", "--remove", NAME]);
    assert_eq!(hub.cached(WEIGHTS), None);
    hub.server.fail(&[Fault::Wrong]);
    hub.refuses(
        &["pull", NAME],
        1,
        &["acme/tiny, model.safetensors: what was downloaded does not have the hash"],
    );
    assert_eq!((hub.in_part(), hub.cached(WEIGHTS)), (vec![], None));
    hub.succeed(&["pull", NAME]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_download_that_stalls() {
    use std::io::{BufRead, BufReader};

    let hub = Hub::new();
    hub.server.repositories(|all| all.get_mut(NAME).map(|it| it.files.retain(|name, _| name == WEIGHTS)));
    hub.server.fail(&[Fault::Stall(300_000)]);
    let mut child = hub.command(&["pull", NAME]).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.contains("downloading"))));
    while hub.in_part() != [300_000] {
        assert!(child.try_wait().expect("it is a child").is_none(), "it has ended");
        std::thread::yield_now();
    }
    let pressed = Instant::now();
    let kill = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status();
    assert!(kill.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert!(pressed.elapsed().as_secs() < 20, "the server is silent for longer");
    assert_eq!(hub.in_part(), [300_000], "what is there is kept");
    hub.server.requests();
    hub.succeed(&["pull", NAME]);
    assert_eq!(resumed(&hub.server.requests()), ["300000"]);
}

#[test]
fn two_processes_download_each_file_once() {
    let hub = Hub::new();
    let start = || {
        hub.command(&["pull", NAME]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    };
    let both = [start(), start()];
    for mut child in both {
        assert!(child.wait().expect("it ends").success());
    }
    hub.has_all();
    assert_eq!(resumed(&hub.server.requests()), ["0"]);
}

#[test]
fn every_refusal_says_what_to_do() {
    let hub = Hub::new();
    hub.server.add("acme/gated", &hub.place.path("served"), Some("hf_secret"));
    for (name, status, words) in [
        ("acme/gated", 1, &["accept the terms at http", "acme/gated", "HF_TOKEN", "litetext-s0"][..]),
        ("acme/nothing", 2, &["there is no such repository", "acme/nothing", "ocelli models"]),
        ("acme/tiny@v9", 2, &["it has no revision v9"]),
        ("acme/tiny:model.pt", 2, &["there is no file model.pt; there are model.safetensors"]),
    ] {
        hub.refuses(&["pull", name], status, words);
    }
    let with_token = |token: &str| outcome(hub.command(&["pull", "acme/gated"]).env("HF_TOKEN", token));
    let refused = with_token("hf_other");
    assert!(refused.stderr.contains("with the account of your token"), "{refused:?}");
    assert!(!refused.stderr.contains("hf_other"), "{refused:?}");
    hub.server.requests();
    assert_eq!(with_token("hf_secret").status, Some(0));
    let requests = hub.server.requests();
    let have_token = |of: &str| requests.iter().any(|it| it.contains(of) && it.contains("with a token"));
    assert!(have_token("/resolve/") && !have_token("/cdn/"), "it is for the hub alone: {requests:?}");
    let offline = outcome(hub.command(&["pull", NAME]).env("HF_HUB_OFFLINE", "1"));
    assert!(offline.status == Some(1) && offline.stderr.contains("HF_HUB_OFFLINE is set"), "{offline:?}");
    let nobody = outcome(hub.command(&["pull", NAME]).env("HF_ENDPOINT", "http://127.0.0.1:9"));
    assert!(
        nobody.status == Some(1) && nobody.stderr.contains("cannot download acme/tiny from"),
        "{nobody:?}"
    );
    let unknown = hub.run(&["pull", "litetext"]);
    assert!(unknown.status == Some(2) && unknown.stderr.contains("such as litetext-"), "{unknown:?}");
    // A path that is not there is not looked for elsewhere.
    hub.server.requests();
    hub.run(&["detect", "--image", "x.png", "--classes", "dog", "--model", "./acme/tiny"]);
    hub.run(&["detect", "--image", "x.png", "--classes", "dog", "--model", "folder/sam3.pt"]);
    assert_eq!(hub.server.requests(), [""; 0]);
}

#[test]
fn the_terms_are_shown_before_the_first_download() {
    let hub = Hub::new();
    hub.server.add("vil-uob/sam3-litetext-s0", &hub.place.path("served"), None);
    let list = || hub.succeed(&["models"]).stdout;
    let line = |list: &str| list.lines().find(|line| line.starts_with("litetext-s0")).map(str::to_owned);
    assert!(line(&list()).is_some_and(|line| line.contains("  -  ")), "{}", list());
    let quiet = hub.succeed(&["export", "--checkpoint", "litetext-s0", "--output", "graphs", "--quiet"]);
    assert!(quiet.stderr.contains("terms of vil-uob/sam3-litetext-s0: Apache-2.0"), "{quiet:?}");
    assert!(
        hub.place.json("graphs/model.json")["license"].as_str().is_some_and(|it| it.contains("SAM License"))
    );
    let unknown = hub.succeed(&["pull", NAME, "--quiet"]);
    assert!(
        unknown.stderr.contains("terms of acme/tiny: cc-by-nc-4.0, http://"),
        "as its card says: {unknown:?}"
    );
    hub.succeed(&["models", "--remove", "litetext-s0"]);
    let revision = format!("vil-uob/sam3-litetext-s0@{COMMIT}");
    let pulled = hub.succeed(&["pull", &revision, "--quiet"]);
    assert!(pulled.stderr.contains("terms of vil-uob/sam3-litetext-s0"), "by any name: {pulled:?}");
    let again = hub.succeed(&["pull", "litetext-s0"]);
    assert!(!again.stderr.contains("terms"), "{again:?}");
    assert!(line(&list()).is_some_and(|line| line.contains("  yes  ")), "{}", list());
}

/// Needs `OCELLI_TEST_PYTHON`, a Python with `huggingface_hub`.
#[ignore = "needs Python's huggingface_hub"]
#[test]
fn the_cache_is_that_of_huggingface_hub() {
    let python = std::env::var("OCELLI_TEST_PYTHON").expect("OCELLI_TEST_PYTHON names a Python");
    let hub = Hub::new();
    let script = |script: &str| {
        let mut python = Command::new(&python);
        python.args(["-c", script]).env("HF_ENDPOINT", &hub.server.address).env("HF_HUB_DISABLE_XET", "1");
        let ended = outcome(python.env("HF_HOME", hub.place.path("cache/hf")));
        assert_eq!(ended.status, Some(0), "{ended:?}");
        ended.stdout
    };
    let of_python = "from huggingface_hub import hf_hub_download as get, scan_cache_dir\n\
                     for name in ['config.json', 'model.safetensors', 'tokenizer.json']: print(get('acme/tiny', name))\n\
                     print([repo.repo_id for repo in scan_cache_dir().repos], scan_cache_dir().warnings)";
    script(of_python);
    hub.has_all();
    hub.server.requests();
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demos/scenes/park.png").display().to_string();
    hub.succeed(&["detect", "--image", &image, "--classes", "dog", "--model", NAME]);
    assert_eq!(hub.server.requests(), [""; 0], "Python downloaded it");
    hub.succeed(&["models", "--remove", NAME]);
    hub.succeed(&["pull", NAME]);
    hub.server.requests();
    let found = script(&format!("import os; os.environ['HF_HUB_OFFLINE'] = '1'\n{of_python}"));
    assert!(found.contains("['acme/tiny'] []"), "{found}");
    assert_eq!(hub.server.requests(), [""; 0], "Ocelli downloaded it");
}
