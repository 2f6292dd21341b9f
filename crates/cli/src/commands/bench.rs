//! `verger bench …`: figures as ratios, measured side by side in one run.

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use runtime::bench::{Report, Size};
use runtime::{Effort, Env, Handle, Home, RunFigure, measure_runs};
use serde_json::json;

use crate::commands::demo::Scratch;
use crate::output::{Failure, Out};
use crate::progress::Progress;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Commits side by side with a hand-written SQLite baseline, growth, space and opening
    Store(StoreArgs),
    /// Runs with a provider that answers at once, beside exactly the commits that they made
    Run(StoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Where to measure; the file system decides what an fsync costs [default: the temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure little and quickly: for trying it out, not for figures
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(command: &BenchCommand, env: &Env, out: &mut Out) -> Result<(), Failure> {
    match command {
        BenchCommand::Store(args) => store(args, env, out),
        BenchCommand::Run(args) => runs(args, env, out),
    }
}

fn runs(args: &StoreArgs, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let scratch = Scratch::make(args.dir.as_deref(), env)?;
    let effort = if args.quick { Effort::QUICK } else { Effort::FULL };
    let mut progress = Progress::new("measuring");
    let report = measure_runs(scratch.path(), env, effort, &mut |what| progress.at(what))?;
    drop(progress);
    if out.json {
        return out.document("verger.bench-run.v1", json!({ "quick": args.quick, "report": report }));
    }
    if args.quick {
        out.line("a quick look; the figures mean little")?;
    }
    let row = |figure: &RunFigure| {
        vec![
            figure.agents.to_string(),
            format!("{:.0}", figure.cycles_per_second),
            format!("{:.2}", figure.commits_per_cycle),
            format!("{:.0}", figure.baseline_commits_per_second),
            format!("{:.2} ({:.2} to {:.2})", figure.ratio, figure.ratio_least, figure.ratio_most),
            format!("{:.0} / {:.0}", figure.baseline_cpu_us_per_cycle, figure.cpu_us_per_cycle),
        ]
    };
    let rows: Vec<_> = report.agents.iter().map(row).collect();
    out.table(&["agents", "cycles/s", "commits a cycle", "bare commits/s", "ratio", "CPU µs a cycle (bare / run)"], &rows)?;
    let replay = &report.replay;
    out.line(&format!(
        "replay: {:.0} cycles/s, {:.0} times as fast as one agent's run ({} cycles)",
        replay.cycles_per_second, replay.times_faster, replay.cycles
    ))
}

fn store(args: &StoreArgs, env: &Env, out: &mut Out) -> Result<(), Failure> {
    let scratch = Scratch::make(args.dir.as_deref(), env)?;
    let home = Home::locate(Some(&scratch.path().join("home")))?;
    Handle::init(&home, env)?;
    let size = if args.quick { Size::QUICK } else { Size::FULL };
    let mut progress = Progress::new("measuring");
    let folder = scratch.path().to_path_buf();
    let report = runtime::bench::run(&folder, &home.bench_location(), size, &mut |what| progress.at(what));
    let report = report.map_err(runtime::Error::from)?;
    progress.at("opening a large home");
    let open_ms = opening(&home, env)?;
    drop(progress);
    if out.json {
        let content =
            json!({ "quick": args.quick, "report": report, "open": { "entries": report.append.long_thread, "p50_ms": open_ms } });
        return out.document("verger.bench-store.v1", content);
    }
    show(&report, open_ms, args.quick, out)
}

/// The median time to open a home, recovery and witnesses included.
fn opening(home: &Home, env: &Env) -> Result<f64, Failure> {
    let mut samples = Vec::new();
    for _ in 0..9 {
        let started = Instant::now();
        let opened = Handle::open(home, env)?;
        samples.push(started.elapsed().as_secs_f64() * 1e3);
        opened.handle.close()?;
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

fn show(report: &Report, open_ms: f64, quick: bool, out: &mut Out) -> Result<(), Failure> {
    if quick {
        out.line("a quick look; the figures mean little")?;
    }
    let row = |figure: &runtime::bench::CommitFigure| {
        vec![
            figure.committers.to_string(),
            format!("{:.0}", figure.baseline_per_second),
            format!("{:.0}", figure.verger_per_second),
            format!("{:.2}", figure.ratio),
            format!("{:.0} / {:.0}", figure.baseline_cpu_us_per_commit, figure.verger_cpu_us_per_commit),
            format!("{:.1}", figure.verger_group),
        ]
    };
    let rows: Vec<_> = report.commits.iter().map(row).collect();
    out.table(&["committers", "baseline/s", "verger/s", "ratio", "CPU µs (baseline / verger)", "commits a transaction"], &rows)?;
    out.line(&format!(
        "bare one-row inserts: {:.0}/s; fsync p50: {:.2} ms",
        report.one_row_inserts_per_second, report.fsync_p50_ms
    ))?;
    let append = &report.append;
    out.line(&format!(
        "append at message {} / {}: {:.0} / {:.0} µs, ratio {:.2} (CPU {:.2})",
        append.short_thread, append.long_thread, append.short_p50_us, append.long_p50_us, append.ratio, append.cpu_ratio
    ))?;
    for space in &report.space {
        out.line(&format!(
            "{} of {} bytes: {:.2} bytes on disk per byte of body ({} records)",
            space.kind, space.body_bytes, space.bytes_per_body_byte, space.records
        ))?;
    }
    out.line(&format!("opening a home with {} entries: {open_ms:.0} ms", append.long_thread))
}
