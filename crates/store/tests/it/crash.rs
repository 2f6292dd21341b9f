//! Power cuts, failed syncs and full disks at every operation of a workload that spans two domains (see `crash/workload`).
//!
//! The workload runs on a disk in memory (see `fault_disk`), once for each of its writes, syncs, truncations and deletions and each
//! way in which a crash there can leave the disk. Then the stores are opened, everything that was answered is held against what is
//! there, and plans that were left open are finished under their own operation ids; now both domains have to agree. Then the same
//! workload runs again to its end.

mod plan;
mod workload;

use std::cell::Cell;
use std::time::Instant;

use fault_disk::{Crash, FaultVfs};
use store::Error;
use store::store::{Store, own_streams};

use crate::fixtures::{dump, host};
use plan::put_note;
use workload::{Answers, Findings, Home, are_all_good};

/// A disk with two empty stores; SQLite pads its WAL to whole sectors unless the disk promises powersafe overwrite.
fn disk(is_powersafe: bool) -> FaultVfs {
    let vfs = FaultVfs::new(1);
    if is_powersafe {
        vfs.promise_powersafe_overwrite();
    }
    Home::create(&vfs);
    vfs.fork()
}

/// Runs the workload to its end or its death, closing included.
fn run(vfs: &FaultVfs) -> Answers {
    Home::open(vfs).map_or_else(|_| Answers::new(), |mut home| home.run(&|| vfs.is_dead()))
}

/// How many operations and syncs the workload costs.
fn costs(disk: &FaultVfs) -> (u64, u64) {
    let vfs = disk.fork();
    assert!(are_all_good(&run(&vfs)));
    (vfs.ops(), vfs.syncs())
}

/// Starts again and compares, before and after the recovery.
fn inspect(vfs: &FaultVfs, answers: &Answers) -> Findings {
    let answered = answers.values().filter(|answer| answer.is_ok()).count();
    let unreadable = Findings { unreadable: 1, lost: answered, ..Findings::default() };
    let compare = |mut home: Home| {
        let mut findings = home.compare(answers)?;
        home.recover()?;
        findings += home.compare_settled(answers)?;
        Ok(findings)
    };
    Home::open(vfs).and_then(compare).unwrap_or(unreadable)
}

/// The whole workload again: repeats are harmless, and what is missing is done.
fn carry_on(vfs: &FaultVfs) -> Findings {
    let mut home = Home::open(vfs).expect("it opened before");
    let answers = home.run(&|| false);
    assert!(are_all_good(&answers), "{answers:?}");
    home.compare_settled(&answers).expect("a healthy disk reads")
}

/// A point of the sweep: where the process dies, what the disk keeps, and by which seed.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: u64,
    mode: Crash,
    seed: u64,
}

fn points(ops: u64, step: usize, modes: &[(Crash, u64)]) -> Vec<Point> {
    let seeds = |at: u64| modes.iter().flat_map(move |(mode, seeds)| (0..*seeds).map(move |seed| Point { at, mode: *mode, seed }));
    (1..=ops).step_by(step).flat_map(seeds).collect()
}

/// Dies at a point; what was answered until then.
fn die(vfs: &FaultVfs, point: Point) -> Answers {
    vfs.arm(vfs.ops() + point.at);
    let answers = run(vfs);
    assert!(vfs.is_dead(), "{point:?}");
    vfs.crash_and_recover(point.mode, point.seed * 1_000 + point.at);
    answers
}

/// Dies at every point and demands that nothing is found, at once and after carrying on.
fn sweep(what: &str, disk: &FaultVfs, modes: &[(Crash, u64)]) {
    let started_at = Instant::now();
    let (ops, _) = costs(disk);
    let points = points(ops, 1, modes);
    let mut findings = Findings::default();
    for point in &points {
        let vfs = disk.fork();
        let answers = die(&vfs, *point);
        let found = inspect(&vfs, &answers);
        assert_eq!(found, Findings::default(), "{point:?} {answers:?}\n{}", String::from_utf8_lossy(&vfs.history()));
        findings += found;
        findings += carry_on(&vfs);
    }
    println!("{what}: {ops} crash points, {} cycles, {findings}, {:.1?}", points.len(), started_at.elapsed());
    assert_eq!(findings, Findings::default());
}

