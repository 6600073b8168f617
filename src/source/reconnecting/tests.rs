use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;

const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// A step in the script of a connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Provides this many frames, ten per second.
    Frames(u64),
    /// Ends, as when the sender disconnects.
    End,
    /// Times out after this many seconds.
    Stall(u64),
    /// Is cancelled.
    Cancel,
}

#[derive(Clone, Debug, Default)]
struct TestClock(Arc<Mutex<(Duration, Vec<Duration>)>>);

impl TestClock {
    fn pass(&self, time: Duration) {
        self.0.lock().expect("no thread panicked").0 += time;
    }

    /// The waits between attempts.
    fn waits(&self) -> Vec<Duration> {
        self.0.lock().expect("no thread panicked").1.clone()
    }

    fn note_attempt(&self) {
        self.0.lock().expect("no thread panicked").1.push(Duration::ZERO);
    }

    fn now(&self) -> Duration {
        self.0.lock().expect("no thread panicked").0
    }

    fn sleep(&self, time: Duration) {
        self.pass(time);
        if let Some(last) = self.0.lock().expect("no thread panicked").1.last_mut() {
            *last += time;
        }
    }
}

struct Scripted {
    info: SourceInfo,
    steps: VecDeque<Step>,
    next: u64,
    clock: TestClock,
    cancellation: Cancellation,
}

impl Source for Scripted {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        match self.steps.front_mut() {
            Some(Step::Frames(left)) if *left > 0 => {
                *left -= 1;
                if *left == 0 {
                    self.steps.pop_front();
                }
                (frame.index, frame.time) = (self.next, Duration::from_millis(100 * self.next));
                self.next += 1;
                self.clock.pass(Duration::from_millis(100));
                Ok(true)
            }
            Some(Step::Stall(seconds)) => {
                self.clock.pass(Duration::from_secs(*seconds));
                Err(Error::new(ErrorKind::Io, format!("no frame for {seconds} s")))
            }
            Some(Step::Cancel) => {
                self.cancellation.cancel();
                Ok(false)
            }
            _ => Ok(false),
        }
    }
}

/// The result of a run: frames as index and time in milliseconds, how it ended, delays between attempts in milliseconds.
struct Ran {
    frames: Vec<(u64, u64)>,
    end: Result<bool>,
    delays: Vec<u64>,
    /// Number of times that the stream was opened.
    opened: usize,
}

/// Runs a script of connections; `None` is refused, and so are all after the last one.
fn run(connections: &[Option<&[Step]>], give_up_after: Duration) -> Ran {
    run_by_chance(connections, give_up_after, 0.0)
}

fn run_by_chance(connections: &[Option<&[Step]>], give_up_after: Duration, chance: f64) -> Ran {
    let clock = TestClock::default();
    let cancellation = Cancellation::new();
    let mut script: VecDeque<Option<Vec<Step>>> =
        connections.iter().map(|steps| steps.map(<[Step]>::to_vec)).collect();
    let (at_open, token) = (clock.clone(), cancellation.clone());
    let open = move || {
        at_open.note_attempt();
        let Some(Some(steps)) = script.pop_front() else {
            return Err(Error::new(ErrorKind::Io, "refused"));
        };
        let info = SourceInfo { name: "camera 7".into(), ..SourceInfo::default() };
        let (clock, cancellation) = (at_open.clone(), token.clone());
        Ok(Box::new(Scripted { info, steps: steps.into(), next: 0, clock, cancellation }) as Box<dyn Source>)
    };
    let (now, sleep) = (clock.clone(), clock.clone());
    let times = Clock {
        now: Box::new(move || now.now()),
        sleep: Box::new(move |time, _| sleep.sleep(time)),
        random: Box::new(move || chance),
    };
    let mut source =
        Reconnecting::connect(open, give_up_after, cancellation).expect("the first connection succeeds");
    source.clock = times;
    let (mut frame, mut frames) = (Frame::default(), Vec::new());
    let end = loop {
        match source.read_into(&mut frame) {
            Ok(true) => frames.push((frame.index, frame.time.as_millis() as u64)),
            end => break end,
        }
    };
    let opened = clock.waits().len();
    let delays = clock.waits().iter().map(|wait| wait.as_millis() as u64).filter(|ms| *ms > 0).collect();
    Ran { frames, end, delays, opened }
}

