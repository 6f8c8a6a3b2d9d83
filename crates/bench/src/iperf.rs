//! `iperf3` as it is shipped, from node `a1` to node `b1`: the same path, the same congestion control and buffers
//! that the system gives everybody.

use crate::error::BenchError;
use crate::place::{Lab, Route};
use crate::samples::Samples;
use crate::session::Session;
use std::ffi::OsStr;

/// What one transfer took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Bytes that arrived.
    pub bytes: f64,
    /// How long the receiver took, seconds.
    pub seconds: f64,
    /// Processor time of both processes, from their start to their end, seconds.
    pub cpu: f64,
}

/// Sends so many bytes in one stream.
///
/// # Errors
/// `iperf3` is missing or fails.
pub fn send(session: &mut Session, route: Route, bytes: u64) -> Result<Transfer, BenchError> {
    let (report, cpu) = run(session, route, bytes)?;
    read(&report, cpu)
}

/// Processor time of both processes when they send next to nothing, seconds.
///
/// # Errors
/// `iperf3` is missing or fails.
pub fn idle(session: &mut Session, route: Route) -> Result<f64, BenchError> {
    run(session, route, 1).map(|(_, cpu)| cpu)
}

/// What the client reported, and the processor time of both.
fn run(session: &mut Session, route: Route, bytes: u64) -> Result<(String, f64), BenchError> {
    crate::programs::need("iperf3")?;
    let meter = session.program("meter")?;
    session.lab(route)?;
    let until = session.until()?;
    let lab = session.lab(route)?;
    let words = |words: &[&str]| -> Vec<std::ffi::OsString> {
        let command = words.iter().map(OsStr::new);
        std::iter::once(meter.as_os_str()).chain(command).map(OsStr::to_owned).collect()
    };
    let mut server = lab.start("b1", &words(&["iperf3", "-s", "-1", "--forceflush"]))?;
    server.expect("Server listening", until)?;
    let client = client(lab, bytes);
    let client: Vec<&str> = client.iter().map(String::as_str).collect();
    let client = lab.run("a1", &words(&client), until)?;
    let server = server.finish(until)?;
    let mut cpu = Samples::parse(&client.err);
    cpu.read(&server.err);
    Ok((client.out, cpu.get("cpu")?.iter().sum()))
}

fn client(lab: &Lab, bytes: u64) -> Vec<String> {
    let address = lab.wide_address("b1");
    ["iperf3", "-J", "-c", &address, "-n", &bytes.to_string()].map(str::to_owned).to_vec()
}

fn read(json: &str, cpu: f64) -> Result<Transfer, BenchError> {
    let wrong = || BenchError::Output("iperf3 did not say what it measured".to_owned());
    let report: serde_json::Value = serde_json::from_str(json).map_err(|_| wrong())?;
    let received = &report["end"]["sum_received"];
    let value = |key: &str| received[key].as_f64().filter(|value| *value > 0.0).ok_or_else(wrong);
    Ok(Transfer { bytes: value("bytes")?, seconds: value("seconds")?, cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_side_counts() {
        let json = r#"{"end": {"sum_sent": {"bytes": 9, "seconds": 9},
                       "sum_received": {"bytes": 100, "seconds": 2.5}}}"#;
        assert_eq!(read(json, 0.5).unwrap(), Transfer { bytes: 100.0, seconds: 2.5, cpu: 0.5 });
        assert!(read("{}", 0.0).is_err() && read("iperf3: error", 0.0).is_err());
    }
}
