//! `kill -9` at random moments, again and again: what was acknowledged is there once, whatever came in between.
//!
//! The moments are drawn from one seed, printed first and taken from `VERGER_KILL_SEED` when it is set. What the kernel schedules
//! in between is not ours to repeat, so the same seed gives the same plan and not the same run.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Home, line, list, parsed, start, text};

/// A small generator (splitmix64), so that a plan is a function of its seed.
struct Dice(u64);

impl Dice {
    fn thrown() -> (Self, u64) {
        let given = std::env::var("VERGER_KILL_SEED").ok().map(|seed| seed.parse().expect("VERGER_KILL_SEED is a number"));
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        (Self(seed), seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn up_to_us(&mut self, bound: u64) -> Duration {
        Duration::from_micros(self.below(bound))
    }
}

/// Lets a moment pass without giving up the processor: shorter than a scheduler would make it.
fn spin(moment: Duration) {
    let started = Instant::now();
    while started.elapsed() < moment {
        std::hint::spin_loop();
    }
}

/// How long it takes when nobody kills it.
fn duration_us(work: impl FnOnce()) -> u64 {
    let started = Instant::now();
    work();
    u64::try_from(started.elapsed().as_micros()).expect("a test is short")
}

/// Kills a process; false if it had ended by itself before.
fn kill(mut child: Child) -> bool {
    child.kill().expect("our own child can be killed");
    let status = child.wait().expect("our own child can be waited for");
    status.signal().is_some()
}

/// When the process is to die.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// So long after its start, whether or not it has answered: while it opens, recovers and writes its first notes.
    AfterStart(Duration),
    /// So long after this many answers.
    AfterAnswers(usize, Duration),
    /// It is left to end by itself.
    Never,
}

/// What was sent and what came of it.
#[derive(Debug, Default)]
struct Ledger {
    sent: u64,
    unanswered: BTreeSet<u64>,
    /// Operation and the id of its note.
    acknowledged: BTreeMap<u64, String>,
    /// Operations that had been done before the kill that ate their answer.
    found_done: u64,
}

impl Ledger {
    fn draw_more(&mut self, count: u64) {
        self.unanswered.extend(self.sent..self.sent + count);
        self.sent += count;
    }

    fn input(&self) -> String {
        self.unanswered.iter().map(|n| line(&operation(*n), &title(*n))).collect()
    }

