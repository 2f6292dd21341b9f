//! The named scenario, killed everywhere: at every commit, before and after it lands, and at every operation of the disk.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use control::run::RunStatus;
use fault_disk::{Crash, FaultVfs};
use sim::place::{Stores, Watch, lock};
use sim::stores::{Template, fresh, reopen};

use crate::scenario::{Traces, env, house, play, traces};

fn alive() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

fn whole(stores: &Stores) -> (Traces, u64) {
    let watch = Arc::new(Mutex::new(Watch::default()));
    play(&mut house(&env(), stores, &watch, &alive()), &watch).unwrap();
    let commits = lock(&watch).commits;
    assert_eq!(lock(&watch).violations, []);
    (traces(stores), commits)
}

#[test]
fn k8_killed_before_and_after_every_commit_it_leads_to_the_same_records_and_operation_ids() {
    let (expected, commits) = whole(&fresh(None, &env()));
    assert_eq!(expected.status, RunStatus::Succeeded);
    assert!(expected.actions.len() >= 4 && commits > 20, "{commits} commits, {expected:?}");
    for at in 0..commits {
        for after in [false, true] {
            let stores = fresh(None, &env());
            let watch = Arc::new(Mutex::new(Watch { crash: Some((u32::try_from(at).unwrap(), after)), ..Watch::default() }));
            let died = play(&mut house(&env(), &stores, &watch, &alive()), &watch);
            assert!(died.is_err(), "commit {at} was not reached");
            play(&mut house(&env(), &stores, &watch, &alive()), &watch).unwrap();
            assert_eq!(lock(&watch).violations, [], "commit {at}, after: {after}");
            assert_eq!(traces(&stores), expected, "commit {at}, after: {after}");
        }
    }
    println!("{commits} commits, each survived being killed before and after it");
}

/// Dies at one operation of the disk, starts again and plays on.
fn cut_at(disk: &FaultVfs, at: u64, mode: Crash) -> Traces {
    let watch = Arc::new(Mutex::new(Watch::default()));
    disk.arm(at);
    {
        let stores = fresh(Some(disk), &env());
        assert!(play(&mut house(&env(), &stores, &watch, &alive()), &watch).is_err(), "operation {at} was not reached");
    }
    disk.crash_and_recover(mode, at);
    let stores = fresh(Some(disk), &env());
    reopen(&stores, Some(disk), &env()).unwrap();
    play(&mut house(&env(), &stores, &watch, &alive()), &watch).unwrap();
    assert_eq!(lock(&watch).violations, [], "operation {at}, {mode:?}");
    traces(&stores)
}

#[test]
fn l24_cut_at_every_operation_of_the_disk_it_leads_to_the_same_records_and_operation_ids() {
    let started = Instant::now();
    let template = Template::make();
    let disk = template.fork();
    let before = disk.ops();
    let stores = fresh(Some(&disk), &env());
    let (expected, _) = whole(&stores);
    let operations = disk.ops() - before;
    drop(stores);
    let mut points = 0;
    for at in (before + 1)..=(before + operations) {
        let mode = [Crash::Lost, Crash::Kept, Crash::Cut, Crash::Torn][usize::try_from(at % 4).unwrap()];
        assert_eq!(cut_at(&template.fork(), at, mode), expected, "operation {at}, {mode:?}");
        points += 1;
    }
    println!("{points} operations of the disk, each survived being the last one, {:.1?}", started.elapsed());
}
