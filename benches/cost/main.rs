//! What supervising costs: each figure beside what a user would take instead, or beside its limit, in one run.
//!
//! Plain programs, files and clocks. `cargo bench` runs all rows, `cargo bench -- WORD` those whose name has the word;
//! `DECODE_BENCH_ROUNDS` sets how often the slow contests alternate. Deliberately absent: a framework, and any part of
//! the crate: the binary is measured as its users start it.
#![expect(clippy::print_stdout, reason = "a bench is there to print its table")]

mod contests;
mod lab;
#[path = "../../tests/it/model_server.rs"]
mod model_server;
mod single;
mod table;

use lab::{Failed, Lab};
use table::Row;

/// A row's name and how it is measured.
type Measure = fn(&Lab) -> Result<Vec<Row>, Failed>;

/// The one that removes thousands of files comes last: for minutes after, ext4 makes each new file twenty times as slow.
const MEASURES: [(&str, Measure); 6] = [
    ("requests", single::requests),
    ("start", single::start),
    ("memory", single::memory),
    ("idle", single::idle),
    ("throughput", contests::throughput),
    ("worktrees", contests::worktrees),
];

fn main() -> Result<(), Failed> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let lab = Lab::new()?;
    let before = lab::load();
    let mut rows = Vec::new();
    for (name, measure) in MEASURES {
        if wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())) {
            rows.extend(measure(&lab)?);
        }
    }
    print!("{}", table::table(&rows));
    println!("load of the machine: {before} before, {} after; {} processors", lab::load(), lab::processors());
    Ok(())
}