#[test]
fn l20_a_power_cut_at_any_operation_loses_and_doubles_nothing() {
    sweep("power cut", &disk(true), &[(Crash::Lost, 1), (Crash::Cut, 1)]);
}

#[test]
fn l20_a_power_cut_that_keeps_what_was_never_synced_loses_and_doubles_nothing() {
    sweep("power cut, all kept", &disk(true), &[(Crash::Kept, 1)]);
}

#[test]
fn l20_a_power_cut_that_tears_what_was_being_written_loses_and_doubles_nothing() {
    sweep("power cut, torn", &disk(true), &[(Crash::Torn, 2)]);
}

#[test]
fn l20_a_power_cut_on_a_disk_that_promises_nothing_loses_and_doubles_nothing() {
    sweep("power cut, nothing promised", &disk(false), &[(Crash::Torn, 1)]);
}

#[test]
fn l20_a_second_power_cut_during_recovery_loses_and_doubles_nothing() {
    let started_at = Instant::now();
    let disk = disk(true);
    let (ops, _) = costs(&disk);
    let (mut findings, mut deaths) = (Findings::default(), 0);
    let points = points(ops, 3, &[(Crash::Torn, 1), (Crash::Kept, 1)]);
    for point in &points {
        let vfs = disk.fork();
        let answers = die(&vfs, *point);
        vfs.arm(vfs.ops() + 1 + point.at % 37);
        Home::open(&vfs).and_then(|mut home| home.recover()).ok();
        deaths += u64::from(vfs.is_dead());
        vfs.crash_and_recover(point.mode, point.at);
        findings += inspect(&vfs, &answers);
    }
    println!(
        "second cut: {ops} crash points (every 3rd sampled), {} cycles, {deaths} second deaths, {findings}, {:.1?}",
        points.len(),
        started_at.elapsed()
    );
    assert_eq!(findings, Findings::default());
    assert!(deaths > 0);
}

