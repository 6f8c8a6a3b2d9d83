//! `iperf3` as it is shipped, from node `a1` to node `b1`: the same path, the same congestion control and buffers
//! that the system gives everybody.

use crate::error::BenchError;
use crate::place::Route;
use crate::session::Session;

/// What one transfer took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// Bytes that arrived.
    pub bytes: f64,
    /// How long the receiver took, seconds.
    pub seconds: f64,
    /// Processor time of both processes meanwhile, seconds.
    pub cpu: f64,
}

/// Sends so many bytes in one stream.
///
/// # Errors
/// `iperf3` is missing or fails.
pub fn send(session: &mut Session, route: Route, bytes: u64) -> Result<Transfer, BenchError> {
    crate::programs::need("iperf3")?;
    session.lab(route)?;
    let until = session.until()?;
    let lab = session.lab(route)?;
    let mut server = lab.start("b1", &["iperf3", "-s", "-1", "--forceflush"])?;
    server.expect("Server listening", until)?;
    let (address, bytes) = (lab.wide_address("b1"), bytes.to_string());
    let client = lab.run("a1", &["iperf3", "-J", "-c", &address, "-n", &bytes], until)?;
    server.finish(until)?;
    read(&client.out)
}

/// Its report. The processor time is what it says of itself, a share of how long each side took: without what it costs
/// to start, to exchange results and to wait for them, which it does in a busy loop for a round trip.
fn read(json: &str) -> Result<Transfer, BenchError> {
    let wrong = || BenchError::Output("iperf3 did not say what it measured".to_owned());
    let report: serde_json::Value = serde_json::from_str(json).map_err(|_| wrong())?;
    let end = &report["end"];
    let value = |part: &str, key: &str| {
        end[part][key].as_f64().filter(|value| *value > 0.0).ok_or_else(wrong)
    };
    let seconds = value("sum_received", "seconds")?;
    let sender = value("cpu_utilization_percent", "host_total")? * value("sum_sent", "seconds")?;
    let receiver = value("cpu_utilization_percent", "remote_total")? * seconds;
    let cpu = (sender + receiver) / 100.0;
    Ok(Transfer { bytes: value("sum_received", "bytes")?, seconds, cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_side_counts() {
        let json = r#"{"end": {"sum_sent": {"bytes": 9, "seconds": 2.0},
                       "sum_received": {"bytes": 100, "seconds": 2.5},
                       "cpu_utilization_percent": {"host_total": 10, "remote_total": 20.0}}}"#;
        assert_eq!(read(json).unwrap(), Transfer { bytes: 100.0, seconds: 2.5, cpu: 0.7 });
        assert!(read("{}").is_err() && read("iperf3: error").is_err());
    }
}