    fn note(&mut self, answer: &Value) {
        assert_eq!(answer["ok"], true, "nothing that was sent may be refused: {answer}");
        let n = text(answer, "operation_id").strip_prefix("kill-").and_then(|n| n.parse().ok());
        let n: u64 = n.expect("an answer names an operation that was sent");
        assert!(self.unanswered.remove(&n), "{n} is answered once");
        self.found_done += u64::from(answer["repeated"] == true);
        self.acknowledged.insert(n, text(answer, "id").to_owned());
    }
}

fn operation(n: u64) -> String {
    format!("kill-{n}")
}

fn title(n: u64) -> String {
    format!("note {n} that must be here once")
}

/// Sends all that is unanswered to a new process, which lives until its moment comes.
fn round(home: &Home, ledger: &mut Ledger, moment: Moment) {
    let mut child = start(home.command().args(["note", "add", "--stdin", "--writers", "8"]));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let input = ledger.input();
    std::thread::scope(|scope| {
        let feeder = scope.spawn(move || {
            // It fails when the process dies before it has read everything, which is what we are here for.
            stdin.write_all(input.as_bytes()).ok();
            stdin
        });
        let mut next = || {
            let mut line = String::new();
            let read = stdout.read_line(&mut line).expect("answers are text");
            // A line without its end was cut by the kill: it is no answer.
            (read > 0 && line.ends_with('\n')).then(|| parsed(&line))
        };
        match moment {
            Moment::AfterStart(pause) => spin(pause),
            Moment::AfterAnswers(count, pause) => {
                for _ in 0..count {
                    ledger.note(&next().expect("a living process answers"));
                }
                spin(pause);
            }
            Moment::Never => {
                // Beside the reading: a process whose answers nobody reads takes no more lines.
                scope.spawn(move || drop(feeder.join().expect("the feeder does not panic")));
                while let Some(answer) = next() {
                    ledger.note(&answer);
                }
                let output = child.wait_with_output().expect("our own child can be waited for");
                assert!(output.status.success(), "{output:?}");
                return;
            }
        }
        assert!(kill(child), "it waits for more lines until it is killed");
        // What it had written before it died was said, read or not.
        while let Some(answer) = next() {
            ledger.note(&answer);
        }
    });
}

/// Compares what is stored with what was acknowledged; gives (lost, doubled).
fn compare(home: &Home, ledger: &Ledger) -> (usize, usize) {
    let mut stored: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for note in home.all_notes(1_000) {
        stored.entry(text(&note, "title").to_owned()).or_default().push(text(&note, "id").to_owned());
    }
    let is_lost = |(n, id): &(&u64, &String)| !stored.get(&title(**n)).is_some_and(|ids| ids.contains(id));
    let lost = ledger.acknowledged.iter().filter(is_lost).count();
    let doubled = stored.values().filter(|ids| ids.len() > 1).count();
    let sent: BTreeSet<_> = (0..ledger.sent).map(title).collect();
    let strange: Vec<_> = stored.keys().filter(|title| !sent.contains(*title)).collect();
    assert_eq!(strange, [""; 0], "titles are as they were sent");
    (lost, doubled)
}

/// LIMIT: the issue asks for at least two hundred.
const ROUNDS: u64 = 240;

#[test]
fn d8_killed_at_random_moments_nothing_acknowledged_is_lost_and_nothing_is_doubled() {
    let (mut dice, seed) = Dice::thrown();
    println!("seed={seed} rounds={ROUNDS} writers=8");
    let home = Home::new();
    let mut ledger = Ledger::default();
    for number in 0..ROUNDS {
        ledger.draw_more(10 + dice.below(120));
        let moment = if dice.below(4) == 0 {
            Moment::AfterStart(dice.up_to_us(30_000))
        } else {
            let waiting = u64::try_from(ledger.unanswered.len()).expect("a round is small");
            let answers = usize::try_from(1 + dice.below(waiting)).expect("a round is small");
            Moment::AfterAnswers(answers, dice.up_to_us(3_000))
        };
        round(&home, &mut ledger, moment);
        if number % 20 == 0 {
            // Before anybody has tidied up after the dead.
            home.assert_sound();
            assert_eq!(compare(&home, &ledger), (0, 0), "after round {number}, {moment:?}");
        }
    }
    round(&home, &mut ledger, Moment::Never);
    let (lost, doubled) = compare(&home, &ledger);
    let acknowledged = ledger.acknowledged.len();
    println!("rounds={ROUNDS} acknowledged={acknowledged} lost={lost} doubled={doubled}");
    println!("answers that a kill had eaten: {}", ledger.found_done);
    assert_eq!((lost, doubled), (0, 0));
    assert_eq!(ledger.unanswered, BTreeSet::new());
    assert_eq!(u64::try_from(acknowledged).ok(), Some(ledger.sent));
    assert_eq!(home.all_notes(1_000).len(), acknowledged);
    home.assert_sound();
    let rebuilt = home.json("verger.log-rebuild.v1", &["log", "rebuild"]);
    assert_eq!((&list(&rebuilt, "domains")[0]["differing_rows"], compare(&home, &ledger)), (&serde_json::json!(0), (0, 0)));
}

#[test]
fn the_comparison_sees_what_is_lost_and_what_is_doubled() {
    let home = Home::new();
    home.add(&title(0));
    home.add(&title(0));
    let kept = home.add(&title(2));
    let acknowledged = [(1, "note_that_never_was".to_owned()), (2, kept)].into();
    let ledger = Ledger { sent: 3, acknowledged, ..Ledger::default() };
    assert_eq!(compare(&home, &ledger), (1, 1));
}

#[test]
fn a_home_whose_making_was_killed_is_completed_by_making_it_again() {
    const TIMES: usize = 60;
    let (mut dice, seed) = Dice::thrown();
    println!("seed={seed}");
    let whole_us = duration_us(|| drop(Home::new()));
    let (mut killed, mut half_made) = (0, 0);
    for _ in 0..TIMES {
        let home = Home::missing();
        let child = start(home.command().arg("init"));
        spin(dice.up_to_us(whole_us * 5 / 4));
        killed += usize::from(kill(child));
        half_made += usize::from(home.path().exists() && home.run(&["note", "list"]).code != Some(0));
        home.run(&["init"]).ok();
        home.assert_works_with(&[]);
    }
    println!("times={TIMES} killed={killed} half_made={half_made}");
    assert!(killed > 0, "no kill came before the end");
}

#[test]
fn d8_a_rebuild_that_was_killed_leaves_the_old_tables_or_the_new_ones() {
    const TIMES: usize = 30;
    let (mut dice, seed) = Dice::thrown();
    println!("seed={seed}");
    let home = Home::new();
    let mut ledger = Ledger::default();
    ledger.draw_more(1_500);
    round(&home, &mut ledger, Moment::Never);
    let whole_us = duration_us(|| drop(home.run(&["log", "rebuild"]).ok()));
    let whole = home.all_notes(1_000);
    let mut killed = 0;
    for _ in 0..TIMES {
        let child = start(home.command().args(["log", "rebuild"]));
        spin(dice.up_to_us(whole_us * 5 / 4));
        killed += usize::from(kill(child));
        assert_eq!(home.all_notes(1_000), whole);
        home.assert_sound();
    }
    println!("times={TIMES} killed={killed}");
    assert!(killed > 0, "no kill came before the end");
    let rebuilt = home.json("verger.log-rebuild.v1", &["log", "rebuild"]);
    assert_eq!(list(&rebuilt, "domains")[0]["differing_rows"], 0);
    let found = home.json("verger.note-search.v1", &["note", "search", "note 1499"]);
    assert_eq!(list(&found, "notes").len(), 1);
    home.assert_sound();
}