#[test]
fn what_a_killed_process_left_unsynced_is_durable_before_it_is_answered() {
    let started_at = Instant::now();
    let disk = disk(true);
    let (ops, _) = costs(&disk);
    let (mut findings, mut repeats) = (Findings::default(), 0);
    for at in 1..=ops {
        let vfs = disk.fork();
        vfs.arm(vfs.ops() + at);
        run(&vfs);
        vfs.kill();
        // The next process answers what was done before, and the power goes before it has written anything of its own.
        let mut home = Home::open(&vfs).expect("a kill leaves a sound file");
        vfs.arm(vfs.ops() + 1);
        let answers = home.run(&|| vfs.is_dead());
        repeats += answers.values().filter(|answer| answer.is_ok()).count();
        vfs.crash_and_recover(Crash::Lost, at);
        findings += inspect(&vfs, &answers);
        drop(home);
        findings += carry_on(&vfs);
    }
    println!("kill, then power cut: {ops} points, {repeats} repeats answered, {findings}, {:.1?}", started_at.elapsed());
    assert!(repeats > 0);
    assert_eq!(findings, Findings::default());
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_to_lose() {
    let started_at = Instant::now();
    let disk = disk(false);
    let (ops, _) = costs(&disk);
    let points = points(ops, 11, &[(Crash::Lost, 1), (Crash::Cut, 1), (Crash::Torn, 1)]);
    let mut findings = Findings::default();
    for point in &points {
        let vfs = disk.fork();
        vfs.lie_about_sync(true);
        let answers = die(&vfs, *point);
        findings += inspect(&vfs, &answers);
    }
    println!(
        "without syncs: {ops} crash points (every 11th sampled), {} cycles, {findings}, {:.1?}",
        points.len(),
        started_at.elapsed()
    );
    assert!(findings.lost > 0, "the sweep would not notice a missing fsync");
}

/// Everything that a run with a crash did to the disk, and what it left.
fn trace(disk: &FaultVfs, point: Point) -> (String, [String; 2]) {
    let vfs = disk.fork();
    die(&vfs, point);
    carry_on(&vfs);
    let home = Home::open(&vfs).unwrap();
    let streams = own_streams(host(1));
    let dumps = [&home.journal, &home.agent].map(|store| dump(store.reader().as_ref(), &streams));
    (String::from_utf8_lossy(&vfs.history()).into_owned(), dumps)
}

#[test]
fn one_seed_gives_the_same_history_to_the_byte() {
    let started_at = Instant::now();
    let disk = disk(false);
    let (ops, _) = costs(&disk);
    let points = points(ops, 29, &[(Crash::Lost, 1), (Crash::Kept, 1), (Crash::Cut, 1), (Crash::Torn, 1)]);
    let mut bytes = 0;
    for point in &points {
        let (first, second) = (trace(&disk, *point), trace(&disk, *point));
        bytes += first.0.len() + first.1.iter().map(String::len).sum::<usize>();
        assert!(first == second, "{point:?} had two histories");
    }
    println!(
        "one seed: {ops} crash points (every 29th sampled), {} histories twice, {bytes} equal bytes, {:.1?}",
        points.len(),
        started_at.elapsed()
    );
}

#[test]
fn a_failed_sync_is_answered_truly() {
    let started_at = Instant::now();
    let disk = disk(true);
    let (_, syncs) = costs(&disk);
    let (mut findings, mut cycles, mut errors) = (Findings::default(), 0, 0);
    for number in 1..=syncs {
        for (kept, then) in
            [(Crash::Lost, Crash::Lost), (Crash::Kept, Crash::Lost), (Crash::Torn, Crash::Lost), (Crash::Torn, Crash::Kept)]
        {
            let vfs = disk.fork();
            vfs.fail_syncs(number..number + 1, kept);
            let mut home = Home::open(&vfs).unwrap();
            // The power fails right after the answer, before a later sync can make up for it.
            let answers = home.run(&|| vfs.syncs() >= number);
            errors += answers.values().filter(|answer| answer.as_ref().is_err_and(|error| !error.is_refusal())).count();
            // The failure was meant for the run; if it came to an end before, the next start must not meet it.
            vfs.mend_syncs();
            vfs.crash_and_recover(then, number);
            drop(home);
            let found = inspect(&vfs, &answers);
            assert_eq!(
                found,
                Findings::default(),
                "sync {number} {kept:?} {then:?} {answers:?}\n{}",
                String::from_utf8_lossy(&vfs.history())
            );
            findings += found;
            findings += carry_on(&vfs);
            cycles += 1;
        }
    }
    println!("failed sync: {syncs} syncs, {cycles} cycles, {errors} errors answered, {findings}, {:.1?}", started_at.elapsed());
    assert_eq!(findings, Findings::default());
    assert!(errors > 0);
}

#[test]
fn a_store_that_fails_again_on_reopening_takes_no_more_writes() {
    let started_at = Instant::now();
    let disk = disk(true);
    let (_, syncs) = costs(&disk);
    let (mut findings, mut unknown, mut failing) = (Findings::default(), 0, 0);
    for number in 1..=syncs {
        for kept in [Crash::Lost, Crash::Kept, Crash::Torn] {
            let vfs = disk.fork();
            vfs.fail_syncs(number..u64::MAX, kept);
            let mut home = Home::open(&vfs).unwrap();
            let answers = home.run(&|| false);
            unknown += answers.values().filter(|answer| matches!(answer, Err(Error::CommitUnknown { .. }))).count();
            let mut is_failing = false;
            for store in [&mut home.journal as &mut dyn Store, &mut home.agent] {
                if store.failing().is_some() {
                    is_failing = true;
                    failing += 1;
                    assert!(matches!(store.apply_group(&[put_note("another", 8)])[..], [Err(Error::Failing { .. })]));
                    store.reader().read().expect("a failing store still reads");
                }
            }
            let is_unknown = |answer: &store::Result<()>| matches!(answer, Err(Error::CommitUnknown { .. }));
            assert!(is_failing || !answers.values().any(is_unknown), "{number} {kept:?} {answers:?}");
            vfs.crash_and_recover(kept, number);
            drop(home);
            vfs.mend_syncs();
            findings += inspect(&vfs, &answers);
            findings += carry_on(&vfs);
        }
    }
    println!(
        "syncs that keep failing: {syncs} syncs, {unknown} unknown, {failing} failing, {findings}, {:.1?}",
        started_at.elapsed()
    );
    assert_eq!(findings, Findings::default());
    assert!(unknown > 0 && failing > 0);
}

#[test]
fn a_power_cut_while_failed_syncs_are_dealt_with_damages_nothing() {
    let started_at = Instant::now();
    let disk = disk(true);
    let (_, syncs) = costs(&disk);
    let (mut findings, mut cycles) = (Findings::default(), 0);
    for number in 1..=syncs {
        for (step, kept) in [(5, Crash::Lost), (9, Crash::Torn)] {
            let failing = || {
                let vfs = disk.fork();
                vfs.fail_syncs(number..number + 2, kept);
                vfs
            };
            // The same run without a cut shows in which operations the failures are met.
            let vfs = failing();
            let (before, after) = (Cell::new(0), Cell::new(0));
            Home::open(&vfs).unwrap().run(&|| {
                let slot = if vfs.syncs() < number { &before } else { &after };
                slot.set(vfs.ops());
                vfs.syncs() >= number
            });
            for at in (before.get() + 1..=after.get()).step_by(step) {
                let vfs = failing();
                vfs.arm(at);
                let answers = run(&vfs);
                vfs.crash_and_recover(Crash::Torn, at);
                vfs.mend_syncs();
                findings += inspect(&vfs, &answers);
                cycles += 1;
            }
        }
    }
    println!(
        "two failed syncs and a cut: {syncs} syncs (every 5th or 9th cut sampled), {cycles} cycles, {findings}, {:.1?}",
        started_at.elapsed()
    );
    assert_eq!(findings, Findings::default());
}

#[test]
fn a_full_disk_refuses_whole_commits_and_works_again_with_room() {
    let started_at = Instant::now();
    let disk = disk(true);
    let (mut findings, mut sizes, mut refused) = (Findings::default(), 0, 0);
    loop {
        let vfs = disk.fork();
        vfs.fail_writes_with_full(vfs.bytes() + sizes * 4_200);
        let mut home = Home::open(&vfs).unwrap();
        let answers = home.run(&|| false);
        if are_all_good(&answers) {
            break;
        }
        let is_full = |answer: &&store::Result<()>| matches!(answer, Err(Error::Full(_)));
        let is_fine = |answer: &store::Result<()>| answer.is_ok() || matches!(answer, Err(error) if error.is_refusal());
        assert!(answers.values().all(|answer| is_full(&answer) || is_fine(answer)), "{answers:?}");
        refused += answers.values().filter(is_full).count();
        findings += home.compare(&answers).unwrap();
        vfs.fail_writes_with_full(u64::MAX);
        if sizes % 2 == 0 {
            assert!(are_all_good(&home.run(&|| false)), "the same process goes on once there is room");
        } else {
            vfs.crash_and_recover(Crash::Torn, sizes);
            findings += inspect(&vfs, &answers);
        }
        drop(home);
        findings += carry_on(&vfs);
        sizes += 1;
    }
    println!("full disk: {sizes} sizes, {refused} commits refused, {findings}, {:.1?}", started_at.elapsed());
    assert_eq!(findings, Findings::default());
    assert!(refused > 0);
}