#[test]
fn lost_streams_reconnect() {
    use Step::{Cancel, End, Frames, Stall};
    let cases: [(&str, &[Option<&[Step]>], &[(u64, u64)], &[u64]); 6] = [
        (
            "reconnected at once",
            &[Some(&[Frames(2), End]), Some(&[Frames(1), Cancel])],
            &[(0, 0), (1, 100), (2, 200)],
            &[],
        ),
        (
            "a timeout, two refusals, reconnected",
            &[Some(&[Frames(1), Stall(5)]), None, None, Some(&[Frames(2), Cancel])],
            &[(0, 0), (1, 6600), (2, 6700)],
            &[500, 1000],
        ),
        (
            "lost twice, the second time after longer than the next delay: delays start over",
            &[Some(&[Frames(1), End]), None, Some(&[Frames(10), End]), None, Some(&[Frames(1), Cancel])],
            &[
                (0, 0),
                (1, 600),
                (2, 700),
                (3, 800),
                (4, 900),
                (5, 1000),
                (6, 1100),
                (7, 1200),
                (8, 1300),
                (9, 1400),
                (10, 1500),
                (11, 2100),
            ],
            &[500, 500],
        ),
        (
            "a frame per connection: delays grow",
            &[
                Some(&[Frames(1), End]),
                Some(&[Frames(1), End]),
                Some(&[Frames(1), End]),
                Some(&[Frames(1), Cancel]),
            ],
            &[(0, 0), (1, 100), (2, 700), (3, 1800)],
            &[500, 1000],
        ),
        ("lost before its first frame", &[Some(&[End]), Some(&[Frames(1), Cancel])], &[(0, 0)], &[]),
        ("cancelled while lost", &[Some(&[Frames(1), Cancel])], &[(0, 0)], &[]),
    ];
    let mut failures = Vec::new();
    for (name, connections, frames, delays) in cases {
        let ran = run(connections, GIVE_UP_AFTER);
        if ran.frames != frames || ran.delays != delays || !matches!(ran.end, Ok(false)) {
            failures.push(format!("{name}: {:?}, {:?}, {:?}", ran.frames, ran.delays, ran.end));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn giving_up_is_an_error_with_the_reason() {
    use Step::{Frames, Stall};
    let cases: [(u64, &[u64], &[&str]); 3] = [
        (0, &[], &["the stream was lost", "camera 7", "no frame for 9 s"]),
        (1, &[500, 500], &["3 attempts", "in 1 s", "refused"]),
        (
            60,
            &[500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000, 10_000, 4500],
            &["11 attempts", "lost, camera 7: no frame for 9 s"],
        ),
    ];
    for (give_up_after, delays, words) in cases {
        let ran = run(&[Some(&[Frames(3), Stall(9)])], Duration::from_secs(give_up_after));
        assert_eq!((ran.frames.len(), ran.delays.as_slice()), (3, delays), "{give_up_after} s");
        let error = ran.end.expect_err("reconnecting fails").to_string();
        for word in words {
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}

#[test]
fn a_server_that_accepts_and_closes_is_given_up() {
    use Step::{End, Frames};
    let mut connections: Vec<Option<&[Step]>> = vec![Some(&[Frames(1), End])];
    connections.resize(1000, Some(&[End]));
    let ran = run(&connections, GIVE_UP_AFTER);
    assert_eq!(ran.delays, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000, 10_000, 4500]);
    assert_eq!((ran.frames.len(), ran.opened), (1, 12));
    let error = ran.end.expect_err("no frame comes any more").to_string();
    for word in ["the stream was lost", "camera 7", "11 attempts in 60 s", "it ended"] {
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn delays_are_shortened_by_chance() {
    use Step::{Cancel, Frames, Stall};
    let connections: &[Option<&[Step]>] =
        &[Some(&[Frames(1), Stall(5)]), None, None, Some(&[Frames(1), Cancel])];
    for (chance, delays) in [(0.0, [500, 1000]), (0.5, [375, 750]), (0.999_999, [250, 500])] {
        let ran = run_by_chance(connections, GIVE_UP_AFTER, chance);
        assert_eq!(ran.delays, delays, "{chance}");
    }
    let mut clock = Clock::system();
    let drawn: Vec<f64> = (0..50).map(|_| (clock.random)()).collect();
    assert!(drawn.iter().all(|number| (0.0..1.0).contains(number)), "{drawn:?}");
    assert!(drawn.windows(2).any(|pair| (pair[0] - pair[1]).abs() > 0.1), "{drawn:?}");
}

#[test]
fn a_wrong_url_fails_immediately() {
    let refused = || Err(Error::new(ErrorKind::Io, "no such address"));
    let error = Reconnecting::connect(refused, GIVE_UP_AFTER, Cancellation::new());
    assert_eq!(error.expect_err("it was refused").to_string(), "no such address");
}

/// A source that is opened by the attempt of a number, from 1 on, the one that failed before it was waited for not among
/// them; 0 is never.
fn waiting(
    opens_at: usize,
    info: SourceInfo,
    steps: &[Step],
    give_up_after: u64,
) -> (Reconnecting<impl FnMut() -> Result<Box<dyn Source>> + Send>, TestClock) {
    let (clock, cancellation) = (TestClock::default(), Cancellation::new());
    let (at_open, token, steps) = (clock.clone(), cancellation.clone(), VecDeque::from(steps.to_vec()));
    let mut attempt = 0;
    let open = move || {
        at_open.note_attempt();
        attempt += 1;
        if attempt < opens_at || opens_at == 0 {
            return Err(Error::unavailable("cannot open camera 7: it is off"));
        }
        let (info, steps) = (info.clone(), steps.clone());
        let (clock, cancellation) = (at_open.clone(), token.clone());
        Ok(Box::new(Scripted { info, steps, next: 0, clock, cancellation }) as Box<dyn Source>)
    };
    let (now, sleep) = (clock.clone(), clock.clone());
    let times = Clock {
        now: Box::new(move || now.now()),
        sleep: Box::new(move |time, _| sleep.sleep(time)),
        random: Box::new(|| 0.0),
    };
    let give_up_after = Duration::from_secs(give_up_after);
    let error = Error::unavailable("cannot open camera 7: it is off at first");
    let mut waiting = Reconnecting::waiting("camera 7", error, open, give_up_after, cancellation);
    waiting.clock = times;
    (waiting, clock)
}

#[test]
fn a_source_that_is_off_at_the_start_is_waited_for() {
    use Step::{Cancel, End, Frames};
    let live =
        || SourceInfo { live: true, size: Some((4, 2)), frame_rate: Some(10.0), ..SourceInfo::default() };
    let read = |source: &mut dyn Source| {
        let (mut frame, mut frames) = (Frame::default(), Vec::new());
        let end = loop {
            match source.read_into(&mut frame) {
                Ok(true) => frames.push((frame.index, frame.time.as_millis() as u64)),
                end => break end.ok(),
            }
        };
        (frames, end)
    };

    let (mut camera, clock) = waiting(3, live(), &[Frames(2), Cancel], 60);
    assert_eq!(
        (camera.info().name.as_str(), camera.info().size, camera.info().live),
        ("camera 7", None, true)
    );
    assert!(camera.wait_until_open().expect("the third attempt succeeds"));
    assert_eq!((camera.info().name.as_str(), camera.info().size), ("camera 7", Some((4, 2))));
    assert_eq!(clock.now(), Duration::from_millis(500 + 1000 + 2000));
    assert_eq!(read(&mut camera), (vec![(0, 0), (1, 100)], Some(false)), "times start with the first frame");

    let (mut unasked, _) = waiting(2, live(), &[Frames(1), End], 60);
    let (frames, _) = read(&mut Limited(&mut unasked, 3));
    assert_eq!(frames.len(), 3, "the first frame opens it, and an end of a live source is a loss");

    let file = SourceInfo { frame_count: Some(2), ..SourceInfo::default() };
    let (mut file, clock) = waiting(1, file, &[Frames(2), End], 60);
    assert_eq!(read(&mut file), (vec![(0, 0), (1, 100)], Some(false)));
    assert_eq!((file.info().live, file.info().frame_count), (false, Some(2)));
    assert_eq!(clock.waits().len(), 1, "the end of a file is no loss");

    for (give_up_after, attempts, words) in
        [(0, 0, &["it is off at first"][..]), (5, 4, &["camera 7: it is off;", "5 attempts in 5 s"])]
    {
        let (mut none, clock) = waiting(0, live(), &[], give_up_after);
        let error = none.wait_until_open().expect_err("it stays off");
        assert_eq!((error.kind(), clock.waits().len()), (ErrorKind::Unavailable, attempts), "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
}

/// The first frames of a source.
struct Limited<'a>(&'a mut dyn Source, u64);

impl Source for Limited<'_> {
    fn info(&self) -> &SourceInfo {
        self.0.info()
    }

    fn read_into(&mut self, frame: &mut Frame) -> Result<bool> {
        let Some(left) = self.1.checked_sub(1) else { return Ok(false) };
        self.1 = left;
        self.0.read_into(frame)
    }
}
