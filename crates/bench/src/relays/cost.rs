//! What the kernel counts for a process.

use crate::error::BenchError;
use rustix::io::Errno;
use std::path::Path;
use std::{fs, io};

/// What a process has used and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    /// All its threads have computed, s.
    pub(super) cpu: f64,
    /// How often they have gone to sleep, and so were woken.
    pub(super) wakeups: f64,
    /// Resident memory, bytes.
    pub(super) resident: f64,
}

impl Cost {
    /// Of the process with this id, up to now.
    ///
    /// # Errors
    /// It is gone, or the kernel does not say.
    pub(super) fn of(pid: u32) -> Result<Self, BenchError> {
        let unknown =
            || BenchError::Output(format!("the kernel does not say what process {pid} costs"));
        let cpu = computed(pid).ok_or_else(unknown)?;
        let wakeups = wakeups(pid).ok_or_else(unknown)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let resident = field(&status, "VmRSS:").ok_or_else(unknown)? * 1024.0;
        Ok(Self { cpu, wakeups, resident })
    }
}

/// Seconds that all threads of a process have computed; `None` where the kernel does not say.
pub(super) fn computed(pid: u32) -> Option<f64> {
    let nanoseconds = |text: String| text.split_ascii_whitespace().next()?.parse::<f64>().ok();
    Some(of_threads(pid, "schedstat", nanoseconds)? / 1e9)
}

fn wakeups(pid: u32) -> Option<f64> {
    of_threads(pid, "status", |text| field(&text, "voluntary_ctxt_switches:"))
}

/// The sum over all threads of what one of their files says; threads that end meanwhile count for nothing.
fn of_threads(pid: u32, file: &str, value: impl Fn(String) -> Option<f64>) -> Option<f64> {
    let mut sum = None;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        if let Some(text) = unless_ended(&task.ok()?.path().join(file)).ok()? {
            sum = Some(sum.unwrap_or(0.0) + value(text)?);
        }
    }
    sum
}

/// What a file of a thread says; `None` if the thread has ended, as the file or its reader finds.
fn unless_ended(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => {
            Ok(None)
        }
        said => said.map(Some),
    }
}

/// Memory that the kernel holds for itself on the whole machine and cannot drop, bytes.
pub(super) fn of_kernel() -> Option<f64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(field(&text, "SUnreclaim:")? * 1024.0)
}

/// The first number of the line that begins so.
pub(super) fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_process_costs_something() {
        let mut cat = Command::new("cat");
        let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(cat.stdout.take().unwrap());
        let mut echo = |line: &mut String| {
            cat.stdin.as_mut().unwrap().write_all(b"up\n").unwrap();
            said.read_line(line).unwrap();
            Cost::of(cat.id())
        };
        let mut lines = String::new();
        let before = echo(&mut lines).unwrap();
        assert!(before.cpu > 0.0 && before.resident > 100_000.0);
        // It need not sleep between two lines, and what runs is counted when it stops.
        let costs_more = |after: Cost| after.wakeups > before.wakeups && after.cpu > before.cpu;
        assert!((0..10_000).any(|_| costs_more(echo(&mut lines).unwrap())));
        drop(cat.stdin.take());
        assert!(cat.wait().unwrap().success() && lines == "up\n".repeat(lines.len() / 3));
        assert!(Cost::of(cat.id()).is_err(), "it has ended");
        assert!(of_kernel().unwrap() > 0.0);
    }

    #[test]
    fn threads_that_end_meanwhile_count_for_nothing() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::thread::spawn(|| ()).join().unwrap();
                }
            });
            let known = (0..500).all(|_| Cost::of(std::process::id()).is_ok());
            over.store(true, Ordering::Relaxed);
            assert!(known);
        });
    }

    #[test]
    fn a_field_is_the_number_behind_its_name() {
        let text = "Ab: 1 kB\nA:  23 kB\nB:\n";
        assert_eq!(
            (field(text, "A:"), field(text, "B:"), field(text, "C:")),
            (Some(23.0), None, None)
        );
    }
}
