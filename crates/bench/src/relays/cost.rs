//! What the kernel counts for a process.

use crate::error::BenchError;
use std::fs;

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

/// The sum over all threads of what one of their files says.
fn of_threads(pid: u32, file: &str, value: impl Fn(String) -> Option<f64>) -> Option<f64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.map(|task| value(fs::read_to_string(task.ok()?.path().join(file)).ok()?)).sum()
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

    #[test]
    fn a_process_costs_something() {
        let before = Cost::of(std::process::id()).unwrap();
        assert!(before.cpu > 0.0 && before.resident > 100_000.0);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(Cost::of(std::process::id()).unwrap().wakeups > before.wakeups);
        assert!(of_kernel().unwrap() > 0.0);
        assert!(Cost::of(u32::MAX).is_err());
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
